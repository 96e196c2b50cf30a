"""SQLite's columns as Arrow: the declared type first, and no value is ever cast silently.

SQLite stores any kind of value in any column. A value that is not of the column's declared type
is a misfit; a column without a declared type takes the type that all of its values have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.features.arrow_arrays import from_text
from beam_tfrecord.sources.sql.engine import Misfit, Relation, SqlColumn, SqlRows

if TYPE_CHECKING:
    from beam_tfrecord.sources.sql.sqlite.engine import SqliteConnection

_SHOWN_CHARACTERS = 200
_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC) *\( *(\d+) *(?:, *(\d+) *)?\)", re.I)
_LARGEST_PRECISION = 38
_KIND_NAMES = {int: "integer", float: "real", str: "text", bytes: "blob"}

# By what the declared type begins with, in the order of looking.
_DECLARED: tuple[tuple[str, pa.DataType], ...] = (
    ("BOOL", pa.bool_()),
    ("DATETIME", pa.timestamp("us")),
    ("TIMESTAMP", pa.timestamp("us")),
    ("DATE", pa.date32()),
    ("TIME", pa.time64("us")),
    ("UUID", pa.string()),
    ("JSON", pa.string()),
)
# SQLite's own rules of affinity, by what the declared type holds anywhere.
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
    """Return the Arrow type of a declared type; None where it says nothing."""
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
    connection: SqliteConnection,
    relation: Relation,
    name: str,
    declared: str,
    not_null: bool,
    wanted: pa.DataType | None,
    *,
    is_table: bool,
) -> SqlColumn:
    """Return a column, under the type that is wanted, declared, or that all its values have."""
    quoted = connection.dialect.name(name)
    arrow = wanted if wanted is not None else declared_type(declared)
    # For an expression in a view or query, SQLite 3.41 and later declare BLOB whatever its values.
    says_nothing = not is_table and declared.upper() == "BLOB" and wanted is None
    if arrow is None or says_nothing:
        found = connection.fetch(relation.select(f"DISTINCT TYPEOF({quoted})"))
        kinds = {kind for (kind,) in found} - {"null"}
        arrow = _common_type(kinds) if kinds or arrow is None else arrow
    refusal = ""
    if arrow is None:
        takes_all = "bytes" if "blob" in kinds else "text"
        refusal = f"it holds values of several kinds: pass --types {name}={takes_all}"
    elif wanted is not None and convert_function(wanted) is None:
        arrow, refusal = None, f"SQLite has no values of type {wanted}: correct --types"
    # Bytes that are no UTF-8 can be read as bytes even where they were stored as text.
    select = f"CAST({quoted} AS BLOB)" if wanted is not None and _is_bytes(wanted) else quoted
    return SqlColumn(name, declared or "untyped", arrow, not not_null, select, refusal)


def _common_type(kinds: set[str]) -> pa.DataType | None:
    if not kinds:
        return pa.null()
    if kinds == {"integer"}:
        return pa.int64()
    if kinds <= {"integer", "real"}:
        return pa.float64()
    return {"text": pa.string(), "blob": pa.binary()}.get(kinds.pop()) if len(kinds) == 1 else None


def convert(rows: Sequence[tuple[Any, ...]], columns: Sequence[SqlColumn]) -> SqlRows:
    """Turn fetched rows into Arrow columns; misfits become null."""
    arrays = []
    misfits: list[Misfit] = []
    for values, column in zip(zip(*rows, strict=True), columns, strict=True):
        assert column.arrow is not None
        try:
            arrays.append(_fast(values, column.arrow))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError):
            array, found = _one_by_one(values, column)
            arrays.append(array)
            misfits += found
    names = [column.name for column in columns]
    return SqlRows(pa.RecordBatch.from_arrays(arrays, names=names), tuple(misfits))


def _fast(values: tuple[Any, ...], arrow: pa.DataType) -> pa.Array:
    """Convert a column all of whose values are of its type.

    Raises:
        ValueError, pyarrow.ArrowInvalid, pyarrow.ArrowTypeError: One is not.
    """
    # Arrow would take bytes for text, text for bytes, and cut fractions.
    if not set(map(type, values)) <= _kinds(arrow):
        raise ValueError
    if is_iso(arrow):
        return from_iso(pa.array(values, pa.string()), arrow)
    if pa.types.is_boolean(arrow):
        numbers = pa.array(values, pa.uint8())
        if len(numbers) > numbers.null_count and pc.max(numbers).as_py() > 1:
            raise ValueError
        return numbers.cast(arrow)
    if pa.types.is_decimal(arrow):
        # A fraction is stored as a binary double; its shortest text is what was meant.
        texts = [v if v is None or isinstance(v, str) else repr(v) for v in values]
        return from_text(pa.array(texts, pa.string()), arrow)
    if pa.types.is_floating(arrow):
        # Arrow would round to a narrower float.
        wide = pa.array(values, pa.float64())
        narrow = wide.cast(arrow)
        if not narrow.cast(pa.float64()).equals(wide):
            raise ValueError
        return narrow
    return pa.array(values, arrow)


def _kinds(arrow: pa.DataType) -> set[type]:
    """Return the Python types of values that Arrow takes without loss."""
    none = type(None)
    if pa.types.is_integer(arrow) or pa.types.is_boolean(arrow):
        return {int, none}
    if pa.types.is_floating(arrow):
        return {int, float, none}
    if pa.types.is_decimal(arrow):
        return {int, float, str, none}
    return {bytes, none} if _is_bytes(arrow) else {str, none}


def _one_by_one(values: Iterable[Any], column: SqlColumn) -> tuple[pa.Array, list[Misfit]]:
    assert column.arrow is not None
    function = convert_function(column.arrow)
    assert function is not None
    kept: list[Any] = []
    misfits = []
    for row, value in enumerate(values):
        try:
            one = None if value is None else function(value)
            pa.array([one], column.arrow)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError):
            misfits.append(misfit_of(row, column, value))
            one = None
        kept.append(one)
    return pa.array(kept, column.arrow), misfits


def misfit_of(row: int, column: SqlColumn, value: Any) -> Misfit:
    """Say that a value is not of its column's type."""
    assert column.arrow is not None
    shown = value.hex() if isinstance(value, bytes) else str(value)
    # Text takes all but blobs, and bytes take everything.
    takes_all = "bytes" if isinstance(value, bytes) or _is_bytes(column.arrow) else "text"
    cure = f"pass --types {column.name}={takes_all}"
    if declared_type(column.declared) == pa.string() and _is_numeric(column.arrow):
        cure += "; a --schema turns text into numbers"
    message = (
        f"is {_KIND_NAMES[type(value)]} {shown[:40]!r} where {column.declared} is read as "
        f"{column.arrow}: {cure}"
    )
    return Misfit(row, column.name, message, shown[:_SHOWN_CHARACTERS])


