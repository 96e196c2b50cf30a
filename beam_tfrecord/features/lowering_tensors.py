"""Columns of NumPy arrays as plain columns and back, under the names of `leaves`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from beam_tfrecord.errors import DataError
from beam_tfrecord.features.leaves import DTYPE, SHAPE, VALUES, Leaf
from beam_tfrecord.features.lowering_lists import (
    BoolArray,
    Int64Array,
    Layer,
    make_list,
    missing_of,
)
from beam_tfrecord.features.lowering_text import fixed_binary
from beam_tfrecord.features.raising import raise_values
from beam_tfrecord.features.tensors import (
    Array,
    TensorType,
    dtype_name,
    is_small_float,
    join_tensor_types,
    repeated_shape,
    tensor_column,
    varying_storage,
)


def lower_tensors(array: pa.ExtensionArray, arrow: TensorType, *, store: str) -> Iterator[pa.Array]:
    """Yield the leaves of a column of tensors.

    Args:
        array: The column.
        arrow: Its type.
        store: ``values``: flat numbers; else bytes.
    """
    missing, shape = missing_of(array), arrow.fixed_shape
    storage = array.storage
    data, shapes = (storage, None) if arrow.is_dense else storage.flatten()
    if store != "values":
        # A fixed-size binary of no bytes at all has no buffer that the kernel could look at.
        yield data if arrow.nbytes != 0 else data.cast(pa.binary())
    else:
        values, offsets = _values_of(data, arrow)
        yield (
            make_list(Layer(offsets, missing), pa.array(values))
            if shape != ()
            else (pa.array(values, mask=missing))
        )
        if shape is not None:
            return
    if shapes is None:
        sizes = np.tile(np.array(shape, np.int64), len(array))
        offsets = np.arange(len(array) + 1, dtype=np.int64) * len(shape or ())
        shapes = make_list(Layer(offsets, missing), pa.array(sizes))
    yield shapes
    if store != "values":
        name = pa.repeat(pa.scalar(dtype_name(arrow.dtype)), len(array))
        yield name if missing is None else pa.array(name.to_pylist(), name.type, mask=missing)


def floats_with_one_zero(numbers: Array, *, is_narrow: bool) -> Array:
    """Return a copy of floats with one zero and one NaN: those that are equal are equal bytes.

    Args:
        numbers: The floats.
        is_narrow: They are stored as float32. What that makes zero is zero, whatever its sign.
    """
    kind = numbers.dtype.type
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        stored = numbers.astype(np.float32) if is_narrow else numbers
        # The sum is for the parts of complex numbers: one may be a zero without the other.
        with_one_zero = np.where(stored == 0, kind(0), numbers + kind(0))
        made: Array = np.where(np.isnan(numbers), kind(np.nan), with_one_zero)
    return made


def tensors_with_one_zero(array: pa.ExtensionArray, *, is_narrow: bool) -> pa.ExtensionArray:
    """Return a column of tensors, where they are of floats, with one zero and one NaN."""
    arrow = array.type
    if arrow.dtype.kind not in "fc" and not is_small_float(arrow.dtype):
        return array
    tensors = (value.as_py() for value in array)
    made = [
        None if tensor is None else floats_with_one_zero(tensor, is_narrow=is_narrow)
        for tensor in tensors
    ]
    return tensor_column(made, arrow)


def _values_of(data: pa.Array, arrow: TensorType) -> tuple[Array, Int64Array]:
    """Return the numbers of binary values, and where those of each row begin."""
    rows, first, width = len(data), data.offset, arrow.dtype.itemsize
    if arrow.is_dense:
        starts = np.arange(first, first + rows + 1, dtype=np.int64) * (arrow.nbytes or 0)
    else:
        starts = np.frombuffer(data.buffers()[1], np.int64)[first : first + rows + 1]
    raw = np.frombuffer(data.buffers()[-1] or b"", np.uint8)[starts[0] : starts[-1]]
    # Arrow's buffers need not be aligned to the values that lie in them.
    values = np.require(raw.view(arrow.dtype), requirements=["C", "A"])
    if values.dtype.kind == "b":
        values = values.view(np.uint8)
    if is_small_float(arrow.dtype):
        values = values.astype(np.float32)
    return values, (starts - starts[0]) // width


def enforce_tensors(array: pa.ExtensionArray, target: TensorType) -> pa.Array | None:
    """Return a column of tensors in a type with a more open shape, or None where it is none."""
    source = array.type
    if join_tensor_types(source, target) != target or source.dtype != target.dtype:
        return None
    if source.storage_type == target.storage_type:
        return pa.ExtensionArray.from_storage(target, array.storage)
    data = array.storage.cast(pa.binary()).cast(pa.large_binary())
    shapes = repeated_shape(source.fixed_shape or (), len(array))
    storage = varying_storage(data, shapes, missing_of(array))
    return pa.ExtensionArray.from_storage(target, storage)


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
