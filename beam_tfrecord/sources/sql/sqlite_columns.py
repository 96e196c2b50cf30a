"""Chooses an Arrow type for each column of SQLite, and reads rows of SQLite into Arrow columns.

SQLite stores any kind of value in any column, and no value is cast silently. A value that the
column's type cannot hold exactly is a misfit. A column without a declared type gets the type that
all of its values have.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from beam_tfrecord.features.arrow_arrays import from_text
from beam_tfrecord.features.arrow_types import is_binary, is_text
from beam_tfrecord.features.converting import convert_each
from beam_tfrecord.sources.sql.database import Column, Misfit, Rows
from beam_tfrecord.sources.sql.values import misfit

_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC) *\( *(\d+) *(?:, *(\d+) *)?\)", re.I)
_LARGEST_PRECISION = 38
_KIND_NAMES = {int: "integer", float: "real", str: "text", bytes: "blob"}

# The first row that matches the begin of a declared type counts. The last ones are SQLite's own
# rules of affinity, with two more types of numbers.
_DECLARED = (
    ("BOOL", pa.bool_()),
    ("DATETIME|TIMESTAMP", pa.timestamp("us")),
    ("DATE", pa.date32()),
    ("TIME", pa.time64("us")),
    ("UUID|JSON", pa.string()),
    (".*INT", pa.int64()),
    (".*(CHAR|CLOB|TEXT)", pa.string()),
    (".*BLOB", pa.binary()),
    (".*(REAL|FLOA|DOUB|DECIMAL|NUMERIC)", pa.float64()),
)


def declared_type(declared: str) -> pa.DataType | None:
    """Return the Arrow type for a declared type of SQLite, or None if it implies no type."""
    declared = declared.strip()
    if match := _DECIMAL.match(declared):
        precision, scale = int(match[1]), int(match[2] or 0)
        is_exact = 0 < precision <= _LARGEST_PRECISION and scale <= precision
        return pa.decimal128(precision, scale) if is_exact else pa.string()
    found = (arrow for begin, arrow in _DECLARED if re.match(begin, declared, re.I | re.S))
    return next(found, None)


_OF_KINDS = {
    frozenset({"integer"}): pa.int64(),
    frozenset({"real"}): pa.float64(),
    frozenset({"integer", "real"}): pa.float64(),
    frozenset({"text"}): pa.string(),
    frozenset({"blob"}): pa.binary(),
}


def with_type(column: Column, kinds: frozenset[str] | None) -> Column:
    """Return a column with the type of its values' kinds, which are None if its type is known."""
    if kinds is None:
        is_known = _stored_kinds(column.arrow) is not None
        why = f"SQLite has no values of type {column.arrow}: correct --types"
        return column if is_known else column.refused(why)
    if not kinds:
        return dataclasses.replace(column, arrow=declared_type(column.declared) or pa.null())
    if kinds in _OF_KINDS:
        return dataclasses.replace(column, arrow=_OF_KINDS[kinds])
    suited = "bytes" if "blob" in kinds else "text"
    return column.refused(f"it holds values of several kinds: pass --types {column.name}={suited}")


def _is_iso(arrow: pa.DataType) -> bool:
    """Return whether SQLite stores such values as ISO 8601 text."""
    is_moment = pa.types.is_temporal(arrow) and not pa.types.is_duration(arrow)
    return is_moment and getattr(arrow, "tz", None) is None


_STORED: tuple[tuple[Callable[[pa.DataType], bool], set[type]], ...] = (
    (pa.types.is_integer, {int}),
    (pa.types.is_boolean, {int}),
    (pa.types.is_floating, {int, float}),
    (pa.types.is_decimal, {int, float, str}),
    (is_text, {int, float, str}),
    (is_binary, {bytes}),
    (pa.types.is_null, set()),
    (_is_iso, {str}),
)


def _stored_kinds(arrow: pa.DataType) -> set[type] | None:
    """Return the kinds of stored values that a type can hold; None for unsupported types."""
    return next((kinds for is_kind, kinds in _STORED if is_kind(arrow)), None)


def convert(rows: Sequence[tuple[Any, ...]], columns: Sequence[Column]) -> Rows:
    """Convert rows of Python values to a batch."""
    pairs = zip(zip(*rows, strict=True), columns, strict=True)
    names = [column.name for column in columns]
    return Rows.of(names, (_column_array(values, column) for values, column in pairs))


def _column_array(values: Sequence[Any], column: Column) -> tuple[pa.Array, list[Misfit]]:
    array, rows = convert_each(values, column.arrow, _exact_array)
    return array, [_misfit(row, column, values[row]) for row in rows.tolist()]


def _exact_array(values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    """Convert stored values without any loss; raise an error if that is impossible."""
    kinds = set(map(type, values)) - {type(None)}
    # Arrow alone would accept bytes as text and text as bytes, and would cut fractions.
    if not kinds <= (_stored_kinds(arrow) or set()):
        raise ValueError
    if pa.types.is_boolean(arrow):
        return _reversibly(pa.array(values, pa.int64()), arrow)
    if pa.types.is_floating(arrow):
        floats = [None if value is None else float(value) for value in values]
        if int in kinds and floats != list(values):
            raise ValueError
        return _reversibly(pa.array(floats, pa.float64()), arrow)
    if _is_iso(arrow) or is_text(arrow) or pa.types.is_decimal(arrow):
        # SQLite stores a fraction as a double, whose shortest text is what was meant.
        texts = [repr(value) if isinstance(value, int | float) else value for value in values]
        return from_text(pa.array(texts, pa.string()), arrow)
    return pa.array(values, arrow)


def _reversibly(numbers: pa.Array, arrow: pa.DataType) -> pa.Array:
    """Cast numbers to booleans or narrower floats; raise ValueError if a value changes."""
    cast = numbers.cast(arrow)
    if not cast.cast(numbers.type).equals(numbers):
        raise ValueError
    return cast


def _misfit(row: int, column: Column, value: Any) -> Misfit:
    assert column.arrow is not None
    shown = value.hex() if isinstance(value, bytes) else str(value)
    # Any value but a blob can be read as text, and any value at all as bytes.
    suited = "bytes" if isinstance(value, bytes) or is_binary(column.arrow) else "text"
    cure = f"pass --types {column.name}={suited}"
    verb = f"is {_KIND_NAMES[type(value)]}"
    return misfit(row, column.name, column.arrow, shown, cure, verb=verb)
