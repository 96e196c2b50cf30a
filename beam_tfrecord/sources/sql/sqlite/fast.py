"""SQLite's rows straight into Arrow, by the library that Python's own `sqlite3` has loaded.

It has to be that very library: closing a file in one copy of SQLite drops the locks that another
copy in the same process holds on it. If its functions cannot be found, rows come as Python values.
"""

from __future__ import annotations

import ctypes
import functools
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.sources.sql.engine import Misfit, SqlColumn, SqlRows
from beam_tfrecord.sources.sql.sqlite.types import from_iso, is_iso, misfit_of

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
