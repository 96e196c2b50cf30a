"""Reads one partition of a table or query in the snapshot of its plan, as batches of rows.

After a dropped connection the same statement runs again in the same snapshot. Batches that were
already returned are compared by hash with the new ones and skipped, so rows are never duplicated
and another order of the rows is detected. If the snapshot ended with the connection, the job fails.

Other connections can join a snapshot only while the connection that planned the job is open. The
process that planned the job holds that connection until it has read the last partition, the job
ends, or the process exits.
"""

from __future__ import annotations

import atexit
import dataclasses
import itertools
import logging
import time
from collections.abc import Iterator, Sequence

import pyarrow as pa

from beam_tfrecord import native
from beam_tfrecord.base.sizes import counted
from beam_tfrecord.base.tables import not_found
from beam_tfrecord.errors import DataError, SchemaConflict
from beam_tfrecord.features.converting import can_cast
from beam_tfrecord.rows.batch import MAX_VALUE_CHARS, Batch, Origin, Reject
from beam_tfrecord.sources.base import Unit
from beam_tfrecord.sources.rejects import without_rows
from beam_tfrecord.sources.sql import database as db
from beam_tfrecord.sources.sql.plan import SqlPlan
from beam_tfrecord.sources.sql.values import Misfit, SqlColumn, SqlRows, cast_column

ATTEMPTS = 6
FIRST_PAUSE_S = 0.2

_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass
class _Holder:
    connection: db.Connection
    job: str
    unread: set[int]


# Connections of this process by the token of their snapshot. Threads only call single methods of
# this dict and of the sets in it, which need no lock.
_holders: dict[str, _Holder] = {}


def hold_snapshot(snapshot: str, connection: db.Connection, *, job: str, partitions: int) -> None:
    """Keep a connection open until all partitions are read or `release_snapshots` is called."""
    _holders[snapshot] = _Holder(connection, job, set(range(partitions)))


def partition_done(snapshot: str, index: int) -> None:
    """Record that this process has read a partition; after the last, end the snapshot."""
    holder = _holders.get(snapshot)
    if holder is not None:
        holder.unread.discard(index)
        if not holder.unread:
            _end(snapshot)


def release_snapshots(job: str | None = None) -> None:
    """Close the connections that this process holds for a job; for all jobs if it is None."""
    for snapshot, holder in list(_holders.items()):
        if job in (None, holder.job):
            _end(snapshot)


def _end(snapshot: str) -> None:
    if (holder := _holders.pop(snapshot, None)) is not None:
        holder.connection.close()


atexit.register(release_snapshots)


def read_partition(
    engine: db.Engine, plan: SqlPlan, columns: Sequence[SqlColumn], *, batch_rows: int
) -> Iterator[SqlRows]:
    """Yield the rows of the only partition of a plan, in batches as the connection forms them."""
    (partition,) = plan.partitions
    values = ", ".join(column.select for column in columns)
    sql = plan.relation.select(values, partition.condition, order_by=plan.order_by)
    hashes: list[int] = []
    rows = 0
    expected = partition.rows
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with engine.connect(snapshot=plan.snapshot) as connection:
                if expected is not None and not plan.snapshot:
                    # Without a shared snapshot, this connection counts in its own.
                    counting = plan.relation.select("COUNT(*)", partition.condition)
                    ((expected,),) = connection.fetch(counting)
                found = connection.read(sql, columns, batch_rows=batch_rows)
                for number, one in enumerate(found):
                    # In one snapshot a key, which is the last column, identifies its row.
                    last = one.data.num_columns - 1
                    seen = one.data if plan.number is None else one.data.select([last])
                    hashed = native.xxh64(seen.serialize(), 0)
                    if number >= len(hashes):
                        hashes.append(hashed)
                        rows += one.data.num_rows
                        yield one
                    elif hashed != hashes[number]:
                        raise DataError(
                            f"the connection dropped, and {plan.name} then came in another order: "
                            "run the job again, or order the query"
                        )
            break
        except db.ConnectionLost as error:
            if hashes and not plan.snapshot:
                raise DataError(
                    f"the connection to {engine.place} dropped, and the snapshot it read is "
                    f"gone ({error}): run the job again"
                ) from error
            if attempt == ATTEMPTS:
                raise DataError(
                    f"the connection to {engine.place} dropped {ATTEMPTS} times: {error}"
                ) from error
            pause_s = FIRST_PAUSE_S * 2 ** (attempt - 1)
            _LOGGER.warning("%s: connecting again in %.1f s: %s", engine.place, pause_s, error)
            time.sleep(pause_s)
    if expected is not None and rows != expected:
        raise DataError(
            f"a partition of {plan.name} in {engine.place} gave {counted(rows, 'row')} but "
            f"{expected:,} were counted: it was changed while it was read: run the job again"
        )


