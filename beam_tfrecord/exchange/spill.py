"""Spilling: batches in, sorted runs out, in bounded memory."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from beam_tfrecord import native
from beam_tfrecord.batch import Batch, Reject
from beam_tfrecord.exchange.block import Block
from beam_tfrecord.exchange.spill_files import PLACE_BYTES, Run, SortedIndex, index_sorted
from beam_tfrecord.exchange.write_summary import Tally
from beam_tfrecord.job_batch import as_job_batch
from beam_tfrecord.layout import Layout
from beam_tfrecord.places import SHUFFLED_BIN_SHIFT, bin_shift
from beam_tfrecord.records.tfrecord import record_sizes
from beam_tfrecord.rejects import write_rejects
from beam_tfrecord.storage import WRITE_BYTES, WholeFile
from beam_tfrecord.workdir.job import Job

RUN_BYTES = 64 * 2**20
# Rejects are objects of Python, and there may be as many as there are rows.
MAX_REJECTS = 20_000

Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]


class SortedRecords:
    """The records of a block in order of (split, place), and a buffer to copy them through.

    Records of equal place are in order of their bytes where places are hashes, so that order
    never tells which worker came first; in source order they keep the order they came in.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._out = np.empty(0, np.uint8)

    def order(self, block: Block) -> tuple[Int64Array, UInt64Array, SortedIndex]:
        """Return the order of the block's records, their places, and the index of the result."""
        places, splits = block.places, block.splits
        data = block.arena.data[: block.size]
        order = native.sort_records(data, block.starts, splits, places, self._layout.shuffle)
        index = index_sorted(
            block.split_names,
            None if splits is None else splits[order],
            places[order],
            block.sizes()[order],
            bin_shift(self._layout.shuffle, block.records),
        )
        return order, places, index

    def entries(
        self, block: Block, order: Int64Array, places: UInt64Array, piece_bytes: int = WRITE_BYTES
    ) -> Iterator[memoryview]:
        """Yield run entries in `order`, in buffers of about `piece_bytes` that are used again."""
        data = block.arena.data[: block.size]
        sizes = block.sizes()[order] + PLACE_BYTES
        for low, high, nbytes in byte_pieces(sizes, piece_bytes):
            if nbytes > len(self._out):
                self._out = np.empty(max(nbytes, piece_bytes), np.uint8)
            size = native.gather_run(data, block.starts, places, order[low:high], self._out, 0)
            yield self._out[:size].data


def byte_pieces(sizes: Int64Array, limit: int) -> Iterator[tuple[int, int, int]]:
    """Cut consecutive sizes into pieces of at most `limit` bytes, or of one larger item.

    Yields:
        First item, end, and bytes of each piece.
    """
    ends = np.cumsum(sizes)
    low = 0
    while low < len(sizes):
        before = int(ends[low - 1]) if low else 0
        high = max(low + 1, int(np.searchsorted(ends, before + limit, side="right")))
        yield low, high, int(ends[high - 1]) - before
        low = high


class Spiller:
    """Encodes batches and writes a sorted run whenever enough records have come together.

    Args:
        job: Where records go.
        run_bytes: Encoded bytes of a run.
    """

    def __init__(self, job: Job, *, run_bytes: int = RUN_BYTES) -> None:
        self._directory = job.directory
        self._run_bytes = run_bytes
        self._block = Block(job.layout, job.schema, job.inputs)
        self._sorted = SortedRecords(job.layout)
        self._token = uuid.uuid4().hex
        self._group = "rows"
        self._written = 0

    def add(self, batch: Batch) -> Iterator[Run]:
        """Take a batch; yield the runs that it filled."""
        part = as_job_batch(batch).part
        self._group = "rows" if part is None else part.key[:12]
        for piece in self._block.pieces(batch):
            self._block.add(piece)
            spill_rejects(self._block, self._directory, least=MAX_REJECTS)
            if self._block.size >= self._run_bytes:
                yield from self.end_group()

    def end_group(self) -> Iterator[Run]:
        """Write the records that are left; yield their run, if there are any."""
        block = self._block
        if block.records:
            order, places, index = self._sorted.order(block)
            entries = self._sorted.entries(block, order, places)
            yield write_run(self._directory, entries, index, self._next_name())
        block.clear_records()

    def take_summary(self) -> Tally:
        """Return the sums since the last call, once all records are written."""
        spill_rejects(self._block, self._directory)
        tally = self._block.tally
        self._block.clear()
        return tally

    def abort(self) -> None:
        """Forget the records that are left: runs are complete when they are written."""
        self._block.clear()

    def _next_name(self) -> str:
        """Name runs so that those of one spiller sort in the order they were written.

        In source order, records of equal place may lie on both sides of a run's end.
        """
        self._written += 1
        return f"run-{self._group}-{self._token}-{self._written:06d}"


