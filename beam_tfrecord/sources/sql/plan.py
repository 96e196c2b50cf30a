"""Plans a read of a database: columns, partitions and row counts, all in one snapshot.

A partition is a range of rows that one connection reads. Partitions are half-open ranges of row
positions, or of a key; the first and the last are unbounded. One more partition holds the
rows whose key is null. Together they hold each row once, whichever ascending bounds are chosen.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.options.sources import DatabaseOptions
from beam_tfrecord.sizes import counted
from beam_tfrecord.sources.sql.database import Connection, Key, Relation, SqlColumn, Table, trimmed
from beam_tfrecord.tables import not_found

MAX_PARTITIONS = 1000
# A partition is the unit of parallel reading, and is read again after a dropped connection.
PARTITION_BYTES = 32 * 2**20
PARTITION_ROWS = 250_000

_VARIABLE_BYTES = 32
_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Partition:
    """A range of the rows, which one connection reads."""

    condition: str
    rows: int | None = None


@dataclasses.dataclass(frozen=True)
class SqlPlan:
    """The plan by which workers read a table or query; small, picklable and without secrets."""

    name: str
    relation: Relation
    columns: tuple[SqlColumn, ...]
    number: SqlColumn | None
    order_by: str
    partitions: tuple[Partition, ...]
    row_bytes: int
    is_ordered: bool = False
    locator: SqlColumn | None = None
    snapshot: str = ""

    @property
    def row_id(self) -> SqlColumn | None:
        """The column that numbers or identifies the rows; it is selected after all others."""
        return self.locator if self.number is None else self.number

    @property
    def encoded_row_bytes(self) -> int:
        """Estimated size of a record: framing, names and values."""
        return 24 + sum(len(column.name) + 8 for column in self.columns) + self.row_bytes

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(c.name, c.arrow, nullable=c.nullable) for c in self.columns])


def make_plan(
    connection: Connection, options: DatabaseOptions, wanted_columns: Sequence[str] | None
) -> SqlPlan:
    """Make the plan of a read, over the connection whose snapshot the job reads."""
    relation = _relation(connection, options)
    if relation.where:
        _check_where(connection, relation)
    found = _described(connection, relation, options.typed)
    name = relation.table.name if relation.table else "query"
    by_name = _by_name(found, name)
    columns = _chosen(found, by_name, wanted_columns, options.typed, name)
    keys = [by_name[key] for key in (relation.table.key if relation.table else ())]
    split_by = _split_by(options, by_name, keys, name)
    rows = _count(connection, relation) if options.row_count else None
    row_bytes = _row_bytes(relation.table, rows, columns)
    wanted = options.partitions or _partition_count(relation.table, rows, row_bytes)
    wanted = max(1, min(wanted, options.max_connections or MAX_PARTITIONS, MAX_PARTITIONS))
    key = None
    if split_by is not None and (wanted > 1 or options.ordered):
        key = connection.range_key(relation, split_by)
    if rows is None and not options.ordered and split_by is not None and not _is_number(split_by):
        # Only a count would show ranges that overlap.
        key = None
    partitions = None
    if wanted > 1 and _goes_by_position(relation, options, key):
        partitions = _by_position(connection, relation, wanted, rows)
    if wanted > 1 and partitions is None and split_by is not None and key is not None:
        if split_by.nullable and options.max_connections is not None:
            # Rows without a key are one partition more, which --max-connections counts too.
            wanted = min(wanted, options.max_connections - 1)
        partitions = _by_key(connection, relation, split_by, key, wanted, rows)
    if wanted > 1 and partitions is None:
        _warn(relation, split_by)
    number = keys[0] if len(keys) == 1 and _is_number(keys[0]) else None
    return SqlPlan(
        name=name,
        relation=relation,
        columns=columns,
        number=None if options.ordered else number,
        order_by=_order(connection, keys, split_by, key) if options.ordered else "",
        partitions=partitions or (Partition("", rows),),
        row_bytes=row_bytes,
        is_ordered=options.ordered,
        locator=None if keys or options.ordered else connection.locator(relation),
    )


def _goes_by_position(relation: Relation, options: DatabaseOptions, key: Key | None) -> bool:
    """Return whether to cut a table by the positions of its rows, which needs no statistics.

    Positions do not tell how many rows meet a condition, so a key is better then.
    """
    is_free = options.partition_column is None and not options.ordered
    return relation.table is not None and is_free and (key is None or not relation.where)


def _described(
    connection: Connection, relation: Relation, types: Mapping[str, Any]
) -> tuple[SqlColumn, ...]:
    try:
        return connection.describe(relation, types=types)
    except UsageError as error:
        if relation.table is not None:
            raise
        raise UsageError(f"{error.message}: correct --query, which has to be one SELECT") from error


def _check_where(connection: Connection, relation: Relation) -> None:
    try:
        counts = connection.fetch(relation.select("COUNT(*)", "1 = 0"))
    except UsageError as error:
        options = "--where" if relation.table else "--where or --query"
        raise UsageError(f"{error.message}: correct {options}") from error
    # With unbalanced brackets, a row could meet the conditions of several partitions.
    if counts != [(0,)]:
        raise UsageError("--where is not one condition: correct its brackets")


def _relation(connection: Connection, options: DatabaseOptions) -> Relation:
    where = options.where or ""
    connection.check_text(where, "--where")
    if options.query is not None:
        query = trimmed(options.query)
        connection.check_text(query, "--query")
        return Relation(connection.dialect.subquery(query), where)
    assert options.table is not None
    table = connection.find_table(options.table)
    return Relation(table.sql, where, table)


def _by_name(columns: Sequence[SqlColumn], name: str) -> dict[str, SqlColumn]:
    counts = Counter(column.name for column in columns)
    for column, count in counts.items():
        if count > 1:
            raise UsageError(
                f"the {name} has {count} columns named {column!r}: give each a name with AS"
            )
    return {column.name: column for column in columns}


def _chosen(
    found: Sequence[SqlColumn],
    by_name: Mapping[str, SqlColumn],
    names: Sequence[str] | None,
    types: Iterable[str],
    name: str,
) -> tuple[SqlColumn, ...]:
    for option, known in (("--columns", names or ()), ("--types", types)):
        for wanted in known:
            if wanted not in by_name:
                raise UsageError(not_found(wanted, by_name, of=option))
    chosen = found if names is None else [by_name[one] for one in names]
    for column in chosen:
        if column.arrow is None:
            raise DataError(
                f"column {column.name!r} of {name} is {column.declared}: {column.refusal}"
            )
    return tuple(chosen)


def _split_by(
    options: DatabaseOptions, by_name: Mapping[str, SqlColumn], keys: Sequence[SqlColumn], name: str
) -> SqlColumn | None:
    wanted = options.partition_column
    if wanted is None:
        return keys[0] if keys else None
    if wanted not in by_name:
        raise UsageError(
            f"partition column {wanted!r} is not in {name}: "
            f"correct --partition-column to one of {', '.join(sorted(by_name))}"
        )
    return by_name[wanted]


def _is_number(column: SqlColumn) -> bool:
    return (
        column.arrow is not None
        and pa.types.is_integer(column.arrow)
        and not column.arrow.equals(pa.uint64())
    )


def _order(
    connection: Connection, keys: Sequence[SqlColumn], split_by: SqlColumn | None, key: Key | None
) -> str:
    ordered = [split_by] if split_by is not None and key is None else []
    ordered += [column for column in keys if column is not split_by]
    names = [connection.dialect.name(column.name) for column in ordered]
    return ", ".join(names if key is None else [key.expression, *names])


def _count(connection: Connection, relation: Relation, *conditions: str) -> int:
    return int(connection.fetch(relation.select("COUNT(*)", *conditions))[0][0])


def _partition_count(table: Table | None, rows: int | None, row_bytes: int) -> int:
    """Return the number of partitions: a power of two that depends on the data alone.

    So two, four or eight workers get equal shares, even if there are only a few partitions.
    """
    known = (table.rows if rows is None and table else rows) or 0
    least = max(known * row_bytes // PARTITION_BYTES, known // PARTITION_ROWS, 1)
    return 1 << (least - 1).bit_length()


def _row_bytes(table: Table | None, rows: int | None, columns: Sequence[SqlColumn]) -> int:
    """Estimate the size of a row from its fixed columns and the catalog's size of the table."""
    fixed = sum(_column_bytes(column) for column in columns)
    if table is None or table.bytes is None:
        return fixed
    total = table.rows or rows
    return max(fixed, table.bytes // total) if total else fixed


def _column_bytes(column: SqlColumn) -> int:
    assert column.arrow is not None
    try:
        return max(1, int(column.arrow.bit_width) // 8)
    except ValueError:
        return _VARIABLE_BYTES


def _by_key(
    connection: Connection,
    relation: Relation,
    column: SqlColumn,
    key: Key,
    wanted: int,
    rows: int | None,
) -> tuple[Partition, ...] | None:
    """Return partitions by ranges of a key, or None if the database compares and sorts differently.

    Every row is in at least one range, even if the literals do not ascend. A row is in two ranges
    only if it is below one literal and not below the next.
    """
    try:
        cuts = connection.cut_points(relation, column, key, wanted)
    except UsageError as error:
        raise UsageError(
            f"{relation.name} cannot be cut by {column.name!r}, which is {column.declared} "
            f"({error}): choose another --partition-column, or pass --partitions 1"
        ) from None
    conditions = ranges(key.expression, cuts, nullable=column.nullable)
    found = _counted(connection, relation, conditions, rows)
    is_exact = rows is None or sum(partition.rows or 0 for partition in found) <= rows
    return _checked(relation, found, rows) if is_exact else None


def _by_position(
    connection: Connection, relation: Relation, wanted: int, rows: int | None
) -> tuple[Partition, ...] | None:
    """Return partitions by ranges of row positions, or None if rows have no positions."""
    found = connection.row_cuts(relation, wanted)
    if found is None:
        return None
    conditions = ranges(*found, nullable=False)
    return _checked(relation, _counted(connection, relation, conditions, rows), rows)


def _warn(relation: Relation, split_by: SqlColumn | None) -> None:
    why = "pass --partition-column with a column to cut it by"
    if split_by is not None:
        why = f"{split_by.name!r}, which is {split_by.declared}, cannot cut it exactly: " + why
    _LOGGER.warning("%s is read over one connection: %s", relation.name, why)


def ranges(name: str, cuts: Sequence[str], *, nullable: bool) -> list[str]:
    """Return conditions that split all values of a column at ascending literals.

    >>> ranges('"id"', ["10", "20"], nullable=True)
    ['"id" < 10', '"id" >= 10 AND "id" < 20', '"id" >= 20', '"id" IS NULL']
    """
    if not cuts:
        return [""]
    inner = [f"{name} >= {a} AND {name} < {b}" for a, b in itertools.pairwise(cuts)]
    found = [f"{name} < {cuts[0]}", *inner, f"{name} >= {cuts[-1]}"]
    return [*found, f"{name} IS NULL"] if nullable else found


def _counted(
    connection: Connection, relation: Relation, conditions: Sequence[str], rows: int | None
) -> tuple[Partition, ...]:
    """Return partitions, with their row counts if all rows were counted."""
    counts = (None if rows is None else _count(connection, relation, one) for one in conditions)
    return tuple(map(Partition, conditions, counts))


def _checked(
    relation: Relation, partitions: tuple[Partition, ...], rows: int | None
) -> tuple[Partition, ...]:
    """Return the partitions, after checking that they hold all `rows` if these were counted."""
    found = sum(partition.rows or 0 for partition in partitions)
    if rows is not None and found != rows:
        raise DataError(
            f"the partitions of {relation.name} hold {counted(found, 'row')} but it has {rows:,}: "
            "choose another --partition-column, or pass --partitions 1"
        )
    return partitions
