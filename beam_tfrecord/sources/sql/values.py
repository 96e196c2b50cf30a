"""Values of databases that give Arrow by themselves: brought to a column's type, or misfits.

A date or time that no calendar has, such as ``infinity`` or ``24:00``, comes as a number that
means it; taken for a date it would be a silent lie.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.sources.parquet.types import cast_exactly
from beam_tfrecord.sources.sql.engine import Misfit, SqlColumn, SqlRows

_SHOWN_CHARACTERS = 200
_DAY_US = 86_400_000_000


@dataclasses.dataclass(frozen=True)
class Infinities:
    """The numbers that a database gives for ``infinity`` and ``-infinity``, in this order.

    Attributes:
        days: As dates.
        ticks: As timestamps, of any unit.
    """

    days: tuple[int, int]
    ticks: tuple[int, int]


def rows_taken(
    data: pa.RecordBatch, columns: Sequence[SqlColumn], infinities: Infinities
) -> SqlRows:
    """Bring a batch of a driver to the types of its columns, which are named by their numbers."""
    arrays, misfits = [], []
    for values, column in zip(data.columns, columns, strict=True):
        array, found = taken(values, column, infinities)
        arrays.append(array)
        misfits += found
    names = [str(index) for index in range(len(columns))]
    return SqlRows(pa.RecordBatch.from_arrays(arrays, names=names), tuple(misfits))


def taken(
    values: pa.Array, column: SqlColumn, infinities: Infinities
) -> tuple[pa.Array, list[Misfit]]:
    """Bring what a driver gives to the type of its column; what does not fit becomes null."""
    assert column.arrow is not None
    values = _plain(values)
    mask = _no_date(values, infinities)
    if mask is not None:
        return _without(values, mask, column, infinities)
    if pa.types.is_string(values.type) and pa.types.is_decimal(column.arrow):
        return _decimals(values, column)
    array, rows = cast_exactly(values, column.arrow)
    return array, [_misfit(row, column, str(values[row].as_py())) for row in rows.tolist()]


def _plain(values: pa.Array) -> pa.Array:
    """Return the storage of an extension."""
    return values.storage if isinstance(values.type, pa.BaseExtensionType) else values


def _no_date(values: pa.Array, infinities: Infinities) -> pa.Array | None:
    """Return a mask of the values that no date or time can be, or None where there are none."""
    if pa.types.is_date32(values.type):
        mask = pc.is_in(values.view(pa.int32()), pa.array(infinities.days, pa.int32()))
    elif pa.types.is_timestamp(values.type):
        mask = pc.is_in(values.view(pa.int64()), pa.array(infinities.ticks, pa.int64()))
    elif pa.types.is_time64(values.type) and values.type.unit == "us":
        mask = pc.fill_null(pc.greater_equal(values.view(pa.int64()), _DAY_US), False)
    else:
        return None
    return mask if pc.any(mask).as_py() else None


def _without(
    values: pa.Array, mask: pa.Array, column: SqlColumn, infinities: Infinities
) -> tuple[pa.Array, list[Misfit]]:
    assert column.arrow is not None
    numbers = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
    least = (infinities.days[1], infinities.ticks[1])
    misfits = []
    for row in np.flatnonzero(mask.to_numpy(zero_copy_only=False)).tolist():
        text = "-infinity" if numbers[row].as_py() in least else "infinity"
        text = "24:00:00" if pa.types.is_time(values.type) else text
        misfits.append(_misfit(row, column, text))
    kept = pc.if_else(mask, pa.scalar(None, values.type), values)
    array, rows = cast_exactly(kept, column.arrow)
    return array, misfits + [_misfit(row, column, str(kept[row])) for row in rows.tolist()]


def _decimals(values: pa.Array, column: SqlColumn) -> tuple[pa.Array, list[Misfit]]:
    """Read decimals from text, one by one where they do not all fit."""
    assert column.arrow is not None
    try:
        return values.cast(column.arrow), []
    except pa.ArrowInvalid:
        pieces: list[pa.Array] = []
        misfits = []
        for row in range(len(values)):
            try:
                pieces.append(values.slice(row, 1).cast(column.arrow))
            except pa.ArrowInvalid:
                misfits.append(_misfit(row, column, str(values[row].as_py())))
                pieces.append(pa.nulls(1, column.arrow))
        return pa.concat_arrays(pieces), misfits


def _misfit(row: int, column: SqlColumn, text: str) -> Misfit:
    message = f"is {text[:40]!r}, which {column.arrow} cannot hold: pass --types {column.name}=text"
    return Misfit(row, column.name, message, text[:_SHOWN_CHARACTERS])