def convert_function(arrow: pa.DataType) -> Callable[[Any], Any] | None:
    """Return the function that takes one value exactly or raises ValueError; None: no such."""
    if pa.types.is_integer(arrow):
        return _integer
    for is_kind, function in _FUNCTIONS:
        if is_kind(arrow):
            return function
    if pa.types.is_decimal(arrow):
        return _decimal(arrow)
    if pa.types.is_floating(arrow):
        return _float(arrow)
    return _written(arrow) if is_iso(arrow) else None


def is_iso(arrow: pa.DataType) -> bool:
    """Tell whether SQLite keeps such values as ISO 8601 text."""
    types = pa.types
    is_plain_timestamp = types.is_timestamp(arrow) and arrow.tz is None
    return bool(types.is_date(arrow) or types.is_time(arrow) or is_plain_timestamp)


def _is_bytes(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_binary(arrow) or pa.types.is_large_binary(arrow))


def _is_numeric(arrow: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(arrow) or types.is_floating(arrow) or types.is_decimal(arrow))


def _of(value: Any, *kinds: type) -> Any:
    if type(value) not in kinds:
        raise ValueError(value)
    return value


def _integer(value: Any) -> Any:
    return _of(value, int)


def _float(arrow: pa.DataType) -> Callable[[Any], Any]:
    """Return the function that takes a number which such a float holds."""

    def exactly(value: Any) -> Any:
        number = pa.scalar(float(_of(value, int, float)), pa.float64()).cast(arrow).as_py()
        if number != value:
            raise ValueError(value)
        return number

    return exactly


def _text(value: Any) -> str:
    return value if isinstance(value, str) else repr(_of(value, int, float))


def _bytes(value: Any) -> Any:
    return _of(value, bytes)


def _bool(value: Any) -> bool:
    if _of(value, int) not in (0, 1):
        raise ValueError(value)
    return bool(value)


def _written(arrow: pa.DataType) -> Callable[[Any], Any]:
    """Return the function that reads ISO 8601 text, with no digit too many and no zone."""
    return lambda value: from_iso(pa.array([_of(value, str)]), arrow)[0]


def from_iso(texts: pa.Array, arrow: pa.DataType) -> pa.Array:
    """Read ISO 8601 texts.

    Raises:
        pyarrow.ArrowInvalid: One is none, has too many digits, or a zone.
    """
    if not pa.types.is_time(arrow):
        return texts.cast(arrow)
    # Arrow reads times of day only behind a date.
    moments = pc.binary_join_element_wise("1970-01-01", texts, " ")
    return moments.cast(pa.timestamp("us")).cast(arrow)


def _decimal(arrow: pa.DataType) -> Callable[[Any], Any]:
    return lambda value: _fast((value,), arrow)[0].as_py()


_FUNCTIONS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]], ...] = (
    (pa.types.is_string, _text),
    (pa.types.is_large_string, _text),
    (pa.types.is_binary, _bytes),
    (pa.types.is_large_binary, _bytes),
    (pa.types.is_boolean, _bool),
    (pa.types.is_null, _bytes),
)
