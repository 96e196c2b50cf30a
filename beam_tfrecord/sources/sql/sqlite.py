"""SQLite through the standard library: nothing to install.

All connections of a job are opened at one moment, and readers borrow them: a read transaction of
SQLite cannot be joined later, but may be kept open while others write (in WAL mode; otherwise
writers wait).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import queue
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa

from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.sources.sql.database import (
    Connection,
    Dialect,
    Engine,
    Key,
    Relation,
    SnapshotLost,
    SqlColumn,
    SqlRows,
    Table,
)
from beam_tfrecord.sources.sql.plan import ranges
from beam_tfrecord.sources.sql.sqlite_types import (
    FastConnection,
    can_read,
    column_of,
    convert,
    library,
)

_BUSY_S = 8.0
# As many as readers can run at the same time; one more waits for another's end.
_POOL_SIZE = min(8, os.cpu_count() or 1)
_TOGETHER_S = 8.0


@dataclasses.dataclass(frozen=True)
class Opened:
    """A connection of Python's module, and one beside it that reads whole columns, if it can."""

    python: sqlite3.Connection
    fast: FastConnection | None

    def execute(self, sql: str) -> None:
        """Run a statement on both."""
        self.python.execute(sql).fetchone()
        if self.fast is not None:
            self.fast.execute(sql)

    def close(self) -> None:
        """Close both."""
        self.python.close()
        if self.fast is not None:
            self.fast.close()


class Pool:
    """Connections of one moment, lent to one reader each."""

    def __init__(self, connections: Sequence[Opened]) -> None:
        self._free: queue.SimpleQueue[Opened] = queue.SimpleQueue()
        self._all = connections
        for connection in connections:
            self._free.put(connection)

    def take(self) -> Opened:
        """Borrow a connection, when one is free."""
        return self._free.get()

    def give_back(self, connection: Opened) -> None:
        """Give a connection back."""
        self._free.put(connection)

    def close(self) -> None:
        """Close all connections."""
        for connection in self._all:
            connection.close()


def open_together(path: str, session_init: Sequence[str]) -> tuple[Opened, Pool]:
    """Open a connection, and those of its readers, at one moment.

    Args:
        path: The file.
        session_init: Statements that each connection runs first.

    Raises:
        UsageError: There is no such file, or a statement is wrong.
        DataError: Others write without a pause.
    """
    place = os.path.basename(path)
    connections = [_open(path, session_init) for _ in range(1 + _POOL_SIZE)]
    watcher = _open(path, ())
    try:
        with told(place):
            _begin_together(connections, watcher, place)
    except BaseException:
        for connection in connections:
            connection.close()
        raise
    finally:
        watcher.close()
    return connections[0], Pool(connections[1:])


def _begin_together(connections: Sequence[Opened], watcher: Opened, place: str) -> None:
    """Begin transactions until no one wrote between the first and the last."""
    ends = time.monotonic() + _TOGETHER_S
    while time.monotonic() < ends:
        before = _version(watcher)
        for connection in connections:
            connection.execute("BEGIN")
            # The moment of a transaction is that of its first read.
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1")
        if _version(watcher) == before:
            return
        for connection in connections:
            connection.execute("ROLLBACK")
    raise DataError(f"others write to {place} without a pause: read a copy of it")


def _version(watcher: Opened) -> Any:
    """Return a number that changes with every commit of another connection."""
    return watcher.python.execute("PRAGMA data_version").fetchone()[0]


def _open(path: str, session_init: Sequence[str]) -> Opened:
    if not os.path.isfile(path):
        raise UsageError(f"cannot read {path!r}: no such file: check the path")
    uri = f"file:{quote(os.path.abspath(path))}?mode=ro"
    with told(os.path.basename(path)):
        python = sqlite3.connect(
            uri, uri=True, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
        )
        # A file that is no database is found out by the first look inside.
        python.execute("PRAGMA schema_version")
        opened = Opened(python, FastConnection(uri, busy_s=_BUSY_S) if library() else None)
        for statement in session_init:
            opened.execute(statement)
    return opened


