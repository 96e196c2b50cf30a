"""SQLite's columns as Arrow: the declared type first, and no value is ever cast silently.

SQLite stores any kind of value in any column. A value that is not of the column's declared type
is a misfit; a column without a declared type takes the type that all of its values have.
"""

from __future__ import annotations

import ctypes
import functools
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.features.lowering_text import from_text
from beam_tfrecord.sources.sql.database import Connection, Misfit, Relation, SqlColumn, SqlRows

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
    connection: Connection,
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


# SQLITE_OPEN_READONLY, _URI and _NOMUTEX: a connection has one reader at a time.
_OPEN_FLAGS = 0x1 | 0x40 | 0x8000
_OK, _DONE, _INTERRUPT = 0, 101, 9
_BATCH_BYTES = 32 * 2**20
# In the order in which the kernel wants their addresses.
_CALLS = (
    *("sqlite3_step", "sqlite3_column_type", "sqlite3_column_int64", "sqlite3_column_double"),
    *("sqlite3_column_text", "sqlite3_column_blob", "sqlite3_column_bytes"),
)
_Progress = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


def library() -> Any:
    """Return the loaded library, or None where rows have to come as Python values."""
    found = _beside_python()
    return None if found is None or _is_hidden(found) else found


def _is_hidden(found: Any) -> bool:
    """Tell whether the process has another copy of SQLite in front of this one.

    TensorFlow brings one and makes it visible to all. From then on the library's calls of its own
    functions may go to the other copy, whose state is another.
    """
    try:
        visible = ctypes.CDLL(None).sqlite3_open_v2
    except AttributeError:
        return False
    return _address(visible) != _address(found.sqlite3_open_v2)


def _address(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value


@functools.cache
def _beside_python() -> Any:
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


class FastConnection:
    """A connection that reads whole columns.

    Args:
        uri: The file, as SQLite's URI.
        busy_s: How long to wait for a writer.

    Raises:
        sqlite3.OperationalError: It cannot be opened.
    """

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
        """Run a statement whose rows do not matter."""
        self._check(self._library.sqlite3_exec(self._handle, sql.encode(), None, None, None))

    def watch(self, is_late: Callable[[], bool], steps: int) -> None:
        """Ask `is_late` every so many steps of the machine; what it ends is interrupted."""
        # The callback lives as long as this object: SQLite keeps its bare address.
        self._progress = _Progress(lambda _: int(is_late()))
        self._library.sqlite3_progress_handler(self._handle, steps, self._progress, None)

    def read(self, sql: str, columns: Sequence[SqlColumn], *, batch_rows: int) -> Iterator[SqlRows]:
        """Stream a result whose columns are all of a kind that `kind_of` knows.

        Raises:
            sqlite3.OperationalError: SQLite cannot go on; the words are those of Python's module.
        """
        from beam_tfrecord.native import _sqlite

        statement = ctypes.c_void_p()
        text = sql.encode()
        self._check(
            self._library.sqlite3_prepare_v2(
                self._handle, text, len(text), ctypes.byref(statement), None
            )
        )
        addresses = [_address(getattr(self._library, name)) for name in _CALLS]
        kinds = [kind_of(column.arrow) for column in columns]
        try:
            rows = _sqlite.Rows(addresses, statement.value, kinds, batch_rows, _BATCH_BYTES)
            while True:
                try:
                    count, found, misfits = rows.fill()
                except _sqlite.BadText as error:
                    name = columns[error.args[0]].name
                    message = f"Could not decode to UTF-8 column '{name}'"
                    raise sqlite3.OperationalError(message) from None
                if not count:
                    break
                yield _sql_rows(count, found, misfits, columns)
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


def kind_of(arrow: pa.DataType | None) -> int | None:
    """Return how the kernel takes a column, or None where Python has to look at each value."""
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


def can_read(columns: Sequence[SqlColumn]) -> bool:
    """Tell whether all columns can be read by the kernel."""
    return library() is not None and all(kind_of(c.arrow) is not None for c in columns)


def _sql_rows(
    count: int,
    found: Sequence[tuple[Any, Any, bytes | None, int]],
    odd: Sequence[tuple[int, int, Any]],
    columns: Sequence[SqlColumn],
) -> SqlRows:
    """Build a batch; `odd` are the values that are not of their column's kind."""
    misfits: list[Misfit] = []
    arrays = []
    for index, (column, buffers) in enumerate(zip(columns, found, strict=True)):
        array = _array(count, *buffers, column.arrow)
        others = {row: value for row, at, value in odd if at == index}
        if pa.types.is_string(column.arrow):
            texts = {row: repr(value) for row, value in others.items() if type(value) is not bytes}
            array = _with_texts(array, texts)
            others = {row: value for row, value in others.items() if row not in texts}
        misfits += [misfit_of(row, column, value) for row, value in others.items()]
        array, more = _as_declared(array, column)
        arrays.append(array)
        misfits += more
    names = [column.name for column in columns]
    return SqlRows(pa.RecordBatch.from_arrays(arrays, names=names), tuple(misfits))


def _with_texts(array: pa.Array, texts: dict[int, str]) -> pa.Array:
    if not texts:
        return array
    mask = np.zeros(len(array), bool)
    mask[list(texts)] = True
    return pc.replace_with_mask(array, pa.array(mask), pa.array(list(texts.values())))


def _array(
    count: int, bits: Any, values: Any, data: bytes | None, nulls: int, arrow: pa.DataType | None
) -> pa.Array:
    buffers = [pa.py_buffer(bits) if nulls else None, pa.py_buffer(values)]
    if data is not None:
        stored = arrow if arrow is not None and pa.types.is_binary(arrow) else pa.string()
        buffers.append(pa.py_buffer(data))
    else:
        is_real = arrow is not None and pa.types.is_floating(arrow)
        stored = pa.float64() if is_real else pa.int64()
    return pa.Array.from_buffers(stored, count, buffers, null_count=nulls)


def _as_declared(array: pa.Array, column: SqlColumn) -> tuple[pa.Array, list[Misfit]]:
    """Bring numbers that are booleans, and texts that are times, to their type."""
    if array.type.equals(column.arrow):
        return array, []
    try:
        if pa.types.is_boolean(column.arrow):
            return _booleans(array), []
        return from_iso(array, column.arrow), []
    except (pa.ArrowInvalid, ValueError):
        pass
    pieces, misfits = [], []
    for row in range(len(array)):
        one = array.slice(row, 1)
        try:
            is_bool = pa.types.is_boolean(column.arrow)
            pieces.append(_booleans(one) if is_bool else from_iso(one, column.arrow))
        except (pa.ArrowInvalid, ValueError):
            misfits.append(misfit_of(row, column, one[0].as_py()))
            pieces.append(pa.nulls(1, column.arrow))
    return pa.concat_arrays(pieces), misfits


def _booleans(numbers: pa.Array) -> pa.Array:
    ends = pc.min_max(numbers)
    if (ends["min"].as_py() or 0) < 0 or (ends["max"].as_py() or 0) > 1:
        raise ValueError(numbers)
    return numbers.cast(pa.bool_())
