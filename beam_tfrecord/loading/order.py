"""`Order`: the order of the examples in an epoch, a permutation computed in constant memory.

Every reader computes the index of the example at each position, so readers need not exchange
anything to divide an epoch, and one that stops can continue at any position. ``docs/format.md`` has
the formulas and test vectors.
"""

from __future__ import annotations

import dataclasses
import struct

import numpy as np

from beam_tfrecord import native
from beam_tfrecord.base.arguments import check_seed
from beam_tfrecord.base.text import counted
from beam_tfrecord.native.values import Int64Array, UInt64Array

_ROUNDS = 8


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
