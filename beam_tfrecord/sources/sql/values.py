"""Converts the values that drivers return to the types of their columns.

A value that its type cannot hold exactly becomes null and is returned as a misfit. A value of a
date or time column that is not a date or time, such as ``infinity`` or ``24:00``, arrives as a
reserved number. Read as a date or time, that number would be silently wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.features.arrow_arrays import from_text
from beam_tfrecord.features.converting import cast_exactly, convert_each
from beam_tfrecord.sources.sql.database import Column, Misfit, Rows

_DAY_US = 86_400_000_000


# What the numbers of a driver for ``infinity`` and ``-infinity`` stand for: under 32 those of dates
# and under 64 those of timestamps.
Infinities = Mapping[int, Mapping[int, str]]


def convert_batch(
    arrays: Iterable[pa.Array], columns: Sequence[Column], infinities: Infinities
) -> Rows:
    """Convert the columns of a driver's batch to their types."""
    pairs = zip(arrays, columns, strict=True)
    converted = (_convert(values, column, infinities) for values, column in pairs)
    return Rows.of([column.name for column in columns], converted)


def _convert(
    values: pa.Array, column: Column, infinities: Infinities
) -> tuple[pa.Array, list[Misfit]]:
    arrow = column.arrow
    assert arrow is not None
    values = _storage(values)
    odd = _odd_moments(values, infinities)
    verb = "holds" if pa.types.is_nested(values.type) else "is"
    found = [misfit(row, column.name, arrow, text, verb=verb) for row, text in odd.items()]
    if odd:
        is_odd = pa.array(np.isin(np.arange(len(values)), list(odd)))
        values = pc.if_else(is_odd, pa.scalar(None, values.type), values)
    array, others = cast_column(values, column.name, arrow)
    return array, found + others


def _storage(values: pa.Array) -> pa.Array:
    return values.storage if isinstance(values.type, pa.BaseExtensionType) else values


def _odd_moments(values: pa.Array, infinities: Infinities) -> dict[int, str]:
    """Return what the reserved number of each row that holds one, at any depth, stands for."""
    values = _storage(values)
    of = values.type
    if pa.types.is_struct(of):
        inner = [_odd_moments(child, infinities) for child in values.flatten()]
        return {row: text for found in inner for row, text in found.items()}
    if pa.types.is_map(of):
        entries = pa.struct([("key", of.key_type), ("value", of.item_type)])
        return _odd_moments(values.cast(pa.list_(entries)), infinities)
    if pa.types.is_nested(of):
        found = _odd_moments(values.flatten(), infinities)
        parents = pc.list_parent_indices(values) if found else []
        return {parents[item].as_py(): text for item, text in found.items()}
    if pa.types.is_date32(of) or pa.types.is_timestamp(of):
        reserved = infinities[of.bit_width]
    elif pa.types.is_time64(of) and of.unit == "us":
        reserved = {_DAY_US: "24:00:00"}
    else:
        return {}
    numbers = values.view(pa.int32() if of.bit_width == 32 else pa.int64())
    is_odd = pc.is_in(numbers, pa.array(list(reserved), numbers.type))
    rows = pc.indices_nonzero(is_odd).to_pylist()
    return {row: reserved[numbers[row].as_py()] for row in rows}


def cast_column(
    values: pa.Array, name: str, to: pa.DataType, cure: str = ""
) -> tuple[pa.Array, list[Misfit]]:
    """Cast the values of a column; a value that does not fit exactly becomes null and a misfit."""
    if pa.types.is_string(values.type) and pa.types.is_decimal(to):
        array, rows = convert_each(values, to, from_text)
    else:
        array, rows = cast_exactly(values, to)
    return array, [misfit(row, name, to, text_of(values[row]), cure) for row in rows.tolist()]


def text_of(value: pa.Scalar) -> str:
    """Return a value as text, even a date before year 1 or after 9999, which Python cannot hold."""
    try:
        return str(value.as_py())
    except (OverflowError, ValueError):
        return str(value.cast(pa.string()))


def misfit(
    row: int, name: str, arrow: pa.DataType, text: str, cure: str = "", *, verb: str = "is"
) -> Misfit:
    """Return the misfit for a value that a type cannot hold, with the option that reads it."""
    cure = cure or f"pass --types {name}=text"
    return Misfit(row, name, f"{verb} {text[:40]!r}, which {arrow} cannot hold: {cure}", text)
