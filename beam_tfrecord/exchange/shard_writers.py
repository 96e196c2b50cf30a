"""Writes TFRecord shards: `ShardWriter` writes one shard, `DirectWriter` batches unshuffled.

`DirectWriter` writes without a shuffle, in source order: each *group of units*, the part of the
input that one task reads, gets shards of its own.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from beam_tfrecord import native
from beam_tfrecord.exchange.spill import BlockWriter
from beam_tfrecord.format.layout import DEFAULT_SHARD_BYTES
from beam_tfrecord.format.places import purpose_seed
from beam_tfrecord.records.index import IndexWriter
from beam_tfrecord.records.tfrecord import ShardStream
from beam_tfrecord.rows.batch import Batch
from beam_tfrecord.storage import WRITE_BYTES, file_size
from beam_tfrecord.work.checkpoints import FinishedShard
from beam_tfrecord.work.job import Job

# A shard may exceed its target by this share, so that a small rest needs no shard of its own.
SLACK = 0.25


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

    def write(
        self, data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.uint64]:
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

    Where a shard ends depends only on the records of its group, never on the size of batches.
    """

    def __init__(self, job: Job) -> None:
        super().__init__(job, WRITE_BYTES)
        layout = job.layout
        self._compression = layout.compression
        self._limit = int((layout.shards.shard_bytes or DEFAULT_SHARD_BYTES) * (1 + SLACK))
        self._split = layout.splits.names[0]
        self._group = 0
        self._number = 0
        self._size = 0
        self._writer: ShardWriter | None = None

    def add(self, batch: Batch) -> Iterator[FinishedShard]:
        """Write a batch; yield the shards that it completes."""
        group = batch.group or 0
        if group != self._group:
            yield from self.end_group()
            self._group, self._number = group, 0
        yield from super().add(batch)

    def end_group(self) -> Iterator[FinishedShard]:
        """Write the remaining records of a group; yield its last shards."""
        yield from super().end_group()
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

    def _append(self, data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]) -> None:
        if self._writer is None:
            order = (self._group, self._number)
            self._writer = ShardWriter(self._directory, self._split, order, self._compression)
            self._number += 1
        self._writer.write(data, starts - starts[0])
        self._size += len(data)

    def _close(self) -> FinishedShard:
        assert self._writer is not None
        piece, self._writer, self._size = self._writer.close(), None, 0
        return piece
