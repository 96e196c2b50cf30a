"""Rejects on disk: every row that could not be written, with its reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet as pq

from beam_tfrecord.batch import Reject
from beam_tfrecord.errors import RejectedRows, UsageError
from beam_tfrecord.storage import put

REJECTS_SCHEMA = pa.schema(
    [
        pa.field("unit", pa.string()),
        pa.field("row", pa.int64()),
        pa.field("column", pa.string()),
        pa.field("code", pa.string()),
        pa.field("message", pa.string()),
        pa.field("value", pa.string()),
    ]
)


@dataclasses.dataclass(frozen=True)
class RejectBudget:
    """How many rows may be rejected before nothing is published.

    Attributes:
        rows: Largest number of rows; None: any.
        percent: Largest share of the rows read, in percent, in place of a number.
    """

    rows: int | None = 0
    percent: float | None = None

    def allows(self, rejects: int, rows: int) -> bool:
        """Tell whether `rejects` of `rows` rows read are within the budget."""
        if self.percent is not None:
            return rejects * 100 <= self.percent * rows
        return self.rows is None or rejects <= self.rows

    def __str__(self) -> str:
        if self.percent is not None:
            return f"{self.percent:g}%"
        return "any" if self.rows is None else str(self.rows)


def parse_budget(budget: int | str) -> RejectBudget:
    """Parse ``3``, ``0.5%`` or ``any``.

    Raises:
        UsageError: It is of another form.
    """
    text = str(budget).strip()
    try:
        if text == "any":
            return RejectBudget(rows=None)
        if text.endswith("%"):
            percent = float(text[:-1])
            if not 0 <= percent <= 100:
                raise ValueError
            return RejectBudget(percent=percent)
        if int(text) < 0:
            raise ValueError
        return RejectBudget(rows=int(text))
    except ValueError:
        raise UsageError(f"cannot read reject budget {text!r}: write 10, 0.5% or any") from None


def write_rejects(path: str, rejects: Sequence[Reject]) -> None:
    """Write rejects to a temporary file."""
    table = pa.Table.from_pylist([dataclasses.asdict(r) for r in rejects], REJECTS_SCHEMA)
    with pa.ipc.new_file(path, REJECTS_SCHEMA) as writer:
        writer.write_table(table)


def collect_rejects(paths: Sequence[str]) -> pa.Table:
    """Join temporary files in order of origin: unit, row, column."""
    tables = [pa.ipc.open_file(path).read_all() for path in paths]
    table = pa.concat_tables(tables) if tables else REJECTS_SCHEMA.empty_table()
    order = pc.sort_indices(
        table,
        # All columns: files have random names, so their order must not show.
        sort_keys=[(name, "ascending") for name in REJECTS_SCHEMA.names],
    )
    return table.take(order)


def save_rejects(table: pa.Table, path: str) -> None:
    """Write the rejects of a dataset as Parquet, whole or not at all."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    put(path, sink.getvalue())


def over_budget(budget: RejectBudget, rejects: int, rows: int, sample: Sequence[Reject]) -> str:
    """Return the line that tells why nothing was published."""
    shown = "; ".join(dict.fromkeys(reject.message for reject in sample[:3]))
    more = f" and {rejects - 3:,} more" if rejects > 3 else ""
    return (
        f"{rejects:,} of {rows:,} rows cannot be written (allowed: {budget}): {shown}{more}: "
        "mend the data, or allow them with --max-rejects (max_rejects=)"
    )


def rejected(
    budget: RejectBudget, rejects: int, rows: int, sample: Sequence[Reject]
) -> RejectedRows:
    """Return the error for a job over its budget."""
    return RejectedRows(over_budget(budget, rejects, rows, sample))
