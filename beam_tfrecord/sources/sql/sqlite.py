"""Reads SQLite files through Python's own `sqlite3` module.

A read transaction of SQLite cannot be joined later, so all connections of a job are opened in one
snapshot at the start, and readers borrow them. If the file is in WAL mode, other programs can write
to it meanwhile; in other modes they wait.
"""

from __future__ import annotations

import dataclasses
import os
import queue
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from beam_tfrecord.errors import BeamTFRecordError, DataError, UsageError
from beam_tfrecord.sources.sql.database import (
    Connection,
    Dialect,
    FileEngine,
    Key,
    Relation,
    SnapshotLost,
    SqlColumn,
    SqlRows,
    Table,
    find_named,
)
from beam_tfrecord.sources.sql.sqlite_columns import column_of, convert, declared_type

_BUSY_S = 8.0
# Number of readers that can run at the same time; one more waits until another ends.
_POOL_SIZE = min(8, os.cpu_count() or 1)
_SAME_SNAPSHOT_S = 8.0
# SQLite steps row by row: more at a time only makes longer lists of Python values.
_FETCH_ROWS = 2048
# Number of SQLite's instructions between two checks of the time limit.
_CLOCK_STEPS = 100_000
# What QUOTE() writes for infinity is a literal only in some versions; a larger number always is.
_INFINITIES = {"Inf": "9e999", "-Inf": "-9e999"}

# The `hidden` value of PRAGMA table_xinfo for hidden columns of virtual tables.
_HIDDEN = 1
# Names of a row's number; a column of the table may have the same name.
_ROW_NUMBERS = ("rowid", "_rowid_", "oid")
_DEFINITION = "SELECT type, sql FROM sqlite_master WHERE name = "
_TABLES = (
    "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' "
    "ESCAPE '\\'"
)

_SIZE = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"

_lock = threading.Lock()
_snapshots: dict[str, _Snapshot] = {}


def _opened(path: str, session_init: Sequence[str]) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(os.path.abspath(path))}?mode=ro",
        uri=True,
        timeout=_BUSY_S,
        isolation_level=None,
        check_same_thread=False,
    )
    # Raises an error if the file is not a database: opening it did not read it.
    for statement in ("PRAGMA schema_version", *session_init):
        connection.execute(statement).fetchone()
    return connection


class _Snapshot:
    """A pool of connections in one snapshot of a file; each has one reader at a time."""

    def __init__(self, path: str, session_init: Sequence[str]) -> None:
        self._connections = [_opened(path, session_init) for _ in range(1 + _POOL_SIZE)]
        watcher = _opened(path, ())
        try:
            self._begin(watcher, os.path.basename(path))
        except BaseException:
            self.close()
            raise
        finally:
            watcher.close()
        self.first, *others = self._connections
        self.free: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()
        for connection in others:
            self.free.put(connection)

    def _begin(self, watcher: sqlite3.Connection, place: str) -> None:
        """Begin all transactions; repeat this if another program wrote in the meantime."""
        ends = time.monotonic() + _SAME_SNAPSHOT_S
        while time.monotonic() < ends:
            # This number changes with every commit of another connection.
            before = watcher.execute("PRAGMA data_version").fetchone()
            for connection in self._connections:
                connection.execute("BEGIN")
                # The first read of a transaction takes its snapshot.
                connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
            if watcher.execute("PRAGMA data_version").fetchone() == before:
                return
            for connection in self._connections:
                connection.execute("ROLLBACK")
        raise DataError(f"others write to {place} without a pause: read a copy of it")

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


def _literal(quoted: Any) -> str:
    return _INFINITIES.get(quoted, str(quoted))


