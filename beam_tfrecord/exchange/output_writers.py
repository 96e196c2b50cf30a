"""Writes the files of a job: TFRecord shards, and the Parquet files of a stage (``extract``).

`ShardWriter` writes one shard. `DirectWriter` and `StageWriter` write without a shuffle, in source
order: each *task*, the units that one worker reads together, gets files of its own.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from beam_tfrecord import native
from beam_tfrecord.base.text import repeated
from beam_tfrecord.errors import DataError
from beam_tfrecord.exchange.block import pieces_of
from beam_tfrecord.exchange.spill import MAX_REJECTS, BlockWriter, spill_rejects
from beam_tfrecord.features.arrow_arrays import relative_error, round_text
from beam_tfrecord.features.feature import ColumnStats
from beam_tfrecord.format.layout import DEFAULT_SHARD_BYTES, ONLY_SPLIT
from beam_tfrecord.format.rejects import HashedSink
from beam_tfrecord.format.sort_keys import purpose_seed
from beam_tfrecord.format.stage import file_schema, not_held, staged_schema, to_file
from beam_tfrecord.format.tally import Tally
from beam_tfrecord.job_state.checkpoints import FinishedShard
from beam_tfrecord.job_state.job import Job
from beam_tfrecord.native.kernel_types import Int64Array, UInt8Array, UInt64Array
from beam_tfrecord.records.shard_index import IndexWriter
from beam_tfrecord.records.tfrecord import ShardStream
from beam_tfrecord.rows.batch import Batch, Reject, count_rejects
from beam_tfrecord.storage import WRITE_BYTES, WholeFile, file_size

# A shard may exceed its target by this share, so that a small rest needs no shard of its own.
SLACK = 0.25
FILE_BYTES = 256 * 2**20
ROW_GROUP_BYTES = 64 * 2**20
ROW_GROUP_ROWS = 2**20


class ShardWriter:
    """Writes the records of one shard, and counts and hashes them."""

    def __init__(
        self, directory: str, split: str, order: tuple[int, ...], compression: str
    ) -> None:
        name = "-".join(("shard", split, *map(str, order), uuid.uuid4().hex))
        self._path = os.path.join(directory, name)
        self._split, self._order = split, order
        self._stream = ShardStream(self._path, compression)
        # A reader of a compressed file cannot begin in the middle of it.
        self._index = None if compression else IndexWriter(f"{self._path}.idx")
        self._seed = purpose_seed(0, "content")
        self._examples = 0
        self._content = 0

    def write(self, data: UInt8Array, starts: Int64Array) -> UInt64Array:
        """Write all of `data`, framed records that begin at `starts`; return the hash of each."""
        hashes = native.hash_records(data, starts, self._seed)
        self._content = (self._content + int(hashes.sum(dtype=np.uint64))) % 2**64
        self._examples += len(starts)
        self._stream.write(data)
        if self._index is not None:
            self._index.add(data, starts)
        return hashes

    def close(self) -> FinishedShard:
        """Finish the file."""
        nbytes, xxh64 = self._stream.close()
        index = (0, "") if self._index is None else self._index.close(xxh64)
        return FinishedShard(
            self._split,
            self._order,
            self._path,
            self._examples,
            nbytes,
            xxh64,
            self._content,
            file_size(self._path),
            self._stream.stored_xxh64,
            *index,
        )

    def abort(self) -> None:
        """Remove the unfinished files."""
        self._stream.abort()
        if self._index is not None:
            self._index.abort()


class DirectWriter(BlockWriter[FinishedShard]):
    """Writes batches to shards in the order in which they arrive, and ends shards by their size.

    Where a shard ends depends only on the records of its task, never on the size of batches.
    """

    def __init__(self, job: Job) -> None:
        super().__init__(job, WRITE_BYTES)
        layout = job.layout
        self._compression = layout.compression
        self._limit = int((layout.shards.shard_bytes or DEFAULT_SHARD_BYTES) * (1 + SLACK))
        self._split = layout.splits.names[0]
        self._task = 0
        self._number = 0
        self._size = 0
        self._writer: ShardWriter | None = None

    def add(self, batch: Batch) -> Iterator[FinishedShard]:
        """Write a batch; yield the shards that it completes."""
        task = batch.task or 0
        if task != self._task:
            yield from self.end_task()
            self._task, self._number = task, 0
        yield from super().add(batch)

    def end_task(self) -> Iterator[FinishedShard]:
        """Write the remaining records of a task; yield its last shards."""
        yield from super().end_task()
        if self._writer is not None:
            yield self._close()

    def abort(self) -> None:
        """Remove an unfinished shard."""
        super().abort()
        if self._writer is not None:
            self._writer.abort()

    def _write(self) -> Iterator[FinishedShard]:
        block = self._block
        starts = np.append(block.arena.used_starts(), block.size)
        done = 0
        while done < block.records:
            # A shard always takes its first record, however large it is.
            room = self._limit - self._size if self._size else max(self._limit, 0)
            fits = int(np.searchsorted(starts, starts[done] + room, side="right")) - 1
            end = max(fits, done + (0 if self._size else 1))
            if end > done:
                self._append(block.arena.data[starts[done] : starts[end]], starts[done:end])
                done = end
            if done < block.records:
                yield self._close()
        block.clear_records()

    def _append(self, data: UInt8Array, starts: Int64Array) -> None:
        if self._writer is None:
            order = (self._task, self._number)
            self._writer = ShardWriter(self._directory, self._split, order, self._compression)
            self._number += 1
        self._writer.write(data, starts - starts[0])
        self._size += len(data)

    def _close(self) -> FinishedShard:
        assert self._writer is not None
        shard, self._writer, self._size = self._writer.close(), None, 0
        return shard


class StageWriter:
    """Writes batches to Parquet files in the order in which they arrive.

    Where a file ends depends only on the batches of its task, so every attempt writes the same
    files.
    """

    def __init__(self, job: Job) -> None:
        self._directory = job.directory
        self._came = self._staged = self._inside = pa.schema([])
        self._inputs = job.inputs
        self._task: tuple[int, ...] = ()
        self._number = 0
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._pending_rows = 0
        self._file: _StageFile | None = None
        self.tally = Tally()
        self.rejects: list[Reject] = []

    def add(self, batch: Batch) -> Iterator[FinishedShard]:
        """Write a batch; yield the files that it completes."""
        task: tuple[int, ...] = (batch.task or 0,)
        if self._inputs.count > 1:
            task = (self._inputs.number(batch.step_path), *task)
        if task != self._task:
            yield from self.end_task()
            self._task, self._number = task, 0
        if batch.encoded:
            raise DataError("serialized examples have no columns to stage: give rows, or batches")
        if batch.split is not None:
            raise DataError(
                "a stage has no splits: leave AssignSplits out, and split what is written from it"
            )
        self._count(batch)
        if not batch.data.num_columns:
            return
        if batch.data.schema is not self._came:
            self._take_schema(batch.data.schema)
        for piece in pieces_of(batch, ROW_GROUP_BYTES):
            if piece.num_rows:
                yield from self._add_rows(to_file(piece.data, self._staged, self._inside))

    def end_task(self) -> Iterator[FinishedShard]:
        """Finish the last file of a task, and yield it."""
        yield from self._write_row_group()
        if self._file is not None:
            yield self._close()

    def take_tally(self) -> Tally:
        """Return the sums since the last call; call it only after `end_task`."""
        spill_rejects(self, self._directory)
        tally, self.tally = self.tally, Tally()
        return tally

    def abort(self) -> None:
        """Remove an unfinished file."""
        if self._file is not None:
            self._file.abort()

    def _count(self, batch: Batch) -> None:
        self.rejects += batch.rejects
        counted = Tally(
            rows=batch.rows_counted,
            records=batch.num_rows,
            rejects=count_rejects(batch.rejects),
            observed=_rounded(batch),
            refused=batch.refused,
        )
        self.tally = self.tally.merge(counted)
        spill_rejects(self, self._directory, least=MAX_REJECTS)

    def _take_schema(self, schema: pa.Schema) -> None:
        if not schema.equals(self._came, check_metadata=True):
            if doubled := repeated(schema.names):
                raise DataError(f"two columns are named {doubled[0]!r}: rename one of them")
            self._staged = staged_schema(schema)
            self._inside = checked_file_schema(self._staged)
        self._came = schema
        message = self._staged.serialize().to_pybytes()
        self.tally = self.tally.merge(Tally(staged=message))

    def _add_rows(self, data: pa.RecordBatch) -> Iterator[FinishedShard]:
        is_full = (
            self._pending_bytes + data.nbytes > ROW_GROUP_BYTES
            or self._pending_rows + data.num_rows > ROW_GROUP_ROWS
        )
        if is_full:
            yield from self._write_row_group()
        self._pending.append(data)
        self._pending_bytes += data.nbytes
        self._pending_rows += data.num_rows

    def _write_row_group(self) -> Iterator[FinishedShard]:
        if not self._pending:
            return
        table = pa.Table.from_batches(self._pending, self._inside)
        self._pending, self._pending_bytes, self._pending_rows = [], 0, 0
        if self._file is None:
            order = (*self._task, self._number)
            self._file = _StageFile(self._directory, order)
            self._number += 1
        if self._file.write(table) >= FILE_BYTES:
            yield self._close()

    def _close(self) -> FinishedShard:
        assert self._file is not None
        shard, self._file = self._file.close(), None
        return shard


class _StageFile:
    """One Parquet file under a temporary name."""

    def __init__(self, directory: str, order: tuple[int, ...]) -> None:
        # Named like an unpublished shard: code that clears or resumes a job looks for this prefix.
        name = "-".join(("shard", ONLY_SPLIT, *map(str, order), uuid.uuid4().hex))
        self._path = os.path.join(directory, name)
        self._order = order
        self._rows = 0
        self._file = WholeFile(self._path)
        self._sink = HashedSink(self._file)
        self._output = pa.PythonFile(self._sink, "w")
        self._writer: pq.ParquetWriter | None = None

    def write(self, table: pa.Table) -> int:
        """Write a row group; return the size of the file up to now."""
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._output, table.schema, compression="zstd", write_page_checksum=True
            )
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._rows += table.num_rows
        return int(self._output.tell())

    def close(self) -> FinishedShard:
        """Finish the file."""
        assert self._writer is not None
        self._writer.close()
        self._output.close()
        self._file.close()
        size = file_size(self._path)
        xxh64 = f"{self._sink.hash.intdigest():016x}"
        return FinishedShard(ONLY_SPLIT, self._order, self._path, self._rows, size, xxh64, 0, size)

    def abort(self) -> None:
        """Remove what was written."""
        if self._writer is not None:
            # Otherwise the garbage collector makes it write a footer to the removed file.
            self._writer.is_open = False
        self._file.abort()


def _rounded(batch: Batch) -> dict[str, ColumnStats]:
    """Return statistics of the columns whose numbers were rounded by earlier steps."""
    if batch.numbers is None:
        return {}
    observed = {}
    for name in batch.numbers.schema.names:
        exact = batch.numbers.column(name)
        if pa.types.is_string(exact.type):
            exact = round_text(exact).exact
        if error := relative_error(pc.cast(batch.data.column(name), pa.float64()), exact):
            observed[name] = ColumnStats(max_relative_error=error)
    return observed


def checked_file_schema(staged: pa.Schema) -> pa.Schema:
    """Return the Parquet schema of a stage, after a check that Parquet can hold each column."""
    inside = file_schema(staged)
    for field in inside:
        try:
            pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([field])).close()
        except (pa.ArrowException, OSError) as error:
            raise not_held(field) from error
    return inside
