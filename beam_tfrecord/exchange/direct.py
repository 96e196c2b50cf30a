"""Source order in one pass: each group of units straight to shards of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from beam_tfrecord.batch import Batch
from beam_tfrecord.exchange.block import Block
from beam_tfrecord.exchange.merge import Piece, PieceWriter
from beam_tfrecord.exchange.spill import MAX_REJECTS, spill_rejects
from beam_tfrecord.exchange.tally import Tally
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.job_batch import as_job_batch
from beam_tfrecord.layout import Layout
from beam_tfrecord.storage import WRITE_BYTES

# A shard may end this much above its target rather than leave a small rest.
SLACK = 0.25


class GroupWriter(Protocol):
    """Writes the batches of one group of units after the other to files of its own."""

    def add(self, batch: Batch) -> Iterator[Piece]:
        """Take a batch; yield the files that it filled."""

    def end_group(self) -> Iterator[Piece]:
        """Finish the last file of a group; yield what was not yet yielded."""

    def take_tally(self) -> Tally:
        """Return the tally since the last call; nothing may be waiting to be written."""

    def abort(self) -> None:
        """Take away an unfinished file."""


class DirectWriter:
    """Writes batches in the order they come, and begins a new shard at the target size.

    The cuts follow from the records of a group alone, never from the size of batches.

    Args:
        layout: Where records go; in source order and of a single split.
        directory: Where shards are written under temporary names.
        shard_bytes: Target size.
        schema: Given schema; None: that of the batches.
    """

    def __init__(
        self, layout: Layout, directory: str, *, shard_bytes: int, schema: Schema | None = None
    ) -> None:
        self._layout = layout
        self._directory = directory
        self._limit = int(shard_bytes * (1 + SLACK))
        self._block = Block(layout, schema)
        self._split = layout.splits.names[0]
        self._group = 0
        self._number = 0
        self._size = 0
        self._writer: PieceWriter | None = None

    def add(self, batch: Batch) -> Iterator[Piece]:
        """Take a batch; yield the shards that it filled."""
        group = as_job_batch(batch).group or 0
        if group != self._group:
            yield from self.end_group()
            self._group, self._number = group, 0
        for piece in self._block.pieces(batch):
            self._block.add(piece)
            spill_rejects(self._block, self._directory, least=MAX_REJECTS)
            if self._block.size >= WRITE_BYTES:
                yield from self._write()

    def end_group(self) -> Iterator[Piece]:
        """Finish the last shard of a group; yield what was not yet yielded."""
        yield from self._write()
        if self._writer is not None:
            yield self._close()

    def take_tally(self) -> Tally:
        """Return the tally since the last call; nothing may be waiting to be written."""
        spill_rejects(self._block, self._directory)
        tally = self._block.tally
        self._block.clear()
        return tally

    def abort(self) -> None:
        """Take away an unfinished shard."""
        if self._writer is not None:
            self._writer.abort()

    def _write(self) -> Iterator[Piece]:
        block = self._block
        starts = np.append(block.starts, block.size)
        done = 0
        while done < block.records:
            # The first record of a shard always goes in, however large it is.
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
            self._writer = PieceWriter(
                self._directory, self._split, order, self._layout.compression
            )
            self._number += 1
        self._writer.write(data, starts - starts[0])
        self._size += len(data)

    def _close(self) -> Piece:
        assert self._writer is not None
        piece, self._writer, self._size = self._writer.close(), None, 0
        return piece
