"""`JobBatch`: a `Batch` with the counts and identifiers that the last step of a job needs.

Sources and users make plain batches. The step that reads a source turns them into job batches, and
later steps keep the extra fields through `Batch.replace`. Steps that write accept plain batches
too, through `as_job_batch`.
"""

from __future__ import annotations

import dataclasses
from typing import Self

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.arrow_arrays import Int64Array
from beam_tfrecord.rows.batch import Batch, count_rejects


def needs_batches(step: str, kind: str) -> str:
    """Return the message for a step of batches whose input has elements of another type."""
    return f"{step} needs Batch elements, not {kind}: make them by BatchRows(schema) before"


# Labels of the pipeline steps that rows have passed, the reader first.
StepPath = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Part:
    """The position of a batch in its group of units, in a job that can be resumed.

    A group of units is a part of the input that one worker reads in one task.
    """

    key: str
    number: int
    is_last: bool


@dataclasses.dataclass(frozen=True, eq=False)
class JobBatch(Batch):
    """A batch with the counts and identifiers that the job tracks."""

    group: int | None = None
    rows_read: int | None = None
    part: Part | None = None
    step_path: StepPath = ()

    @property
    def rows_counted(self) -> int:
        """Number of source rows that became this batch, including rejected rows."""
        lost = count_rejects(self.rejects)
        return self.num_rows + lost if self.rows_read is None else self.rows_read

    def take(self, indices: Int64Array) -> Self:
        """Return the rows `indices`, in that order, without reports; `rows_read` becomes 0."""
        return super().take(indices)._counted(is_first=False)

    def slice(self, start: int, stop: int) -> Self:
        """Return the rows `start` to `stop`; reports and counts go to the slice from row 0."""
        return super().slice(start, stop)._counted(is_first=start == 0)

    def _counted(self, *, is_first: bool) -> Self:
        return self if is_first or self.rows_read is None else self.replace(rows_read=0)


def as_job_batch(batch: Batch) -> JobBatch:
    """Return a batch as a `JobBatch`; a plain batch gets the default values of the fields."""
    if isinstance(batch, JobBatch):
        return batch
    if not isinstance(batch, Batch):
        raise UsageError(needs_batches("this step", type(batch).__name__))
    fields = dataclasses.fields(batch)
    return JobBatch(**{field.name: getattr(batch, field.name) for field in fields})
