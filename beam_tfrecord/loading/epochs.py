"""`Division` and `Epochs`: the batches that a reader gets in an epoch, for all frameworks.

All readers of a dataset compute the same `Order` of an epoch. `Division` says which positions of it
belong to a batch of a rank; `Epochs` reads the examples at these positions. So each example is read
once in an epoch, for any number of ranks, workers and shards, and a reader can begin at any batch.
"""

from __future__ import annotations

import dataclasses
import itertools
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from beam_tfrecord import native
from beam_tfrecord.base.arguments import check_seed
from beam_tfrecord.base.text import counted
from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.arrow_arrays import take_rows
from beam_tfrecord.loading.order import MIXTURE, Order, StepOrder
from beam_tfrecord.loading.rows import MIXED_BYTES, Rows, mixed_rows
from beam_tfrecord.loading.values import rebatch
from beam_tfrecord.native.kernel_types import UInt64Array
from beam_tfrecord.storage import is_remote

# Examples of several small batches are read at a time, for speed.
_READ_BYTES = 2**20
# More at a time of a mixture, since each of its datasets costs time of its own.
MIXTURE_BYTES = 2**23
# More does not fit into the page cache of many machines: each example would be read from the disk.
_UNIFORM_BYTES = 2**33
# An object store returns neighbouring examples of this size hardly later than a single one.
_CHUNK_BYTES = 2**18
# A window of fewer chunks would mix too little.
_MIN_CHUNKS = 16

Range = tuple[int, int]
Reader = Callable[[Iterable[Range]], tuple[pa.RecordBatch, list[Range]]]


