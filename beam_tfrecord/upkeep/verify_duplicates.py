"""Which examples are in more than one split, without keeping the hashes of all of them.

Only the hashes of the smaller splits are kept. Those of the largest one pass a sieve made of the
kept ones as they come by, and only the few that it lets through are looked up.
"""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from beam_tfrecord.manifest import Manifest

UInt64Array = npt.NDArray[np.uint64]

# 64 million hashes of 8 bytes: 0.5 GB, sorted in place.
MAX_HASHES = 2**26


class _Sieve:
    """Lets all of the given hashes pass and about two in a hundred others: a Bloom filter.

    Both bits of a hash are in one word (Putze, Sanders, Singler: Cache-, Hash- and Space-Efficient
    Bloom Filters, 2007), so that one memory access decides. It takes 2 to 4 bytes a hash.
    """

    def __init__(self, hashes: UInt64Array) -> None:
        bits = max(len(hashes) // 4, 2).bit_length()
        self._shift = np.uint64(64 - bits)
        self._words = np.zeros(2**bits, np.uint64)
        np.bitwise_or.at(self._words, hashes >> self._shift, _two_bits(hashes))

    def passing(self, hashes: UInt64Array) -> UInt64Array:
        bits = _two_bits(hashes)
        passes: npt.NDArray[np.bool_] = self._words[hashes >> self._shift] & bits == bits
        return hashes[passes]


def _two_bits(hashes: UInt64Array) -> UInt64Array:
    # Neither from the high bits, which choose the word, nor from the low ones, which choose the
    # part that is looked at.
    one, six_bits = np.uint64(1), np.uint64(63)
    first, second = hashes >> np.uint64(24), hashes >> np.uint64(30)
    bits: UInt64Array = one << (first & six_bits) | one << (second & six_bits)
    return bits


class DuplicateFinder:
    """Finds the examples that are in several splits; one object serves all threads.

    Args:
        manifest: Of the dataset. Where it has fewer than two splits with examples, nothing is
            looked for; nor where columns decide the split, since then equal examples may differ in
            columns that were left out.
    """

    def __init__(self, manifest: Manifest) -> None:
        filled = {name: split for name, split in manifest.splits.items() if split.examples}
        by_columns = manifest.group is not None or manifest.key is not None
        self.is_needed = len(filled) > 1 and not by_columns
        self.largest = max(filled, key=lambda name: filled[name].examples, default="")
        smaller = [split for name, split in filled.items() if name != self.largest]
        self._split_of = {s.path: name for name, split in filled.items() for s in split.shards}
        self._mask = _part_mask(sum(split.examples for split in smaller))
        self._awaited = sum(len(split.shards) for split in smaller)
        self._lock = threading.Lock()
        self._of_split: dict[str, list[UInt64Array]] = {name: [] for name in filled}
        self._kept = self._of_smaller = _no_hashes()
        self._sieve: _Sieve | None = None

    @property
    def parts(self) -> int:
        """Only one in so many examples is looked at."""
        return int(self._mask) + 1

    def candidates(self, path: str, hashes: UInt64Array) -> UInt64Array:
        """Return those of a shard's `hashes` that have to be kept until the shard's end."""
        if self._mask:
            hashes = hashes[hashes & self._mask == 0]
        if self._sieve is None or self._split_of[path] != self.largest:
            return hashes
        return self._kept_ones(self._sieve.passing(hashes))

    def end_shard(self, path: str, candidates: list[UInt64Array]) -> None:
        """Take what `candidates` gave for all of a shard."""
        split = self._split_of[path]
        with self._lock:
            self._of_split[split] += candidates
            if split != self.largest:
                self._awaited -= 1
                if not self._awaited:
                    self._make_sieve()

    def shared(self) -> UInt64Array:
        """Return the distinct hashes that are in several splits; to be called once, at the end."""
        if self._sieve is None:
            return _no_hashes()
        # Some came before the sieve was there.
        of_largest = self._kept_ones(self._sieve.passing(_joined(self._of_split[self.largest])))
        return np.unique(np.concatenate([self._of_smaller, of_largest]))

    def _make_sieve(self) -> None:
        smaller = [name for name in self._of_split if name != self.largest]
        parts = {name: _joined(self._of_split.pop(name)) for name in smaller}
        self._kept = np.sort(_joined(list(parts.values())))
        twice = np.unique(self._kept[1:][self._kept[1:] == self._kept[:-1]])
        if len(twice):  # In one split, or in several.
            splits = sum(np.isin(twice, hashes).astype(int) for hashes in parts.values())
            self._of_smaller = twice[splits > 1]
        self._sieve = _Sieve(self._kept)

    def _kept_ones(self, hashes: UInt64Array) -> UInt64Array:
        if not len(self._kept):
            return hashes[:0]
        places = np.searchsorted(self._kept, hashes)
        places[places == len(self._kept)] = 0
        found: UInt64Array = hashes[self._kept[places] == hashes]
        return found


def _part_mask(examples: int) -> np.uint64:
    """Return the bits that must be zero in the hashes that are looked at."""
    parts = 1
    while examples // parts > MAX_HASHES:
        parts *= 2
    return np.uint64(parts - 1)


def _joined(parts: list[UInt64Array]) -> UInt64Array:
    # Nothing is there of a shard that cannot be read.
    return np.concatenate([_no_hashes(), *parts])


def _no_hashes() -> UInt64Array:
    return np.empty(0, dtype=np.uint64)
