"""SQLite files opened: several connections at one moment, and what goes wrong with them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import queue
import sqlite3
import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.sources.sql.sqlite.fast import FastConnection, library

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