def columns_for(schema: pa.Schema, plan: SqlPlan) -> list[SqlColumn]:
    """Return the columns to select: those of `schema`, then the column that numbers the rows."""
    by_name = {column.name: column for column in plan.columns}
    for field in schema:
        column = by_name.get(field.name)
        if column is None:
            raise DataError(not_found(field.name, by_name, of="the schema", where=plan.name))
        if column.arrow is None or not can_cast(column.arrow, field.type):
            raise SchemaConflict(
                f"column {field.name!r} of {plan.name} is {column.declared} but {field.type} in "
                f"the schema: pass --types {field.name}={field.type}"
            )
    numbers = [] if plan.number is None else [plan.number]
    return [by_name[name] for name in schema.names] + numbers


def origin_of(unit: Unit, plan: SqlPlan, rows: SqlRows, first_row: int) -> Origin | None:
    """Return the origin of rows, numbered by key or order; None if they have neither."""
    if plan.number is not None:
        keys = rows.data.column(rows.data.num_columns - 1).cast(pa.int64())
        numbers = keys.fill_null(-1).to_numpy(zero_copy_only=False)
        # Not the partition's name: row numbers must not depend on the partitions.
        address = (f"{plan.name} where {plan.number.name} is ", 0)
        return Origin(plan.name, unit.index, numbers, address=address)
    return Origin(unit.name, unit.index, first_row) if plan.is_ordered else None


def batches_of(
    rows: SqlRows, origin: Origin | None, schema: pa.Schema, plan: SqlPlan, batch_rows: int
) -> Iterator[Batch]:
    """Yield rows as batches of a schema, of at most `batch_rows` rows each.

    Rows with misfits or values that do not fit the schema become rejects.
    """
    cast = [
        cast_column(rows.data.column(index), field.name, field.type, "correct --schema")
        for index, field in enumerate(schema)
    ]
    data = pa.RecordBatch.from_arrays([array for array, _ in cast], schema=schema)
    rejects: dict[int, Reject] = {}
    for misfit in itertools.chain(rows.misfits, *(found for _, found in cast)):
        rejects.setdefault(misfit.row, _reject(misfit, origin, schema, plan, rows))
    batch = without_rows(Batch(data, origin), rejects)
    for start in range(0, max(1, batch.num_rows), batch_rows):
        yield batch.slice(start, min(start + batch_rows, batch.num_rows))


def _reject(
    misfit: Misfit, origin: Origin | None, schema: pa.Schema, plan: SqlPlan, rows: SqlRows
) -> Reject:
    number = -1 if origin is None else int(origin.row_numbers(rows.data.num_rows)[misfit.row])
    where = plan.name
    if number != -1:
        where += (
            f" row {number}" if plan.number is None else f" where {plan.number.name} is {number}"
        )
    return Reject(
        unit=plan.name if origin is None else origin.unit,
        row=number,
        column=misfit.column,
        code="bad-value",
        message=f"column {misfit.column!r} of {where} {misfit.message}",
        value=misfit.value[:MAX_VALUE_CHARS],
        address=where,
    )