@dataclasses.dataclass(frozen=True)
class Division:
    """How the positions of an epoch are divided into steps, and each step between ranks.

    A step is a batch of every rank. Its positions follow each other, those of rank 0 first. So the
    sequence of examples depends only on the examples of a step, ``batch_size * world``.
    """

    count: int
    batch_size: int
    rank: int = 0
    world: int = 1
    drop_remainder: bool = False
    pad: bool = True

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise UsageError(f"a batch must have at least 1 row, not {self.batch_size}")
        if not 0 <= self.rank < self.world:
            raise UsageError(f"reader {self.rank} of {self.world} does not exist: count from 0")

    @property
    def step_examples(self) -> int:
        """Number of examples of a full step, of all ranks together."""
        return self.batch_size * self.world

    @property
    def total(self) -> int:
        """Number of positions of all ranks in an epoch; from `count` on they repeat the first."""
        if self.drop_remainder:
            return self.count // self.step_examples * self.step_examples
        return -(-self.count // self.world) * self.world if self.pad else self.count

    @property
    def examples(self) -> int:
        """Number of examples of this rank in an epoch."""
        last = len(self) - 1
        start, stop = self.positions(last) if last >= 0 else (0, 0)
        return max(0, last) * self.batch_size + stop - start

    def __len__(self) -> int:
        """Return the number of steps of an epoch."""
        return -(-self.total // self.step_examples)

    def positions(self, step: int) -> Range:
        """Return the first position of this rank's batch in a step, and the one after its last."""
        begin = step * self.step_examples
        size = min(self.step_examples, self.total - begin)
        first, last = (-(-rank * size // self.world) for rank in (self.rank, self.rank + 1))
        return begin + first, begin + last

    def delivered(self, steps: int) -> int:
        """Return the number of examples that all ranks have got after some steps."""
        return min(steps * self.step_examples, self.total)

    def step_after(self, delivered: int) -> int:
        """Return the step that begins after so many examples."""
        if not isinstance(delivered, int) or delivered < 0:
            raise UsageError(f"the state says that {delivered!r:.40} examples were delivered")
        # Not `total` alone: it differs if the state is of another number of ranks.
        if delivered >= min(self.count, self.total):
            return len(self)
        step, rest = divmod(delivered, self.step_examples)
        if rest:
            raise UsageError(
                f"the state is that after {counted(delivered, 'example')}, which is no multiple of "
                f"batch_size x ranks = {self.batch_size:,} x {self.world:,}: choose a batch_size "
                "that keeps their product"
            )
        return step


def order_of(rows: Rows, seed: int | None, epoch: int, window: int | None) -> Order:
    """Return the order of an epoch."""
    chunk = 1 if window is None else min(_rows_of(rows, _CHUNK_BYTES), window // _MIN_CHUNKS)
    if window is None or window >= len(rows) or chunk <= 1:
        return Order(len(rows), seed, epoch)
    return Order(len(rows), seed, epoch, chunk, window // chunk)


def _rows_of(rows: Rows, nbytes: int) -> int:
    """Return the number of rows that have so many bytes on average, at least 1."""
    total = max(1, sum(shard.bytes for shard in rows.shards))
    return max(1, nbytes * len(rows) // total)


def window_of(rows: Rows, shuffle: bool | int) -> int | None:
    """Return the number of rows to mix at a time; None for a uniform order, or for none."""
    is_small = sum(shard.bytes for shard in rows.shards) <= _UNIFORM_BYTES
    if not shuffle or (shuffle is True and is_small and not is_remote(rows.directory)):
        return None
    return mixed_rows(rows, shuffle)


class Epochs:
    """Reads the examples at positions of epochs; an object that can be pickled.

    `step` is the number of examples of a step of all ranks, in which those of mixtures are rotated.
    """

    def __init__(
        self, rows: Rows, step: int = 1, *, shuffle: bool | int = False, seed: int | None = 0
    ) -> None:
        self.rows = rows
        self._step, self._is_mixture = step, rows.manifest.order == MIXTURE
        if shuffle and self._is_mixture:
            raise UsageError("a mixture is in random order, by the seed of mix: leave shuffle out")
        self.is_shuffled = bool(shuffle)
        self.seed = check_seed(seed)
        self.is_indexed = rows.files.is_indexed(rows.shards)
        self._mixed_rows = mixed_rows(rows, shuffle)
        self._window = window_of(rows, shuffle)
        order = self.order(0)
        # All examples of a window are read at once, in large ranges.
        is_mixed = order.chunk > 1
        read_bytes = MIXTURE_BYTES if self._is_mixture else _READ_BYTES
        if is_remote(rows.directory) and (shuffle or self._is_mixture):
            read_bytes = MIXED_BYTES
        self.read_rows = order.chunk * order.window if is_mixed else _rows_of(rows, read_bytes)

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the sequence of the examples, as JSON; equal for equal sequences."""
        if not self.is_shuffled:
            return {"dataset": self.rows.content, "seed": None, "mixed": None}
        order = self.order(0)
        mixed = [order.chunk, order.window] if self.is_indexed else [self._mixed_rows]
        return {"dataset": self.rows.content, "seed": self.seed, "mixed": mixed}

    def order(self, epoch: int) -> Order:
        """Return the order of an epoch, in which `read` reads shards that have an index."""
        if self._is_mixture:
            return StepOrder(len(self.rows), self.rows.manifest.seed, epoch, window=self._step)
        seed = self.seed if self.is_shuffled else None
        return order_of(self.rows, seed, epoch, self._window)

    def row(self, epoch: int, position: int) -> int | None:
        """Return the number of the row at a position; None if only reading shows it."""
        inside = position % len(self.rows)
        if self.is_shuffled and not self.is_indexed:
            return None
        return int(self.order(epoch).indices(inside, inside + 1)[0])

    def read(
        self, epoch: int, ranges: Iterable[Range]
    ) -> Iterator[tuple[pa.RecordBatch, list[Range]]]:
        """Yield the rows at ranges of positions of an epoch, and where each range is in them.

        Rows that are near each other are read together.
        """
        read = self.reader(epoch)
        # The ranges that begin in the same window.
        for _, near in itertools.groupby(ranges, lambda of: of[0] // self.read_rows):
            yield read(near)

    def reader(self, epoch: int) -> Reader:
        """Return a function that reads the rows at ranges of positions of an epoch together."""
        read_pieces = self._indexed(epoch) if self.is_indexed else self._streamed(epoch)

        def read(ranges: Iterable[Range]) -> tuple[pa.RecordBatch, list[Range]]:
            bounds: list[Range] = []
            pieces: list[Range] = []
            total = 0
            for start, stop in ranges:
                bounds.append((total, total + stop - start))
                pieces += self._pieces(start, stop)
                total += stop - start
            return read_pieces(pieces), bounds

        return read

    def _pieces(self, start: int, stop: int) -> Iterator[Range]:
        """Yield a range of positions in parts that are all inside of the epoch."""
        count = len(self.rows)
        while start < stop:
            first = start % count
            last = min(count, first + stop - start)
            yield first, last
            start += last - first

    def _indexed(self, epoch: int) -> Callable[[list[Range]], pa.RecordBatch]:
        """Return a function that reads rows at ranges of positions by the index of their shard."""
        order, files, shards = self.order(epoch), self.rows.files, self.rows.shards
        names = self.rows.schema.names
        return lambda pieces: files.rows(shards, order.indices_at(_positions(pieces)), names)

    def _streamed(self, epoch: int) -> Callable[[list[Range]], pa.RecordBatch]:
        """Return a function that reads rows at ranges of files that are read from their begin."""
        stream = _Stream(self._all_batches(epoch))

        def read(pieces: list[Range]) -> pa.RecordBatch:
            nonlocal stream
            parts: list[pa.RecordBatch] = []
            for first, last in pieces:
                if first < stream.first:
                    stream = _Stream(self._all_batches(epoch))
                parts += stream.read(first, last)
            return parts[0] if len(parts) == 1 else pa.concat_batches(parts)

        return read

    def _all_batches(self, epoch: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows: if shuffled, shards in random order, and rows mixed with those near."""
        if not self.is_shuffled:
            yield from self.rows.batches()
            return
        count = len(self.rows.shards)
        numbers = Order(count, self.seed, epoch).indices(0, count).tolist()
        every = (batch for number in numbers for batch in self.rows.part(number, count).batches())
        for number, batch in enumerate(rebatch(every, self._mixed_rows)):
            seed = native.xxh64(struct.pack("<QQ", self.seed, number), 0)
            order = Order(batch.num_rows, seed, epoch)
            yield take_rows(batch, pa.array(order.indices(0, batch.num_rows)))


def _positions(pieces: list[Range]) -> UInt64Array:
    return np.concatenate([np.arange(*piece, dtype=np.uint64) for piece in pieces])


class _Stream:
    """Batches that follow each other, read by the numbers of their rows."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._batch: pa.RecordBatch | None = None
        self.first = self._end = 0

    def read(self, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows `start` to `stop`; `start` is not below `first`, the first row there."""
        while start < stop:
            while self._end <= start:
                self._batch = next(self._batches)
                self.first, self._end = self._end, self._end + self._batch.num_rows
            assert self._batch is not None
            last = min(stop, self._end)
            yield self._batch.slice(start - self.first, last - start)
            start = last
