"""`JobBatch`: a batch within a job, with the book-keeping that its last step needs.

Sources and users make plain batches. The step that reads a source adds the book-keeping, and the
steps behind it pass it on with `Batch.replace`. The steps that write take plain batches as well:
`as_job_batch` gives those the defaults.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa

from beam_tfrecord.batch import Batch, Int64Array

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
class FileColumn:
    """A column whose values are complete files.

    Attributes:
        name: Name of the column.
        paths: Local path of the file of each row; null if the value is not a file.
    """

    name: str
    paths: pa.BinaryArray

    def take(self, indices: Int64Array) -> FileColumn:
        """Return the files of the rows `indices`."""
        return dataclasses.replace(self, paths=self.paths.take(pa.array(indices, pa.int64())))

    def slice(self, start: int, stop: int) -> FileColumn:
        """Return the files of the rows `start` to `stop`."""
        return dataclasses.replace(self, paths=self.paths.slice(start, stop - start))


@dataclasses.dataclass(frozen=True, eq=False)
class JobBatch(Batch):
    """A batch with the book-keeping of the job that reads it.

    Attributes:
        group: Number of the planned group of units that the batch was read with; None without a
            plan.
        rows_read: Number of source rows that became this batch, including rows dropped since; None
            if each row is one source row.
        part: Which part of its group the batch is; None in a job that cannot be resumed.
        files: Values that are complete files; None if that is unknown.
        way: The steps of this package that the rows have passed in a pipeline.
        input_hash: Hash of the bytes that a group of units was read from, in the batch without rows
            that ends the group; None in other batches.
    """

    group: int | None = None
    rows_read: int | None = None
    part: Part | None = None
    files: FileColumn | None = None
    way: Way = ()
    input_hash: int | None = None

    @property
    def rows_counted(self) -> int:
        """Number of source rows that became this batch, including rejected ones."""
        return self.num_rows + len(self.rejects) if self.rows_read is None else self.rows_read

    def replace(self, **changes: Any) -> JobBatch:
        """Return a copy with `changes`; new data drops the fields that describe values."""
        if "data" in changes:
            changes = {"files": None, **changes}
        return as_job_batch(super().replace(**changes))

    def take(self, indices: Int64Array) -> JobBatch:
        """Return the rows `indices`, in that order; reports and counts stay with this batch."""
        files = None if self.files is None else self.files.take(indices)
        rows_read = None if self.rows_read is None else 0
        return as_job_batch(super().take(indices)).replace(files=files, rows_read=rows_read)

    def slice(self, start: int, stop: int) -> JobBatch:
        """Return the rows `start` to `stop`; reports and counts stay with the first slice."""
        files = None if self.files is None else self.files.slice(start, stop)
        rows_read = self.rows_read if start == 0 or self.rows_read is None else 0
        return as_job_batch(super().slice(start, stop)).replace(files=files, rows_read=rows_read)


def as_job_batch(batch: Batch) -> JobBatch:
    """Return a batch with its book-keeping; a plain batch gets the defaults."""
    if isinstance(batch, JobBatch):
        return batch
    fields = dataclasses.fields(batch)
    return JobBatch(**{field.name: getattr(batch, field.name) for field in fields})
