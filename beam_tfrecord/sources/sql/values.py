"""Converts driver batches that are already in Arrow to the columns' types, exactly or as misfits.

A date or time outside every calendar, such as ``infinity`` or ``24:00``, arrives as a reserved
number. Read as a date it would be silently wrong.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.features.arrow_arrays import from_text
from beam_tfrecord.sources.parquet.types import cast_exactly
from beam_tfrecord.sources.sql.database import Misfit, SqlColumn, SqlRows

_DAY_US = 86_400_000_000


@dataclasses.dataclass(frozen=True)
class Infinities:
    """The numbers by which a database represents ``infinity`` and ``-infinity``, in this order.

    Attributes:
        days: As dates.
        ticks: As timestamps, of any unit.
    """

    days: tuple[int, int]
    ticks: tuple[int, int]


def convert_batch(
    data: pa.RecordBatch, columns: Sequence[SqlColumn], infinities: Infinities
) -> SqlRows:
    """Convert a driver's batch to the types of its columns; the result's names are numbers."""
    arrays, misfits = [], []
    for values, column in zip(data.columns, columns, strict=True):
        array, found = _convert(values, column, infinities)
        arrays.append(array)
        misfits += found
    names = [str(index) for index in range(len(columns))]
    return SqlRows(pa.RecordBatch.from_arrays(arrays, names=names), tuple(misfits))


def _convert(
    values: pa.Array, column: SqlColumn, infinities: Infinities
) -> tuple[pa.Array, list[Misfit]]:
    assert column.arrow is not None
    values = _storage(values)
    if pa.types.is_nested(values.type):
        return _nested(values, column, infinities)
    mask = _not_a_moment(values, infinities)
    if mask is not None:
        return _without(values, mask, column, infinities)
    if pa.types.is_string(values.type) and pa.types.is_decimal(column.arrow):
        return _decimals(values, column)
    array, rows = cast_exactly(values, column.arrow)
    return array, [_misfit(row, column, str(values[row].as_py())) for row in rows.tolist()]


def _storage(values: pa.Array) -> pa.Array:
    return values.storage if isinstance(values.type, pa.BaseExtensionType) else values


def _not_a_moment(values: pa.Array, infinities: Infinities) -> pa.Array | None:
    """Return a mask of the values that are no date or time, or None if there are none."""
    if pa.types.is_date32(values.type):
        mask = pc.is_in(values.view(pa.int32()), pa.array(infinities.days, pa.int32()))
    elif pa.types.is_timestamp(values.type):
        mask = pc.is_in(values.view(pa.int64()), pa.array(infinities.ticks, pa.int64()))
    elif pa.types.is_time64(values.type) and values.type.unit == "us":
        mask = pc.fill_null(pc.greater_equal(values.view(pa.int64()), _DAY_US), False)
    else:
        return None
    return mask if pc.any(mask).as_py() else None


def _nested(
    values: pa.Array, column: SqlColumn, infinities: Infinities
) -> tuple[pa.Array, list[Misfit]]:
    """Convert lists, structs and maps; a value with an invalid date inside is a misfit itself."""
    assert column.arrow is not None
    rows = _rows_without_moment(values, infinities)
    if len(rows):
        mask = np.zeros(len(values), bool)
        mask[rows] = True
        values = pc.if_else(pa.array(mask), pa.scalar(None, values.type), values)
    message = (
        f"holds 'infinity' or 24:00:00, which {column.arrow} cannot hold: "
        f"pass --types {column.name}=text"
    )
    found = [Misfit(row, column.name, message) for row in np.unique(rows).tolist()]
    array, others = cast_exactly(values, column.arrow)
    return array, found + [_misfit(row, column, str(values[row])) for row in others.tolist()]


def _rows_without_moment(values: pa.Array, infinities: Infinities) -> np.ndarray:
    """Return the rows that contain, at any depth, a number that is no date or time."""
    of = values.type
    none = np.zeros(0, np.int64)
    if not _has_moments(of):
        return none
    if pa.types.is_struct(of):
        return np.concatenate([_rows_without_moment(one, infinities) for one in values.flatten()])
    if pa.types.is_fixed_size_list(of):
        parents = pc.list_parent_indices(values).to_numpy()
        return np.take(parents, _rows_without_moment(values.flatten(), infinities))
    if pa.types.is_nested(of):
        offsets = values.offsets.to_numpy()
        parents = np.repeat(np.arange(len(values)), np.diff(offsets))
        parts = [values.keys, values.items] if pa.types.is_map(of) else [values.values]
        cut = [part.slice(offsets[0], offsets[-1] - offsets[0]) for part in parts]
        found = [parents[_rows_without_moment(part, infinities)] for part in cut]
        # A null list may still span some items.
        nulls = np.flatnonzero(np.asarray(values.is_null()))
        return np.setdiff1d(np.concatenate(found), nulls)
    mask = _not_a_moment(_storage(values), infinities)
    return none if mask is None else np.flatnonzero(mask.to_numpy(zero_copy_only=False))


def _has_moments(of: pa.DataType) -> bool:
    if not pa.types.is_nested(of):
        return bool(pa.types.is_temporal(of))
    return any(_has_moments(of.field(index).type) for index in range(of.num_fields))


def _without(
    values: pa.Array, mask: pa.Array, column: SqlColumn, infinities: Infinities
) -> tuple[pa.Array, list[Misfit]]:
    numbers = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
    least = (infinities.days[1], infinities.ticks[1])
    misfits = []
    for row in np.flatnonzero(mask.to_numpy(zero_copy_only=False)).tolist():
        text = "-infinity" if numbers[row].as_py() in least else "infinity"
        text = "24:00:00" if pa.types.is_time(values.type) else text
        misfits.append(_misfit(row, column, text))
    valid = pc.if_else(mask, pa.scalar(None, values.type), values)
    array, rows = cast_exactly(valid, column.arrow)
    return array, misfits + [_misfit(row, column, str(valid[row])) for row in rows.tolist()]


def _decimals(values: pa.Array, column: SqlColumn) -> tuple[pa.Array, list[Misfit]]:
    """Parse decimals, one by one if they do not all fit."""
    assert column.arrow is not None
    try:
        return from_text(values, column.arrow), []
    except pa.ArrowInvalid:
        pieces: list[pa.Array] = []
        misfits = []
        for row in range(len(values)):
            try:
                pieces.append(from_text(values.slice(row, 1), column.arrow))
            except pa.ArrowInvalid:
                misfits.append(_misfit(row, column, str(values[row].as_py())))
                pieces.append(pa.nulls(1, column.arrow))
        return pa.concat_arrays(pieces), misfits


def _misfit(row: int, column: SqlColumn, text: str) -> Misfit:
    message = f"is {text[:40]!r}, which {column.arrow} cannot hold: pass --types {column.name}=text"
    return Misfit(row, column.name, message, text)
