"""Encodes batches and spills their records to disk as sorted files (*runs*), in bounded memory.

A run is sorted by split and *sort key*, the 64-bit position of a record in the order of the
dataset. For the shuffle of a runner, `BlockCutter` yields sorted blocks of records instead, and
`sort_range` turns them into runs.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import itertools
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from beam_tfrecord import native
from beam_tfrecord.exchange.block import PIECE_BYTES, Block, pieces_of
from beam_tfrecord.format.rejects import write_rejects
from beam_tfrecord.format.sort_keys import SHUFFLED_BIN_SHIFT, bin_shift
from beam_tfrecord.format.tally import Tally
from beam_tfrecord.job_state.job import Job
from beam_tfrecord.job_state.run_files import (
    SORT_KEY_BYTES,
    BinCounts,
    SpillRun,
    count_bins,
    footer,
    merge_counts,
)
from beam_tfrecord.native.kernel_types import Int64Array, UInt8Array, UInt64Array
from beam_tfrecord.rows.batch import Batch, Reject
from beam_tfrecord.storage import WRITE_BYTES, WholeFile

RUN_BYTES = 64 * 2**20
# Rejects are Python objects, and every row may be one: beyond this they are moved to a file.
MAX_REJECTS = 20_000
MAX_BLOCK_BYTES = 16 * 2**20

# The output of a writer: a `SpillRun`, a `FinishedShard`, or a block of records with its key.
F = TypeVar("F")


class Buffer:
    """Memory for one piece of records at a time."""

    def __init__(self) -> None:
        self._data = np.empty(0, np.uint8)

    def room(self, nbytes: int) -> UInt8Array:
        """Return an array of `nbytes` bytes; it overwrites the array of the previous call."""
        if nbytes > len(self._data):
            self._data = np.empty(max(nbytes, WRITE_BYTES), np.uint8)
        return self._data[:nbytes]


@dataclasses.dataclass(frozen=True, eq=False)
class SortedRecords:
    """Framed records in memory, and their order by (split, sort key)."""

    data: UInt8Array
    starts: Int64Array
    sort_keys: UInt64Array
    order: Int64Array
    sizes: Int64Array
    splits: npt.NDArray[np.uint16] | None = None

    @property
    def sorted_keys(self) -> UInt64Array:
        """Sort key of each record, in sorted order, shape `[n]`."""
        return self.sort_keys[self.order]

    def where(self, picked: slice | npt.NDArray[Any]) -> SortedRecords:
        """Return the records at some positions of the sorted order, all of one split."""
        return dataclasses.replace(self, order=self.order[picked], sizes=self.sizes[picked])

    def framed(self, at: int) -> UInt8Array:
        """Return the frame of the record at a position of the sorted order."""
        start = self.starts[self.order[at]]
        return self.data[start : start + self.sizes[at]]

    def pieces(
        self, buffer: Buffer, first: int, end: int, limit: int = WRITE_BYTES, *, is_run: bool
    ) -> Iterator[tuple[UInt8Array, Int64Array]]:
        """Yield the records `first` to `end` in sorted order, in pieces of at most `limit` bytes.

        A piece is valid until the next one, which reuses the buffer.
        """
        sort_keys, extra = (self.sort_keys, SORT_KEY_BYTES) if is_run else (None, 0)
        for low, high, nbytes in byte_pieces(self.sizes[first:end] + extra, limit):
            picked = slice(first + low, first + high)
            out = buffer.room(nbytes)
            native.gather(self.data, self.starts, sort_keys, self.order[picked], out, 0)
            yield out, self.sizes[picked]

    def counts(self, names: Sequence[str], shift: int) -> dict[str, BinCounts]:
        """Return the counts of the records by split and bin."""
        return count_bins(names, self.splits, self.sorted_keys, self.sizes, shift)


def sort_block(block: Block, *, by_bytes: bool) -> SortedRecords:
    """Sort the records of a block by split and sort key."""
    data, starts, splits = block.arena.used_data(), block.arena.used_starts(), block.splits
    sort_keys = block.sort_keys
    order = native.sort_records(data, starts, splits, sort_keys, by_bytes)
    sizes = np.diff(starts, append=len(data))[order]
    return SortedRecords(
        data, starts, sort_keys, order, sizes, None if splits is None else splits[order]
    )


def sort_entries(data: UInt8Array, *, by_bytes: bool) -> SortedRecords:
    """Sort the entries of runs, all of one split, by sort key."""
    starts, sort_keys = native.scan_run(data)
    order = native.sort_records(data, starts, None, sort_keys, by_bytes)
    # Entries follow each other without gaps, so the next start gives the size of each.
    sizes = np.diff(starts, append=len(data) + SORT_KEY_BYTES)[order] - SORT_KEY_BYTES
    return SortedRecords(data, starts, sort_keys, order, sizes)


def byte_pieces(sizes: Int64Array, limit: int) -> Iterator[tuple[int, int, int]]:
    """Cut items of the given sizes into pieces of at most `limit` bytes, or of one larger item."""
    ends = np.cumsum(sizes)
    low = 0
    while low < len(sizes):
        before = int(ends[low - 1]) if low else 0
        high = max(low + 1, int(np.searchsorted(ends, before + limit, side="right")))
        yield low, high, int(ends[high - 1]) - before
        low = high


def write_run(
    path: str, parts: Iterable[SortedRecords], names: Sequence[str], shift: int, buffer: Buffer
) -> SpillRun:
    """Write a run."""
    counts = []
    with WholeFile(path, outlasts=False) as file:
        for part in parts:
            for entries, _ in part.pieces(buffer, 0, len(part.order), is_run=True):
                file.write(entries.data)
            counts.append(part.counts(names, shift))
        of_run = merge_counts(*counts)
        file.write(footer(of_run))
    return SpillRun(path, of_run)


class BlockWriter(abc.ABC, Generic[F]):
    """Base class: collects encoded batches in a block, and writes the block once it is full.

    Each task gets outputs of its own.
    """

    def __init__(self, job: Job, full_bytes: int) -> None:
        self._directory = job.directory
        self._by_bytes = job.layout.shuffle
        self._full_bytes = full_bytes
        self._block = Block(job.layout, job.schema, job.inputs)
        self._buffer = Buffer()

    def add(self, batch: Batch) -> Iterator[F]:
        """Write a batch; yield the outputs that it completes."""
        for piece in pieces_of(batch, PIECE_BYTES):
            self._block.add(piece)
            spill_rejects(self._block, self._directory, least=MAX_REJECTS)
            if self._block.size >= self._full_bytes:
                yield from self._write()

    def end_task(self) -> Iterator[F]:
        """Write the remaining records of a task; yield its last outputs."""
        yield from self._write()

    def take_tally(self) -> Tally:
        """Return the sums since the last call; call it only after `end_task`."""
        spill_rejects(self._block, self._directory)
        tally = self._block.tally
        self._block.clear()
        return tally

    def abort(self) -> None:
        """Drop the remaining records, and remove an unfinished file."""
        self._block.clear()

    @abc.abstractmethod
    def _write(self) -> Iterator[F]:
        """Write the records of the block and clear it; yield the completed outputs."""


class Spiller(BlockWriter[SpillRun]):
    """Writes batches to sorted runs."""

    def __init__(self, job: Job, *, run_bytes: int = RUN_BYTES) -> None:
        super().__init__(job, run_bytes)
        self._token = uuid.uuid4().hex
        self._task = "rows"
        self._written = 0

    def add(self, batch: Batch) -> Iterator[SpillRun]:
        """Write a batch; yield the runs that it completes."""
        position = batch.position
        self._task = "rows" if position is None else position.key[:12]
        return super().add(batch)

    def _write(self) -> Iterator[SpillRun]:
        block = self._block
        if block.records:
            # The names of a spiller's runs sort as they were written: in source order, records of
            # equal sort key may be spread over two runs and must keep their order.
            self._written += 1
            name = f"run-{self._task}-{self._token}-{self._written:06d}"
            yield write_run(
                os.path.join(self._directory, name),
                [sort_block(block, by_bytes=self._by_bytes)],
                block.split_names,
                bin_shift(self._by_bytes, block.records),
                self._buffer,
            )
        block.clear_records()


class BlockCutter(BlockWriter[tuple[tuple[str, int], bytes]]):
    """Yields sorted blocks of records, each of one split and one range of sort keys.

    The leading `range_bits` of a sort key number its range. The key of a block, (split, number of
    the range), is the key for the runner's own shuffle.
    """

    def __init__(self, job: Job, *, range_bits: int) -> None:
        super().__init__(job, RUN_BYTES)
        self._range_bits = range_bits

    def _write(self) -> Iterator[tuple[tuple[str, int], bytes]]:
        block = self._block
        if block.records:
            records = sort_block(block, by_bytes=self._by_bytes)
            keys = (records.sorted_keys >> np.uint64(64 - self._range_bits)).astype(np.int64)
            if records.splits is not None:
                keys |= records.splits.astype(np.int64) << self._range_bits
            edges = [0, *(np.flatnonzero(np.diff(keys)) + 1).tolist(), len(keys)]
            for first, end in itertools.pairwise(edges):
                split, key_range = divmod(int(keys[first]), 1 << self._range_bits)
                key = block.split_names[split], key_range
                for entries, _ in records.pieces(
                    self._buffer, first, end, MAX_BLOCK_BYTES, is_run=True
                ):
                    yield key, entries.tobytes()
        block.clear_records()


def sort_range(blocks: Iterable[bytes], directory: str, split: str) -> Iterator[SpillRun]:
    """Write the blocks of one split and range of sort keys to runs of bounded size."""
    write = functools.partial(_run_of, directory=directory, split=split)
    # `map` does not hold the blocks of a run while those of the next are gathered, as a loop would.
    return map(write, by_size(blocks, RUN_BYTES))


def by_size(pieces: Iterable[bytes], min_bytes: int) -> Iterator[list[bytes]]:
    """Yield lists of successive pieces; each but the last has `min_bytes` or more in all."""
    pending: list[bytes] = []
    size = 0
    for piece in pieces:
        pending.append(piece)
        size += len(piece)
        if size >= min_bytes:
            yield pending
            pending, size = [], 0
    if pending:
        yield pending


def _run_of(blocks: Sequence[bytes], directory: str, split: str) -> SpillRun:
    records = sort_entries(np.frombuffer(b"".join(blocks), np.uint8), by_bytes=True)
    path = os.path.join(directory, f"run-{uuid.uuid4().hex}")
    return write_run(path, [records], (split,), SHUFFLED_BIN_SHIFT, Buffer())


class HasRejects(Protocol):
    """Protocol of an object with a tally and a list of rejects."""

    tally: Tally
    rejects: list[Reject]


def spill_rejects(block: HasRejects, directory: str, *, least: int = 1) -> None:
    """Move the rejects of a block to a new file if there are at least `least`."""
    if len(block.rejects) < least:
        return
    path = os.path.join(directory, f"rejects-{uuid.uuid4().hex}.arrow")
    write_rejects(path, block.rejects)
    block.tally = block.tally.merge(Tally(reject_files=(path,)))
    block.rejects = []
