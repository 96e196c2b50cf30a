"""`TensorBytes`: columns of tensors that an Example holds as bytes, as TensorFlow has them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa

from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.feature_spec import FIXED, readings
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.tensors import OpenShape, TensorType, is_foreign
from beam_tfrecord.features.tf_columns import VALUES, tf_columns
from beam_tfrecord.loading.batches import TIMES, Array

# Dtypes that `tf.io.decode_raw` decodes.
_RAW = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16"),
    *("float16", "float32", "float64", "complex64", "complex128", "bfloat16"),
)


@dataclasses.dataclass(frozen=True)
class TensorBytes:
    """A column of tensors, or of float64, that are stored as bytes."""

    column: str
    dtype: str
    shape: OpenShape
    unread: tuple[str, ...]
    """Names of the TF columns that only describe the bytes."""

    @property
    def is_open(self) -> bool:
        """Whether sizes differ from row to row."""
        return self.shape is None or None in self.shape

    @property
    def is_simple(self) -> bool:
        """True if `tf.io.decode_raw` and a reshape to ``[-1, *shape]`` decode the column."""
        return not self.is_open and self.dtype in _RAW and 0 not in (self.shape or ())

    @property
    def item_shape(self) -> tuple[int, ...]:
        """Shape of a tensor, without an open first axis."""
        return tuple(size for size in self.shape or () if size is not None)

    @property
    def is_ragged(self) -> bool:
        """Whether a ragged tensor holds a batch: only the size of the first axis differs."""
        return self.is_open and self.shape is not None and None not in self.shape[1:]

    def arrays(self, values: Array) -> list[Array]:
        """Return tensors as one array; as items and lengths; or as items, lengths and shapes."""
        if not self.is_open:
            return [self._plain(values)]
        tensors = [self._plain(one) for one in values]
        if self.is_ragged:
            return [np.concatenate(tensors), np.array([len(one) for one in tensors])]
        flat = np.concatenate([one.reshape(-1) for one in tensors])
        shapes = np.concatenate([np.array(one.shape, np.int64) for one in tensors])
        counts = [(one.size, one.ndim) for one in tensors]
        sizes, ranks = np.array(counts, np.int64).T
        return [flat, sizes, shapes, ranks]

    def _plain(self, values: Array) -> Array:
        if values.dtype.kind in TIMES:
            return values.view(np.int64)
        # TensorFlow has no tensors of the other dtypes: their bytes are uint8.
        return values.view(np.uint8) if self.dtype == "uint8" else values


def tensors_in_bytes(schema: Schema) -> dict[str, TensorBytes]:
    """Return the columns of tensors and of float64 that are stored as bytes, by column.

    Columns that may be missing, and tensors of text, are not among them.
    """
    fixed = {reading.name for reading in readings(schema) if reading.how == FIXED}
    out = {}
    for feature in schema.features:
        described = _described(feature)
        if described is None or feature.name not in fixed:
            continue
        leaves = tf_columns(feature)
        unread = tuple(leaf.name for leaf in leaves if leaf.role != VALUES)
        out[feature.name] = TensorBytes(feature.name, *described, unread)
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
    if arrow.dtype.kind in TIMES:
        return "int64", arrow.shape
    name = arrow.dtype.name
    is_known = name in (*_RAW, "uint32", "uint64")
    return name if is_known or not is_foreign(arrow.dtype) else "uint8", arrow.shape