class HasRejects(Protocol):
    """What counts rows and holds those it has rejected."""

    tally: Tally
    rejects: list[Reject]


def spill_rejects(block: HasRejects, directory: str, *, least: int = 1) -> None:
    """Move the rejects of a block to a file of their own, where there are at least so many."""
    if len(block.rejects) < least:
        return
    path = os.path.join(directory, f"rejects-{uuid.uuid4().hex}.arrow")
    write_rejects(path, block.rejects)
    block.tally = block.tally.merge(Tally(sample=tuple(block.rejects), reject_files=(path,)))
    block.rejects = []


def write_run(
    directory: str, entries: Iterable[memoryview], index: SortedIndex, name: str | None = None
) -> Run:
    """Write a run.

    Args:
        directory: Where to.
        entries: The sorted entries, in buffers.
        index: Of the entries.
        name: Of the file; by default a new one.
    """
    path = os.path.join(directory, name or f"run-{uuid.uuid4().hex}")
    with WholeFile(path, outlasts=False) as file:
        for buffer in entries:
            file.write(buffer)
        file.write(index.footer())
    return Run(path, index.counts())


# Leading bits of a place that name its range: enough that one is a small part of a large dataset.
RANGE_BITS = 8
MAX_BLOCK_BYTES = 16 * 2**20


class BlockCutter:
    """Encodes batches and gives their records as sorted blocks, each of one range of places.

    Args:
        job: Where records go; they must be shuffled.
        range_bits: Leading bits of a place that name its range.
    """

    def __init__(self, job: Job, *, range_bits: int = RANGE_BITS) -> None:
        self._directory = job.directory
        self._range_bits = range_bits
        self._block = Block(job.layout, job.schema, job.inputs)
        self._sorted = SortedRecords(job.layout)

    def add(self, batch: Batch) -> Iterator[tuple[tuple[str, int], bytes] | Tally]:
        """Take a batch; yield what a full block became."""
        for piece in self._block.pieces(batch):
            self._block.add(piece)
            spill_rejects(self._block, self._directory, least=MAX_REJECTS)
            if self._block.size >= RUN_BYTES:
                yield from self.flush()

    def flush(self) -> Iterator[tuple[tuple[str, int], bytes] | Tally]:
        """Yield the blocks, keyed by (split, range of places), and the tally of what is there."""
        block = self._block
        spill_rejects(block, self._directory)
        yield block.tally
        if block.records:
            order, places, _ = self._sorted.order(block)
            splits = block.splits
            of_split = np.zeros(len(order), np.uint16) if splits is None else splits[order]
            ranges = (places[order] >> np.uint64(64 - self._range_bits)).astype(np.int64)
            keys = of_split.astype(np.int64) << self._range_bits | ranges
            edges = np.flatnonzero(np.diff(keys)) + 1
            for part in np.split(np.arange(len(order)), edges):
                split, place_range = divmod(int(keys[part[0]]), 1 << self._range_bits)
                for entries in self._sorted.entries(block, order[part], places, MAX_BLOCK_BYTES):
                    yield (block.split_names[split], place_range), bytes(entries)
        block.clear()


class RangeSorter:
    """Sorts the blocks of one split and range into runs of bounded size."""

    def __init__(self, layout: Layout, directory: str, split: str) -> None:
        self._layout = layout
        self._directory = directory
        self._split = split

    def runs(self, blocks: Iterable[bytes]) -> Iterator[Run]:
        """Yield the runs that hold all records of `blocks`."""
        pending: list[bytes] = []
        size = 0
        for block in blocks:
            pending.append(block)
            size += len(block)
            if size >= RUN_BYTES:
                yield self._run(b"".join(pending))
                pending, size = [], 0
        if pending:
            yield self._run(b"".join(pending))

    def _run(self, entries: bytes) -> Run:
        data = np.frombuffer(entries, np.uint8)
        starts, places = native.scan_run(data)
        order = native.sort_records(data, starts, None, places, True)
        sizes = record_sizes(data, starts)[order]
        index = index_sorted((self._split,), None, places[order], sizes, SHUFFLED_BIN_SHIFT)
        out = np.empty(len(data), np.uint8)
        native.gather_run(data, starts, places, order, out, 0)
        return write_run(self._directory, [out.data], index)
