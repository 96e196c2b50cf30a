"""How tables of PostgreSQL are cut, whatever the driver: by statistics, by samples, by pages."""

from __future__ import annotations

import dataclasses

from beam_tfrecord.sources.sql.engine import Connection, Key, Relation, SqlColumn, Table
from beam_tfrecord.sources.sql.plan import ranges
from beam_tfrecord.sources.sql.postgres import catalogue

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
        catalogue.TYPE.format(f"SELECT {name} FROM {relation.sql} LIMIT 0")
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
    asked = catalogue.HISTOGRAM.format(text(relation.table.sql), text(column.name))
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
