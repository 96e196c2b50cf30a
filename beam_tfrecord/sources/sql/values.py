"""Holds the columns and rows of a query, and converts the values of drivers to Arrow types.

A value that its type cannot hold exactly becomes null and is returned as a misfit. A value of a
date or time column that is not a date or time, such as ``infinity`` or ``24:00``, arrives as a
reserved number. Read as a date or time, that number would be silently wrong.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.features.arrow_arrays import from_text
from beam_tfrecord.features.type_join import can_cast, cast_exactly, convert_each


@dataclasses.dataclass(frozen=True)
class SqlColumn:
    """A column of a table or of a query's result."""

    name: str
    declared: str
    arrow: pa.DataType | None
    nullable: bool
    select: str
    refusal: str = ""
    reader: Any = None

    def refused(self, refusal: str) -> SqlColumn:
        """Return the column without a type, and why."""
        return dataclasses.replace(self, arrow=None, refusal=refusal)

    def read_as(self, wanted: pa.DataType | None, text: str) -> SqlColumn:
        """Return the column with the type that the user wants; `text` selects it as text."""
        if wanted is None or wanted == self.arrow:
            return self
        if pa.types.is_string(wanted):
            return dataclasses.replace(self, arrow=wanted, select=text, refusal="")
        if self.arrow is not None and can_cast(self.arrow, wanted):
            return dataclasses.replace(self, arrow=wanted)
        return self.refused(f"it cannot be read as {wanted}: pass --types {self.name}=text")

    def as_array(self, arrays: str, text: str) -> SqlColumn:
        """Return a column of arrays, read as the option says: as lists, as text or not at all."""
        if arrays == "text":
            return self.read_as(pa.string(), text)
        if arrays == "list" and self.arrow is not None:
            return self
        cure = "--arrays text" if self.arrow is None else "--arrays list or --arrays text"
        return self.refused(f"an array is read with {cure}")


@dataclasses.dataclass(frozen=True)
class Misfit:
    """A value that its column's type cannot hold exactly."""

    row: int
    column: str
    message: str
    value: str = ""


@dataclasses.dataclass(frozen=True, eq=False)
class SqlRows:
    """A batch of result rows in which misfits are replaced by null."""

    data: pa.RecordBatch
    misfits: tuple[Misfit, ...] = ()

    @classmethod
    def of(
        cls, names: Iterable[str], converted: Iterable[tuple[pa.Array, list[Misfit]]]
    ) -> SqlRows:
        """Join converted columns, each with its misfits, to a batch with these column names."""
        arrays, misfits = zip(*converted, strict=True)
        data = pa.RecordBatch.from_arrays(list(arrays), names=list(names))
        return cls(data, tuple(itertools.chain(*misfits)))


_DAY_US = 86_400_000_000
_WRAPPED = "after 294247-01-10 04:00:54.775807"


# What the numbers of a driver for ``infinity`` and ``-infinity`` stand for: under 32 those of dates
# and under 64 those of timestamps.
Infinities = Mapping[int, Mapping[int, str]]


def convert_batch(
    arrays: Iterable[pa.Array],
    columns: Sequence[SqlColumn],
    infinities: Infinities,
    first_moment: int = -(2**63),
) -> SqlRows:
    """Convert the columns of a driver's batch to their types.

    A timestamp below `first_moment` is a later one that has wrapped around.
    """
    pairs = zip(arrays, columns, strict=True)
    converted = (_convert(values, column, infinities, first_moment) for values, column in pairs)
    return SqlRows.of([column.name for column in columns], converted)


def _convert(
    values: pa.Array, column: SqlColumn, infinities: Infinities, first_moment: int
) -> tuple[pa.Array, list[Misfit]]:
    arrow = column.arrow
    assert arrow is not None
    values = _storage(values)
    odd = _odd_moments(values, infinities, first_moment)
    verb = "holds" if pa.types.is_nested(values.type) else "is"
    found = [misfit(row, column.name, arrow, text, verb=verb) for row, text in odd.items()]
    if odd:
        is_odd = pa.array(np.isin(np.arange(len(values)), list(odd)))
        values = pc.if_else(is_odd, pa.scalar(None, values.type), values)
    array, others = cast_column(values, column.name, arrow)
    return array, found + others


def _storage(values: pa.Array) -> pa.Array:
    return values.storage if isinstance(values.type, pa.BaseExtensionType) else values


def _odd_moments(values: pa.Array, infinities: Infinities, first: int) -> dict[int, str]:
    """Return what a reserved or wrapped number in each row, at any depth, stands for."""
    values = _storage(values)
    of = values.type
    if pa.types.is_struct(of):
        inner = [_odd_moments(child, infinities, first) for child in values.flatten()]
        return {row: text for found in inner for row, text in found.items()}
    if pa.types.is_map(of):
        entries = pa.struct([("key", of.key_type), ("value", of.item_type)])
        return _odd_moments(values.cast(pa.list_(entries)), infinities, first)
    if pa.types.is_nested(of):
        found = _odd_moments(values.flatten(), infinities, first)
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
    if pa.types.is_timestamp(of):
        is_odd = pc.or_kleene(is_odd, pc.less(numbers, first))
    rows = pc.indices_nonzero(is_odd).to_pylist()
    return {row: reserved.get(numbers[row].as_py(), _WRAPPED) for row in rows}


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
