"""The file format of a run, which is a sorted spill file, and the counts of its records by bin.

The *sort key* of a record is its 64-bit position in the order of the dataset. A *bin* holds all
sort keys that are equal without their `shift` low bits. A run is a sequence of *entries*, sorted by
(split, sort key), then a footer::

    entry    le64 sort key, framed record
    padding  zeros up to a multiple of 8 bytes
    footer   bins:    le64[n]      number of every bin that has records, split after split
             offsets: le64[n + 1]  position of the first entry of each bin; end of the last bin
             JSON     {"shift", "splits": [{"name", "bins"}], "records", "arrays"}: `bins` is the
                      number of bins of a split, `arrays` the size of both arrays in bytes
    trailer  le64 XXH64 of the footer, le64 size of the JSON in bytes, magic

The entries of a range of sort keys of one split are therefore one contiguous range of bytes.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_tfrecord import native
from beam_tfrecord.errors import DataError
from beam_tfrecord.native.kernel_types import Int64Array, UInt8Array, UInt64Array
from beam_tfrecord.storage import file_size, is_remote, read_into

MAGIC = b"BTFRUN\x00\x01"
_TRAILER = struct.Struct("<QQ8s")
SORT_KEY_BYTES = 8
_TAIL_BYTES = 2**18


@dataclasses.dataclass(frozen=True, eq=False)
class SpillRun:
    """The path of a complete run, with the counts of its records."""

    path: str
    counts: Mapping[str, BinCounts]


@dataclasses.dataclass(frozen=True, eq=False)
class RunIndex:
    """The footer of a run in memory."""

    splits: Mapping[str, tuple[UInt64Array, Int64Array]]
    shift: int

    def slice(self, split: str, first_key: int, last_key: int) -> tuple[int, int]:
        """Return the byte range, end exclusive, of a range of sort keys of a split."""
        if split not in self.splits:
            return 0, 0
        bins, offsets = self.splits[split]
        low = np.searchsorted(bins, np.uint64(first_key >> self.shift), side="left")
        high = np.searchsorted(bins, np.uint64(last_key >> self.shift), side="right")
        return int(offsets[low]), int(offsets[high])


def footer(counts: Mapping[str, BinCounts]) -> bytes:
    """Return the padding, footer and trailer of a run with the splits in the order of `counts`."""
    of_splits = list(counts.values())
    none = np.zeros(0, np.int64)
    bins = np.concatenate([none.astype(np.uint64), *(of.bins for of in of_splits)])
    sizes = np.concatenate([none, *(of.bytes + SORT_KEY_BYTES * of.rows for of in of_splits)])
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    # Arrays are aligned to 8 bytes, so that a mapped file can be searched in place.
    padding = bytes(-int(offsets[-1]) % 8)
    arrays = bins.astype("<u8").tobytes() + offsets.astype("<i8").tobytes()
    described = {
        "shift": of_splits[0].shift if of_splits else 0,
        "splits": [{"name": name, "bins": len(of.bins)} for name, of in counts.items()],
        "records": count_records(counts),
        "arrays": len(arrays),
    }
    text = json.dumps(described).encode()
    sealed = arrays + text
    return padding + sealed + _TRAILER.pack(native.xxh64(sealed, 0), len(text), MAGIC)


def read_index(path: str, *, is_checked: bool = False) -> RunIndex:
    """Read the footer of a run."""
    size = file_size(path)
    if size < _TRAILER.size:
        raise DataError(f"{path!r} is not a complete run: it has {size} bytes")
    tail = _tail(path, size, min(size, _TAIL_BYTES))
    end = size - _TRAILER.size
    seal, text_bytes, magic = _TRAILER.unpack(tail[-_TRAILER.size :].data)
    damaged = DataError(f"{path!r} is not a complete run: its end is damaged")
    if magic != MAGIC or text_bytes > end:
        raise damaged
    if text_bytes + _TRAILER.size > len(tail):
        tail = _tail(path, size, text_bytes + _TRAILER.size)
    # Nothing in the footer is trusted before its hash is known to be right.
    try:
        described = json.loads(tail[-text_bytes - _TRAILER.size : -_TRAILER.size].tobytes())
        arrays_bytes = described["arrays"]
    except (ValueError, TypeError, KeyError) as error:
        raise damaged from error
    if not isinstance(arrays_bytes, int) or not 0 <= arrays_bytes <= end - text_bytes:
        raise damaged
    footer_bytes = arrays_bytes + text_bytes + _TRAILER.size
    if footer_bytes > len(tail):
        tail = _tail(path, size, footer_bytes)
    sealed = tail[-footer_bytes : -_TRAILER.size]
    if not is_checked and native.xxh64(sealed, 0) != seal:
        raise damaged
    return _index(described, sealed)


def _tail(path: str, size: int, nbytes: int) -> UInt8Array:
    """Return the last bytes of a file."""
    if not is_remote(path):
        # Mapped, not read: a merge opens every run, but looks at few pages of each footer.
        return np.memmap(path, np.uint8, "r", size - nbytes, (nbytes,))
    tail = np.empty(nbytes, np.uint8)
    read_into(path, size - nbytes, tail.data)
    return tail


def _index(described: Mapping[str, Any], sealed: UInt8Array) -> RunIndex:
    total = sum(split["bins"] for split in described["splits"])
    bins = sealed[: 8 * total].view("<u8")
    offsets = sealed[8 * total : 16 * total + 8].view("<i8")
    splits = {}
    low = 0
    for split in described["splits"]:
        high = low + split["bins"]
        splits[split["name"]] = (bins[low:high], offsets[low : high + 1])
        low = high
    return RunIndex(splits, described["shift"])


# Maximum number of bins of one split, since one worker holds the counts of all runs. In source
# order, each row whose sort key is a hash of its bytes may have its own bin.
MOST_BINS = 2**22


@dataclasses.dataclass(frozen=True, eq=False)
class BinCounts:
    """Counts of the records of one split, bin by bin, in one run or in several."""

    bins: UInt64Array
    rows: Int64Array
    bytes: Int64Array
    shift: int

    @property
    def is_sound(self) -> bool:
        """True if arrays have equal lengths, no count is negative, and bins are ascending."""
        return bool(
            len(self.bins) == len(self.rows) == len(self.bytes)
            and 0 <= self.shift < 64
            and (self.bins[1:] > self.bins[:-1]).all()
            and (self.rows >= 0).all()
            and (self.bytes >= 0).all()
        )

    def merge(self, *others: BinCounts) -> BinCounts:
        """Return the sum of these counts and others.

        The bins are those of the coarsest counts; if they are more than `MOST_BINS`, coarser ones.
        The order of merging has no influence on the result.
        """
        if not others:
            return self
        each = (self, *others)
        shift = max(counts.shift for counts in each)
        merged = _summed(
            np.concatenate([of.bins >> np.uint64(shift - of.shift) for of in each]),
            np.concatenate([of.rows for of in each]),
            np.concatenate([of.bytes for of in each]),
            shift,
        )
        wider = 0
        while _count_distinct(merged.bins >> np.uint64(wider)) > MOST_BINS:
            wider += 1
        return merged.coarsened(shift + wider)

    def coarsened(self, shift: int) -> BinCounts:
        """Return the counts in coarser bins; `shift` must be at least that of these counts."""
        if shift == self.shift:
            return self
        return _summed(self.bins >> np.uint64(shift - self.shift), self.rows, self.bytes, shift)


def _count_distinct(ascending: UInt64Array) -> int:
    return int(np.count_nonzero(ascending[1:] != ascending[:-1])) + bool(len(ascending))


def _summed(bins: UInt64Array, rows: Int64Array, nbytes: Int64Array, shift: int) -> BinCounts:
    """Add up the counts of equal bins."""
    distinct, where = np.unique(bins, return_inverse=True)
    sums = np.zeros((2, len(distinct)), np.int64)
    np.add.at(sums[0], where, rows)
    np.add.at(sums[1], where, nbytes)
    return BinCounts(distinct, sums[0], sums[1], shift)


def count_bins(
    names: Sequence[str],
    splits: npt.NDArray[np.uint16] | None,
    sort_keys: UInt64Array,
    sizes: Int64Array,
    shift: int,
) -> dict[str, BinCounts]:
    """Return the counts by split of records that are sorted by (split, sort key)."""
    edges = [0, len(sort_keys)]
    if splits is not None:
        edges = [0, *(np.flatnonzero(np.diff(splits)) + 1).tolist(), len(sort_keys)]
    counts = {}
    for first, end in itertools.pairwise(edges):
        if first < end:
            name = names[0 if splits is None else int(splits[first])]
            bins = sort_keys[first:end] >> np.uint64(shift)
            starts = np.flatnonzero(np.diff(bins, prepend=bins[:1] + np.uint64(1)))
            rows = np.diff(starts, append=end - first)
            nbytes = np.add.reduceat(sizes[first:end], starts).astype(np.int64)
            counts[name] = BinCounts(bins[starts], rows, nbytes, shift)
    return counts


def count_records(counts: Mapping[str, BinCounts]) -> int:
    """Return the number of records of all splits."""
    return sum(int(of_split.rows.sum()) for of_split in counts.values())


def merge_counts(*counts: Mapping[str, BinCounts]) -> dict[str, BinCounts]:
    """Return the sums of the counts of several runs, by split."""
    by_split: dict[str, list[BinCounts]] = {}
    for of_run in counts:
        for name, of_split in of_run.items():
            by_split.setdefault(name, []).append(of_split)
    return {name: first.merge(*others) for name, (first, *others) in by_split.items()}
