"""Decodes columns with TensorFlow after parsing: tensors that are stored as bytes, and images.

TensorFlow is imported in the functions that use it, so `tensor_decodings` works without it.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from beam_tfrecord.dataset.rows import Rows
from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.feature_spec import FIXED, readings
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.tensors import OpenShape, TensorType, is_foreign
from beam_tfrecord.features.tf_columns import VALUES, tf_columns

if TYPE_CHECKING:
    import tensorflow as tf

# Dtypes that `tf.io.decode_raw` decodes, and dtypes that `tf.bitcast` converts its bytes to.
_RAW = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16"),
    *("float16", "float32", "float64", "complex64", "complex128", "bfloat16"),
)
_CAST = ("uint32", "uint64")

IMAGE = "image"
# The columns that `beam_tfrecord.sources.images.source` writes beside the bytes of an image.
_DESCRIPTION = ("width", "height", "channels", "format")
_CHANNELS = 3


@dataclasses.dataclass(frozen=True)
class Decoding:
    """A description of how to decode one column of tensors that are stored as bytes."""

    column: str
    dtype: str
    shape: OpenShape
    shape_key: str | None
    unread: tuple[str, ...]

    @property
    def is_simple(self) -> bool:
        """True if `tf.io.decode_raw` and a reshape to ``[-1, *shape]`` decode the column."""
        return self.shape_key is None and self.dtype in _RAW and 0 not in (self.shape or ())

    def check_batch(self) -> None:
        """Raise `UsageError` if no ragged tensor can hold a batch of the tensors."""
        if self.shape_key and (self.shape is None or None in self.shape[1:]):
            raise UsageError(
                f"tensors of column {self.column!r} have different shapes: leave out batch_size, "
                "and batch them with padded_batch"
            )

    def decode(self, parsed: dict[str, Any], *, is_batch: bool) -> Any:
        """Return the tensor of an example or a batch, and remove its features from `parsed`.

        If the sizes of the first axis may differ, a batch is a ragged tensor.
        """
        import tensorflow as tf

        data = parsed.pop(self.column)
        if self.shape_key is None:
            values = _numbers_in(data, self.dtype)
            leading = tf.shape(data) if is_batch else tf.constant([], tf.int32)
            tensor = tf.reshape(values, tf.concat([leading, self._sizes()], 0))
            return tf.ensure_shape(tensor, [None, *self._dims()] if is_batch else self._dims())
        sizes = parsed.pop(self.shape_key)
        if not is_batch:
            tensor = tf.reshape(_numbers_in(data, self.dtype), sizes)
            return tensor if self.shape is None else tf.ensure_shape(tensor, self.shape)
        lengths = sizes[:, 0]
        values = _numbers_in(tf.strings.reduce_join(data), self.dtype)
        total = tf.cast(tf.reduce_sum(lengths), tf.int32)
        inner = tf.reshape(values, tf.concat([[total], self._sizes()], 0))
        inner = tf.ensure_shape(inner, [None, *self._dims()])
        return tf.RaggedTensor.from_row_lengths(inner, lengths)

    def _dims(self) -> list[int]:
        return [size for size in self.shape or () if size is not None]

    def _sizes(self) -> tf.Tensor:
        import tensorflow as tf

        return tf.constant(self._dims(), tf.int32)


def tensor_decodings(schema: Schema) -> list[Decoding]:
    """Return the decodings of all columns of tensors and of float64 that are stored as bytes.

    Columns that may be missing, and tensors of text, have no decoding and stay as parsed.
    """
    fixed = {reading.name for reading in readings(schema) if reading.how == FIXED}
    out = []
    for feature in schema.features:
        described = _described(feature)
        if described is None or feature.name not in fixed:
            continue
        dtype, shape = described
        leaves = tf_columns(feature)
        names = [leaf.name for leaf in leaves if leaf.role != VALUES]
        is_open = shape is None or None in shape
        shape_key = names.pop(0) if is_open else None
        out.append(Decoding(feature.name, dtype, shape, shape_key, tuple(names)))
    return out


def _described(feature: Feature) -> tuple[str, OpenShape] | None:
    """Return TensorFlow's dtype and the shape of a column stored as bytes; None for others."""
    arrow = feature.type
    if pa.types.is_float64(arrow) and feature.store == "bytes":
        return "float64", ()
    if feature.store == "values":
        return None
    if not isinstance(arrow, TensorType) or arrow.dtype.kind in "SU":
        return None
    if arrow.dtype.kind in "mM":
        return "int64", arrow.shape
    name = arrow.dtype.name
    if name not in (*_RAW, *_CAST) and is_foreign(arrow.dtype):
        # decode_raw does not support these dtypes: return their raw bytes as uint8.
        name = "uint8"
    return name, arrow.shape