@dataclasses.dataclass(frozen=True)
class Sqlite(FileEngine):
    """A SQLite file: ``sqlite:///relative.db``, ``sqlite:////absolute.db``, or its path."""

    scheme = "sqlite"

    def connect(self, *, snapshot: str = "") -> SqliteConnection:
        """Open the file for reading; unless `snapshot` is empty, borrow one of its connections."""
        if not snapshot:
            self.check_file()
            with self.errors():
                opened = _Snapshot(self.path, self.options.session_init)
            return SqliteConnection(self, opened, opened.first)
        with _lock:
            found = _snapshots.get(snapshot)
        if found is None:
            raise SnapshotLost(
                f"the snapshot of {self.place} cannot be read from another "
                "process: run on this machine, or pass --partitions 1"
            )
        return SqliteConnection(self, found, found.free.get())

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
                f"column {column!r} in {self.place} holds text that is not UTF-8: "
                f"pass --types {column}=bytes"
            )
        if message == "interrupted":
            return UsageError(
                f"a statement in {self.place} ran into the time limit: raise --statement-timeout"
            )
        if type(error) is sqlite3.DatabaseError:
            return DataError(
                f"cannot read {self.place} ({message}): check that the file is complete"
            )
        return UsageError(f"cannot read {self.place}: {message}")


