"""What a session of PostgreSQL must be set to, whatever the driver, for values to be exact."""

from __future__ import annotations

from collections.abc import Mapping

from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.sql.engine import Connection

# Values and orders must not depend on the settings of a user or a server.
SETTINGS = {
    "client_encoding": "UTF8",
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "iso_8601",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "array_nulls": "on",
    "standard_conforming_strings": "on",
    "synchronize_seqscans": "off",
    "idle_in_transaction_session_timeout": "0",
}
# The connections of a job outlive each other's statements: one that waits for another's lock would
# wait for ever. What a user has set instead holds.
_LOCK_TIMEOUT = (
    "pg_catalog.set_config('lock_timeout', "
    "coalesce(nullif(pg_catalog.current_setting('lock_timeout'), '0'), '{}'), true)"
)
LOCK_WAIT = "1min"
# SQLSTATE of a statement that waited longer.
LOCKED_STATE = "55P03"
# What the transaction itself has to be.
_TRANSACTION = {"transaction_read_only": "on", "transaction_isolation": "repeatable read"}


def settle(connection: Connection, place: str, settings: Mapping[str, str]) -> None:
    """Set the transaction that has just begun, and look whether it is as it must be.

    The settings are local to the transaction, and so come after all that a user has set, and
    hold through a pooler that gives each transaction another session.

    Raises:
        UsageError: A setting is another one, or the transaction can write.
    """
    text = connection.dialect.text
    # All in one statement: each is a round trip, and every partition has its connection.
    asked = [
        f"pg_catalog.set_config({text(name)}, {text(value)}, true)"
        for name, value in settings.items()
    ]
    asked += [f"pg_catalog.current_setting({text(name)})" for name in _TRANSACTION]
    asked.append(_LOCK_TIMEOUT.format(LOCK_WAIT))
    columns = ", ".join(f"{one} AS c{at}" for at, one in enumerate(asked))
    ((*found, _),) = connection.fetch(f"SELECT {columns}")
    wanted = {**settings, **_TRANSACTION}
    for (name, value), is_now in zip(wanted.items(), found, strict=True):
        if is_now != value:
            raise UsageError(
                f"{place} has {name} = {is_now}, and exact values need {value}: correct "
                "--session-init"
            )


def too_long_locked(place: str, message: str) -> UsageError:
    """Return the error of a statement that waited for a lock for too long."""
    return UsageError(
        f"a statement in {place} waited too long for a lock ({message}): another session holds it, "
        "or the query takes locks that its own job waits for; "
        "--session-init \"SET lock_timeout = '1h'\" waits longer"
    )
