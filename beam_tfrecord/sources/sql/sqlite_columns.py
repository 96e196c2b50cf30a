"""Chooses an Arrow type for each column of SQLite, and reads rows of SQLite into Arrow columns.

SQLite stores any kind of value in any column, and no value is cast silently. A value that the
column's type cannot hold exactly is a misfit. A column without a declared type gets the type that
all of its values have.

A native kernel (`native._sqlite`) reads rows as Arrow columns. It calls the SQLite library that
Python's own `sqlite3` module has loaded. If the functions of that library cannot be found, rows are
read as Python values. A second copy of SQLite would be dangerous: closing a file in one copy drops
the POSIX locks that the other holds on it, also those of a write transaction that the user's own
code has open.
"""

from __future__ import annotations

import ctypes
import functools
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.features.arrow_arrays import from_text
from beam_tfrecord.features.arrow_types import is_text
from beam_tfrecord.sources.sql.database import Misfit, SqlColumn, SqlRows
from beam_tfrecord.sources.sql.values import NOT_EXACT, convert_each

_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC) *\( *(\d+) *(?:, *(\d+) *)?\)", re.I)
_LARGEST_PRECISION = 38
_KIND_NAMES = {int: "integer", float: "real", str: "text", bytes: "blob"}

_BATCH_BYTES = 32 * 2**20
# SQLITE_OPEN_READONLY, _URI and _NOMUTEX: a connection has one reader at a time.
_OPEN_FLAGS = 0x1 | 0x40 | 0x8000
_OK, _DONE, _INTERRUPT = 0, 101, 9
# The functions that the kernel calls, in the order in which it expects their addresses.
_CALLS = (
    *("sqlite3_step", "sqlite3_column_type", "sqlite3_column_int64", "sqlite3_column_double"),
    *("sqlite3_column_text", "sqlite3_column_blob", "sqlite3_column_bytes"),
)
_Progress = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)

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
) -> SqlColumn:
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
    return SqlColumn(name, declared or "untyped", arrow, nullable, select, refusal)


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


def _is_numeric(arrow: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(arrow) or types.is_floating(arrow) or types.is_decimal(arrow))


def convert(rows: Sequence[tuple[Any, ...]], columns: Sequence[SqlColumn]) -> SqlRows:
    """Convert rows of Python values to a batch."""
    pairs = zip(zip(*rows, strict=True), columns, strict=True)
    names = [column.name for column in columns]
    return SqlRows.of(names, (_column_array(values, column) for values, column in pairs))


def _column_array(values: Sequence[Any], column: SqlColumn) -> tuple[pa.Array, list[Misfit]]:
    array, rows = convert_each(values, column.arrow, _exact_array)
    return array, [_misfit(row, column, values[row]) for row in rows.tolist()]


