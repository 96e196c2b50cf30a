"""Raising: stored values back to the Arrow types they came from; the inverse of lowering."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.errors import DataError
from beam_tfrecord.features.leaves import BYTES, FLOAT, Leaf, value_count
from beam_tfrecord.features.lowering_lists import Layer, make_list, take_values
from beam_tfrecord.features.lowering_text import from_text, uuid_from_text
from beam_tfrecord.features.type_kinds import is_binary, is_temporal, is_text, is_uuid


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
