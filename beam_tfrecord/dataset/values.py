"""Decoded columns as Python values and as NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.arrow_to_tf import typed_scalar
from beam_tfrecord.features.arrow_types import is_numpy_tensor
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.tensors import column_arrays, dtype_of

# Arrow makes Python objects of these by itself, several times as fast.
_PLAIN_OBJECTS = (
    *(pa.types.is_string, pa.types.is_large_string),
    *(pa.types.is_binary, pa.types.is_large_binary),
)


def python_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows of a batch as dicts of Python values."""
    columns = [python_values(column) for column in batch.columns]
    names = batch.schema.names
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def python_values(column: pa.Array) -> list[Any]:
    """Return a column's values; a missing one is None.

    Times that Python's own classes cannot hold (of nanoseconds, or beyond year 9999) become
    NumPy's datetime64 and timedelta64, the whole column alike.
    """
    if pa.types.is_temporal(column.type):
        if getattr(column.type, "unit", "") == "ns":
            return _numpy_times(column)
        try:
            return list(column.to_pylist())
        except (ValueError, OverflowError):
            return _numpy_times(column)
    return list(column.to_pylist())


def _numpy_times(column: pa.Array) -> list[Any]:
    return [None if np.isnat(value) else value for value in _times(column)]


def arrays_of(
    table: pa.Table | pa.RecordBatch, schema: Schema, defaults: Mapping[str, Any]
) -> dict[str, npt.NDArray[Any]]:
    """Return a column's values as an array each; see `Dataset.numpy` for the types.

    Raises:
        UsageError: Numbers are missing without a default, or `defaults` names no column.
    """
    check_defaults(schema, defaults)
    return {
        feature.name: _array(_one_array(table.column(feature.name)), feature, defaults)
        for feature in schema.features
    }


def check_defaults(schema: Schema, defaults: Mapping[str, Any]) -> None:
    """Refuse a default for a column that is not there.

    Raises:
        UsageError: There is one.
    """
    if unknown := [name for name in defaults if name not in schema]:
        raise UsageError(
            f"there is a default for {unknown[0]!r}, but the columns are {', '.join(schema.names)}"
        )


def _one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    # Extension types are combined by their storage, which every version of Arrow can do.
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _array(column: pa.Array, feature: Feature, defaults: Mapping[str, Any]) -> npt.NDArray[Any]:
    default = defaults.get(feature.name, feature.default)
    if default is not None and column.null_count:
        column = column.fill_null(typed_scalar(default, column.type, feature, "default"))
    if is_numpy_tensor(column.type):
        return column_arrays(column)
    if feature.dtype is not None:
        return _of_dtype(column, dtype_of(feature.dtype))
    if isinstance(column, pa.FixedShapeTensorArray):
        return _shaped(column.storage, feature.name).reshape(len(column), *column.type.shape)
    if isinstance(column, pa.ExtensionArray):
        return _objects(column)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    arrow = column.type
    if pa.types.is_fixed_size_list(arrow) and _is_number(arrow.value_type):
        return _shaped(column, feature.name)
    if _is_number(arrow):
        return _numbers(column, feature.name)
    if pa.types.is_temporal(arrow):
        return _times(column)
    if _is_list(arrow) and _is_number(arrow.value_type):
        return _ragged(column)
    return _objects(column)


def _of_dtype(column: pa.Array, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return values in a dtype that the Arrow type does not tell; missing times are NaT."""
    if dtype.kind in "Mm":
        missing = column.is_null().to_numpy(zero_copy_only=False)
        times: npt.NDArray[Any] = column.fill_null(0).to_numpy().astype(np.int64).view(dtype)
        times[missing] = np.array("NaT", dtype)
        return times
    if column.null_count:
        return _objects(column)
    if dtype.kind in "SU":
        values = column.to_pylist()
        # A function on the rows may have made text that the dtype would cut.
        width = max(map(len, values), default=0) * np.dtype(f"{dtype.kind}1").itemsize
        is_cut = width > dtype.itemsize or any(value[-1:] in (b"\0", "\0") for value in values)
        return _objects(column) if is_cut else np.array(values, dtype)
    return np.asarray(column.to_numpy(zero_copy_only=False)).astype(dtype)


def _is_number(arrow: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(arrow) or pa.types.is_floating(arrow) or pa.types.is_boolean(arrow)
    )


def _is_list(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_list(arrow) or pa.types.is_large_list(arrow))


def _numbers(column: pa.Array, name: str) -> npt.NDArray[Any]:
    if column.null_count:
        raise UsageError(
            f"column {name!r} has {column.null_count:,} missing values, which NumPy has no value "
            f"for: pass defaults={{{name!r}: …}}"
        )
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _shaped(column: pa.FixedSizeListArray, name: str) -> npt.NDArray[Any]:
    if column.null_count:
        return _numbers(column, name)
    return _numbers(column.flatten(), name).reshape(len(column), column.type.list_size)


def _times(column: pa.Array) -> npt.NDArray[Any]:
    """Return times as datetime64 or timedelta64 in the column's own unit, missing ones NaT.

    A time of day is the time since midnight.
    """
    arrow = column.type
    days = pa.types.is_date32(arrow)
    unit = "D" if days else "ms" if pa.types.is_date64(arrow) else arrow.unit
    spans = pa.types.is_duration(arrow) or pa.types.is_time(arrow)
    stored = pa.int32() if arrow.bit_width == 32 else pa.int64()
    values = column.view(stored).fill_null(0).to_numpy().astype(np.int64)
    out: npt.NDArray[Any] = values.view(f"{'m8' if spans else 'M8'}[{unit}]")
    if column.null_count:
        out[column.is_null().to_numpy(zero_copy_only=False)] = "NaT"
    return out


def _ragged(column: pa.ListArray) -> npt.NDArray[Any]:
    values = _numbers(column.values, "")
    offsets = column.offsets.to_numpy()
    out = np.empty(len(column), dtype=object)
    for row, valid in enumerate(column.is_valid().to_pylist()):
        out[row] = values[offsets[row] : offsets[row + 1]] if valid else None
    return out


def _objects(column: pa.Array) -> npt.NDArray[Any]:
    if any(is_type(column.type) for is_type in _PLAIN_OBJECTS):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    out = np.empty(len(column), dtype=object)
    # One by one: NumPy would take lists of equal length for another dimension.
    for row, value in enumerate(python_values(column)):
        out[row] = value
    return out
