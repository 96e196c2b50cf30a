"""Reads SQLite files through Python's own `sqlite3` module.

One connection reads all rows: `sqlite3` runs one thread of Python at a time, so more connections
would not be faster. If the file is in WAL mode, other programs can write to it meanwhile; in other
modes they wait.

SQLite stores any kind of value in any column, and no value is cast silently. A value that the
column's type cannot hold exactly is a misfit. A column without a declared type gets the type that
all of its values have.
"""

from __future__ import annotations

import dataclasses
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from beam_tfrecord.errors import BeamTFRecordError, DataError, UsageError
from beam_tfrecord.features.arrow_arrays import from_text
from beam_tfrecord.features.arrow_types import is_binary, is_text
from beam_tfrecord.features.type_join import convert_each
from beam_tfrecord.sources.sql import database as db
from beam_tfrecord.sources.sql.values import Misfit, SqlColumn, SqlRows, misfit

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


def with_type(column: SqlColumn, kinds: frozenset[str] | None) -> SqlColumn:
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


def convert(rows: Sequence[tuple[Any, ...]], columns: Sequence[SqlColumn]) -> SqlRows:
    """Convert rows of Python values to a batch."""
    pairs = zip(zip(*rows, strict=True), columns, strict=True)
    names = [column.name for column in columns]
    return SqlRows.of(names, (_column_array(values, column) for values, column in pairs))


def _column_array(values: Sequence[Any], column: SqlColumn) -> tuple[pa.Array, list[Misfit]]:
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


def _misfit(row: int, column: SqlColumn, value: Any) -> Misfit:
    assert column.arrow is not None
    shown = value.hex() if isinstance(value, bytes) else str(value)
    # Any value but a blob can be read as text, and any value at all as bytes.
    suited = "bytes" if isinstance(value, bytes) or is_binary(column.arrow) else "text"
    cure = f"pass --types {column.name}={suited}"
    verb = f"is {_KIND_NAMES[type(value)]}"
    return misfit(row, column.name, column.arrow, shown, cure, verb=verb)


_BUSY_S = 8.0
# SQLite steps row by row: more at a time only makes longer lists of Python values.
_FETCH_ROWS = 2048
_VIEW = "beam_tfrecord_query"
# Number of SQLite's instructions between two checks of the time limit.
_CLOCK_STEPS = 100_000
_TABLES = (
    "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' "
    "ESCAPE '\\'"
)

# The columns that SELECT * returns: not the hidden ones of virtual tables. A lone INTEGER PRIMARY
# KEY is the row's own number, so it is never null; other key columns may be.
_COLUMNS = """
SELECT name, type, "notnull" OR (pk AND SUM(pk > 0) OVER () = 1 AND UPPER(type) = 'INTEGER')
FROM pragma_table_xinfo({}) WHERE hidden <> 1 ORDER BY cid
"""
_KEY = "SELECT name FROM pragma_table_xinfo({}) WHERE pk ORDER BY pk"
_SIZE = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"


@dataclasses.dataclass(frozen=True)
class Sqlite(db.FileEngine):
    """A SQLite file: ``sqlite:///relative.db``, ``sqlite:////absolute.db``, or its path."""

    scheme = "sqlite"

    def connect(self, *, snapshot: str = "") -> SqliteConnection:
        """Open the file for reading, and begin a transaction."""
        self.check_file()
        with self.errors():
            opened = sqlite3.connect(
                f"file:{quote(os.path.abspath(self.path))}?mode=ro",
                uri=True,
                timeout=_BUSY_S,
                isolation_level=None,
                check_same_thread=False,
            )
            with db.closed_on_error(opened):
                # Raises an error if the file is not a database: opening it did not read it.
                for statement in ("PRAGMA schema_version", *self.options.session_init, "BEGIN"):
                    opened.execute(statement).fetchone()
        return SqliteConnection(self, opened)

    def table_names(self) -> list[str]:
        """Return the tables and views of the file, sorted; empty if it cannot be read."""
        try:
            with self.connect() as connection:
                return sorted(name for (name,) in connection.fetch(_TABLES))
        except BeamTFRecordError:
            return []

    def translate(self, error: Exception, hide: Callable[[str], str]) -> Exception | None:
        """Return the error of this package for an error of SQLite."""
        if not isinstance(error, sqlite3.Error | sqlite3.Warning):
            return None
        message = str(error)
        if "decode to UTF-8" in message:
            column = message.partition("'")[2].partition("'")[0]
            return DataError(
                f"column {column!r} in {self.address} holds text that is not UTF-8: "
                f"pass --types {column}=bytes"
            )
        if message == "interrupted":
            return UsageError(
                f"a statement in {self.address} ran into the time limit: raise --statement-timeout"
            )
        if type(error) is sqlite3.DatabaseError:
            return DataError(
                f"cannot read {self.address} ({message}): check that the file is complete"
            )
        return UsageError(f"cannot read {self.address}: {message}")


