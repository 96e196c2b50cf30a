"""`JobBatch`: a batch within a job, with the book-keeping that its last step needs.

Sources and users make plain batches. The step that reads a source adds the book-keeping, and later
steps copy it with `Batch.replace`. Steps that write accept plain batches too: see `as_job_batch`.
"""

from __future__ import annotations

import dataclasses
from typing import Self

from beam_tfrecord.batch import Batch
from beam_tfrecord.features.arrow_arrays import Int64Array

# Labels of the pipeline steps that rows have passed, the reader first.
Way = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Part:
    """Which part of its group of units a batch is, in a job that can be resumed.

    Attributes:
        key: Identifies the group and the state of its files.
        number: Position among the batches of the group, from 0.
        is_last: Whether this is the last batch of the group.
    """

    key: str
    number: int
    is_last: bool


@dataclasses.dataclass(frozen=True, eq=False)
class JobBatch(Batch):
    """A batch with the book-keeping of the job that reads it.

    Attributes:
        group: Number of the planned group of units that the batch was read with; None without a
            plan.
        rows_read: Number of source rows that became this batch, including rows dropped since; None
            if each row is one source row.
        part: Which part of its group the batch is; None in a job that cannot be resumed.
        way: The steps of this package that the rows have passed in a pipeline.
        input_hash: Hash of the bytes that a group of units was read from, in the batch without rows
            that ends the group; None in other batches.
    """

    group: int | None = None
    rows_read: int | None = None
    part: Part | None = None
    way: Way = ()
    input_hash: int | None = None

    @property
    def rows_counted(self) -> int:
        """Number of source rows that became this batch, including rejected ones."""
        return self.num_rows + len(self.rejects) if self.rows_read is None else self.rows_read

    def take(self, indices: Int64Array) -> Self:
        """Return the rows `indices`, in that order; reports and counts stay with this batch."""
        return super().take(indices)._counted(is_first=False)

    def slice(self, start: int, stop: int) -> Self:
        """Return the rows `start` to `stop`; reports and counts stay with the first slice."""
        return super().slice(start, stop)._counted(is_first=start == 0)

    def _counted(self, *, is_first: bool) -> Self:
        return self if is_first or self.rows_read is None else self.replace(rows_read=0)


def as_job_batch(batch: Batch) -> JobBatch:
    """Return a batch with its book-keeping; a plain batch gets the defaults."""
    if isinstance(batch, JobBatch):
        return batch
    fields = dataclasses.fields(batch)
    return JobBatch(**{field.name: getattr(batch, field.name) for field in fields})
