"""Chooses an Arrow type for each column of SQLite, and reads rows of SQLite into Arrow columns.

SQLite stores any kind of value in any column, and no value is cast silently. A value that the
column's type cannot hold exactly is a misfit. A column without a declared type gets the type that
all of its values have.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from beam_tfrecord.features.arrow_arrays import from_text
from beam_tfrecord.features.arrow_types import is_text
from beam_tfrecord.features.converting import convert_each
from beam_tfrecord.sources.sql.database import Column, Misfit, Rows
from beam_tfrecord.sources.sql.values import misfit

_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC) *\( *(\d+) *(?:, *(\d+) *)?\)", re.I)
_LARGEST_PRECISION = 38
_KIND_NAMES = {int: "integer", float: "real", str: "text", bytes: "blob"}

# Types by the beginning of the declared type; the first match counts.
_DECLARED: tuple[tuple[str, pa.DataType], ...] = (
    ("BOOL", pa.bool_()),
    ("DATETIME", pa.timestamp("us")),
    ("TIMESTAMP", pa.timestamp("us")),
    ("DATE", pa.date32()),
    ("TIME", pa.time64("us")),
    ("UUID", pa.string()),
    ("JSON", pa.string()),
)
# Types by a part of the declared type: SQLite's rules of affinity, and two more for numbers.
_AFFINITY: tuple[tuple[str, pa.DataType], ...] = (
    ("INT", pa.int64()),
    ("CHAR", pa.string()),
    ("CLOB", pa.string()),
    ("TEXT", pa.string()),
    ("BLOB", pa.binary()),
    ("REAL", pa.float64()),
    ("FLOA", pa.float64()),
    ("DOUB", pa.float64()),
    ("DECIMAL", pa.float64()),
    ("NUMERIC", pa.float64()),
)


def declared_type(declared: str) -> pa.DataType | None:
    """Return the Arrow type for a declared type of SQLite, or None if it implies no type."""
    upper = declared.strip().upper()
    for start, arrow in _DECLARED:
        if upper.startswith(start):
            return arrow
    if match := _DECIMAL.match(upper):
        precision, scale = int(match[1]), int(match[2] or 0)
        if 0 < precision <= _LARGEST_PRECISION and scale <= precision:
            return pa.decimal128(precision, scale)
        return pa.string()
    return next((arrow for part, arrow in _AFFINITY if part in upper), None)


def column_of(
    name: str,
    declared: str,
    wanted: pa.DataType | None,
    *,
    kinds: set[str] | None,
    select: str,
    nullable: bool,
) -> Column:
    """Return a column of type `wanted`, else of the type of its values, else as declared."""
    arrow = wanted if wanted is not None else declared_type(declared)
    if kinds is not None and (kinds or arrow is None):
        arrow = _common_type(kinds)
    refusal = ""
    if arrow is None:
        suited = "bytes" if kinds and "blob" in kinds else "text"
        refusal = f"it holds values of several kinds: pass --types {name}={suited}"
    elif wanted is not None and _stored_kinds(wanted) is None:
        arrow, refusal = None, f"SQLite has no values of type {wanted}: correct --types"
    if wanted is not None and _is_bytes(wanted):
        # The cast makes even texts that are not UTF-8 readable.
        select = f"CAST({select} AS BLOB)"
    return Column(name, declared or "untyped", arrow, nullable, select, refusal)


def _common_type(kinds: set[str]) -> pa.DataType | None:
    if not kinds:
        return pa.null()
    if kinds == {"integer"}:
        return pa.int64()
    if kinds <= {"integer", "real"}:
        return pa.float64()
    return {"text": pa.string(), "blob": pa.binary()}.get(kinds.pop()) if len(kinds) == 1 else None


def _stored_kinds(arrow: pa.DataType) -> set[type] | None:
    """Return the kinds of stored values that a type can hold; None for unsupported types."""
    types = pa.types
    if types.is_integer(arrow) or types.is_boolean(arrow):
        return {int}
    if types.is_floating(arrow):
        return {int, float}
    if types.is_decimal(arrow) or is_text(arrow):
        return {int, float, str}
    if types.is_null(arrow):
        return set()
    if _is_bytes(arrow):
        return {bytes}
    return {str} if is_iso(arrow) else None


def is_iso(arrow: pa.DataType) -> bool:
    """Return whether SQLite stores such values as ISO 8601 text."""
    types = pa.types
    is_plain_timestamp = types.is_timestamp(arrow) and arrow.tz is None
    return bool(types.is_date(arrow) or types.is_time(arrow) or is_plain_timestamp)


def _is_bytes(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_binary(arrow) or pa.types.is_large_binary(arrow))


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
    if is_iso(arrow) or is_text(arrow) or pa.types.is_decimal(arrow):
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
    suited = "bytes" if isinstance(value, bytes) or _is_bytes(column.arrow) else "text"
    cure = f"pass --types {column.name}={suited}"
    verb = f"is {_KIND_NAMES[type(value)]}"
    return misfit(row, column.name, column.arrow, shown, cure, verb=verb)
