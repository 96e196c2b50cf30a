"""`Order`: the order of the examples in an epoch, a permutation computed in constant memory.

Every reader computes the index of the example at each position, so readers need not exchange
anything to divide an epoch, and one that stops can continue at any position. ``docs/format.md`` has
the formulas and test vectors.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import struct
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from beam_tfrecord import native
from beam_tfrecord.base.arguments import check_seed
from beam_tfrecord.base.text import counted
from beam_tfrecord.native.kernel_types import Int64Array, UInt64Array

_ROUNDS = 8
# The `Manifest.order` of a mixture.
MIXTURE = "mixture"


def permuted(numbers: UInt64Array, count: int, key: bytes) -> UInt64Array:
    """Return the images of numbers under a keyed permutation of ``range(count)``.

    It is an alternating Feistel network over the bits of ``count - 1``. An image that is not below
    `count` goes through the network again until it is (cycle walking), less than twice on average.
    Each round adds the hash of one half to the other half: the finalizer of SplitMix64 (Steele, Lea
    and Flood, 2014) after adding the round's key, XXH64 of `key` with the number of the round as
    its seed.
    """
    bits = max(2, (count - 1).bit_length())
    low_bits = np.uint64(bits // 2)
    low_mask = np.uint64((1 << (bits // 2)) - 1)
    high_mask = np.uint64((1 << (bits - bits // 2)) - 1)
    keys = [np.uint64(native.xxh64(key, number)) for number in range(_ROUNDS)]

    def through(values: UInt64Array) -> UInt64Array:
        low, high = values & low_mask, values >> low_bits
        for number, round_key in enumerate(keys):
            if number % 2:
                low ^= _mixed(high + round_key) & low_mask
            else:
                high ^= _mixed(low + round_key) & high_mask
        return high << low_bits | low

    shuffled = through(numbers)
    outside = np.flatnonzero(shuffled >= count)
    while len(outside):
        shuffled[outside] = through(shuffled[outside])
        outside = outside[shuffled[outside] >= count]
    return shuffled


def _mixed(values: UInt64Array) -> UInt64Array:
    values = (values ^ values >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ values >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return values ^ values >> np.uint64(31)


@dataclasses.dataclass(frozen=True)
class Order:
    """The order of the examples in one epoch."""

    count: int
    seed: int | None
    epoch: int = 0
    chunk: int = 1
    window: int = 1

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_seed(self.epoch, "epoch")

    def indices(self, start: int, stop: int) -> Int64Array:
        """Return the indices of the examples at the positions from `start` up to `stop`."""
        if not 0 <= start <= stop <= self.count:
            raise IndexError(
                f"positions {start:,} to {stop:,} are outside of the epoch, which has "
                f"{counted(self.count, 'row')}"
            )
        return self.indices_at(np.arange(start, stop, dtype=np.uint64))

    def indices_at(self, positions: UInt64Array) -> Int64Array:
        """Return the indices of the examples at some positions, which are below `count`."""
        if self.seed is None or not len(positions):
            return positions.astype(np.int64)
        if self.chunk == 1:
            return permuted(positions, self.count, self._key(b"example")).astype(np.int64)
        return self._windowed(positions).astype(np.int64)

    def _key(self, purpose: bytes) -> bytes:
        assert self.seed is not None
        return struct.pack("<QQ", self.seed, self.epoch) + purpose

    def _windowed(self, positions: UInt64Array) -> UInt64Array:
        """Return the indices at `positions` in the windowed order.

        Chunks are permuted, and then the examples of each window of chunks. Examples that do not
        fill a chunk come last. A rotation of all examples makes these others in every epoch.
        """
        count, chunk = np.uint64(self.count), np.uint64(self.chunk)
        size = self.chunk * self.window
        shuffled = positions.copy()
        for number in np.unique(positions // np.uint64(size)).tolist():
            begin = number * size
            is_inside = positions // np.uint64(size) == number
            key = self._key(b"window" + struct.pack("<Q", number))
            inside = positions[is_inside] - np.uint64(begin)
            width = min(size, self.count - begin)
            shuffled[is_inside] = np.uint64(begin) + permuted(inside, width, key)
        chunks = self.count // self.chunk
        is_full = shuffled < np.uint64(chunks) * chunk
        moved = permuted(shuffled[is_full] // chunk, chunks, self._key(b"chunk"))
        shuffled[is_full] = moved * chunk + shuffled[is_full] % chunk
        rotation = np.uint64(native.xxh64(self._key(b"rotation")) % self.count)
        return (shuffled + rotation) % count


class StepOrder(Order):
    """The order of an epoch of a mixture, in which the rows of each step are rotated.

    The rows of a mixture are in random order already. But its datasets alternate, so a rank that
    reads the same place of every step could get the rows of one dataset only.

    `window` is the number of rows of a step. Epochs follow each other: the numbers of the rows go
    on where those of the epoch before end.
    """

    def indices_at(self, positions: UInt64Array) -> Int64Array:
        """Return the numbers of the rows at some positions, which are below `count`."""
        steps = positions // np.uint64(self.window)
        begins = steps * np.uint64(self.window)
        # The last step may have fewer rows.
        widths = np.minimum(np.uint64(self.window), np.uint64(self.count) - begins)
        turns = _mixed(steps + np.uint64(native.xxh64(self._key(b"step"), 0))) % widths
        begins_of_all = begins + np.uint64(self.epoch * self.count)
        numbers: UInt64Array = begins_of_all + (positions - begins + turns) % widths
        return numbers.astype(np.int64)


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Which row of which dataset is at each position of a mixture, which has no end.

    Attributes:
        orders: Order of each dataset in its first epoch. Its rows are numbered after those of the
            dataset before.
        counts: Number of the rows of each dataset in a period.
        drawn: Number of the rows of each dataset that come before the first position.
    """

    orders: tuple[Order, ...]
    counts: tuple[int, ...]
    drawn: tuple[int, ...]

    @functools.cached_property
    def _table(self) -> npt.NDArray[np.uint16]:
        """The dataset of each place of a period."""
        return np.fromiter(_chairmen(self.counts), np.uint16, sum(self.counts))

    @functools.cached_property
    def _ranks(self) -> Int64Array:
        """How many earlier places of the period have the dataset of each place."""
        ranks = np.empty(len(self._table), np.int64)
        for number, count in enumerate(self.counts):
            ranks[self._table == number] = np.arange(count)
        return ranks

    def position(self, number: int, draw: int) -> int:
        """Return the position of the `draw`-th row of a dataset, from 0."""
        periods, rank = divmod(draw, self.counts[number])
        places = np.flatnonzero(self._table == number)
        return periods * len(self._table) + int(places[rank])

    def drawn_before(self, position: int) -> list[int]:
        """Return how many rows of each dataset come before a position."""
        periods, place = divmod(position, len(self._table))
        begun = np.bincount(self._table[:place], minlength=len(self.counts))
        every = zip(self.drawn, self.counts, begun.tolist(), strict=True)
        return [drawn + periods * count + some for drawn, count, some in every]

    def rows_at(self, positions: Int64Array) -> Int64Array:
        """Return the numbers of the rows at positions, which may be beyond any end."""
        periods = positions // len(self._table)
        places = positions - periods * len(self._table)
        datasets = self._table[places]
        draws = periods * np.array(self.counts)[datasets] + self._ranks[places]
        by_dataset = np.argsort(datasets, kind="stable")
        ends = np.cumsum(np.bincount(datasets, minlength=len(self.counts)))
        sorted_draws = np.split(draws[by_dataset], ends[:-1])
        found, first = np.empty_like(positions), 0
        for order, drawn, own in zip(self.orders, self.drawn, sorted_draws, strict=True):
            epochs, own[:] = np.divmod(own + drawn, order.count)
            for epoch in np.unique(epochs).tolist():
                inside = epochs == epoch
                of_epoch = dataclasses.replace(order, epoch=epoch)
                own[inside] = first + of_epoch.indices_at(own[inside].astype(np.uint64))
            first += order.count
        found[by_dataset] = np.concatenate(sorted_draws)
        return found


def _chairmen(counts: Sequence[int]) -> Iterator[int]:
    """Yield the dataset of each place of a period in which each has its number of places.

    At any place, the number of those that a dataset has is less than one off its share. The dataset
    that must come earliest is next, of those that may come: see ``docs/format.md``.
    """
    period, parts = sum(counts), max(2, 2 * len(counts) - 2)
    jobs = []
    for number, count in enumerate(counts):
        for edge in range(0, span := parts * count, parts):
            first, last = -(-period * (edge + 1) // span), period * (edge + parts - 1) // span
            jobs.append((first, last, number))
    jobs.sort(reverse=True)
    waiting: list[tuple[int, int]] = []
    for place in range(1, period + 1):
        while jobs and jobs[-1][0] <= place:
            heapq.heappush(waiting, jobs.pop()[1:])
        yield heapq.heappop(waiting)[1]
