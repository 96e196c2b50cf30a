"""Converts the values that drivers return to the types of their columns.

A value that its type cannot hold exactly becomes null and is returned as a misfit. A value of a
date or time column that is not a date or time, such as ``infinity`` or ``24:00``, arrives as a
reserved number. Read as a date or time, that number would be silently wrong.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.features.arrow_arrays import from_text
from beam_tfrecord.features.converting import cast_exactly
from beam_tfrecord.sources.sql.database import Misfit, SqlColumn, SqlRows

# Exceptions that conversions raise for values that they cannot convert exactly.
NOT_EXACT = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError)

_DAY_US = 86_400_000_000
_NO_ROWS = np.zeros(0, np.int64)


@dataclasses.dataclass(frozen=True)
class Infinities:
    """The numbers by which a driver represents ``infinity`` and ``-infinity``, in this order."""

    days: tuple[int, int]
    ticks: tuple[int, int]


def convert_batch(
    arrays: Iterable[pa.Array], columns: Sequence[SqlColumn], infinities: Infinities
) -> SqlRows:
    """Convert the columns of a driver's batch to their types."""
    pairs = zip(arrays, columns, strict=True)
    converted = (_convert(values, column, infinities) for values, column in pairs)
    return SqlRows.of([column.name for column in columns], converted)


def _convert(
    values: pa.Array, column: SqlColumn, infinities: Infinities
) -> tuple[pa.Array, list[Misfit]]:
    arrow = column.arrow
    assert arrow is not None
    values = _storage(values)
    rows = np.unique(_rows_without_moment(values, infinities)).tolist()
    found = [_no_moment(row, values[row], column, infinities) for row in rows]
    if rows:
        mask = np.zeros(len(values), bool)
        mask[rows] = True
        values = pc.if_else(pa.array(mask), pa.scalar(None, values.type), values)
    if pa.types.is_string(values.type) and pa.types.is_decimal(arrow):
        array, others = convert_each(values, arrow, from_text)
    else:
        array, others = cast_exactly(values, arrow)
    return array, found + _misfits(values, others, column.name, arrow)


def _storage(values: pa.Array) -> pa.Array:
    return values.storage if isinstance(values.type, pa.BaseExtensionType) else values


def _rows_without_moment(values: pa.Array, infinities: Infinities) -> np.ndarray:
    """Return the rows that contain, at any depth, a reserved number instead of a date or time."""
    of = values.type
    if not _has_moments(of):
        return _NO_ROWS
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
    return _plain_rows_without_moment(_storage(values), infinities)


def _has_moments(of: pa.DataType) -> bool:
    inner = (of.field(index).type for index in range(of.num_fields))
    return bool(pa.types.is_temporal(of)) or any(map(_has_moments, inner))


def _plain_rows_without_moment(values: pa.Array, infinities: Infinities) -> np.ndarray:
    if pa.types.is_date32(values.type):
        mask = pc.is_in(values.view(pa.int32()), pa.array(infinities.days, pa.int32()))
    elif pa.types.is_timestamp(values.type):
        mask = pc.is_in(values.view(pa.int64()), pa.array(infinities.ticks, pa.int64()))
    elif pa.types.is_time64(values.type) and values.type.unit == "us":
        mask = pc.fill_null(pc.greater_equal(values.view(pa.int64()), _DAY_US), False)
    else:
        return _NO_ROWS
    if not pc.any(mask).as_py():
        return _NO_ROWS
    return np.flatnonzero(mask.to_numpy(zero_copy_only=False))


def _no_moment(row: int, value: pa.Scalar, column: SqlColumn, infinities: Infinities) -> Misfit:
    if pa.types.is_nested(value.type):
        message = (
            f"holds 'infinity' or 24:00:00, which {column.arrow} cannot hold: "
            f"pass --types {column.name}=text"
        )
        return Misfit(row, column.name, message)
    text = "infinity"
    if pa.types.is_time(value.type):
        text = "24:00:00"
    elif value.value in (infinities.days[1], infinities.ticks[1]):
        text = "-infinity"
    return _misfit(row, column.name, column.arrow, text)


def convert_each(
    values: Any, arrow: pa.DataType, convert: Callable[[Any, pa.DataType], pa.Array]
) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Convert values all at once, or one by one if some do not fit."""
    misfits = []
    try:
        array = convert(values, arrow)
    except NOT_EXACT:
        pieces = []
        for row in range(len(values)):
            try:
                pieces.append(convert(values[row : row + 1], arrow))
            except NOT_EXACT:
                misfits.append(row)
                pieces.append(pa.nulls(1, arrow))
        array = pa.concat_arrays(pieces)
    return array, np.array(misfits, np.int64)


def cast_column(
    values: pa.Array, name: str, to: pa.DataType, cure: str = ""
) -> tuple[pa.Array, list[Misfit]]:
    """Cast the values of a column; a value that does not fit exactly becomes null and a misfit."""
    array, rows = cast_exactly(values, to)
    return array, _misfits(values, rows, name, to, cure)


def _misfits(
    values: pa.Array, rows: npt.NDArray[np.int64], name: str, arrow: pa.DataType, cure: str = ""
) -> list[Misfit]:
    return [_misfit(row, name, arrow, text_of(values[row]), cure) for row in rows.tolist()]


def text_of(value: pa.Scalar) -> str:
    """Return a value as text, even a date before year 1 or after 9999, which Python cannot hold."""
    try:
        return str(value.as_py())
    except (OverflowError, ValueError):
        return str(value.cast(pa.string()))


def _misfit(row: int, name: str, arrow: pa.DataType | None, text: str, cure: str = "") -> Misfit:
    cure = cure or f"pass --types {name}=text"
    return Misfit(row, name, f"is {text[:40]!r}, which {arrow} cannot hold: {cure}", text)
