"""Runs: sorted spill files.

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

import builtins
import dataclasses
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
        path: Of the file.
        counts: What it holds, by split.
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


@dataclasses.dataclass(frozen=True, eq=False)
class SortedIndex:
    """Where bins lie in sorted records: the content of a footer.

    Attributes:
        names: Names of the splits that hold records, in the order of their numbers.
        bounds: Where each split begins in `bins`, shape `[splits + 1]`.
        bins: Number of every bin, shape `[n]`.
        rows: Records in each, shape `[n]`.
        bytes: Size of their framed records, shape `[n]`.
        shift: Low bits of a place that its bin leaves out.
    """

    names: tuple[str, ...]
    bounds: tuple[int, ...]
    bins: UInt64Array
    rows: Int64Array
    bytes: Int64Array
    shift: int

    def counts(self) -> dict[str, BinCounts]:
        """Return by split what shards will hold."""
        return {
            name: BinCounts(
                self.bins[low:high], self.rows[low:high], self.bytes[low:high], self.shift
            )
            for name, low, high in zip(self.names, self.bounds, self.bounds[1:], strict=False)
        }

    def footer(self) -> builtins.bytes:
        """Return footer and trailer."""
        offsets = np.zeros(len(self.bins) + 1, np.int64)
        np.cumsum(self.bytes + PLACE_BYTES * self.rows, out=offsets[1:])
        # Numbers begin at a multiple of their size, so that a mapped file can be searched in place.
        padding = builtins.bytes(-int(offsets[-1]) % 8)
        arrays = self.bins.astype("<u8").tobytes() + offsets.astype("<i8").tobytes()
        sizes = np.diff(self.bounds).tolist()
        described = {
            "shift": self.shift,
            "splits": [{"name": n, "bins": b} for n, b in zip(self.names, sizes, strict=True)],
            "records": int(self.rows.sum()),
            "arrays": len(arrays),
        }
        text = json.dumps(described).encode()
        footer = arrays + text
        return padding + footer + _TRAILER.pack(native.xxh64(footer, 0), len(text), MAGIC)


def index_sorted(
    names: tuple[str, ...],
    splits: npt.NDArray[np.uint16] | None,
    places: UInt64Array,
    sizes: Int64Array,
    bin_shift: int,
) -> SortedIndex:
    """Index records that are sorted by (split, place).

    Args:
        names: Name of every split number.
        splits: Number of each record's split, shape `[n]`; None: all 0.
        places: Shape `[n]`.
        sizes: Bytes of each framed record, shape `[n]`.
        bin_shift: Low bits of a place that its bin leaves out.
    """
    bins = places >> np.uint64(bin_shift)
    changes = bins[1:] != bins[:-1]
    if splits is not None:
        changes |= splits[1:] != splits[:-1]
    starts = np.concatenate([[0], np.flatnonzero(changes) + 1]) if len(bins) else np.zeros(0, int)
    rows = np.diff(np.append(starts, len(bins)))
    nbytes = np.zeros(0, np.int64)
    if len(starts):
        nbytes = np.add.reduceat(sizes, starts).astype(np.int64)
    of_bin = np.zeros(len(starts), np.uint16) if splits is None else splits[starts]
    numbers = np.unique(of_bin)
    bounds = np.append(np.searchsorted(of_bin, numbers), len(of_bin))
    return SortedIndex(
        tuple(names[number] for number in numbers),
        tuple(bounds.tolist()),
        bins[starts],
        rows.astype(np.int64),
        nbytes,
        bin_shift,
    )


def join_indexes(indexes: Sequence[SortedIndex]) -> SortedIndex:
    """Return the index of records that follow one another, all of one and the same split."""
    bins = np.concatenate([index.bins for index in indexes])
    # A bin may begin in one and go on in the next.
    starts = np.flatnonzero(np.diff(bins, prepend=bins[:1] + np.uint64(1)))
    rows, nbytes = (
        np.add.reduceat(np.concatenate(counted), starts)
        for counted in (
            [index.rows for index in indexes],
            [index.bytes for index in indexes],
        )
    )
    first = indexes[0]
    bounds = (0, len(starts))
    return SortedIndex(first.names, bounds, bins[starts], rows, nbytes, first.shift)


def read_index(path: str, *, is_checked: bool = False) -> RunIndex:
    """Read the footer of a run.

    Args:
        path: Of the run.
        is_checked: The hash of this footer was found right before.

    Raises:
        DataError: The file is not a complete run.
    """
    size = file_size(path)
    if size < _TRAILER.size:
        raise DataError(f"{path!r} is not a complete run: it has {size} bytes")
    tail = _Tail(path, size)
    end = size - _TRAILER.size
    seal, text_bytes, magic = _TRAILER.unpack(tail.read(end, _TRAILER.size))
    if magic != MAGIC or text_bytes > end:
        raise DataError(f"{path!r} is not a complete run: its end is damaged")
    described = _json(path, tail.read(end - text_bytes, text_bytes))
    # Nothing in it is to be trusted before its hash is known to be right.
    arrays_bytes = described.get("arrays") if isinstance(described, dict) else None
    if not isinstance(arrays_bytes, int) or not 0 <= arrays_bytes <= end - text_bytes:
        raise DataError(f"{path!r} is not a complete run: its footer is damaged")
    footer = tail.array(end - text_bytes - arrays_bytes, arrays_bytes + text_bytes)
    if not is_checked and native.xxh64(footer, 0) != seal:
        raise DataError(f"{path!r} is not a complete run: its footer is damaged")
    return _index(described, footer)


def _index(described: Mapping[str, Any], footer: npt.NDArray[np.uint8]) -> RunIndex:
    total = sum(split["bins"] for split in described["splits"])
    bins = footer[: 8 * total].view("<u8")
    offsets = footer[8 * total : 16 * total + 8].view("<i8")
    splits = {}
    low = 0
    for split in described["splits"]:
        high = low + split["bins"]
        splits[split["name"]] = (bins[low:high], offsets[low : high + 1])
        low = high
    return RunIndex(splits, described["shift"])


def _json(path: str, text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise DataError(f"{path!r} is not a complete run: its footer is damaged") from error


class _Tail:
    """The end of a file. Of a remote one so much is read at once as most footers need."""

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


# Of one split: one worker holds the counts of all. In source order, rows whose place follows from
# their bytes have a bin each.
MOST_BINS = 2**22


@dataclasses.dataclass(frozen=True, eq=False)
class BinCounts:
    """What a set of runs holds of one split, bin by bin.

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

    def merge(self, other: BinCounts) -> BinCounts:
        """Return the sums over both, in the coarser bins of the two, or in yet coarser ones.

        Bins get no coarser than the sum of all runs needs, so the order of merging has no
        influence on them.
        """
        shift = max(self.shift, other.shift)
        both = [counts.bins >> np.uint64(shift - counts.shift) for counts in (self, other)]
        merged = _summed(
            np.concatenate(both),
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.bytes, other.bytes]),
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
    """Add up what stands under the same bin."""
    distinct, where = np.unique(bins, return_inverse=True)
    sums = np.zeros((2, len(distinct)), np.int64)
    np.add.at(sums[0], where, rows)
    np.add.at(sums[1], where, nbytes)
    return BinCounts(distinct, sums[0], sums[1], shift)