def _numbers_in(data: tf.Tensor, dtype: str) -> tf.Tensor:
    """Return the numbers stored in the bytes of `data`, with one extra trailing axis."""
    import tensorflow as tf

    if dtype not in _CAST:
        return tf.io.decode_raw(data, tf.as_dtype(dtype))
    raw = tf.io.decode_raw(data, tf.uint8)
    number = tf.as_dtype(dtype)
    return tf.bitcast(tf.reshape(raw, tf.concat([tf.shape(data), [-1, number.size]], 0)), number)


@dataclasses.dataclass(frozen=True)
class ImageDecoding:
    """A description of how to decode images to tensors."""

    size: tuple[int, int]
    resize: bool
    only_images_and_labels: bool

    def decode(self, parsed: dict[str, Any], labels: Sequence[str]) -> None:
        """Replace the bytes of the image in one parsed example by the decoded tensor.

        With `only_images_and_labels`, int64 labels become int32.
        """
        import tensorflow as tf

        # Only the first frame of an animation fits the shape of a batch.
        image = tf.io.decode_image(parsed[IMAGE], channels=_CHANNELS, expand_animations=False)
        image.set_shape((None, None, _CHANNELS))
        image = tf.image.resize(image, self.size) if self.resize else tf.cast(image, tf.float32)
        image.set_shape((*self.size, _CHANNELS))
        parsed[IMAGE] = image
        if self.only_images_and_labels:
            for name in labels:
                if parsed[name].dtype == tf.int64:
                    parsed[name] = tf.cast(parsed[name], tf.int32)


def image_decoding(
    dataset: Rows,
    columns: Sequence[str] | None,
    image_size: tuple[int, int] | None,
    *,
    decode: bool,
) -> ImageDecoding | None:
    """Return the decoding of a dataset's images; None if there are no images to decode.

    See `beam_tfrecord.dataset.tf.tf_dataset` for the options and their errors.
    """
    names = dataset.schema.names if columns is None else columns
    described = dataset.manifest.schema
    has_images = IMAGE in names and all(name in described for name in (IMAGE, *_DESCRIPTION))
    if image_size is not None and (not decode or IMAGE not in names):
        if not decode:
            raise UsageError("image_size has no effect with decode=False: leave one of them out")
        if IMAGE in dataset.manifest.schema:
            raise UsageError(
                f"image_size needs the column {IMAGE!r}, which is not selected: leave image_size "
                "out"
            )
        raise UsageError(
            f"image_size is for a column {IMAGE!r}, which this dataset does not have: decode "
            "pictures of other columns in tf(…).map(…), as docs/webdataset.md shows"
        )
    if not decode or not (has_images or image_size):
        return None
    only_images_and_labels = columns is None
    if image_size is not None:
        return ImageDecoding(_checked_size(image_size), True, only_images_and_labels)
    ranges = [described[name].observed for name in ("height", "width")]
    lows = [seen.min if seen else None for seen in ranges]
    highs = [seen.max if seen else None for seen in ranges]
    if lows != highs or None in lows:
        raise UsageError(
            f"images are from {lows[0]}x{lows[1]} to {highs[0]}x{highs[1]} (height x width): "
            "pass image_size=(height, width), or decode=False for their bytes"
        )
    return ImageDecoding((int(lows[0] or 0), int(lows[1] or 0)), False, only_images_and_labels)


def _checked_size(image_size: Any) -> tuple[int, int]:
    try:
        height, width = (operator.index(side) for side in image_size)
    except (TypeError, ValueError):
        height = width = 0
    if height < 1 or width < 1:
        raise UsageError(f"image_size {image_size!r} is not a size: pass (height, width) in pixels")
    return height, width
