"""The base class of connections to PostgreSQL: its catalog, session settings and keys."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.sql.database import (
    Connection,
    Dialect,
    Key,
    Relation,
    SqlColumn,
    Table,
    even_cuts,
    no_such_table,
)

# The braces in these statements stand for quoted literals.
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
# Exact quantiles sort the column, so a sample is used for larger tables.
_SAMPLE_BYTES = 256 * 2**20
_SAMPLED_BYTES = 32 * 2**20
_TID_RANGES_SINCE = 140_000
# The typtype of composite types, and of domains, which may be based on a composite type.
_ROWS = ("c", "d")

# Values and their order must not depend on the settings of a user or server.
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
# Without a limit, a statement that waits for a lock of another connection of its own job would wait
# for ever. A limit that the user has set remains.
_LOCK_TIMEOUT = (
    "pg_catalog.set_config('lock_timeout', "
    "coalesce(nullif(pg_catalog.current_setting('lock_timeout'), '0'), '{}'), true)"
)
LOCK_WAIT = "1min"
# SQLSTATE of a statement that waited too long for a lock.
LOCKED_STATE = "55P03"
# Required properties of the transaction itself.
_TRANSACTION = {"transaction_read_only": "on", "transaction_isolation": "repeatable read"}


def lock_timeout(place: str, message: str) -> UsageError:
    """Return the error for a statement that waited too long for a lock."""
    return UsageError(
        f"a statement in {place} waited too long for a lock ({message}): another session holds it, "
        "or the query takes locks that its own job waits for; "
        "--session-init \"SET lock_timeout = '1h'\" waits longer"
    )


class PostgresConnection(Connection):
    """The base class of connections to PostgreSQL, whether through ADBC or JDBC."""

    dialect = Dialect("postgresql")
    place: str

    def apply_settings(self, settings: Mapping[str, str]) -> None:
        """Apply settings to the transaction that has just begun, and check that they took effect.

        The settings are local to the transaction. So they override all settings of the user, and
        they also work through a pooler that runs each transaction in another session.
        """
        text = self.dialect.text
        # One statement, since each is a round trip, and every partition has its own connection.
        asked = [
            f"pg_catalog.set_config({text(name)}, {text(value)}, true)"
            for name, value in settings.items()
        ]
        asked += [f"pg_catalog.current_setting({text(name)})" for name in _TRANSACTION]
        asked.append(_LOCK_TIMEOUT.format(LOCK_WAIT))
        columns = ", ".join(f"{one} AS c{at}" for at, one in enumerate(asked))
        ((*found, _),) = self.fetch(f"SELECT {columns}")
        wanted = {**settings, **_TRANSACTION}
        for (name, value), is_now in zip(wanted.items(), found, strict=True):
            if is_now != value:
                raise UsageError(
                    f"{self.place} has {name} = {is_now}, and exact values need {value}: correct "
                    "--session-init"
                )

    def find_table(self, table: str) -> Table:
        """Look up a table or view by its name as SQL reads it, or else by its exact name."""
        name = self.dialect.name
        exact = ".".join(name(part) for part in table.split("."))
        for written in (table, exact, name(table)):
            if found := self._find(written):
                return found
        raise no_such_table(table, self.place, [one for (one,) in self.fetch(TABLES)])

    def _find(self, written: str) -> Table | None:
        # An invalid name, such as one with a blank, would be an error that ends the transaction.
        if not re.fullmatch(rf"{_NAME}(?:\.{_NAME}){{0,2}}", written):
            return None
        found = self.fetch(TABLE.format(self.dialect.text(written)))
        if not found:
            return None
        sql, name, oid, rows, size = found[0]
        keys = self.fetch(KEY.format(oid))
        return Table(
            sql=sql,
            name=name,
            key=tuple(key for (key,) in keys),
            rows=int(rows) if rows >= 0 else None,
            bytes=int(size),
        )

    def range_key(self, relation: Relation, column: SqlColumn) -> Key:
        """Return the key of a column, whose literals are cast to the column's exact type."""
        dialect = self.dialect
        name = dialect.name(column.name)
        ((type_name, kind),) = self.fetch(TYPE.format(f"SELECT {name} FROM {relation.sql} LIMIT 0"))
        return Key(
            name,
            "CAST({} AS text)",
            lambda value: f"CAST({dialect.text(str(value))} AS {type_name})",
            # For a row, IS NULL means that all of its fields are null.
            null="CAST({} AS text) IS NULL" if kind in _ROWS else "{} IS NULL",
        )

    def _histogram(
        self, relation: Relation, column: SqlColumn, key: Key, partitions: int
    ) -> list[str] | None:
        """Return literals from the statistics of a whole table; None if there are too few."""
        if relation.table is None or relation.where:
            return None
        text = self.dialect.text
        asked = HISTOGRAM.format(text(relation.table.sql), text(column.name))
        bounds = [value for (value,) in self.fetch(asked)]
        if len(bounds) <= partitions:
            return None
        last = len(bounds) - 1
        return key.literals(bounds[last * at // partitions] for at in range(partitions))

    def _sampled(self, relation: Relation) -> Relation:
        """Return the relation in which to find quantiles: of a large table, a sample."""
        table = relation.table
        if table is None or relation.where or (table.bytes or 0) <= _SAMPLE_BYTES:
            return relation
        if not self._is_heap(table):
            return relation
        percent = 100 * _SAMPLED_BYTES / (table.bytes or 1)
        sample = f"{relation.sql} TABLESAMPLE SYSTEM ({percent:.6f}) REPEATABLE (0)"
        return dataclasses.replace(relation, sql=sample)

    def row_cuts(self, relation: Relation, partitions: int) -> tuple[str, list[str]] | None:
        """Split a table by the numbers of its pages.

        Returns None for a query, for anything but a plain table or materialized view, and for
        servers before version 14. The last range has no end, so it includes pages added later.
        """
        ((version,),) = self.fetch("SELECT current_setting('server_version_num')::int")
        if relation.table is None or version < _TID_RANGES_SINCE:
            return None
        if not self._is_heap(relation.table):
            return None
        size = f"pg_relation_size({self.regclass(relation.table)})"
        ((pages,),) = self.fetch(f"SELECT {size} / current_setting('block_size')::int")
        return "ctid", [f"'({cut},0)'::tid" for cut in even_cuts(pages, partitions)]

    def _is_heap(self, table: Table) -> bool:
        ((kind,),) = self.fetch(
            f"SELECT relkind::text FROM pg_class WHERE oid = {self.regclass(table)}"
        )
        return str(kind) in ("r", "m")

    def regclass(self, table: Table) -> str:
        """Return an SQL expression for the number of a table in the catalog."""
        return f"{self.dialect.text(table.sql)}::regclass"

    def cut_points(
        self, relation: Relation, column: SqlColumn, key: Key, partitions: int
    ) -> list[str]:
        """Return literals from the server's statistics, or else from the rows or a sample."""
        found = self._histogram(relation, column, key, partitions)
        if found is not None:
            return found
        return super().cut_points(self._sampled(relation), column, key, partitions)

    def export_snapshot(self) -> str:
        """Export the snapshot of this transaction."""
        return str(self.fetch("SELECT pg_export_snapshot()")[0][0])
