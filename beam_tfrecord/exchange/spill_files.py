"""The format of a run, a sorted spill file, and the counts of its records by bin.

A run is a sequence of *entries*, sorted by (split, place), then a footer::

    entry    le64 place, framed record
    padding  zeros up to a multiple of 8 bytes
    footer   bins:    le64[n]      number of every bin that holds records, split after split
             offsets: le64[n + 1]  where the entries of each bin begin; the end of the last
             JSON     {"shift", "splits": [{"name", "bins"}], "records", "arrays"}: a bin is a
                      place without its `shift` low bits; `arrays` is the bytes of both arrays
    trailer  le64 XXH64 of the footer, le64 bytes of the JSON, magic

One range of places of one split is therefore one contiguous range of bytes.
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
from beam_tfrecord.storage import file_size, is_remote, read_into

UInt64Array = npt.NDArray[np.uint64]
Int64Array = npt.NDArray[np.int64]

MAGIC = b"BTFRUN\x00\x01"
_TRAILER = struct.Struct("<QQ8s")
PLACE_BYTES = 8
_TAIL_BYTES = 2**18


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """A run that was written.

    Attributes:
        path: Path of the file.
        counts: Counts of its records, by split.
    """

    path: str
    counts: Mapping[str, BinCounts]


@dataclasses.dataclass(frozen=True, eq=False)
class RunIndex:
    """The footer of a run, in memory: for every split its bins and where they begin."""

    splits: Mapping[str, tuple[UInt64Array, Int64Array]]
    shift: int

    def slice(self, split: str, first_place: int, last_place: int) -> tuple[int, int]:
        """Return the byte range of a range of places of a split, both ends inclusive.

        The ends must be ends of bins, of these or of coarser ones.
        """
        if split not in self.splits:
            return 0, 0
        bins, offsets = self.splits[split]
        low = np.searchsorted(bins, np.uint64(first_place >> self.shift), side="left")
        high = np.searchsorted(bins, np.uint64(last_place >> self.shift), side="right")
        return int(offsets[low]), int(offsets[high])


def footer(counts: Mapping[str, BinCounts]) -> bytes:
    """Return padding, footer and trailer of a run; its splits are in the order of `counts`."""
    of_splits = list(counts.values())
    none = np.zeros(0, np.int64)
    bins = np.concatenate([none.astype(np.uint64), *(of.bins for of in of_splits)])
    sizes = np.concatenate([none, *(of.bytes + PLACE_BYTES * of.rows for of in of_splits)])
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    # Numbers begin at a multiple of their size, so that a mapped file can be searched in place.
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
    """Read the footer of a run.

    Args:
        path: Path of the run.
        is_checked: The hash of this footer was found to be right before.

    Raises:
        DataError: The file is not a complete run.
    """
    size = file_size(path)
    if size < _TRAILER.size:
        raise DataError(f"{path!r} is not a complete run: it has {size} bytes")
    tail = _Tail(path, size)
    end = size - _TRAILER.size
    seal, text_bytes, magic = _TRAILER.unpack(tail.read(end, _TRAILER.size))
    damaged = DataError(f"{path!r} is not a complete run: its end is damaged")
    if magic != MAGIC or text_bytes > end:
        raise damaged
    # Nothing in the footer is trusted before its hash is known to be right.
    try:
        described = json.loads(tail.read(end - text_bytes, text_bytes))
        arrays_bytes = described["arrays"]
    except (ValueError, TypeError, KeyError) as error:
        raise damaged from error
    if not isinstance(arrays_bytes, int) or not 0 <= arrays_bytes <= end - text_bytes:
        raise damaged
    sealed = tail.array(end - text_bytes - arrays_bytes, arrays_bytes + text_bytes)
    if not is_checked and native.xxh64(sealed, 0) != seal:
        raise damaged
    return _index(described, sealed)


def _index(described: Mapping[str, Any], sealed: npt.NDArray[np.uint8]) -> RunIndex:
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


class _Tail:
    """The end of a file. For a remote file, one read gets as much as most footers need."""

    def __init__(self, path: str, size: int) -> None:
        self._path = path
        self._start = size
        self._data = b""
        if is_remote(path):
            self._start = max(0, size - _TAIL_BYTES)
            self._data = _read(path, self._start, size - self._start)

    def read(self, start: int, nbytes: int) -> bytes:
        """Return bytes of the file."""
        if start < self._start:
            return _read(self._path, start, nbytes)
        return self._data[start - self._start :][:nbytes]

    def array(self, start: int, nbytes: int) -> npt.NDArray[np.uint8]:
        """Return bytes of the file as an array."""
        if is_remote(self._path):
            return np.frombuffer(self.read(start, nbytes), np.uint8)
        # Mapped, not read: a look-up touches a few pages of it, and a merge opens every run.
        return np.memmap(self._path, np.uint8, "r", start, (nbytes,))


def _read(path: str, start: int, nbytes: int) -> bytes:
    out = bytearray(nbytes)
    read_into(path, start, memoryview(out))
    return bytes(out)


# Most bins of one split, since one worker holds the counts of all runs. In source order, rows whose
# place follows from their bytes have a bin each.
MOST_BINS = 2**22


@dataclasses.dataclass(frozen=True, eq=False)
class BinCounts:
    """The records that a set of runs holds of one split, bin by bin.

    Attributes:
        bins: Numbers of the bins that hold records, ascending, shape `[n]`.
        rows: Records in each, shape `[n]`.
        bytes: Size of their framed records, shape `[n]`.
        shift: Low bits of a place that its bin leaves out.
    """

    bins: UInt64Array
    rows: Int64Array
    bytes: Int64Array
    shift: int

    @property
    def is_sound(self) -> bool:
        """Whether these can be counts: as many of each kind, none negative, bins ascending."""
        return bool(
            len(self.bins) == len(self.rows) == len(self.bytes)
            and 0 <= self.shift < 64
            and (self.bins[1:] > self.bins[:-1]).all()
            and (self.rows >= 0).all()
            and (self.bytes >= 0).all()
        )

    def merge(self, *others: BinCounts) -> BinCounts:
        """Return the sums over all of them, in the coarsest bins of any, or in yet coarser ones.

        Bins get no coarser than the sum of all runs needs, so the order of merging has no
        influence on them.
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
        """Return the same in bins of `shift`, which are these bins or coarser ones."""
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
    places: UInt64Array,
    sizes: Int64Array,
    shift: int,
) -> dict[str, BinCounts]:
    """Return the counts of records that are sorted by (split, place), by split.

    Args:
        names: Name of every split number.
        splits: Number of each record's split, shape `[n]`; None: all 0.
        places: Shape `[n]`.
        sizes: Bytes of each framed record, shape `[n]`.
        shift: Low bits of a place that its bin leaves out.
    """
    edges = [0, len(places)]
    if splits is not None:
        edges = [0, *(np.flatnonzero(np.diff(splits)) + 1).tolist(), len(places)]
    counts = {}
    for first, end in itertools.pairwise(edges):
        if first < end:
            name = names[0 if splits is None else int(splits[first])]
            bins = places[first:end] >> np.uint64(shift)
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
