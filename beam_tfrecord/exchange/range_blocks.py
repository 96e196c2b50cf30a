"""Blocks on their way through a runner's GroupByKey: cut by ranges of places, then sorted.

A range is a number of neighbouring bins; its blocks come together on one worker, which sorts them
in bounded memory into runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from beam_tfrecord import native
from beam_tfrecord.batch import Batch
from beam_tfrecord.exchange.block import Block
from beam_tfrecord.exchange.runs import Run, index_sorted
from beam_tfrecord.exchange.spill import (
    MAX_REJECTS,
    RUN_BYTES,
    SortedRecords,
    spill_rejects,
    write_run,
)
from beam_tfrecord.exchange.tally import Tally
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.layout import Layout
from beam_tfrecord.places import ONE_INPUT, SHUFFLED_BIN_SHIFT, Inputs
from beam_tfrecord.records.tfrecord import record_sizes

# Leading bits of a place that name its range: enough that one is a small part of a large dataset.
RANGE_BITS = 8
MAX_BLOCK_BYTES = 16 * 2**20


class BlockCutter:
    """Encodes batches and gives their records as sorted blocks, each of one range of places.

    Args:
        layout: Where records go; must be shuffled.
        directory: Where rejects are written.
        schema: Given schema; None: that of the batches.
        range_bits: Leading bits of a place that name its range.
        inputs: Where rows come from.
    """

    def __init__(
        self,
        layout: Layout,
        directory: str,
        *,
        schema: Schema | None = None,
        range_bits: int = RANGE_BITS,
        inputs: Inputs = ONE_INPUT,
    ) -> None:
        self._directory = directory
        self._range_bits = range_bits
        self._block = Block(layout, schema, inputs)
        self._sorted = SortedRecords(layout)

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
