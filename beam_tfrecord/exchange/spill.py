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
from beam_tfrecord.exchange.runs import PLACE_BYTES, Run, SortedIndex, index_sorted
from beam_tfrecord.exchange.tally import Tally
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.job_batch import as_job_batch
from beam_tfrecord.layout import Layout
from beam_tfrecord.places import ONE_INPUT, Inputs, bin_shift
from beam_tfrecord.rejects import write_rejects
from beam_tfrecord.storage import WRITE_BYTES, WholeFile

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
            None if (whole := block.whole_sizes()) is None else whole[order],
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
        layout: Where records go.
        directory: Where runs and rejects are written.
        schema: Given schema; None: that of the batches.
        run_bytes: Encoded bytes of a run.
        keeps_files: Write stubs: values that are files stay where they are.
        inputs: Where rows come from.
    """

    def __init__(
        self,
        layout: Layout,
        directory: str,
        *,
        schema: Schema | None = None,
        run_bytes: int = RUN_BYTES,
        keeps_files: bool = False,
        inputs: Inputs = ONE_INPUT,
    ) -> None:
        self._keeps_files = keeps_files
        self._directory = directory
        self._run_bytes = run_bytes
        self._block = Block(layout, schema, inputs)
        self._sorted = SortedRecords(layout)
        self._token = uuid.uuid4().hex
        self._group = "rows"
        self._written = 0

    def add(self, batch: Batch) -> Iterator[tuple[Run | None, Tally]]:
        """Take a batch; yield what a full block became."""
        job_batch = as_job_batch(batch)
        self._group = "rows" if job_batch.part is None else job_batch.part.key[:12]
        for piece in map(as_job_batch, self._block.pieces(job_batch)):
            first = self._block.records
            written = self._block.add(piece)
            if self._keeps_files:
                files = piece.files
                if files is not None and len(written) < piece.num_rows:
                    files = files.take(written)
                self._block.make_stubs(first, files)
            spill_rejects(self._block, self._directory, least=MAX_REJECTS)
            if self._block.size >= self._run_bytes:
                yield self.flush()

    def flush(self) -> tuple[Run | None, Tally]:
        """Write what is there: return the run (None where no row was left) and its tally."""
        block = self._block
        spill_rejects(block, self._directory)
        tally = block.tally
        run = None
        if block.records:
            order, places, index = self._sorted.order(block)
            entries = self._sorted.entries(block, order, places)
            run = write_run(self._directory, entries, index, self._next_name())
        block.clear()
        return run, tally

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