def _exact_array(values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    """Convert stored values without any loss; raise one of `NOT_EXACT` if that is impossible."""
    kinds = set(map(type, values)) - {type(None)}
    # Arrow alone would accept bytes as text and text as bytes, and would cut fractions.
    if not kinds <= (_stored_kinds(arrow) or set()):
        raise ValueError
    if pa.types.is_boolean(arrow):
        return _reversibly(pa.array(values, pa.int64()), arrow)
    if is_iso(arrow):
        return from_text(pa.array(values, pa.string()), arrow)
    if pa.types.is_floating(arrow):
        floats = _as_floats(values) if int in kinds else values
        return _reversibly(pa.array(floats, pa.float64()), arrow)
    if is_text(arrow) or pa.types.is_decimal(arrow):
        texts = values if kinds <= {str} else _as_texts(values)
        if is_text(arrow):
            return pa.array(texts, arrow)
        return from_text(pa.array(texts, pa.string()), arrow)
    return pa.array(values, arrow)


def _as_texts(values: Sequence[Any]) -> list[str | None]:
    # SQLite stores a fraction as a double, whose shortest text is what was meant.
    return [value if value is None or isinstance(value, str) else repr(value) for value in values]


def _as_floats(values: Sequence[Any]) -> list[float | None]:
    floats = [None if value is None else float(value) for value in values]
    if floats != list(values):
        raise ValueError
    return floats


def _reversibly(numbers: pa.Array, arrow: pa.DataType) -> pa.Array:
    """Cast numbers to booleans or narrower floats; raise ValueError if a value changes."""
    cast = numbers.cast(arrow)
    if not cast.cast(numbers.type).equals(numbers):
        raise ValueError
    return cast


def _misfit(row: int, column: SqlColumn, value: Any) -> Misfit:
    assert column.arrow is not None
    shown = value.hex() if isinstance(value, bytes) else str(value)
    # Any value but a blob can be read as text, and any value at all as bytes.
    suited = "bytes" if isinstance(value, bytes) or _is_bytes(column.arrow) else "text"
    cure = f"pass --types {column.name}={suited}"
    if declared_type(column.declared) == pa.string() and _is_numeric(column.arrow):
        cure += "; a --schema turns text into numbers"
    message = (
        f"is {_KIND_NAMES[type(value)]} {shown[:40]!r} but {column.declared} is read as "
        f"{column.arrow}: {cure}"
    )
    return Misfit(row, column.name, message, shown)


def library() -> Any:
    """Return the loaded SQLite library, or None if the kernel cannot be used.

    TensorFlow contains another copy of SQLite, whose symbols the whole process sees. Once it is
    loaded, calls within the library may reach functions of that copy, which has other state.
    """
    found = _library_of_python()
    if found is None:
        return None
    try:
        visible = ctypes.CDLL(None).sqlite3_open_v2
    except AttributeError:
        return found
    return found if _address(visible) == _address(found.sqlite3_open_v2) else None


def _address(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value


@functools.cache
def _library_of_python() -> Any:
    try:
        import _sqlite3

        import beam_tfrecord.native._sqlite  # noqa: F401 - is it built?

        found = ctypes.CDLL(_sqlite3.__file__)
        found.sqlite3_libversion.restype = ctypes.c_char_p
        found.sqlite3_errmsg.restype = ctypes.c_char_p
        for name in _CALLS:
            getattr(found, name)
    except (ImportError, OSError, AttributeError, TypeError):
        return None
    same = found.sqlite3_libversion().decode() == sqlite3.sqlite_version
    return found if same else None


def can_read(columns: Sequence[SqlColumn]) -> bool:
    """Return whether the native kernel can read all of these columns."""
    return library() is not None and all(_kernel_kind(c.arrow) is not None for c in columns)


class KernelConnection:
    """A connection whose rows the native kernel reads; it raises the errors of `sqlite3`."""

    def __init__(self, uri: str, *, busy_s: float) -> None:
        self._library = library()
        self._handle = ctypes.c_void_p()
        self._progress: Any = None
        status = self._library.sqlite3_open_v2(
            uri.encode(), ctypes.byref(self._handle), _OPEN_FLAGS, None
        )
        self._check(status)
        self._library.sqlite3_busy_timeout(self._handle, int(busy_s * 1000))

    def execute(self, sql: str) -> None:
        """Run a statement and ignore its rows."""
        self._check(self._library.sqlite3_exec(self._handle, sql.encode(), None, None, None))

    def set_progress_handler(self, is_late: Callable[[], bool], steps: int) -> None:
        """Call `is_late` every `steps` instructions, and interrupt the statement if it is True."""
        # The callback must live as long as this object: SQLite stores its bare address.
        self._progress = _Progress(lambda _: int(is_late()))
        self._library.sqlite3_progress_handler(self._handle, steps, self._progress, None)

    def read(self, sql: str, columns: Sequence[SqlColumn], *, batch_rows: int) -> Iterator[SqlRows]:
        from beam_tfrecord.native import _sqlite

        statement = ctypes.c_void_p()
        text = sql.encode()
        self._check(
            self._library.sqlite3_prepare_v2(
                self._handle, text, len(text), ctypes.byref(statement), None
            )
        )
        addresses = [_address(getattr(self._library, name)) for name in _CALLS]
        kinds = [_kernel_kind(column.arrow) for column in columns]
        try:
            rows = _sqlite.Rows(addresses, statement.value, kinds, batch_rows, _BATCH_BYTES)
            while True:
                try:
                    count, found, odd = rows.fill()
                except _sqlite.BadText as error:
                    name = columns[error.args[0]].name
                    message = f"Could not decode to UTF-8 column '{name}'"
                    raise sqlite3.OperationalError(message) from None
                if not count:
                    break
                yield _kernel_rows(count, found, odd, columns)
            if rows.status != _DONE:
                self._check(rows.status)
        finally:
            self._library.sqlite3_finalize(statement)

    def close(self) -> None:
        """Close the connection; may be called twice."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        if handle:
            self._library.sqlite3_close_v2(handle)

    def _check(self, status: int) -> None:
        if status == _OK:
            return
        message = self._library.sqlite3_errmsg(self._handle).decode("utf-8", "replace")
        raise sqlite3.OperationalError("interrupted" if status == _INTERRUPT else message)


def _kernel_kind(arrow: pa.DataType | None) -> int | None:
    """Return the native kernel's number for a type, or None if it cannot read that type."""
    from beam_tfrecord.native import _sqlite

    if arrow is None:
        return None
    if pa.types.is_int64(arrow) or pa.types.is_boolean(arrow):
        return int(_sqlite.AS_INTEGER)
    if pa.types.is_float64(arrow):
        return int(_sqlite.AS_REAL)
    if pa.types.is_binary(arrow):
        return int(_sqlite.AS_BLOB)
    return int(_sqlite.AS_TEXT) if is_iso(arrow) or pa.types.is_string(arrow) else None


def _kernel_rows(
    count: int,
    found: Sequence[tuple[Any, Any, bytes | None, int]],
    odd: Sequence[tuple[int, int, Any]],
    columns: Sequence[SqlColumn],
) -> SqlRows:
    """Convert the output of the native kernel to a batch."""
    converted = []
    for index, (column, buffers) in enumerate(zip(columns, found, strict=True)):
        array = _kernel_array(count, *buffers, column.arrow)
        others = {row: value for row, at, value in odd if at == index}
        if pa.types.is_string(column.arrow):
            texts = {row: repr(value) for row, value in others.items() if type(value) is not bytes}
            array = _with_texts(array, texts)
            others = {row: value for row, value in others.items() if row not in texts}
        array, misfits = _as_declared(array, column)
        found_odd = [_misfit(row, column, value) for row, value in others.items()]
        converted.append((array, found_odd + misfits))
    return SqlRows.of([column.name for column in columns], converted)


def _kernel_array(
    count: int, bits: Any, values: Any, data: bytes | None, nulls: int, arrow: pa.DataType
) -> pa.Array:
    buffers = [pa.py_buffer(bits) if nulls else None, pa.py_buffer(values)]
    if data is not None:
        stored = arrow if pa.types.is_binary(arrow) else pa.string()
        buffers.append(pa.py_buffer(data))
    else:
        stored = pa.float64() if pa.types.is_floating(arrow) else pa.int64()
    return pa.Array.from_buffers(stored, count, buffers, null_count=nulls)


def _with_texts(array: pa.Array, texts: dict[int, str]) -> pa.Array:
    if not texts:
        return array
    mask = np.zeros(len(array), bool)
    mask[list(texts)] = True
    return pc.replace_with_mask(array, pa.array(mask), pa.array(list(texts.values())))


def _as_declared(array: pa.Array, column: SqlColumn) -> tuple[pa.Array, list[Misfit]]:
    """Convert numbers to booleans, and texts to dates and times, in columns of these types."""
    if array.type.equals(column.arrow):
        return array, []
    try:
        exactly = _reversibly if pa.types.is_boolean(column.arrow) else from_text
        return exactly(array, column.arrow), []
    except NOT_EXACT:
        return _column_array(array.to_pylist(), column)
