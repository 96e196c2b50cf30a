"""Statements that ask PostgreSQL's catalogue; the braces take quoted literals."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping

from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.sql.database import Connection, Key, Relation, SqlColumn, Table
from beam_tfrecord.sources.sql.plan import ranges

TABLE = """
SELECT format('%I.%I', n.nspname, c.relname), n.nspname || '.' || c.relname, c.oid::int8,
       c.reltuples::int8,
       (SELECT coalesce(sum(pg_table_size(t.relid)), pg_table_size(c.oid))
        FROM pg_partition_tree(c.oid) AS t)::int8
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass({}) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""
KEY = """
SELECT a.attname::text
FROM pg_index AS i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k (number, place)
JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = {} AND i.indisprimary ORDER BY k.place
"""
NOT_NULL = (
    "SELECT attname::text FROM pg_attribute WHERE attrelid = {} AND attnotnull AND attnum > 0"
)
TABLES = """
SELECT n.nspname || '.' || c.relname FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
ORDER BY 1 LIMIT 10000
"""
HISTOGRAM = """
SELECT unnest(histogram_bounds::text::text[]) FROM pg_stats
WHERE format('%I.%I', schemaname, tablename) = {} AND attname = {}
  AND coalesce((SELECT sum(f) FROM unnest(most_common_freqs) AS f), 0) < 0.1
"""
TYPE = """
SELECT format_type(oid, -1), typtype::text FROM pg_type WHERE oid = pg_typeof(({}))
"""


_NAME = r'(?:[^\W\d][\w$]*|"(?:[^"]|"")+")'


def find_table(connection: Connection, table: str, place: str) -> Table:
    """Look a table or view up, as SQL reads its name in this session; else letter for letter.

    Raises:
        UsageError: There is none.
    """
    name = connection.dialect.name
    exact = ".".join(name(part) for part in table.split("."))
    for written in (table, exact, name(table)):
        if found := _find(connection, written):
            return found
    names = [one for (one,) in connection.fetch(TABLES)]
    near = difflib.get_close_matches(table, names, n=1, cutoff=0.5)
    known = f"did you mean {near[0]!r}?" if near else "correct --table"
    raise UsageError(f"table {table!r} is not in {place}: {known}")


def _find(connection: Connection, written: str) -> Table | None:
    # A name that is none, such as one with a blank, would end the transaction.
    if not re.fullmatch(rf"{_NAME}(?:\.{_NAME}){{0,2}}", written):
        return None
    found = connection.fetch(TABLE.format(connection.dialect.text(written)))
    if not found:
        return None
    sql, name, oid, rows, size = found[0]
    keys = connection.fetch(KEY.format(oid))
    return Table(
        sql=sql,
        name=name,
        key=tuple(key for (key,) in keys),
        rows=int(rows) if rows >= 0 else None,
        bytes=int(size),
    )


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


# Exact quantiles sort the column: of larger tables a sample tells enough.
_SAMPLE_BYTES = 256 * 2**20
_SAMPLED_BYTES = 32 * 2**20
_TID_RANGES_SINCE = 140_000
# Composite types, and domains, which may be over one.
_ROWS = ("c", "d")


def key_of(connection: Connection, relation: Relation, column: SqlColumn) -> Key:
    """Return how a column cuts: its literals are cast to its very type."""
    dialect = connection.dialect
    name = dialect.name(column.name)
    ((type_name, kind),) = connection.fetch(
        TYPE.format(f"SELECT {name} FROM {relation.sql} LIMIT 0")
    )
    return Key(
        name,
        "CAST({} AS text)",
        lambda value: f"CAST({dialect.text(str(value))} AS {type_name})",
        # Of a row, IS NULL asks about its fields.
        null="CAST({} AS text) IS NULL" if kind in _ROWS else "{} IS NULL",
    )


def histogram(
    connection: Connection, relation: Relation, column: SqlColumn, key: Key, partitions: int
) -> list[str] | None:
    """Return the cuts that the statistics of a table give; None: there are too few of them."""
    if relation.table is None or relation.where:
        return None
    text = connection.dialect.text
    asked = HISTOGRAM.format(text(relation.table.sql), text(column.name))
    bounds = [value for (value,) in connection.fetch(asked)]
    if len(bounds) <= partitions:
        return None
    last = len(bounds) - 1
    return key.literals(bounds[last * at // partitions] for at in range(partitions))


def sampled(connection: Connection, relation: Relation) -> Relation:
    """Return what is enough of a relation to find quantiles in: a sample of a large table."""
    table = relation.table
    if table is None or relation.where or (table.bytes or 0) <= _SAMPLE_BYTES:
        return relation
    if not _is_heap(connection, table):
        return relation
    percent = 100 * _SAMPLED_BYTES / (table.bytes or 1)
    sample = f"{relation.sql} TABLESAMPLE SYSTEM ({percent:.6f}) REPEATABLE (0)"
    return dataclasses.replace(relation, sql=sample)


def page_ranges(connection: Connection, relation: Relation, partitions: int) -> list[str] | None:
    """Return conditions that cut a table by the numbers of its pages; None where it has none.

    The last range has no end: pages that are not yet in the statistics are not lost.
    """
    ((version,),) = connection.fetch("SELECT current_setting('server_version_num')::int")
    if relation.table is None or version < _TID_RANGES_SINCE:
        return None
    if not _is_heap(connection, relation.table):
        return None
    size = f"pg_relation_size({regclass(connection, relation.table)})"
    ((pages,),) = connection.fetch(f"SELECT {size} / current_setting('block_size')::int")
    cuts = sorted({pages * index // partitions for index in range(1, partitions)} - {0})
    return ranges("ctid", [f"'({cut},0)'::tid" for cut in cuts], nullable=False)


def _is_heap(connection: Connection, table: Table) -> bool:
    ((kind,),) = connection.fetch(
        f"SELECT relkind::text FROM pg_class WHERE oid = {regclass(connection, table)}"
    )
    return str(kind) in ("r", "m")


def regclass(connection: Connection, table: Table) -> str:
    """Return the expression of a table's number in the catalogue."""
    return f"{connection.dialect.text(table.sql)}::regclass"