class SqliteConnection(db.Connection):
    """A connection inside a read transaction."""

    dialect = db.Dialect()
    reads_alone = True

    def __init__(self, engine: Sqlite, connection: sqlite3.Connection) -> None:
        self._engine = engine
        self._connection = connection

    def _execute(self, sql: str) -> sqlite3.Cursor:
        limit_s = self._engine.options.statement_timeout_s
        if limit_s is not None:
            ends = time.monotonic() + limit_s
            self._connection.set_progress_handler(lambda: time.monotonic() > ends, _CLOCK_STEPS)
        return self._connection.execute(sql)

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a small result as Python values."""
        with self._engine.errors():
            return self._execute(sql).fetchall()

    def find_table(self, table: str) -> db.Table:
        known = [("main", name) for (name,) in self.fetch(_TABLES)]
        _, name = db.find_named(table, known, ["main"], self._engine.address)
        ((size,),) = self.fetch(_SIZE)
        return db.Table(
            sql=self.dialect.name(name),
            name=name,
            key=tuple(key for (key,) in self.fetch(_KEY.format(self.dialect.text(name)))),
            bytes=size // len(known),
        )

    def describe(self, relation: db.Relation) -> tuple[SqlColumn, ...]:
        """Return the columns, with types as declared, or else as found in the values."""
        table, text = relation.table, self.dialect.text
        if table is not None:
            declared = self.fetch(_COLUMNS.format(text(table.name)))
            is_table = bool(
                self.fetch(f"{_TABLES} AND type = 'table' AND name = {text(table.name)}")
            )
        else:
            # A temporary view, outside of the file, has the declared types of a query's columns.
            self.fetch(f"CREATE TEMP VIEW {_VIEW} AS SELECT * FROM {relation.sql}")
            declared = self.fetch(_COLUMNS.format(text(_VIEW)))
            self.fetch(f"DROP VIEW {_VIEW}")
            is_table = False
        wanted = self._engine.options.typed
        columns = []
        for name, of, not_null in declared:
            # SQLite 3.41 and later declare BLOB for any expression in a view or query.
            is_sure = is_table or of.upper() != "BLOB"
            arrow = wanted.get(name, declared_type(of) if is_sure else None)
            select = self.dialect.name(name)
            if name in wanted and is_binary(arrow):
                # The cast makes even texts that are not UTF-8 readable.
                select = f"CAST({select} AS BLOB)"
            columns.append(SqlColumn(name, of or "untyped", arrow, not not_null, select))
        kinds = self._kinds(relation, [one.select for one in columns if one.arrow is None])
        return tuple(with_type(column, kinds.get(column.select)) for column in columns)

    def _kinds(self, relation: db.Relation, selects: Sequence[str]) -> dict[str, frozenset[str]]:
        """Return the kinds of the values of some columns, without null, by scanning all rows."""
        if not selects:
            return {}
        types = (f"GROUP_CONCAT(DISTINCT TYPEOF({select}))" for select in selects)
        ((*found,),) = self.fetch(relation.select(", ".join(types)))
        split = (frozenset((kinds or "null").split(",")) - {"null"} for kinds in found)
        return dict(zip(selects, split, strict=True))

    def read(self, sql: str, columns: Sequence[SqlColumn], *, batch_rows: int) -> Iterator[SqlRows]:
        size = min(self._engine.options.fetch_rows or _FETCH_ROWS, batch_rows)
        with self._engine.errors():
            cursor = self._execute(sql)
            while rows := cursor.fetchmany(size):
                yield convert(rows, columns)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
