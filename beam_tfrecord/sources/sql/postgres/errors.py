"""What PostgreSQL's driver raises, as errors of ours: in one line, and without the password."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import pyarrow as pa

from beam_tfrecord.errors import BeamTFRecordError, DataError, UsageError
from beam_tfrecord.sources.sql.engine import ConnectionLost, SnapshotLost
from beam_tfrecord.sources.sql.postgres.session import LOCKED_STATE, too_long_locked
from beam_tfrecord.sources.sql.secrets import without_password

# Classes of SQLSTATE, and words of libpq, that tell that another attempt may work.
_LOST_STATES = ("08", "57P", "53300")
_LOST_WORDS = (
    *("connection refused", "timeout expired", "server closed the connection", "reset by peer"),
    *("connection not open", "no connection to the server", "terminating connection"),
    *("broken pipe", "too many clients", "starting up", "shutting down", "could not receive data"),
    *("could not send data", "ssl syscall error", "network is unreachable", "lost synchronization"),
)


@contextlib.contextmanager
def told(place: str, password: str | None) -> Iterator[None]:
    """Raise what the driver raises as errors of ours, in one line without the password."""
    import adbc_driver_manager

    try:
        yield
    except BeamTFRecordError:
        raise
    except (adbc_driver_manager.Error, pa.ArrowException, OSError) as error:
        raise _error(place, error, password) from None


def _error(place: str, error: Exception, password: str | None) -> Exception:
    state = getattr(error, "sqlstate", None) or ""
    text = without_password(str(error), password)
    if not state and (match := re.search(r"SQLSTATE: (\w{5})", text)):
        state = match[1]
    message = _first_line(text)
    lower = text.lower()
    if state.startswith(_LOST_STATES) or any(word in lower for word in _LOST_WORDS):
        return ConnectionLost(message)
    if state == LOCKED_STATE or "lock timeout" in lower:
        return too_long_locked(place, message)
    if state == "57014" or "statement timeout" in lower:
        return DataError(
            f"a statement in {place} ran into the time limit ({message}): raise --statement-timeout"
        )
    if "snapshot" in lower:
        return SnapshotLost(
            f"the snapshot of {place} is gone, since the connection that held it is "
            f"closed ({message}): run the job again"
        )
    if "password" in lower:
        return UsageError(
            f"cannot log in to {place}: {message}: pass --password-env or --password-file"
        )
    return UsageError(f"cannot read {place}: {message}")


def _first_line(text: str) -> str:
    """Return the database's own words: without the driver's, and what follows in more lines."""
    line = text.strip().splitlines()[0] if text.strip() else "no reason given"
    line = re.sub(r"^[A-Z_]+: (\[libpq\] )?", "", line)
    line = re.sub(r"^.*?(ERROR|FATAL): *", "", line)
    return re.sub(r"\. SQLSTATE: \w+$", "", line)
