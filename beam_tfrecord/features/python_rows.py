"""Converts Arrow data to Python values, for rows, functions of the user, and messages.

Times that Python's own classes cannot hold become NumPy's datetime64 and timedelta64 in the unit of
the column: times of nanoseconds without a zone, and whole columns with a time beyond these classes,
such as one after the year 9999. `python_values` (the module) converts all of them back.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.features.arrow_types import is_list, numpy_dtype, time_unit


def python_rows(batch: pa.RecordBatch, *, shaped: bool = False) -> list[dict[str, Any]]:
    """Return the rows of a batch as dicts of Python values.

    Tensors are arrays of their shape if `shaped`, else flat lists, which functions may change.
    """
    types = [arrow for top in batch.schema.types for arrow in types_in(top)]
    if not any(_is_time(arrow) or (shaped and _is_tensor(arrow)) for arrow in types):
        return list(batch.to_pylist())
    columns = [
        python_values(column if shaped or not _is_tensor(column.type) else column.storage)
        for column in batch.columns
    ]
    names = batch.schema.names
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def python_values(column: pa.Array) -> list[Any]:
    """Return a column's values; a missing one is None, and a tensor is an array of its shape.

    A time of day in nanoseconds is the timedelta64 since midnight.
    """
    arrow, types = column.type, list(types_in(column.type))
    if _is_tensor(arrow):
        dtype, lists = numpy_dtype(arrow.value_type), column.storage.to_pylist()
        if column.storage.flatten().null_count:
            dtype = np.dtype(object)  # refused when it is written
        return [one and np.array(one, dtype).reshape(arrow.shape) for one in lists]
    if not any(map(_is_time, types)):
        return list(column.to_pylist())
    if not any(getattr(one, "unit", "") == "ns" and not getattr(one, "tz", None) for one in types):
        with contextlib.suppress(ValueError, OverflowError):
            return list(column.to_pylist())
    if pa.types.is_temporal(arrow):
        return [None if np.isnat(value) else value for value in times_of(column)]
    if pa.types.is_struct(arrow):
        names, children = [field.name for field in arrow], map(python_values, column.flatten())
        rows = [dict(zip(names, row, strict=True)) for row in zip(*children, strict=True)]
        return [row if valid else None for row, valid in zip(rows, column.is_valid(), strict=True)]
    if pa.types.is_map(arrow):
        entry = pa.struct([("key", arrow.key_type), ("value", arrow.item_type)])
        lists = python_values(column.cast(pa.list_(entry)))
        return [one if one is None else [tuple(of.values()) for of in one] for one in lists]
    if is_list(arrow):
        values, lengths = iter(python_values(column.flatten())), pc.list_value_length(column)
        return [
            None if length is None else list(itertools.islice(values, length))
            for length in lengths.to_pylist()
        ]
    return python_values(column.dictionary_decode())


def _is_time(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(arrow))


def _is_tensor(arrow: pa.DataType) -> bool:
    return isinstance(arrow, pa.FixedShapeTensorType)


def types_in(arrow: pa.DataType) -> Iterator[pa.DataType]:
    """Yield a type and the types inside of it."""
    yield arrow
    inner = [arrow.field(index).type for index in range(arrow.num_fields)]
    if pa.types.is_dictionary(arrow):
        inner.append(arrow.value_type)
    for one in inner:
        yield from types_in(one)


def times_of(column: pa.Array) -> npt.NDArray[Any]:
    """Return times as datetime64 or timedelta64 in the unit of the column.

    Missing times are NaT. A time of day becomes the timedelta64 since midnight.
    """
    arrow = column.type
    spans = pa.types.is_duration(arrow) or pa.types.is_time(arrow)
    stored = pa.int32() if arrow.bit_width == 32 else pa.int64()
    values = column.view(stored).fill_null(0).to_numpy().astype(np.int64)
    out: npt.NDArray[Any] = values.view(f"{'m8' if spans else 'M8'}[{time_unit(arrow)}]")
    if column.null_count:
        out[column.is_null().to_numpy(zero_copy_only=False)] = "NaT"
    return out
