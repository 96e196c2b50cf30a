"""What Java throws, as errors of ours: one line, and never a password."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.sql.engine import ConnectionLost, SnapshotLost
from beam_tfrecord.sources.sql.jdbc.jvm import java
from beam_tfrecord.sources.sql.postgres.session import LOCKED_STATE, too_long_locked
from beam_tfrecord.sources.sql.secrets import without_password

_SHOWN_CHARACTERS = 300

# Classes of SQLSTATE: connection, operator intervention, insufficient resources, rollback; and
# what H2 says of a connection that broke or was closed.
_LOST_STATES = ("08", "57P", "53", "40", "90067", "90007", "90098")
_LOST_CLASSES = (
    "java.sql.SQLTransientConnectionException",
    "java.sql.SQLRecoverableException",
    "java.io.IOException",
)
# PostgreSQL and the standard; H2 has its own number for the same.
_CANCELLED_STATES = ("57014", "70100")
# PostgreSQL's for a snapshot that nobody holds any more.
_SNAPSHOT_STATES = ("22023", "42704")


@contextlib.contextmanager
def told(place: str, password: str | None, *, joins: bool = False) -> Iterator[None]:
    """Raise what Java throws as errors of ours.

    Args:
        place: The database, for the message.
        password: What no message may hold.
        joins: True where another connection's moment is joined.
    """
    jpype = java()
    try:
        yield
    except jpype.JException as error:
        raise _error_of(error, place, password, joins) from None


def _error_of(error: Any, place: str, password: str | None, joins: bool) -> Exception:
    chain = list(_chain(error))
    message = without_password(_first_line(chain), password)
    state = next((str(one.getSQLState() or "") for one in chain if hasattr(one, "getSQLState")), "")
    names = {str(base.getName()) for one in chain for base in _bases(one)}
    if "java.lang.OutOfMemoryError" in names or "Java heap space" in message:
        return UsageError(
            f"cannot read {place}: java's memory is used up: set JAVA_TOOL_OPTIONS=-Xmx2g, or "
            "pass a smaller --fetch-rows"
        )
    if "java.net.UnknownHostException" in names:
        return UsageError(f"cannot reach {place}: no such host: correct the URL")
    if "java.sql.SQLTimeoutException" in names and not state.startswith("08"):
        state = _CANCELLED_STATES[0]
    if state in _CANCELLED_STATES or "Query was cancelled" in message:
        return UsageError(
            f"a statement in {place} ran into the time limit: raise --statement-timeout"
        )
    if state == LOCKED_STATE:
        return too_long_locked(place, message)
    if joins and state in _SNAPSHOT_STATES:
        return SnapshotLost(
            f"the moment at which {place} is read is gone ({message}): run the job again"
        )
    if state.startswith(_LOST_STATES) or names & set(_LOST_CLASSES):
        return ConnectionLost(message)
    return UsageError(f"cannot read {place}: {message}")


def _chain(error: Any) -> Iterator[Any]:
    """Yield a throwable and its causes."""
    for _ in range(10):
        if error is None:
            return
        yield error
        error = error.getCause()


def _bases(error: Any) -> Iterator[Any]:
    """Yield the class of a throwable, and those above it."""
    of = error.getClass()
    while of is not None:
        yield of
        of = of.getSuperclass()


def _first_line(chain: list[Any]) -> str:
    for one in chain:
        lines = str(one.getMessage() or "").strip().splitlines()
        if lines:
            return lines[0].strip()[:_SHOWN_CHARACTERS]
    return str(chain[0].getClass().getSimpleName())
