"""Planning a read of a database: columns, partitions and their counts, all of one moment.

Ranges are half open, the first and the last without an outer bound, and rows whose key is null
get a partition of their own: together they are exactly the table, whatever the bounds.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.sources.sql.database import Connection, Key, Relation, SqlColumn, Table, trimmed

# A partition is what is read again when a connection drops, and the grain of parallel reading.
PARTITION_BYTES = 32 * 2**20
PARTITION_ROWS = 250_000

_VARIABLE_BYTES = 32


def partition_count(table: Table | None, rows: int | None, row_bytes: int) -> int:
    """Return how many partitions to make: a function of the data alone, and a power of two.

    Few partitions are dealt out evenly so, whether there are two workers or eight.

    Args:
        table: What is read, where it is a table.
        rows: How many there are; None: the catalogue's estimate is good enough.
        row_bytes: Size of one.
    """
    known = (table.rows if rows is None and table else rows) or 0
    least = max(known * row_bytes // PARTITION_BYTES, known // PARTITION_ROWS, 1)
    return 1 << (least - 1).bit_length()


def row_bytes_of(table: Table | None, rows: int | None, columns: Sequence[SqlColumn]) -> int:
    """Estimate the bytes of a row: of its fixed columns, and what the catalogue tells of others."""
    fixed = sum(_column_bytes(column.arrow) for column in columns)
    if table is None or table.bytes is None:
        return fixed
    total = table.rows or rows
    return max(fixed, table.bytes // total) if total else fixed


def _column_bytes(arrow: Any) -> int:
    try:
        return max(1, int(arrow.bit_width) // 8)
    except ValueError:
        return _VARIABLE_BYTES


MAX_PARTITIONS = 1000
# Databases limit how deep a condition may be.
_TOGETHER = 100

_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Question:
    """What the user asks of a database.

    Attributes:
        table: A table or view; None where there is a query.
        query: A SELECT.
        where: Condition in SQL.
        columns: Columns to read, in order; None: all.
        types: Types to read columns as, by name.
        partition_column: Column to cut by; None: the key, where there is one.
        partitions: How many parts to read at the same time; None: by rows and bytes.
        max_partitions: Never more than these.
        ordered: Give the rows in order of the key.
        counts: Count the rows, and compare.
    """

    table: str | None
    query: str | None
    where: str | None = None
    columns: tuple[str, ...] | None = None
    types: Mapping[str, pa.DataType] = dataclasses.field(default_factory=dict)
    partition_column: str | None = None
    partitions: int | None = None
    max_partitions: int | None = None
    ordered: bool = False
    counts: bool = True


@dataclasses.dataclass(frozen=True)
class Partition:
    """A part of the rows.

    Attributes:
        condition: What its rows meet; empty: all rows.
        rows: How many there are; None where they were not counted.
    """

    condition: str
    rows: int | None = None


@dataclasses.dataclass(frozen=True)
class SqlPlan:
    """How a database is read; small and picklable, and free of secrets.

    Attributes:
        name: Of the table, or ``query``.
        relation: What is read.
        columns: The columns, in order.
        number: Column whose values number the rows: a key of integers; None: there is none.
        order_by: Expressions that order the rows of a partition; empty: as the database likes.
        partitions: The parts.
        row_bytes: Estimate of the size of a row.
        is_ordered: True where rows come in an order of their own, and are numbered so.
        key: Names of the columns of the primary key.
        locator: Column that names a row in messages, where there is no key; None: there is none.
        snapshot: Token of the moment that was planned at; empty where none is shared.
    """

    name: str
    relation: Relation
    columns: tuple[SqlColumn, ...]
    number: SqlColumn | None
    order_by: str
    partitions: tuple[Partition, ...]
    row_bytes: int
    is_ordered: bool = False
    key: tuple[str, ...] = ()
    locator: SqlColumn | None = None
    snapshot: str = ""

    @property
    def behind(self) -> SqlColumn | None:
        """The column that is read behind those that are wanted: it numbers or names the rows."""
        return self.locator if self.number is None else self.number

    @property
    def encoded_row_bytes(self) -> int:
        """Estimate of the size of a record: framing, names and values."""
        return 24 + sum(len(column.name) + 8 for column in self.columns) + self.row_bytes

    @property
    def schema(self) -> pa.Schema:
        """The columns as an Arrow schema."""
        return pa.schema([pa.field(c.name, c.arrow, nullable=c.nullable) for c in self.columns])


def make_plan(connection: Connection, question: Question) -> SqlPlan:
    """Plan a read over a connection whose moment is the job's.

    Raises:
        UsageError: There is no such table or column, or the statement is wrong.
        DataError: A column has no exact Arrow type, or rows got lost between the partitions.
    """
    relation = _relation(connection, question)
    found = connection.describe(relation, types=question.types)
    if relation.where:
        _check_where(connection, relation)
    name = relation.table.name if relation.table else "query"
    by_name = _by_name(found, name)
    columns = _chosen(found, by_name, question, name)
    keys = [by_name[key] for key in (relation.table.key if relation.table else ())]
    cut_by = _cut_by(question, by_name, keys, name)
    rows = _count(connection, relation) if question.counts else None
    row_bytes = row_bytes_of(relation.table, rows, columns)
    wanted = _wanted(relation, question, rows, row_bytes)
    key = None
    if cut_by is not None and (wanted > 1 or question.ordered):
        key = connection.key_of(relation, cut_by)
    partitions = _partitions(connection, relation, cut_by, key, question.ordered, wanted, rows)
    number = keys[0] if len(keys) == 1 and _is_number(keys[0]) else None
    return SqlPlan(
        name=name,
        relation=relation,
        columns=columns,
        number=None if question.ordered else number,
        order_by=_order(connection, keys, cut_by, key) if question.ordered else "",
        partitions=partitions,
        row_bytes=row_bytes,
        is_ordered=question.ordered,
        key=relation.table.key if relation.table else (),
        locator=None if keys or question.ordered else connection.locator(relation),
    )


def _relation(connection: Connection, question: Question) -> Relation:
    where = question.where or ""
    connection.check_text(where, "--where")
    if question.query is not None:
        query = trimmed(question.query)
        connection.check_text(query, "--query")
        return Relation(connection.dialect.subquery(query), where)
    assert question.table is not None
    table = connection.find_table(question.table)
    return Relation(table.sql, where, table)


def _check_where(connection: Connection, relation: Relation) -> None:
    """Refuse a condition that is more than one, and so would give rows to several partitions."""
    if connection.fetch(relation.select("COUNT(*)", "1 = 0")) != [(0,)]:
        raise UsageError("--where is not one condition: correct its brackets")


def _by_name(columns: Sequence[SqlColumn], name: str) -> dict[str, SqlColumn]:
    counts = Counter(column.name for column in columns)
    for column, count in counts.items():
        if count > 1:
            raise UsageError(
                f"the {name} has {count} columns named {column!r}: give each a name with AS"
            )
    return {column.name: column for column in columns}


def _chosen(
    found: Sequence[SqlColumn], by_name: Mapping[str, SqlColumn], question: Question, name: str
) -> tuple[SqlColumn, ...]:
    for option, names in (("--columns", question.columns or ()), ("--types", question.types)):
        for asked in names:
            if asked not in by_name:
                raise UsageError(
                    f"column {asked!r} is not in the input: "
                    f"correct {option} to some of {', '.join(sorted(by_name))}"
                )
    chosen = found if question.columns is None else [by_name[asked] for asked in question.columns]
    for column in chosen:
        if column.arrow is None:
            raise DataError(
                f"column {column.name!r} of {name} is {column.declared}: {column.refusal}"
            )
    return tuple(chosen)


def _cut_by(
    question: Question, by_name: Mapping[str, SqlColumn], keys: Sequence[SqlColumn], name: str
) -> SqlColumn | None:
    asked = question.partition_column
    if asked is None:
        return keys[0] if keys else None
    if asked not in by_name:
        raise UsageError(
            f"partition column {asked!r} is not in {name}: "
            f"correct --partition-column to one of {', '.join(sorted(by_name))}"
        )
    return by_name[asked]


def _is_number(column: SqlColumn) -> bool:
    return (
        column.arrow is not None
        and pa.types.is_integer(column.arrow)
        and not column.arrow.equals(pa.uint64())
    )


def _order(
    connection: Connection, keys: Sequence[SqlColumn], cut_by: SqlColumn | None, key: Key | None
) -> str:
    ordered = [cut_by] if cut_by is not None and key is None else []
    ordered += [column for column in keys if column is not cut_by]
    names = [connection.dialect.name(column.name) for column in ordered]
    return ", ".join(names if key is None else [key.expression, *names])


def _count(connection: Connection, relation: Relation, *conditions: str) -> int:
    return int(connection.fetch(relation.select("COUNT(*)", *conditions))[0][0])


def _wanted(relation: Relation, question: Question, rows: int | None, row_bytes: int) -> int:
    """Return how many partitions to make at most."""
    wanted = question.partitions or partition_count(relation.table, rows, row_bytes)
    return max(1, min(wanted, question.max_partitions or MAX_PARTITIONS, MAX_PARTITIONS))


def _partitions(
    connection: Connection,
    relation: Relation,
    cut_by: SqlColumn | None,
    key: Key | None,
    is_ordered: bool,
    wanted: int,
    rows: int | None,
) -> tuple[Partition, ...]:
    """Return the partitions, in order; a single one where nothing can cut the rows."""
    if wanted == 1:
        return (Partition("", rows),)
    if cut_by is not None and key is not None:
        found = _by_key(connection, relation, cut_by, key, wanted, rows)
        if found is not None:
            return found
    by_place = None
    if relation.table is not None and not is_ordered:
        by_place = connection.row_ranges(relation, wanted)
    if by_place is not None:
        found = _counted(connection, relation, by_place, counts=rows is not None)
        return _checked(relation, found, rows)
    why = "pass --partition-column with a column to cut it by"
    if cut_by is not None:
        why = f"{cut_by.name!r}, which is {cut_by.declared}, cannot cut it exactly: " + why
    _LOGGER.warning("%s is read over one connection: %s", _shown(relation), why)
    return (Partition("", rows),)


def _shown(relation: Relation) -> str:
    return relation.table.name if relation.table else "the query"


def _by_key(
    connection: Connection,
    relation: Relation,
    column: SqlColumn,
    key: Key,
    wanted: int,
    rows: int | None,
) -> tuple[Partition, ...] | None:
    """Return ranges of a key; None where the database does not compare as it orders.

    Whatever the order of the cuts, every row is in one range at least. It is in a second one only
    if it is below one cut and not below the next.
    """
    try:
        cuts = connection.cut_points(relation, column, key, wanted)
    except UsageError as error:
        raise UsageError(
            f"{_shown(relation)} cannot be cut by {column.name!r}, which is {column.declared} "
            f"({error}): choose another --partition-column, or pass --partitions 1"
        ) from None
    name = key.expression
    conditions = ranges(name, cuts, nullable=column.nullable, null=key.null)
    found = _counted(connection, relation, conditions, counts=rows is not None)
    if rows is not None:
        is_exact = sum(partition.rows or 0 for partition in found) <= rows
    else:
        twice = [f"({name} < {a} AND {name} >= {b})" for a, b in itertools.pairwise(cuts)]
        pieces = (twice[start : start + _TOGETHER] for start in range(0, len(twice), _TOGETHER))
        is_exact = not any(_count(connection, relation, " OR ".join(some)) for some in pieces)
    return _checked(relation, found, rows) if is_exact else None


def ranges(
    name: str, cuts: Sequence[str], *, nullable: bool, null: str = "{} IS NULL"
) -> list[str]:
    """Return conditions that cut all values of a column at literals in rising order.

    >>> ranges('"id"', ["10", "20"], nullable=True)
    ['"id" < 10', '"id" >= 10 AND "id" < 20', '"id" >= 20', '"id" IS NULL']
    """
    if not cuts:
        return [""]
    inner = [f"{name} >= {a} AND {name} < {b}" for a, b in itertools.pairwise(cuts)]
    found = [f"{name} < {cuts[0]}", *inner, f"{name} >= {cuts[-1]}"]
    return [*found, null.format(name)] if nullable else found


def _counted(
    connection: Connection, relation: Relation, conditions: Sequence[str], *, counts: bool
) -> tuple[Partition, ...]:
    """Return partitions, with their rows where these are to be counted."""
    return tuple(
        Partition(condition, _count(connection, relation, condition) if counts else None)
        for condition in conditions
    )


def _checked(
    relation: Relation, partitions: tuple[Partition, ...], rows: int | None
) -> tuple[Partition, ...]:
    """Return partitions that hold all the rows that were counted.

    Raises:
        DataError: They do not.
    """
    found = sum(partition.rows or 0 for partition in partitions)
    if rows is not None and found != rows:
        raise DataError(
            f"the partitions of {_shown(relation)} hold {found:,} rows but it has {rows:,}: "
            "choose another --partition-column, or pass --partitions 1"
        )
    return partitions
