"""Which examples are in more than one split, without keeping the hashes of all of them.

Only the hashes of the smaller splits are kept. Those of the largest one are looked up among them as
they come by, and only what is found there stays.
"""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from beam_tfrecord.manifest import Manifest

UInt64Array = npt.NDArray[np.uint64]

# 64 million hashes of 8 bytes: 0.5 GB, sorted in place.
MAX_HASHES = 2**26


class _HashSet:
    """Hashes that many others, mostly not among them, are looked up in.

    About two in a hundred others pass the sieve that comes first, a Bloom filter with both bits of
    a hash in one word (Putze, Sanders, Singler: Cache-, Hash- and Space-Efficient Bloom Filters,
    2007), so that one memory access decides. It takes 2 to 4 bytes a hash.
    """

    def __init__(self, hashes: UInt64Array) -> None:
        self._sorted = np.sort(hashes)
        bits = max(len(hashes) // 4, 2).bit_length()
        self._shift = np.uint64(64 - bits)
        self._sieve = np.zeros(2**bits, np.uint64)
        np.bitwise_or.at(self._sieve, hashes >> self._shift, _two_bits(hashes))

    def twice(self) -> UInt64Array:
        """Return the distinct hashes that were given more than once."""
        return np.unique(self._sorted[1:][self._sorted[1:] == self._sorted[:-1]])

    def common(self, hashes: UInt64Array) -> UInt64Array:
        """Return those of `hashes` that are in the set."""
        bits = _two_bits(hashes)
        likely = hashes[self._sieve[hashes >> self._shift] & bits == bits]
        places = np.searchsorted(self._sorted, likely)
        places[places == len(self._sorted)] = 0
        found: UInt64Array = likely[self._sorted[places] == likely]
        return found


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
        self._of_smaller = _no_hashes()
        self._kept: _HashSet | None = None

    @property
    def parts(self) -> int:
        """Only one in so many examples is looked at."""
        return int(self._mask) + 1

    def candidates(self, path: str, hashes: UInt64Array) -> UInt64Array:
        """Return those of a shard's `hashes` that have to be kept until the shard's end."""
        if self._mask:
            hashes = hashes[hashes & self._mask == 0]
        if self._kept is None or self._split_of[path] != self.largest:
            return hashes
        return self._kept.common(hashes)

    def end_shard(self, path: str, candidates: list[UInt64Array]) -> None:
        """Take what `candidates` gave for all of a shard."""
        split = self._split_of[path]
        with self._lock:
            self._of_split[split] += candidates
            if split != self.largest:
                self._awaited -= 1
                if not self._awaited:
                    self._keep_smaller()

    def shared(self) -> UInt64Array:
        """Return the distinct hashes that are in several splits; to be called once, at the end."""
        if self._kept is None:
            return _no_hashes()
        # Some came before the others were kept.
        of_largest = self._kept.common(_joined(self._of_split[self.largest]))
        return np.unique(_joined([self._of_smaller, of_largest]))

    def _keep_smaller(self) -> None:
        smaller = [name for name in self._of_split if name != self.largest]
        parts = [_joined(self._of_split.pop(name)) for name in smaller]
        kept = _HashSet(_joined(parts))
        twice = kept.twice()
        if len(twice):  # In one split, or in several.
            splits = sum(np.isin(twice, hashes).astype(int) for hashes in parts)
            self._of_smaller = twice[splits > 1]
        self._kept = kept


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