class SqliteConnection(Connection):
    """A connection inside a read transaction, which may be borrowed from its snapshot."""

    dialect = Dialect("sqlite")

    def __init__(self, engine: Sqlite, snapshot: _Snapshot, connection: sqlite3.Connection) -> None:
        self._engine = engine
        self._snapshot = snapshot
        self._connection = connection
        self._token = ""
        self._is_open = True
        if engine.options.statement_timeout_s is not None:
            connection.set_progress_handler(self._is_late, _CLOCK_STEPS)
        self._begin_clock()

    def _begin_clock(self) -> None:
        self._ends_at = time.monotonic() + (self._engine.options.statement_timeout_s or 0)

    def _is_late(self) -> bool:
        return time.monotonic() > self._ends_at

    def _execute(self, sql: str) -> sqlite3.Cursor:
        self._begin_clock()
        with self._engine.errors():
            return self._connection.execute(sql)

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a small result as Python values."""
        cursor = self._execute(sql)
        with self._engine.errors():
            return cursor.fetchall()

    def find_table(self, table: str) -> Table:
        names = [name for (name,) in self.fetch(_TABLES)]
        place = self._engine.place
        _, name = find_named(table, [("main", name) for name in names], ["main"], place)
        found = self._columns_of(self.dialect.name(name))
        keys = sorted((key, column) for column, _, _, key in found if key)
        ((size,),) = self.fetch(_SIZE)
        return Table(
            sql=self.dialect.name(name),
            name=name,
            key=tuple(column for _, column in keys),
            bytes=size // len(names),
        )

    def describe(self, relation: Relation) -> tuple[SqlColumn, ...]:
        """Return the columns, with types as declared, or else as found in the values."""
        declared = self._declared(relation)
        table = relation.table
        is_table = table is not None and self._definition(table.name)[0] == "table"
        wanted = self._engine.options.typed
        # SQLite 3.41 and later declare BLOB for any expression in a view or query.
        unknown = [
            name
            for name, of, _ in declared
            if name not in wanted
            and (declared_type(of) is None or (of.upper() == "BLOB" and not is_table))
        ]
        kinds = self._kinds(relation, unknown)
        return tuple(
            column_of(
                name,
                of,
                wanted.get(name),
                kinds=kinds.get(name),
                select=self.dialect.name(name),
                nullable=not not_null,
            )
            for name, of, not_null in declared
        )

    def _kinds(self, relation: Relation, names: Sequence[str]) -> dict[str, set[str]]:
        """Return the kinds of the values of some columns, without null, by scanning all rows."""
        if not names:
            return {}
        types = (f"GROUP_CONCAT(DISTINCT TYPEOF({self.dialect.name(name)}))" for name in names)
        ((*found,),) = self.fetch(relation.select(", ".join(types)))
        split = (set((kinds or "null").split(",")) - {"null"} for kinds in found)
        return dict(zip(names, split, strict=True))

    def _declared(self, relation: Relation) -> list[tuple[str, str, bool]]:
        """Return name, declared type and NOT NULL of every column."""
        if relation.table is not None:
            found = self._columns_of(relation.table.sql)
            alone = sum(bool(key) for _, _, _, key in found) == 1
            # Of key columns without NOT NULL, only a lone INTEGER PRIMARY KEY is never null: it is
            # the row's own number.
            return [
                (name, of, bool(not_null) or (bool(key) and alone and of.upper() == "INTEGER"))
                for name, of, not_null, key in found
            ]
        # A temporary view, outside of the file, has the declared types of a query's columns.
        view = self.dialect.name(f"beam_tfrecord_{uuid.uuid4().hex[:8]}")
        self._execute(f"CREATE TEMP VIEW {view} AS SELECT * FROM {relation.sql}")
        found = self._columns_of(view)
        self._execute(f"DROP VIEW {view}")
        return [(name, of, False) for name, of, _, _ in found]

    def _definition(self, name: str) -> tuple[str, str]:
        """Return the kind (`table` or `view`) and the statement of a table or view."""
        ((kind, sql),) = self.fetch(_DEFINITION + self.dialect.text(name))
        return kind, str(sql)

    def _columns_of(self, table: str) -> list[tuple[str, str, int, int]]:
        """Return name, declared type, NOT NULL and position in the key of SELECT *'s columns."""
        # table_info leaves out generated columns.
        found = self.fetch(f"PRAGMA table_xinfo({table})")
        return [
            (name, of, not_null, key)
            for _, name, of, not_null, _, key, hidden in found
            if hidden != _HIDDEN
        ]

    def read(self, sql: str, columns: Sequence[SqlColumn], *, batch_rows: int) -> Iterator[SqlRows]:
        size = min(self._engine.options.fetch_rows or _FETCH_ROWS, batch_rows)
        cursor = self._execute(sql)
        while True:
            with self._engine.errors():
                rows = cursor.fetchmany(size)
            if not rows:
                return
            yield convert(rows, columns)

    def range_key(self, relation: Relation, column: SqlColumn) -> Key:
        """Return the key for a column: QUOTE() writes literals of any kind of value."""
        return Key(self.dialect.name(column.name), "QUOTE({})", _literal)

    def cut_points(
        self, relation: Relation, column: SqlColumn, key: Key, partitions: int
    ) -> list[str]:
        """Return literals of the quantiles, which are computed if the keys are dense integers."""
        name = key.expression
        some = f"{name} IS NOT NULL"
        # SQLite uses an index for MIN or MAX alone, but scans all rows for both together.
        ends = [relation.select(f"{end}({name})", some) for end in ("MIN", "MAX")]
        ((count, least, most),) = self.fetch(
            f"SELECT ({relation.select('COUNT(*)', some)}), ({ends[0]}), ({ends[1]})"
        )
        # All values between two numbers are numbers, even if the column holds other kinds too.
        if isinstance(least, int) and isinstance(most, int) and most - least < 2 * count:
            step = (most - least + 1) / partitions
            cuts = sorted({least + int(step * index) for index in range(1, partitions)} - {least})
            return [str(cut) for cut in cuts]
        return super().cut_points(relation, column, key, partitions)

    def row_cuts(self, relation: Relation, partitions: int) -> tuple[str, list[str]] | None:
        """Split a table by its row numbers; None if it has none, such as a view."""
        number = self.locator(relation)
        if number is None:
            return None
        key = self.range_key(relation, number)
        return key.expression, self.cut_points(relation, number, key, partitions)

    def locator(self, relation: Relation) -> SqlColumn | None:
        """Return the row number of a table as a column, or None if nothing can name it."""
        if relation.table is None:
            return None
        kind, sql = self._definition(relation.table.name)
        if kind != "table" or "WITHOUT ROWID" in sql.upper():
            return None
        columns = {column.lower() for column, _, _ in self._declared(relation)}
        number = next((one for one in _ROW_NUMBERS if one not in columns), None)
        if number is None:
            return None
        return SqlColumn(number, "INTEGER", pa.int64(), False, self.dialect.name(number))

    def export_snapshot(self) -> str:
        """Return a token by which readers in this process borrow connections of this snapshot."""
        self._token = uuid.uuid4().hex
        with _lock:
            _snapshots[self._token] = self._snapshot
        return self._token

    def close(self) -> None:
        """Return a borrowed connection, or close all connections of the snapshot."""
        if not self._is_open:
            return
        self._is_open = False
        if self._connection is not self._snapshot.first:
            self._snapshot.free.put(self._connection)
            return
        with _lock:
            _snapshots.pop(self._token, None)
        self._snapshot.close()