@contextlib.contextmanager
def told(place: str) -> Iterator[None]:
    """Raise what SQLite raises as errors of ours, in one line."""
    try:
        yield
    except sqlite3.OperationalError as error:
        message = str(error).splitlines()[0]
        if "decode to UTF-8" in message:
            column = message.partition("'")[2].partition("'")[0]
            raise DataError(
                f"column {column!r} in {place} holds text that is not UTF-8: "
                f"pass --types {column}=bytes"
            ) from None
        if message == "interrupted":
            raise DataError(
                f"a statement in {place} ran into the time limit: raise --statement-timeout"
            ) from None
        raise UsageError(f"cannot read {place}: {message}") from error
    except (sqlite3.Warning, sqlite3.ProgrammingError) as error:
        raise UsageError(f"cannot read {place}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise DataError(f"cannot read {place}: {error}: check that it is whole") from error


# SQLite steps row by row: more at a time only grows the lists of Python values.
_FETCH_ROWS = 2048
# Instructions between two looks at the clock.
_CLOCK_STEPS = 100_000
# What QUOTE() writes for infinity is no literal in every version; what is beyond all numbers is.
_INFINITIES = {"Inf": "9e999", "-Inf": "-9e999"}

_lock = threading.Lock()
_pools: dict[str, Pool] = {}


def key_of(name: str) -> Key:
    """Return how a column of SQLite, or an expression, cuts what is read."""
    return Key(name, "QUOTE({})", lambda value: _INFINITIES.get(value, str(value)))


@dataclasses.dataclass(frozen=True)
class Sqlite(Engine):
    """A SQLite file: ``sqlite:///relative.db``, ``sqlite:////absolute.db``, or its path."""

    guarantee = "one snapshot"

    @property
    def path(self) -> str:
        """The database's file."""
        url = self.url
        if url.lower().startswith("sqlite:"):
            path = unquote(url[len("sqlite:") :].partition("?")[0])
            return path.removeprefix("///") if path.startswith("///") else path.removeprefix("//")
        return url

    @property
    def place(self) -> str:
        """The file's name."""
        return os.path.basename(self.path)

    def connect(self, *, snapshot: str = "") -> SqliteConnection:
        """Open the file for reading, or borrow a connection of the moment `snapshot`."""
        if snapshot:
            with _lock:
                pool = _pools.get(snapshot)
            if pool is None:
                raise SnapshotLost(
                    f"the moment at which {self.place} is read cannot be seen from another "
                    "process: run on this machine, or pass --partitions 1"
                )
            return SqliteConnection(self, pool.take(), pool, is_lent=True)
        return SqliteConnection(self, *open_together(self.path, self.options.session_init))


class SqliteConnection(Connection):
    """A connection inside a read transaction."""

    dialect = Dialect("sqlite")

    def __init__(
        self,
        engine: Sqlite,
        opened: Opened,
        pool: Pool,
        *,
        is_lent: bool = False,
    ) -> None:
        self._engine = engine
        self._opened = opened
        self._connection = opened.python
        self._pool = pool
        self._is_lent = is_lent
        self._snapshot = ""
        self._is_open = True
        self._limit_statements()

    def _limit_statements(self) -> None:
        limit_s = self._engine.options.statement_timeout_s
        if limit_s is not None:
            self._connection.set_progress_handler(self._is_late, _CLOCK_STEPS)
            if self._opened.fast is not None:
                self._opened.fast.watch(self._is_late, _CLOCK_STEPS)
        self._begin_clock()

    def _is_late(self) -> bool:
        return time.monotonic() > self._ends_at

    def _execute(self, sql: str) -> sqlite3.Cursor:
        self._begin_clock()
        with told(self._engine.place):
            return self._connection.execute(sql)

    def _begin_clock(self) -> None:
        self._ends_at = time.monotonic() + (self._engine.options.statement_timeout_s or 0)

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a small result as Python values."""
        cursor = self._execute(sql)
        with told(self._engine.place):
            return cursor.fetchall()

    def find_table(self, table: str) -> Table:
        """Look a table or view up by its name; SQLite's names know no case."""
        names = {name.lower(): name for (name,) in self.fetch(_TABLES)}
        plain = table.removeprefix("main.")
        if len(plain) > 1 and plain[0] == plain[-1] == '"':
            plain = plain[1:-1].replace('""', '"')
        if plain.lower() not in names:
            known = ", ".join(sorted(names.values())) or "none"
            raise UsageError(
                f"table {table!r} is not in {self._engine.place}: correct --table to one of {known}"
            )
        name = names[plain.lower()]
        found = self._columns_of(self.dialect.name(name))
        keys = sorted((key, column) for column, _, _, key in found if key)
        ((pages,),) = self.fetch("PRAGMA page_count")
        ((page_bytes,),) = self.fetch("PRAGMA page_size")
        share = max(1, len(names))
        return Table(
            sql=self.dialect.name(name),
            name=name,
            key=tuple(column for _, column in keys),
            bytes=pages * page_bytes // share,
        )

    def describe(
        self, relation: Relation, *, types: Mapping[str, pa.DataType] | None = None
    ) -> tuple[SqlColumn, ...]:
        """Return the columns by their declared types; the values decide where there is none."""
        declared = self._declared(relation)
        table = relation.table
        is_table = table is not None and self._definition(table.name)[0] == "table"
        wanted = types or {}
        return tuple(
            column_of(self, relation, name, of, not_null, wanted.get(name), is_table=is_table)
            for name, of, not_null in declared
        )

    def _declared(self, relation: Relation) -> list[tuple[str, str, bool]]:
        """Return name, declared type and NOT NULL of every column."""
        if relation.table is not None:
            found = self._columns_of(relation.table.sql)
            alone = sum(bool(key) for _, _, _, key in found) == 1
            # Only a lone INTEGER PRIMARY KEY, the row's own number, is never null by itself.
            return [
                (name, of, bool(not_null) or (bool(key) and alone and of.upper() == "INTEGER"))
                for name, of, not_null, key in found
            ]
        # A temporary view tells the declared types of a query's columns, and refuses all but one
        # SELECT; it is no part of the file.
        view = f"temp.beam_tfrecord_{uuid.uuid4().hex[:8]}"
        query = relation.sql[1:].rpartition("\n)")[0]
        try:
            self._execute(f"CREATE TEMP VIEW {view.removeprefix('temp.')} AS {query}")
        except UsageError as error:
            raise UsageError(f"cannot use the query, which has to be one SELECT: {error}") from None
        found = self._columns_of(view.removeprefix("temp."))
        self._execute(f"DROP VIEW {view}")
        return [(name, of, False) for name, of, _, _ in found]

    def _definition(self, name: str) -> tuple[str, str]:
        """Return the kind (`table` or `view`) and the statement of a table or view."""
        ((kind, sql),) = self.fetch(_DEFINITION + self.dialect.text(name))
        return kind, str(sql)

    def _columns_of(self, table: str) -> list[tuple[str, str, int, int]]:
        """Return name, declared type, NOT NULL and place in the key of what SELECT * gives."""
        # table_info leaves generated columns out.
        found = self.fetch(f"PRAGMA table_xinfo({table})")
        return [
            (name, of, not_null, key)
            for _, name, of, not_null, _, key, hidden in found
            if hidden != _HIDDEN
        ]

    def read(self, sql: str, columns: Sequence[SqlColumn], *, batch_rows: int) -> Iterator[SqlRows]:
        """Stream a result."""
        fast = self._opened.fast
        if fast is not None and can_read(columns):
            self._begin_clock()
            with told(self._engine.place):
                yield from fast.read(sql, columns, batch_rows=batch_rows)
            return
        size = min(self._engine.options.fetch_rows or _FETCH_ROWS, batch_rows)
        cursor = self._execute(sql)
        while True:
            with told(self._engine.place):
                rows = cursor.fetchmany(size)
            if not rows:
                return
            yield convert(rows, columns)

    def key_of(self, relation: Relation, column: SqlColumn) -> Key:
        """Cut by values of any kind: QUOTE() writes a literal of the same kind."""
        return key_of(self.dialect.name(column.name))

    def cut_points(
        self, relation: Relation, column: SqlColumn, key: Key, partitions: int
    ) -> list[str]:
        """Cut by position in the index; the ends alone tell it where the numbers are dense."""
        name = key.expression
        some = f"{name} IS NOT NULL"
        # Each by itself comes from an index; together they would be looked for in all rows.
        ends = [relation.select(f"{end}({name})", some) for end in ("MIN", "MAX")]
        ((count, least, most),) = self.fetch(
            f"SELECT ({relation.select('COUNT(*)', some)}), ({ends[0]}), ({ends[1]})"
        )
        if not count:
            return []
        # What lies between two numbers is a number too, whatever else a column may hold.
        if isinstance(least, int) and isinstance(most, int) and most - least < 2 * count:
            step = (most - least + 1) / partitions
            cuts = sorted({least + int(step * index) for index in range(1, partitions)} - {least})
            return [str(cut) for cut in cuts]
        offsets = [count * index // partitions for index in range(partitions)]
        by_key = relation.select(key.text.format(name), some, order_by=name)
        picked = [self.fetch(f"{by_key} LIMIT 1 OFFSET {offset}")[0][0] for offset in offsets]
        return key.literals(picked)

    def row_ranges(self, relation: Relation, partitions: int) -> list[str] | None:
        """Cut a table by the number that SQLite gives each row; a view has none."""
        number = self.locator(relation)
        if number is None:
            return None
        cuts = self.cut_points(relation, number, key_of(number.select), partitions)
        return ranges(number.select, cuts, nullable=False)

    def locator(self, relation: Relation) -> SqlColumn | None:
        """Return the number that SQLite gives each row of a table, under a name that is free."""
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
        """Lend the connections that were opened at this one's moment."""
        self._snapshot = uuid.uuid4().hex
        with _lock:
            _pools[self._snapshot] = self._pool
        return self._snapshot

    def close(self) -> None:
        """Close the connection and those of its readers, or give it back."""
        if not self._is_open:
            return
        self._is_open = False
        if self._is_lent:
            self._pool.give_back(self._opened)
            return
        with _lock:
            _pools.pop(self._snapshot, None)
        self._pool.close()
        self._opened.close()


# What PRAGMA table_xinfo says of the hidden columns of virtual tables; generated ones have others.
_HIDDEN = 1
# Names of the number of a row; a column of the table may have taken one.
_ROW_NUMBERS = ("rowid", "_rowid_", "oid")
_DEFINITION = "SELECT type, sql FROM sqlite_master WHERE name = "
_TABLES = (
    "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' "
    "ESCAPE '\\'"
)
