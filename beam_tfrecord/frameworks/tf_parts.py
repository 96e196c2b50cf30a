"""`ColumnPart`: a column, or part of a nested one, as arrays of NumPy and tensors of TensorFlow.

Rows pass from Python to TensorFlow as flat arrays. `TensorBytes` are tensors that an
Example holds as bytes. TensorFlow is imported in the functions that use it.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.arrow_to_tf import arrow_to_tf
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.feature_spec import RAGGED, VARYING, Reading, readings
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.tf_columns import BYTES, FLOAT, INT64, TFColumn, tf_columns
from beam_tfrecord.loading.batches import Array
from beam_tfrecord.loading.values import array_of_column

if TYPE_CHECKING:
    import tensorflow as tf


from beam_tfrecord.features.feature_spec import FIXED
from beam_tfrecord.features.tensors import OpenShape, TensorType, is_foreign
from beam_tfrecord.features.tf_columns import VALUES
from beam_tfrecord.loading.batches import TIMES

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


_DTYPES = {BYTES: "string", FLOAT: "float32", INT64: "int64"}


@dataclasses.dataclass(frozen=True)
class ColumnPart:
    """A column, or a part of a nested column, in the batches of `tf_dataset`.

    Its value is a tensor; a tensor and its mask if values may be missing; a ragged tensor; or for
    tensors of any shape, two ragged tensors with their numbers and their shapes.
    """

    feature: Feature
    stored: TFColumn
    reading: Reading
    tensor: TensorBytes | None

    @property
    def name(self) -> str:
        """Name in a batch."""
        return self.stored.name

    @property
    def may_miss(self) -> bool:
        """Whether values may be missing, so that there is a mask."""
        return self.reading.how == VARYING

    @property
    def is_ragged(self) -> bool:
        """Whether lists or tensors differ in length."""
        return self.reading.how == RAGGED or (self.tensor is not None and self.tensor.is_ragged)

    @property
    def has_shapes(self) -> bool:
        """Whether tensors differ in more than the size of the first axis."""
        return self.tensor is not None and self.tensor.is_open and not self.tensor.is_ragged

    @property
    def dtype(self) -> str:
        """Name of TensorFlow's dtype."""
        return self.tensor.dtype if self.tensor else _DTYPES[self.reading.kind]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value of a row, or of an item of a ragged one."""
        if self.tensor is not None:
            return self.tensor.item_shape
        return () if self.is_ragged else self.stored.shape or ()

    def entry_names(self) -> list[str]:
        """Return the names of the numbers of one row."""
        names = self.feature.labels
        if not self.shape:
            return [self.name]
        if self.shape == (len(names),):
            return [f"{self.name}={name}" for name in names]
        return [f"{self.name}[{','.join(map(str, i))}]" for i in np.ndindex(*self.shape)]

    def check_batch(self) -> None:
        """Raise `UsageError` if no tensor can hold a batch."""
        if self.has_shapes:
            raise UsageError(
                f"tensors of column {self.name!r} have different shapes: leave out batch_size, and "
                "batch them with padded_batch"
            )

    def arrays(self, column: pa.Array, stored: dict[str, pa.Array]) -> list[Array]:
        """Return the values of rows: an array, an array and a mask, or items and lengths."""
        if self.tensor is not None:
            return self.tensor.arrays(array_of_column(column, self.feature))
        values = stored[self.name]
        if self.is_ragged:
            lists = [stored[name] for name in self.reading.row_lengths]
            inner = [_numbers(one.flatten(), "int64", self.name) for one in lists]
            outer = pc.fill_null(pc.list_value_length([*lists, values][0]), 0)
            lengths = _numbers(outer, "int64", self.name)
            return [_numbers(_items(values), self.dtype, self.name), lengths, *inner]
        mask = values.is_valid().to_numpy(zero_copy_only=False)
        found = _numbers(_items(values), self.dtype, self.name)
        if not mask.all():
            given, none = self.reading.default or (), "" if self.dtype == "string" else 0
            default = [one.encode() if isinstance(one, str) else one for one in given or (none,)]
            full = np.empty((len(mask), math.prod(self.shape)), found.dtype)
            full[~mask] = np.array(default, found.dtype)
            full[mask] = found.reshape(-1, full.shape[1])
            found = full
        found = found.reshape(len(mask), *self.shape)
        return [found, mask] if self.may_miss else [found]

    def specs(self) -> list[tf.TensorSpec]:
        """Return the types and shapes of `arrays`."""
        import tensorflow as tf

        shape = () if self.has_shapes else self.shape
        found = [tf.TensorSpec([None, *shape], self.dtype)]
        if self.may_miss:
            return [*found, tf.TensorSpec([None], tf.bool)]
        levels = 1 + len(self.reading.row_lengths) if self.is_ragged else 3 * self.has_shapes
        return found + [tf.TensorSpec([None], tf.int64)] * levels

    def value(self, tensors: Iterator[tf.Tensor]) -> Any:
        """Return the value of rows from the tensors of `arrays`."""
        import tensorflow as tf

        first, *others = itertools.islice(tensors, len(self.specs()))
        ragged = tf.RaggedTensor.from_nested_row_lengths
        if self.has_shapes:
            lengths, shapes, ranks = others
            return ragged(first, [lengths]), ragged(shapes, [ranks])
        if self.is_ragged:
            return ragged(first, others, validate=False)
        return (first, *others) if others else first


def parts_of(schema: Schema) -> list[ColumnPart]:
    """Return the parts of the columns of a schema, in order."""
    read = {reading.name: reading for reading in readings(schema)}
    tensors = tensors_in_bytes(schema)
    hidden = {name for tensor in tensors.values() for name in tensor.unread}
    return [
        ColumnPart(feature, stored, read[stored.name], tensors.get(stored.name))
        for feature in schema.features
        for stored in tf_columns(feature)
        if stored.name in read and stored.name not in hidden
    ]


def arrays_of_parts(parts: Sequence[ColumnPart], rows: pa.RecordBatch) -> list[Array]:
    """Return the arrays of all parts of rows."""
    found = []
    for name, pieces in itertools.groupby(parts, lambda part: part.feature.name):
        column, own = rows.column(name), list(pieces)
        stored = {}
        if own[0].tensor is None:
            names = [one.name for one in tf_columns(own[0].feature)]
            converted = arrow_to_tf(column, own[0].feature)
            stored = dict(zip(names, converted.arrays, strict=True))
            if converted.null_rows:
                raise DataError(f"a list of column {name!r} has missing values")
        for part in own:
            found += part.arrays(column, stored)
    return found


def _items(values: pa.Array) -> pa.Array:
    """Return the values that are present, or those of the lists that are."""
    is_list = pa.types.is_list(values.type) or pa.types.is_large_list(values.type)
    return values.flatten() if is_list else values.drop_null()


def _numbers(values: pa.Array, dtype: str, name: str) -> Array:
    """Return values in the type in which an Example has them."""
    if values.null_count:
        raise DataError(f"a list of column {name!r} has missing values")
    if dtype == "string":
        is_large = values.type in (pa.large_string(), pa.large_binary())
        binary = values.cast(pa.large_binary() if is_large else pa.binary())
        return np.asarray(binary.to_numpy(zero_copy_only=False), object)
    try:
        values = values.cast(pa.int64()) if dtype == "int64" else values
    except pa.ArrowInvalid as error:
        raise DataError(f"column {name!r} has a value that no Example can hold: {error}") from error
    found = values.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        exact: Array = found.astype(dtype)
    if dtype == "float32" and (np.isinf(exact) & np.isfinite(found)).any():
        raise DataError(f"column {name!r} has a number beyond float32, which no Example can hold")
    return exact


def sparse(values: tf.Tensor, mask: tf.Tensor) -> tf.SparseTensor:
    """Return the values that are present, of a batch or a row, as `tf.io.parse_example` does."""
    import tensorflow as tf

    flat = tf.reshape(values, tf.concat([tf.shape(mask), [-1]], 0))
    is_there = tf.broadcast_to(mask[..., None], tf.shape(flat))
    at = tf.where(is_there)
    size = tf.reduce_max(tf.concat([[0], tf.cast(at[:, -1], tf.int32) + 1], 0))
    shape = tf.concat([tf.shape(mask), [size]], 0)
    return tf.SparseTensor(at, tf.gather_nd(flat, at), tf.cast(shape, tf.int64))
