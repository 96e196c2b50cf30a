"""The base class of connections to PostgreSQL: its catalog, session settings and keys."""

from __future__ import annotations

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
    find_named,
)

# The braces in these statements stand for quoted literals.
TABLE = """
SELECT c.oid::int8, c.reltuples::int8,
       (SELECT coalesce(sum(pg_table_size(t.relid)), pg_table_size(c.oid))
        FROM pg_partition_tree(c.oid) AS t)::int8
FROM pg_class AS c WHERE c.oid = to_regclass({})
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
SELECT n.nspname::text, c.relname::text FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
ORDER BY 1, 2
"""
PAGES = """
SELECT current_setting('server_version_num')::int, relkind::text,
       pg_relation_size(oid) / current_setting('block_size')::int
FROM pg_class WHERE oid = {}
"""
TYPE = """
SELECT format_type(oid, -1), typtype::text FROM pg_type WHERE oid = pg_typeof(({}))
"""


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
# Required properties of the transaction itself.
_TRANSACTION = {"transaction_read_only": "on", "transaction_isolation": "repeatable read"}


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
        columns = ", ".join(f"{one} AS c{at}" for at, one in enumerate(asked))
        (found,) = self.fetch(f"SELECT {columns}")
        wanted = {**settings, **_TRANSACTION}
        for (name, value), is_now in zip(wanted.items(), found, strict=True):
            if is_now != value:
                raise UsageError(
                    f"{self.place} has {name} = {is_now}, and exact values need {value}: correct "
                    "--session-init"
                )

    def find_table(self, table: str) -> Table:
        here = [schema for (schema,) in self.fetch("SELECT unnest(current_schemas(false))::text")]
        schema, name = find_named(table, self.fetch(TABLES), here, self.place)
        sql = f"{self.dialect.name(schema)}.{self.dialect.name(name)}"
        ((oid, rows, size),) = self.fetch(TABLE.format(self.dialect.text(sql)))
        return Table(
            sql=sql,
            name=f"{schema}.{name}",
            key=tuple(key for (key,) in self.fetch(KEY.format(oid))),
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

    def row_cuts(self, relation: Relation, partitions: int) -> tuple[str, list[str]] | None:
        """Split a table by the numbers of its pages.

        Returns None for anything but a plain table or materialized view, and for servers before
        version 14. The last range has no end, so it includes pages added later.
        """
        assert relation.table is not None
        ((version, kind, pages),) = self.fetch(PAGES.format(self.regclass(relation.table)))
        if version < _TID_RANGES_SINCE or kind not in ("r", "m"):
            return None
        return "ctid", [f"'({cut},0)'::tid" for cut in even_cuts(pages, partitions)]

    def regclass(self, table: Table) -> str:
        """Return an SQL expression for the number of a table in the catalog."""
        return f"{self.dialect.text(table.sql)}::regclass"

    def export_snapshot(self) -> str:
        """Export the snapshot of this transaction."""
        return str(self.fetch("SELECT pg_export_snapshot()")[0][0])
