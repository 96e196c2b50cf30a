"""Decodes serialized `tf.train.Example`s into Arrow record batches; the inverse of `Encoder`.

A *TF column* is one key of the examples. The native kernel decodes each TF column as flat values,
with the number of values of each record. `_Builder` then builds an Arrow column from its TF columns
for all records at once, by recursion over its Arrow type.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord import native
from beam_tfrecord.errors import DataError
from beam_tfrecord.features.arrow_arrays import (
    Layer,
    fixed_binary,
    from_text,
    list_offsets,
    make_list,
    uuid_from_text,
)
from beam_tfrecord.features.arrow_types import (
    decoded_type,
    is_binary,
    is_list,
    is_temporal,
    is_text,
)
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.tensors import Array, TensorType, dtype_name, varying_storage
from beam_tfrecord.features.tf_columns import BYTES, DTYPE, FLOAT, SHAPE, TFColumn, tf_columns
from beam_tfrecord.native.kernel_types import BoolArray, Int64Array, UInt8Array


class Decoder:
    """Decodes records under one schema; one object may be used by several threads.

    Decoding restores null and empty lists, zeros and missing values as they were. Three things
    change: a struct whose fields are all null becomes a null struct, float64 and decimals that are
    stored as float_list are rounded to float32, and a dictionary becomes its values. If a single
    float64 was rounded, the shortest decimal that rounds to the float32 stands for it.
    """

    def __init__(self, schema: Schema, columns: Iterable[str] | None = None) -> None:
        self.schema = schema if columns is None else schema.select(columns)
        self._columns = [
            {column.name: column for column in tf_columns(feature)}
            for feature in self.schema.features
        ]
        every = [column for by_name in self._columns for column in by_name.values()]
        self._features = [(column.name.encode(), column.kind) for column in every]
        self._names = [column.name for column in every]
        self.arrow_schema = pa.schema(
            [
                pa.field(feature.name, decoded_type(feature.type), feature.nullable)
                for feature in self.schema.features
            ]
        )

    def decode(self, data: UInt8Array, starts: Int64Array) -> pa.RecordBatch:
        """Return the rows of framed records, in the Arrow types of the schema."""
        try:
            found = native.decode(data, starts, self._features)
        except ValueError as error:
            raise DataError(str(error)) from error
        decoded = dict(zip(self._names, found, strict=True))
        arrays = [
            _Builder(feature, columns, decoded, len(starts)).build()
            for feature, columns in zip(self.schema.features, self._columns, strict=True)
        ]
        fields = [
            # Records of other writers may lack features that the schema requires.
            field.with_nullable(True) if array.null_count else field
            for field, array in zip(self.arrow_schema, arrays, strict=True)
        ]
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(starts), pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


class _Built(NamedTuple):
    """Values, and the levels of lists around them, outermost first, which mark the null lists."""

    values: pa.Array
    layers: tuple[Layer, ...] = ()


class _Builder(NamedTuple):
    """Builds one column of a batch from its decoded TF columns."""

    feature: Feature
    columns: Mapping[str, TFColumn]
    decoded: Mapping[str, Any]
    rows: int

    def build(self) -> pa.Array:
        """Return the column as an array with one value for each row."""
        feature = self.feature
        try:
            return self._built(decoded_type(feature.type), feature.name, 0, feature.nullable).values
        except pa.ArrowInvalid as error:
            raise DataError(
                f"column {feature.name!r} cannot be read as {feature.type}: {error}"
            ) from error

    def _built(self, arrow: pa.DataType, name: str, depth: int, nullable: bool) -> _Built:
        """Return the values of a nested type, and the lists around them."""
        if isinstance(arrow, TensorType):
            return _Built(self._tensors(arrow, name))
        if isinstance(arrow, pa.BaseExtensionType) and not isinstance(arrow, pa.UuidType):
            storage, layers = self._built(arrow.storage_type, name, depth, nullable)
            return _Built(pa.ExtensionArray.from_storage(arrow, storage), layers)
        if pa.types.is_struct(arrow):
            return self._struct(arrow, name, depth, nullable)
        if pa.types.is_map(arrow):
            return self._map(arrow, name, depth)
        if is_list(arrow):
            inner = self._built(arrow.value_type, name, depth + 1, True)
            layer = inner.layers[depth]
            return _Built(_list_of(arrow, layer, inner.values), inner.layers[:depth])
        if pa.types.is_null(arrow):
            return _Built(pa.nulls(self.rows))
        return self._values(self.columns[name], arrow)

    def _struct(self, arrow: pa.DataType, name: str, depth: int, nullable: bool) -> _Built:
        built = [self._built(field.type, f"{name}/{field.name}", depth, True) for field in arrow]
        layers = built[0].layers
        for other in built[1:]:
            _check_same_lists(layers, other.layers, name)
        arrays = [part.values for part in built]
        mask = None
        if nullable and depth == 0:
            # A struct whose fields are all null is stored as a null struct.
            mask = functools.reduce(pc.and_, map(pc.is_null, arrays))
        made = pa.StructArray.from_arrays(arrays, fields=list(arrow), mask=mask)
        return _Built(made, layers)

    def _map(self, arrow: pa.DataType, name: str, depth: int) -> _Built:
        keys = self._built(arrow.key_type, f"{name}/key", depth + 1, True)
        items = self._built(arrow.item_type, f"{name}/value", depth + 1, True)
        _check_same_lists(keys.layers, items.layers, name)
        layer = keys.layers[depth]
        mask = None if layer.missing is None else pa.array(layer.missing)
        offsets = pc.cast(pa.array(layer.offsets), pa.int32())
        made = pa.MapArray.from_arrays(offsets, keys.values, items.values, type=arrow, mask=mask)
        return _Built(made, keys.layers[:depth])

    def _values(self, column: TFColumn, arrow: pa.DataType) -> _Built:
        found = self.decoded[column.name]
        if not column.depth:
            return _Built(self._scalars(column, arrow, found))
        values = _values_from_tf(found, arrow, column)
        missing = None if found.present.all() else found.present == 0
        if column.shape is not None:
            count, counts = math.prod(column.shape), np.diff(found.row_offsets)
            good = (counts == count) | (found.present == 0)
            _check_counts(counts, good, column.name, str(count))
            # Lists of a fixed size need no offsets below the outermost ones.
            outermost = Layer(found.row_offsets // max(1, math.prod(column.shape[1:])), missing)
            inner = Layer(np.empty(0, np.int64), None)
            return _Built(values, (outermost, *[inner] * (column.depth - 1)))
        layers = [Layer(found.row_offsets, missing)]
        starts = found.row_offsets
        for level, name in enumerate(column.row_lengths):
            lengths = self.decoded[name]
            if level == 0:
                layers[0] = Layer(lengths.row_offsets, missing)
                starts = lengths.row_offsets
            elif not np.array_equal(starts, lengths.row_offsets):
                raise DataError(f"feature {name!r} does not have one length for each list")
            if len(lengths.values) and lengths.values.min() < 0:
                raise DataError(f"feature {name!r} has a negative length")
            offsets = list_offsets(lengths.values)
            layers.append(Layer(offsets, None))
            starts = offsets[starts]
        if not np.array_equal(starts, found.row_offsets):
            raise DataError(
                f"feature {column.name!r} does not have as many values as its row lengths say"
            )
        return _Built(values, tuple(layers))

    def _scalars(self, column: TFColumn, arrow: pa.DataType, found: Any) -> pa.Array:
        counts = np.diff(found.row_offsets)
        _check_counts(counts, counts <= 1, column.name, "one: make it a list in the schema")
        values = self._scalars_from_tf(found, arrow, column)
        if len(values) == len(counts):
            return values
        indices = np.where(counts > 0, found.row_offsets[:-1], 0)
        return values.take(pa.array(indices, mask=counts == 0))

    def _scalars_from_tf(self, found: Any, arrow: pa.DataType, column: TFColumn) -> pa.Array:
        observed = self.feature.observed
        is_rounded = observed is None or observed.max_relative_error > 0
        if pa.types.is_float64(arrow) and column.kind == FLOAT and is_rounded:
            # They were decimals of few digits more often than doubles of as many bits. Numbers in
            # lists are not: embeddings would take ten times as long.
            return pa.array(native.shortest_doubles(found.values))
        return _values_from_tf(found, arrow, column)

    def _tensors(self, arrow: TensorType, name: str) -> pa.Array:
        """Return a column of NumPy arrays."""
        parts = (name, f"{name}/shape", f"{name}/dtype")
        names = {self.columns[part].role: part for part in parts if part in self.columns}
        column, found = self.columns[name], self.decoded[name]
        missing = found.present == 0
        for other in names.values():
            if not np.array_equal(self.decoded[other].present == 0, missing):
                raise DataError(f"features {name!r} and {other!r} are not in the same records")
        if DTYPE in names:
            _check_dtype(self.decoded[names[DTYPE]], names[DTYPE], arrow)
        if column.kind == BYTES:
            _check(np.diff(found.row_offsets) == ~missing, name, "not one bytes value")
            data, sizes = found.values, np.diff(found.value_offsets)
        else:
            numbers = _values_from_tf(found, column.type, column).to_numpy(zero_copy_only=False)
            data = np.ascontiguousarray(numbers, arrow.dtype).view(np.uint8)
            sizes = np.diff(found.row_offsets)[~missing] * arrow.dtype.itemsize
        shapes = self.decoded[names[SHAPE]] if SHAPE in names else None
        if shapes is not None:
            _check_shapes(shapes, names[SHAPE], arrow, sizes)
        if arrow.is_dense:
            _check(sizes == arrow.nbytes, name, f"not {arrow.nbytes} bytes")
            storage = _dense_storage(data, arrow.nbytes or 0, missing)
        else:
            storage = _varying_storage(data, sizes, shapes, missing)
        return pa.ExtensionArray.from_storage(arrow, storage)


def _check_counts(counts: Int64Array, good: BoolArray, name: str, wanted: str) -> None:
    if not good.all():
        _check(good, name, f"{counts[np.argmin(good)]} values, not {wanted}")


def _check_same_lists(layers: tuple[Layer, ...], others: tuple[Layer, ...], name: str) -> None:
    for layer, other in zip(layers, others, strict=True):
        if not np.array_equal(layer.offsets, other.offsets):
            raise DataError(f"the features under {name!r} differ in their number of values")


def _values_from_tf(found: Any, arrow: pa.DataType, column: TFColumn) -> pa.Array:
    """Return the values of a decoded TF column as scalars of type `arrow`, without nulls."""
    if column.kind == BYTES:
        return _bytes_from_tf(found, arrow, column)
    stored = pa.array(found.values)
    if is_temporal(arrow):
        width = pa.int64() if arrow.bit_width == 64 else pa.int32()
        return stored.cast(width).view(arrow)
    if pa.types.is_decimal(arrow) and column.kind == FLOAT:
        return _decimals_from_floats(stored, arrow)
    if pa.types.is_decimal(arrow):
        return pc.cast(pc.cast(stored, pa.decimal256(19, 0)), arrow)
    # A cast to booleans would accept any number as true.
    if pa.types.is_boolean(arrow) and np.any(wrong := found.values & ~1):
        value = found.values[np.argmax(wrong != 0)]
        raise pa.ArrowInvalid(f"value {value} is neither 0 nor 1")
    return stored.cast(arrow)


def _bytes_from_tf(found: Any, arrow: pa.DataType, column: TFColumn) -> pa.Array:
    buffers = [None, pa.py_buffer(found.value_offsets), pa.py_buffer(found.values)]
    stored = pa.Array.from_buffers(pa.large_binary(), len(found.value_offsets) - 1, buffers)
    if isinstance(arrow, pa.UuidType):
        return pa.ExtensionArray.from_storage(arrow, uuid_from_text(stored))
    if is_text(arrow):
        return stored.cast(pa.large_string()).cast(arrow)
    if is_binary(arrow):
        return stored.cast(arrow)
    if column.store == "text":
        return from_text(pc.cast(stored, pa.large_string()), arrow)
    return pc.cast(stored, pa.binary(8)).view(arrow)


def _decimals_from_floats(stored: pa.Array, arrow: pa.DataType) -> pa.Array:
    # Rounding to float32 can carry a value just past the largest one of the type.
    largest = 10.0 ** (arrow.precision - arrow.scale)
    step = 10.0**-arrow.scale
    largest = min(np.nextafter(largest, 0), largest - step)
    limited = np.clip(stored.to_numpy().astype(np.float64), -largest, largest)
    return pc.cast(pa.array(limited), arrow)


def _list_of(arrow: pa.DataType, layer: Layer, values: pa.Array) -> pa.Array:
    """Return a list array of type `arrow`, which may have a fixed size."""
    if not pa.types.is_fixed_size_list(arrow):
        return make_list(layer, values).cast(arrow)
    if layer.missing is None:
        return pa.FixedSizeListArray.from_arrays(values, type=arrow)
    # In Arrow, a null list of fixed size still takes up that number of values.
    present = np.repeat(~layer.missing, arrow.list_size)
    indices = pa.array(np.cumsum(present) - 1, mask=~present)
    mask = pa.array(layer.missing)
    return pa.FixedSizeListArray.from_arrays(values.take(indices), type=arrow, mask=mask)


def _check(good: BoolArray, name: str, what: str) -> None:
    if not np.all(good):
        raise DataError(f"record {int(np.argmin(good))}: feature {name!r} has {what}")


def _check_dtype(found: Any, name: str, arrow: TensorType) -> None:
    expected = np.frombuffer(dtype_name(arrow.dtype).encode(), np.uint8)
    if not np.array_equal(found.values, np.tile(expected, int(found.present.sum()))):
        raise DataError(f"feature {name!r} has another value than {dtype_name(arrow.dtype)!r}")


def _check_shapes(found: Any, name: str, arrow: TensorType, sizes: Int64Array) -> None:
    """Check that shapes fit the type, and that the bytes of each tensor fit its shape."""
    ranks = np.diff(found.row_offsets)[found.present != 0]
    values = found.values
    if len(values) and values.min() < 0:
        raise DataError(f"feature {name!r} has a negative size")
    if arrow.shape is None:
        parts = np.split(values, np.cumsum(ranks)[:-1])
        counts = np.array([math.prod(part.tolist()) for part in parts[: len(ranks)]], object)
    else:
        rank = len(arrow.shape)
        _check(ranks == rank, name, f"not {rank} sizes")
        by_axis = values.reshape(len(ranks), rank)
        for axis, size in enumerate(arrow.shape):
            if size is not None:
                _check(by_axis[:, axis] == size, name, f"not size {size} on axis {axis}")
        counts = by_axis.prod(axis=1)
    _check(counts * arrow.dtype.itemsize == sizes, name, "not the size that its values have")


def _dense_storage(data: Array, nbytes: int, missing: BoolArray) -> pa.Array:
    if not missing.any():
        return fixed_binary(data, nbytes, None, rows=len(missing))
    spread = np.zeros((len(missing), nbytes), np.uint8)
    if nbytes:
        spread[~missing] = data.reshape(-1, nbytes)
    return fixed_binary(spread, nbytes, missing, rows=len(missing))


def _varying_storage(data: Array, sizes: Int64Array, shapes: Any, missing: BoolArray) -> pa.Array:
    row_sizes = np.zeros(len(missing), np.int64)
    row_sizes[~missing] = sizes
    buffers = [None, pa.py_buffer(list_offsets(row_sizes)), pa.py_buffer(data)]
    values = pa.Array.from_buffers(pa.large_binary(), len(missing), buffers)
    ends = pa.array(shapes.row_offsets.astype(np.int32))
    shape_lists = pa.ListArray.from_arrays(ends, pa.array(shapes.values, pa.int64()))
    return varying_storage(values, shape_lists, missing if missing.any() else None)
