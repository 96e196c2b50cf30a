"""Which examples are in more than one split, without keeping the hashes of all of them.

Only the hashes of the smaller splits are kept. Those of the largest one are looked up in a table of
the kept ones as they come by, and only what is found there stays.
"""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from beam_tfrecord.manifest import Manifest

UInt64Array = npt.NDArray[np.uint64]
_BoolArray = npt.NDArray[np.bool_]

# 64 million hashes of 8 bytes: 0.5 GB, sorted in place.
MAX_HASHES = 2**26
# One byte for each of eight times as many places as there are hashes: one in eight gets by.
_TABLE_SHARE = 8
_LARGEST_TABLE_BITS = 28


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
        self._kept = _no_hashes()
        self._table: _BoolArray | None = None
        self._shift = np.uint64(0)

    @property
    def parts(self) -> int:
        """Only one in so many examples is looked at."""
        return int(self._mask) + 1

    def candidates(self, path: str, hashes: UInt64Array) -> UInt64Array:
        """Return those of a shard's `hashes` that have to be kept until the shard's end."""
        if self._mask:
            hashes = hashes[hashes & self._mask == 0]
        table = self._table
        if table is None or self._split_of[path] != self.largest:
            return hashes
        return self._lookup(table, hashes)

    def end_shard(self, path: str, candidates: list[UInt64Array]) -> None:
        """Take what `candidates` gave for all of a shard."""
        split = self._split_of[path]
        with self._lock:
            self._of_split[split] += candidates
            if split != self.largest:
                self._awaited -= 1
                if not self._awaited:
                    self._make_table()

    def shared(self) -> UInt64Array:
        """Return the distinct hashes that are in several splits; to be called once, at the end."""
        if self._table is None:
            return _no_hashes()
        found = [
            np.unique(self._lookup(self._table, np.concatenate(hashes)))
            if name == self.largest
            else np.unique(np.concatenate(hashes))
            for name, hashes in self._of_split.items()
            if hashes
        ]
        together = np.sort(np.concatenate(found))
        return np.unique(together[1:][together[1:] == together[:-1]])

    def _make_table(self) -> None:
        smaller = [found for name, found in self._of_split.items() if name != self.largest]
        # Nothing is there of a shard that cannot be read.
        parts = [_no_hashes(), *(hashes for found in smaller for hashes in found)]
        self._kept = np.sort(np.concatenate(parts))
        bits = min(max(len(self._kept) * _TABLE_SHARE, 2).bit_length(), _LARGEST_TABLE_BITS)
        self._shift = np.uint64(64 - bits)
        table = np.zeros(2**bits, np.bool_)
        table[self._kept >> self._shift] = True
        self._table = table

    def _lookup(self, table: _BoolArray, hashes: UInt64Array) -> UInt64Array:
        likely = hashes[table[hashes >> self._shift]]
        places = np.searchsorted(self._kept, likely)
        places[places == len(self._kept)] = 0
        found: UInt64Array = likely[self._kept[places] == likely]
        return found


def _part_mask(examples: int) -> np.uint64:
    """Return the bits that must be zero in the hashes that are looked at."""
    parts = 1
    while examples // parts > MAX_HASHES:
        parts *= 2
    return np.uint64(parts - 1)


def _no_hashes() -> UInt64Array:
    return np.empty(0, dtype=np.uint64)
