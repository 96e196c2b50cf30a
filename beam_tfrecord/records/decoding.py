"""`Decoder`: framed records back into Arrow, the inverse of `beam_tfrecord.records.encoding`.

The kernel gives each feature as flat values with the counts of every record. Columns are built
from those as a whole, following the walk through their types that encoding took.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord import native
from beam_tfrecord.errors import DataError
from beam_tfrecord.features.arrow_arrays import (
    BoolArray,
    Int64Array,
    Layer,
    fixed_binary,
    from_text,
    make_list,
    take_values,
    uuid_from_text,
)
from beam_tfrecord.features.arrow_types import (
    bare_type,
    is_binary,
    is_extension,
    is_list,
    is_numpy_tensor,
    is_temporal,
    is_tensor,
    is_text,
    is_uuid,
)
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.tensors import (
    Array,
    TensorType,
    dtype_name,
    varying_storage,
)
from beam_tfrecord.features.type_contract import (
    BYTES,
    DTYPE,
    FLOAT,
    SHAPE,
    VALUES,
    Leaf,
    leaves,
    tensor_shape,
    value_count,
)


class Decoder:
    """Decodes records under one schema; one object serves all threads.

    Null and empty lists, zero and missing values come back as they were. Three things do not: a
    struct whose fields are all null is a null struct, float64 and decimals stored as float_list
    are rounded to float32, and a dictionary is its values.

    Args:
        schema: The features of the records.
        columns: Names of the columns wanted, in order; None for all.

    Raises:
        UsageError: A column does not exist.
    """

    def __init__(self, schema: Schema, columns: Iterable[str] | None = None) -> None:
        self.schema = schema if columns is None else schema.select(columns)
        self._leaves = [
            {leaf.name: leaf for leaf in leaves(feature, separator=schema.separator)}
            for feature in self.schema.features
        ]
        every = [leaf for of_feature in self._leaves for leaf in of_feature.values()]
        self._features = [(leaf.name.encode(), leaf.kind) for leaf in every]
        self._names = [leaf.name for leaf in every]
        self.arrow_schema = pa.schema(
            [
                pa.field(feature.name, decoded_type(feature.type), feature.nullable)
                for feature in self.schema.features
            ]
        )

    def decode(self, data: npt.NDArray[np.uint8], starts: Int64Array) -> pa.RecordBatch:
        """Return the rows of the records at `starts` in `data`, in the Arrow types of the schema.

        Raises:
            DataError: A record is no Example, or a feature does not fit the schema.
        """
        try:
            found = native.decode(data, starts, self._features)
        except ValueError as error:
            raise DataError(str(error)) from error
        columns = dict(zip(self._names, found, strict=True))
        separator = self.schema.separator
        arrays = [
            _Builder(feature, separator, of_feature, columns, len(starts)).build()
            for feature, of_feature in zip(self.schema.features, self._leaves, strict=True)
        ]
        fields = [
            # Foreign records may lack what the schema requires.
            field.with_nullable(True) if array.null_count else field
            for field, array in zip(self.arrow_schema, arrays, strict=True)
        ]
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(starts), pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def decoded_type(arrow: pa.DataType) -> pa.DataType:
    """Return the type in which values of `arrow` come back: without dictionaries."""
    arrow = bare_type(arrow)
    if is_extension(arrow):
        return arrow
    if pa.types.is_struct(arrow):
        return pa.struct([field.with_type(decoded_type(field.type)) for field in arrow])
    if pa.types.is_map(arrow):
        key = arrow.key_field.with_type(decoded_type(arrow.key_type))
        return pa.map_(key, arrow.item_field.with_type(decoded_type(arrow.item_type)))
    if not is_list(arrow):
        return arrow
    item = arrow.value_field.with_type(decoded_type(arrow.value_type))
    types = pa.types
    if types.is_fixed_size_list(arrow):
        return pa.list_(item, arrow.list_size)
    if types.is_large_list(arrow):
        return pa.large_list(item)
    if types.is_list_view(arrow):
        return pa.list_view(item)
    return pa.large_list_view(item) if types.is_large_list_view(arrow) else pa.list_(item)


class _Built(NamedTuple):
    """Values and the lists around them, outermost first; only those of rows can be null."""

    values: pa.Array
    layers: tuple[Layer, ...]


class _Builder:
    """Builds one column of one block from its leaves.

    Args:
        feature: The column.
        separator: Of the names of its leaves.
        leaves: By name.
        columns: What the kernel decoded, by the name of the leaf.
        rows: Records of the block.
    """

    def __init__(
        self,
        feature: Feature,
        separator: str,
        leaves: Mapping[str, Leaf],
        columns: Mapping[str, Any],
        rows: int,
    ) -> None:
        self._feature = feature
        self._separator = separator
        self._leaves = leaves
        self._columns = columns
        self._rows = rows

    def build(self) -> pa.Array:
        """Return the column as an array of one value a row."""
        feature = self._feature
        try:
            return self._built(feature.type, feature.name, 0, feature.nullable).values
        except pa.ArrowInvalid as error:
            raise DataError(
                f"column {feature.name!r} cannot be read as {feature.type}: {error}"
            ) from error

    def _built(self, arrow: pa.DataType, name: str, depth: int, nullable: bool) -> _Built:
        """Return the values of `arrow` that lie in `depth` lists."""
        arrow = bare_type(arrow)
        if is_tensor(arrow):
            return _Built(self._tensor(arrow, name), ())
        if is_numpy_tensor(arrow):
            parts = (name, f"{name}{self._separator}shape", f"{name}{self._separator}dtype")
            own = {part: self._leaves[part] for part in parts if part in self._leaves}
            return _Built(raise_tensors(arrow, own, self._columns, self._rows), ())
        if is_extension(arrow) and not is_uuid(arrow):
            storage, layers = self._built(arrow.storage_type, name, depth, nullable)
            return _Built(pa.ExtensionArray.from_storage(arrow, storage), layers)
        if pa.types.is_struct(arrow):
            return self._struct(arrow, name, depth, nullable)
        if pa.types.is_map(arrow):
            return self._map(arrow, name, depth)
        if is_list(arrow):
            inner = self._built(arrow.value_type, name, depth + 1, True)
            layer = inner.layers[depth]
            return _Built(list_of(decoded_type(arrow), layer, inner.values), inner.layers[:depth])
        if pa.types.is_null(arrow):
            return _Built(pa.nulls(self._rows), ())
        return self._values(self._leaves[name], arrow)

    def _struct(self, arrow: pa.DataType, name: str, depth: int, nullable: bool) -> _Built:
        built = [
            self._built(field.type, f"{name}{self._separator}{field.name}", depth, True)
            for field in arrow
        ]
        layers = built[0].layers
        for other in built[1:]:
            self._check_same(layers, other.layers, name)
        arrays = [part.values for part in built]
        mask = None
        if nullable and depth == 0:
            missing = np.ones(self._rows, bool)
            for array in arrays:
                missing &= pc.is_null(array).to_numpy(zero_copy_only=False)
            mask = pa.array(missing) if missing.any() else None
        fields = [field.with_type(decoded_type(field.type)) for field in arrow]
        made = pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)
        return _Built(made, layers)

    def _map(self, arrow: pa.DataType, name: str, depth: int) -> _Built:
        keys = self._built(arrow.key_type, f"{name}{self._separator}key", depth + 1, True)
        items = self._built(arrow.item_type, f"{name}{self._separator}value", depth + 1, True)
        self._check_same(keys.layers, items.layers, name)
        layer = keys.layers[depth]
        mask = None if layer.missing is None else pa.array(layer.missing)
        offsets = pc.cast(pa.array(layer.offsets), pa.int32())
        made = pa.MapArray.from_arrays(
            offsets, keys.values, items.values, type=decoded_type(arrow), mask=mask
        )
        return _Built(made, keys.layers[:depth])

    def _check_same(self, layers: tuple[Layer, ...], others: tuple[Layer, ...], name: str) -> None:
        for layer, other in zip(layers, others, strict=True):
            if not np.array_equal(layer.offsets, other.offsets):
                raise DataError(f"the features under {name!r} differ in their number of values")

    def _values(self, leaf: Leaf, arrow: pa.DataType) -> _Built:
        column = self._columns[leaf.name]
        if not leaf.depth:
            return _Built(self._scalars(leaf, arrow, column), ())
        values = raise_values(column, arrow, leaf)
        missing = _missing(column)
        if leaf.shape is not None:
            self._check_counts(leaf, column, missing, value_count(leaf.shape))
            return _Built(values, self._dense_layers(leaf.shape, missing))
        layers = [Layer(column.row_offsets, missing)]
        starts = column.row_offsets
        for level, name in enumerate(leaf.row_lengths(self._separator)):
            lengths = self._columns[name]
            if level == 0:
                layers[0] = Layer(lengths.row_offsets, missing)
                starts = lengths.row_offsets
            elif not np.array_equal(starts, lengths.row_offsets):
                raise DataError(f"feature {name!r} has not one length for each list")
            if len(lengths.values) and lengths.values.min() < 0:
                raise DataError(f"feature {name!r} has a negative length")
            offsets = np.concatenate([[0], np.cumsum(lengths.values)])
            layers.append(Layer(offsets, None))
            starts = offsets[starts]
        if not np.array_equal(starts, column.row_offsets):
            raise DataError(f"feature {leaf.name!r} has not as many values as its row lengths say")
        return _Built(values, tuple(layers))

    def _dense_layers(self, shape: tuple[int, ...], missing: BoolArray | None) -> tuple[Layer, ...]:
        present = np.ones(self._rows, np.int64) if missing is None else (~missing).astype(np.int64)
        layers = [Layer(np.concatenate([[0], np.cumsum(present * shape[0])]), missing)]
        for size in shape[1:]:
            above = int(layers[-1].offsets[-1])
            layers.append(Layer(np.arange(above + 1, dtype=np.int64) * size, None))
        return tuple(layers)

    def _scalars(self, leaf: Leaf, arrow: pa.DataType, column: Any) -> pa.Array:
        counts = np.diff(column.row_offsets)
        if len(counts) and counts.max() > 1:
            record = int(np.argmax(counts > 1))
            raise DataError(
                f"record {record}: feature {leaf.name!r} has {counts[record]} values, not one: "
                "make it a list in the schema"
            )
        values = raise_values(column, arrow, leaf)
        if len(values) == len(counts):
            return values
        places = np.where(counts > 0, column.row_offsets[:-1], 0)
        return take_values(values, pa.array(places, mask=counts == 0))

    def _tensor(self, arrow: pa.DataType, name: str) -> pa.Array:
        shape = tensor_shape(arrow, self._feature.name)
        leaf = self._leaves[name]
        column = self._columns[name]
        missing = _missing(column)
        if leaf.shape:
            self._check_counts(leaf, column, missing, value_count(shape))
            values = raise_values(column, arrow.value_type, leaf)
        elif self._feature.store == "values":
            self._check_counts(leaf, column, missing, 1)
            values = raise_values(column, arrow.value_type, leaf)
        else:
            self._check_counts(leaf, column, missing, 1)
            values = tensor_storage(column, arrow, leaf.name)
        present = np.ones(self._rows, np.int64) if missing is None else (~missing).astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum(present * value_count(shape))])
        storage = list_of(arrow.storage_type, Layer(offsets, missing), values)
        return pa.ExtensionArray.from_storage(arrow, storage)

    def _check_counts(self, leaf: Leaf, column: Any, missing: BoolArray | None, count: int) -> None:
        wrong = np.diff(column.row_offsets) != count
        if missing is not None:
            wrong &= ~missing
        if wrong.any():
            record = int(np.argmax(wrong))
            found = int(np.diff(column.row_offsets)[record])
            raise DataError(
                f"record {record}: feature {leaf.name!r} has {found} values, not {count}"
            )


def _missing(column: Any) -> BoolArray | None:
    """Return which records lack the feature; None where none does."""
    return None if column.present.all() else column.present == 0


def raise_values(column: Any, arrow: pa.DataType, leaf: Leaf) -> pa.Array:
    """Return all values of a decoded column as scalars of type `arrow`, without nulls.

    Args:
        column: What `native.decode` gives for the feature.
        arrow: The type of the values.
        leaf: How they are stored.

    Raises:
        pyarrow.ArrowInvalid: A value is none of that type.
    """
    if leaf.kind == BYTES:
        return _raise_bytes(_large_binary(column), arrow, leaf)
    stored = pa.array(column.values)
    if leaf.kind == FLOAT:
        return _raise_decimals(stored, arrow) if pa.types.is_decimal(arrow) else _as(stored, arrow)
    if is_temporal(arrow):
        width = pa.int64() if arrow.bit_width == 64 else pa.int32()
        return _as(stored, width).view(arrow)
    if pa.types.is_decimal(arrow):
        return pc.cast(pc.cast(stored, pa.decimal256(19, 0)), arrow)
    if pa.types.is_boolean(arrow):
        # A cast takes any other number for true.
        if np.any(wrong := column.values & ~1):
            value = column.values[np.argmax(wrong != 0)]
            raise pa.ArrowInvalid(f"value {value} is neither 0 nor 1")
        return _as(stored, arrow)
    return _as(stored, arrow)


def _as(values: pa.Array, arrow: pa.DataType) -> pa.Array:
    return values if values.type == arrow else pc.cast(values, arrow)


def _large_binary(column: Any) -> pa.Array:
    offsets, data = pa.py_buffer(column.value_offsets), pa.py_buffer(column.values)
    count = len(column.value_offsets) - 1
    return pa.Array.from_buffers(pa.large_binary(), count, [None, offsets, data])


def _raise_bytes(stored: pa.Array, arrow: pa.DataType, leaf: Leaf) -> pa.Array:
    if is_uuid(arrow):
        return pa.ExtensionArray.from_storage(arrow, uuid_from_text(stored))
    if is_text(arrow):
        return _as(pc.cast(stored, pa.large_string()), arrow)
    if is_binary(arrow):
        return _as(stored, arrow)
    if leaf.store == "text":
        return from_text(pc.cast(stored, pa.large_string()), arrow)
    return pc.cast(stored, pa.binary(8)).view(arrow)


def _raise_decimals(stored: pa.Array, arrow: pa.DataType) -> pa.Array:
    # float32 rounding can carry a value just past the largest one of the type.
    largest = 10.0 ** (arrow.precision - arrow.scale)
    step = 10.0**-arrow.scale
    largest = min(np.nextafter(largest, 0), largest - step)
    limited = np.clip(stored.to_numpy().astype(np.float64), -largest, largest)
    return pc.cast(pa.array(limited), arrow)


def tensor_storage(column: Any, arrow: pa.DataType, name: str) -> pa.Array:
    """Return the numbers of tensors stored as bytes, all in one array.

    Raises:
        DataError: The bytes of a tensor are not as many as its shape says.
    """
    item = arrow.value_type
    width = 1 if pa.types.is_boolean(item) else item.bit_width // 8
    size = value_count(tuple(arrow.shape)) * width
    sizes = np.diff(column.value_offsets)
    if (sizes != size).any():
        raise DataError(
            f"feature {name!r} has a tensor of {sizes[sizes != size][0]} bytes, not {size}"
        )
    if pa.types.is_boolean(item):
        return pc.cast(pa.array(column.values), item)
    count = len(column.values) // width
    return pa.Array.from_buffers(item, count, [None, pa.py_buffer(column.values)])


def list_of(arrow: pa.DataType, layer: Layer, values: pa.Array) -> pa.Array:
    """Build a list array of type `arrow`, of any layout."""
    if pa.types.is_fixed_size_list(arrow):
        return _dense_list(arrow, layer, values)
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        return _as(make_list(layer, values), arrow)
    large = pa.types.is_large_list_view(arrow)
    of, width = (pa.LargeListViewArray, pa.int64()) if large else (pa.ListViewArray, pa.int32())
    starts = pc.cast(pa.array(layer.offsets[:-1]), width)
    sizes = pc.cast(pa.array(np.diff(layer.offsets)), width)
    mask = None if layer.missing is None else pa.array(layer.missing)
    return of.from_arrays(starts, sizes, values, type=arrow, mask=mask)


def _dense_list(arrow: pa.DataType, layer: Layer, values: pa.Array) -> pa.Array:
    if layer.missing is None:
        return pa.FixedSizeListArray.from_arrays(values, type=arrow)
    # Null lists of a fixed size have values all the same: null ones.
    present = np.repeat(~layer.missing, arrow.list_size)
    places = np.cumsum(present) - 1
    spread = take_values(values, pa.array(np.where(present, places, 0), mask=~present))
    return pa.FixedSizeListArray.from_arrays(spread, type=arrow, mask=pa.array(layer.missing))


def raise_tensors(
    arrow: TensorType, leaves: Mapping[str, Leaf], columns: Mapping[str, Any], rows: int
) -> pa.Array:
    """Return the column whose leaves were decoded.

    Args:
        arrow: Its type.
        leaves: Its leaves, by name.
        columns: What `native.decode` gives for them, by name.
        rows: Number of rows.

    Raises:
        DataError: The features of a record do not fit together, or are not of the type.
    """
    by_role = {leaf.role: leaf for leaf in leaves.values()}
    leaf = by_role[VALUES]
    column = columns[leaf.name]
    missing = column.present == 0
    for other in by_role.values():
        if not np.array_equal(columns[other.name].present == 0, missing):
            raise DataError(
                f"features {leaf.name!r} and {other.name!r} are not in the same records"
            )
    if isinstance(leaf.type, TensorType):
        _check(np.diff(column.row_offsets) == ~missing, leaf.name, "not one text of bytes")
        data, sizes = column.values, np.diff(column.value_offsets)
        _check_dtype(columns[by_role[DTYPE].name], by_role[DTYPE].name, arrow)
    else:
        numbers = raise_values(column, leaf.type, leaf).to_numpy(zero_copy_only=False)
        data = np.ascontiguousarray(numbers, arrow.dtype).view(np.uint8)
        sizes = np.diff(column.row_offsets)[~missing] * arrow.dtype.itemsize
    shape = by_role.get(SHAPE)
    if shape is not None:
        _check_shapes(columns[shape.name], shape.name, arrow, sizes)
    if arrow.is_dense:
        _check(sizes == arrow.nbytes, leaf.name, f"not {arrow.nbytes} bytes")
        storage = _dense_storage(data, arrow.nbytes or 0, missing)
    else:
        storage = _varying_storage(data, sizes, columns[by_role[SHAPE].name], missing)
    return pa.ExtensionArray.from_storage(arrow, storage)


def _check(good: BoolArray, name: str, what: str) -> None:
    if not np.all(good):
        raise DataError(f"record {int(np.argmin(good))}: feature {name!r} has {what}")


def _check_dtype(column: Any, name: str, arrow: TensorType) -> None:
    expected = np.frombuffer(dtype_name(arrow.dtype).encode(), np.uint8)
    there = np.tile(expected, int(column.present.sum()))
    if not np.array_equal(column.values, there):
        raise DataError(f"feature {name!r} has another value than {dtype_name(arrow.dtype)!r}")


def _check_shapes(column: Any, name: str, arrow: TensorType, sizes: Int64Array) -> None:
    """Check that shapes are of the type, and that there are as many bytes as they say."""
    ranks = np.diff(column.row_offsets)[column.present != 0]
    values = column.values
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
    of_rows = np.zeros(len(missing), np.int64)
    of_rows[~missing] = sizes
    offsets = np.concatenate([[0], np.cumsum(of_rows)])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    values = pa.Array.from_buffers(pa.large_binary(), len(missing), buffers)
    ends = pa.array(shapes.row_offsets.astype(np.int32))
    shape_lists = pa.ListArray.from_arrays(ends, pa.array(shapes.values, pa.int64()))
    return varying_storage(values, shape_lists, missing if missing.any() else None)
