"""Plans a read of a database: columns, partitions and row counts, all in one snapshot.

A partition is a range of rows that one connection reads. Partitions are half-open ranges of row
positions, or of a key; the first and the last are unbounded. One more partition holds the
rows whose key is null. Together they hold each row once, whichever ascending bounds are chosen.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from beam_tfrecord.base.text import counted, not_found, repeated
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.options.sources import DatabaseOptions
from beam_tfrecord.sources.sql.database import Connection, Relation, Table, trimmed
from beam_tfrecord.sources.sql.values import SqlColumn

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
    snapshot: str = ""

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
    advice = "correct --query, which has to be one SELECT"
    with _with_advice(advice) if relation.table is None else contextlib.nullcontext():
        found = connection.describe(relation)
    name = relation.table.name if relation.table else "query"
    by_name = _by_name(found, name)
    columns = _chosen(found, by_name, wanted_columns, options, name)
    keys = [by_name[key] for key in (relation.table.key if relation.table else ())]
    split_by = keys[0] if keys else None
    if options.partition_column is not None:
        split_by = by_name[options.partition_column]
    rows = _count(connection, relation) if options.row_count else None
    row_bytes = _row_bytes(relation.table, rows, columns)
    wanted = options.partitions or _partition_count(relation.table, rows, row_bytes)
    most = 1 if connection.reads_alone else options.max_connections or MAX_PARTITIONS
    wanted = max(1, min(wanted, most, MAX_PARTITIONS))
    conditions = _conditions(connection, relation, options, split_by, wanted)
    partitions = _counted(connection, relation, conditions, rows)
    if partitions is None:
        partitions = (Partition("", rows),)
        why = "pass --partition-column with a column to cut it by"
        if split_by is not None:
            why = f"{split_by.name!r}, which is {split_by.declared}, cannot cut it exactly: {why}"
        _LOGGER.warning("%s is read over one connection: %s", relation.name, why)
    number = keys[0] if len(keys) == 1 and _is_number(keys[0]) else None
    return SqlPlan(
        name=name,
        relation=relation,
        columns=columns,
        number=None if options.ordered else number,
        order_by=_order(connection, keys, split_by) if options.ordered else "",
        partitions=partitions,
        row_bytes=row_bytes,
        is_ordered=options.ordered,
    )


@contextlib.contextmanager
def _with_advice(advice: str) -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{error.message}: {advice}") from error


def _check_where(connection: Connection, relation: Relation) -> None:
    with _with_advice("correct --where" if relation.table else "correct --where or --query"):
        counts = connection.fetch(relation.select("COUNT(*)", "1 = 0"))
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
    if twice := repeated(column.name for column in columns):
        raise UsageError(f"the {name} has two columns named {twice[0]!r}: give each a name with AS")
    return {column.name: column for column in columns}


def _chosen(
    found: Sequence[SqlColumn],
    by_name: Mapping[str, SqlColumn],
    names: Sequence[str] | None,
    options: DatabaseOptions,
    name: str,
) -> tuple[SqlColumn, ...]:
    cut_by = filter(None, [options.partition_column])
    named = {"--columns": names or (), "--types": options.typed, "--partition-column": cut_by}
    for option, wanted in named.items():
        for unknown in (one for one in wanted if one not in by_name):
            raise UsageError(not_found(unknown, by_name, of=option))
    chosen = found if names is None else [by_name[one] for one in names]
    for column in chosen:
        if column.arrow is None:
            raise DataError(
                f"column {column.name!r} of {name} is {column.declared}: {column.refusal}"
            )
    return tuple(chosen)


def _is_number(column: SqlColumn) -> bool:
    of = column.arrow
    return of is not None and pa.types.is_integer(of) and not of.equals(pa.uint64())


def _order(connection: Connection, keys: Sequence[SqlColumn], split_by: SqlColumn | None) -> str:
    names = dict.fromkeys(column.name for column in (split_by, *keys) if column is not None)
    return ", ".join(map(connection.dialect.name, names))


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


def _conditions(
    connection: Connection,
    relation: Relation,
    options: DatabaseOptions,
    split_by: SqlColumn | None,
    wanted: int,
) -> list[str] | None:
    """Return the conditions of partitions, or None if nothing cuts the rows.

    Every row meets at least one condition, even if the literals do not ascend. A row meets two
    only if it is below one literal and not below the next.
    """
    if wanted == 1:
        return [""]
    literal = None if split_by is None else connection.literal_of(split_by)
    if not options.row_count and split_by and not _is_number(split_by):
        # Only a count would show ranges that overlap.
        literal = None
    # Positions need no statistics, but do not tell how many rows meet a condition.
    is_free = options.partition_column is None and not options.ordered
    if relation.table is not None and is_free and (literal is None or not relation.where):
        found = connection.row_cuts(relation, wanted)
        if found is not None:
            return ranges(*found, nullable=False)
    if split_by is None or literal is None:
        return None
    if split_by.nullable and options.max_connections is not None:
        # Rows without a key are one partition more, which --max-connections counts too.
        wanted = min(wanted, options.max_connections - 1)
    try:
        name = connection.dialect.name(split_by.name)
        cuts = connection.cut_points(relation, name, literal, wanted)
    except UsageError as error:
        raise UsageError(
            f"{relation.name} cannot be cut by {split_by.name!r}, which is {split_by.declared} "
            f"({error}): choose another --partition-column, or pass --partitions 1"
        ) from None
    return ranges(name, cuts, nullable=split_by.nullable)


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
    connection: Connection, relation: Relation, conditions: Sequence[str] | None, rows: int | None
) -> tuple[Partition, ...] | None:
    """Return partitions, with row counts if all `rows` were counted; None if a row is in two."""
    if conditions is None:
        return None
    if rows is None or conditions == [""]:
        return tuple(Partition(condition, rows) for condition in conditions)
    counts = [_count(connection, relation, condition) for condition in conditions]
    found = sum(counts)
    if found < rows:
        raise DataError(
            f"the partitions of {relation.name} hold {counted(found, 'row')} but it has {rows:,}: "
            "choose another --partition-column, or pass --partitions 1"
        )
    return tuple(map(Partition, conditions, counts)) if found == rows else None
