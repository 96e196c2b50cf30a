"""Reading one partition: at the moment of the plan, again after a dropped connection, and counted.

After a drop the same statement is asked again at the same moment, and the batches that were
already given are compared with what comes now, by hash, and left out: rows are never doubled, and
another order of the rows is seen. Where that moment is gone with the connection, the job fails.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence

import pyarrow as pa

from beam_tfrecord import native
from beam_tfrecord.errors import DataError
from beam_tfrecord.sources.sql.engine import (
    Connection,
    ConnectionLost,
    Engine,
    Misfit,
    SqlColumn,
    SqlRows,
)
from beam_tfrecord.sources.sql.plan import SqlPlan

ATTEMPTS = 6
FIRST_PAUSE_S = 0.2

_LOGGER = logging.getLogger(__name__)


def read_partition(
    engine: Engine, plan: SqlPlan, index: int, columns: Sequence[SqlColumn], *, batch_rows: int
) -> Iterator[SqlRows]:
    """Yield the rows of a partition in batches of `batch_rows`, the last one shorter.

    Raises:
        SnapshotLost: The moment of the plan cannot be seen any more.
        DataError: The connection dropped and the rows came in another order, or cannot be had;
            or there are not as many rows as were counted.
    """
    values = ", ".join(column.select for column in columns)
    condition = plan.partitions[index].condition
    sql = plan.relation.select(values, condition, order_by=plan.order_by)
    given: list[int] = []
    rows = 0
    expected = plan.partitions[index].rows
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with engine.connect(snapshot=plan.snapshot) as connection:
                if expected is not None and not plan.snapshot:
                    expected = _count_now(connection, plan, condition)
                found = even(connection.read(sql, columns, batch_rows=batch_rows), batch_rows)
                for number, one in enumerate(found):
                    seen = _hash(one.data, plan)
                    if number < len(given):
                        _check_same(seen, given[number], plan.name)
                        continue
                    given.append(seen)
                    rows += one.data.num_rows
                    yield one
            break
        except ConnectionLost as error:
            if given and not plan.snapshot:
                raise DataError(
                    f"the connection to {engine.place} dropped, and the moment it read can no "
                    f"longer be seen ({error}): run the job again"
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
            f"partition {index} of {plan.name} in {engine.place} gave {rows:,} rows but "
            f"{expected:,} were counted: it was changed while it was read: run the job again"
        )


def _count_now(connection: Connection, plan: SqlPlan, condition: str) -> int:
    """Count at the moment of a connection, where it cannot be that of the plan."""
    return int(connection.fetch(plan.relation.select("COUNT(*)", condition))[0][0])


def _check_same(seen: int, given: int, name: str) -> None:
    if seen != given:
        raise DataError(
            f"the connection dropped, and {name} then came in another order: run the job again, "
            "or order the query"
        )


def _hash(data: pa.RecordBatch, plan: SqlPlan) -> int:
    # At one moment a key tells its row: the other columns need no look. It is the last column.
    told = data if plan.number is None else data.select([data.num_columns - 1])
    return native.xxh64(told.serialize(), 0)


def even(found: Iterator[SqlRows], batch_rows: int) -> Iterator[SqlRows]:
    """Cut and join batches to `batch_rows` rows, the last one shorter; nothing where no row is."""
    waiting: list[SqlRows] = []
    count = 0
    for rows in found:
        start = 0
        while rows.data.num_rows - start >= batch_rows - count:
            stop = start + batch_rows - count
            waiting.append(cut(rows, start, stop))
            yield join(waiting)
            waiting, count, start = [], 0, stop
        if start < rows.data.num_rows:
            waiting.append(cut(rows, start, rows.data.num_rows))
            count += rows.data.num_rows - start
    if waiting:
        yield join(waiting)


def cut(rows: SqlRows, start: int, stop: int) -> SqlRows:
    """Return the rows `start` to `stop`."""
    if start == 0 and stop == rows.data.num_rows:
        return rows
    misfits = tuple(_moved(misfit, -start) for misfit in rows.misfits if start <= misfit.row < stop)
    return SqlRows(rows.data.slice(start, stop - start), misfits)


def join(pieces: Sequence[SqlRows]) -> SqlRows:
    """Join pieces of one or more rows each."""
    if len(pieces) == 1:
        return pieces[0]
    misfits: list[Misfit] = []
    first = 0
    for piece in pieces:
        misfits += [_moved(misfit, first) for misfit in piece.misfits]
        first += piece.data.num_rows
    data = pa.concat_batches([piece.data for piece in pieces])
    return SqlRows(data, tuple(misfits))


def _moved(misfit: Misfit, by: int) -> Misfit:
    return Misfit(misfit.row + by, misfit.column, misfit.message, misfit.value)
