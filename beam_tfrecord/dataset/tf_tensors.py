"""Tensors that are stored as bytes, decoded by TensorFlow as it reads them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.arrow_types import is_numpy_tensor, is_tensor
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.feature_spec import FIXED, readings
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.tensors import OpenShape, is_foreign

if TYPE_CHECKING:
    import tensorflow as tf

# The dtypes that `tf.io.decode_raw` gives; two more come by `tf.bitcast`.
_RAW = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16"),
    *("float16", "float32", "float64", "complex64", "complex128", "bfloat16"),
)
_CAST = ("uint32", "uint64")


@dataclasses.dataclass(frozen=True)
class Decoding:
    """How the tensors of one column are made of parsed features.

    Attributes:
        column: Name of the column, and of the feature with the bytes.
        dtype: TensorFlow's name of the type of the values.
        shape: Of one example; None for sizes that differ.
        shape_key: Feature with the shape of each example; None where all have the same.
        unread: Features that need not be parsed.
    """

    column: str
    dtype: str
    shape: OpenShape
    shape_key: str | None
    unread: tuple[str, ...]

    @property
    def is_simple(self) -> bool:
        """Whether `tf.io.decode_raw` and a reshape to ``[-1, *shape]`` are all it takes."""
        return self.shape_key is None and self.dtype in _RAW and 0 not in (self.shape or ())

    def check_batch(self) -> None:
        """Refuse batches of tensors that no ragged tensor holds.

        Raises:
            UsageError: The tensors differ in more than the size of their first axis.
        """
        if self.shape_key and (self.shape is None or None in self.shape[1:]):
            raise UsageError(
                f"tensors of column {self.column!r} have different shapes: leave out batch_size, "
                "and batch them with padded_batch"
            )

    def decode(self, parsed: dict[str, Any], *, is_batch: bool) -> Any:
        """Return the tensor, whose features are taken out of `parsed`.

        Those of a batch form a ragged tensor where their first axes differ.
        """
        import tensorflow as tf

        data = parsed.pop(self.column)
        if self.shape_key is None:
            values = _decoded(data, self.dtype)
            leading = tf.shape(data) if is_batch else tf.constant([], tf.int32)
            tensor = tf.reshape(values, tf.concat([leading, self._sizes()], 0))
            return tf.ensure_shape(tensor, [None, *self._dims()] if is_batch else self._dims())
        sizes = parsed.pop(self.shape_key)
        if not is_batch:
            tensor = tf.reshape(_decoded(data, self.dtype), sizes)
            return tensor if self.shape is None else tf.ensure_shape(tensor, self.shape)
        lengths = sizes[:, 0]
        values = _decoded(tf.strings.reduce_join(data), self.dtype)
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
    """Return how columns of tensors in bytes, and float64 in bytes, are decoded.

    Columns that may be missing, and those of text, have no decoding: they stay as they are parsed.
    """
    fixed = {reading.name for reading in readings(schema) if reading.how == FIXED}
    out = []
    for feature in schema.features:
        described = _described(feature)
        if described is None or feature.name not in fixed:
            continue
        dtype, shape, parts = described
        names = [f"{feature.name}{schema.separator}{part}" for part in parts]
        is_open = shape is None or None in shape
        shape_key = names.pop(0) if is_open else None
        out.append(Decoding(feature.name, dtype, shape, shape_key, tuple(names)))
    return out


def _described(feature: Feature) -> tuple[str, OpenShape, tuple[str, ...]] | None:
    """Return dtype, shape and the further features of a column in bytes; None for any other."""
    arrow = feature.type
    if pa.types.is_float64(arrow) and feature.store == "bytes":
        return "float64", (), ()
    if feature.store == "values":
        return None
    if is_tensor(arrow):
        name = str(np.dtype(arrow.value_type.to_pandas_dtype()))
        return name, tuple(arrow.shape), ("shape",)
    if not is_numpy_tensor(arrow) or arrow.dtype.kind in "SU":
        return None
    if arrow.dtype.kind in "mM":
        return "int64", arrow.shape, ("shape", "dtype")
    name = arrow.dtype.name
    if name not in (*_RAW, *_CAST) and is_foreign(arrow.dtype):
        # TensorFlow has these numbers but decodes none: they come as their bytes.
        name = "uint8"
    return name, arrow.shape, ("shape", "dtype")


def _decoded(data: tf.Tensor, dtype: str) -> tf.Tensor:
    """Return the values of bytes: one more axis than `data` has."""
    import tensorflow as tf

    if dtype not in _CAST:
        return tf.io.decode_raw(data, tf.as_dtype(dtype))
    of = tf.as_dtype(dtype)
    raw = tf.io.decode_raw(data, tf.uint8)
    shape = tf.shape(raw)
    parts = tf.concat([shape[:-1], [shape[-1] // of.size, of.size]], 0)
    return tf.bitcast(tf.reshape(raw, parts), of)
