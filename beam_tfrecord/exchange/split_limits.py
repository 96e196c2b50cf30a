"""Finds the hash limits of splits from counts of all rows, of each class or of all together.

A first pass over the input writes the hash and the class of every row to *hash files*, sorted by
hash. One worker then goes once through the hashes of all files in ascending order, and finds the
hash at which each class has enough rows for a split. Rows of equal hash stay together.

A hash file has an entry of 14 bytes for each pair of hash and class: the hash (le64), the number of
the class in the file (le16), and the number of rows (le32).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import uuid
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from beam_tfrecord.errors import DataError
from beam_tfrecord.exchange.assignment import check_classes
from beam_tfrecord.exchange.spill import RUN_BYTES, BlockWriter
from beam_tfrecord.format.layout import Layout, Splits, Strata, Stratum
from beam_tfrecord.job_state.job import Job
from beam_tfrecord.native.kernel_types import Int64Array, UInt64Array
from beam_tfrecord.storage import WholeFile, read_into

# Pairs of hash and class that are in memory at once.
CHUNK_PAIRS = 2**20
# A file says where the hashes of each of 2^10 ranges begin.
_RANGE_BITS = 10
_RANGES = 2**_RANGE_BITS
_ENTRY = np.dtype([("hash", "<u8"), ("class", "<u2"), ("rows", "<u4")])
_GOLDEN = (math.sqrt(5) - 1) / 2

Entries = npt.NDArray[np.void]


@dataclasses.dataclass(frozen=True, eq=False)
class HashFile:
    """A hash file.

    Attributes:
        path: Its path.
        classes: Value of every class number.
        rows: Number of rows of each class, shape `[classes]`.
        edges: Number of entries before each range of hashes, and of all, shape `[_RANGES + 1]`.
    """

    path: str
    classes: tuple[str | None, ...]
    rows: Int64Array
    edges: Int64Array


class HashWriter(BlockWriter[HashFile]):
    """Encodes batches as a job does, and writes the hashes and classes of their records."""

    def __init__(self, job: Job) -> None:
        super().__init__(job, RUN_BYTES)

    def _write(self) -> Iterator[HashFile]:
        block = self._block
        hashes, numbers = block.sort_keys, block.splits
        if numbers is not None:
            found = _pairs(hashes, numbers, np.ones(len(hashes), np.int64))
            found = found[np.argsort(found["hash"], kind="stable")]
            path = os.path.join(self._directory, f"run-hashes-{uuid.uuid4().hex}")
            with WholeFile(path, outlasts=False) as file:
                file.write(found.view(np.uint8).data)
            bounds = np.arange(_RANGES, dtype=np.uint64) << np.uint64(64 - _RANGE_BITS)
            edges = np.append(np.searchsorted(found["hash"], bounds), len(found))
            rows = np.bincount(numbers, minlength=len(block.classes))
            yield HashFile(path, block.classes, rows, edges)
        block.clear()


def _pairs(
    hashes: UInt64Array, numbers: npt.NDArray[np.integer], rows: npt.NDArray[np.integer]
) -> Entries:
    """Return the entries of rows, sorted by class, then hash, each pair once."""
    order = np.lexsort((hashes, numbers))
    hashes, numbers, rows = hashes[order], numbers[order], rows[order]
    is_first = (np.diff(hashes) > 0) | (np.diff(numbers) > 0)
    starts = np.append(0, np.flatnonzero(is_first) + 1)
    pairs = np.empty(len(starts), _ENTRY)
    pairs["hash"], pairs["class"] = hashes[starts], numbers[starts]
    pairs["rows"] = np.add.reduceat(rows, starts)
    return pairs


def find_strata(layout: Layout, files: Sequence[HashFile]) -> Strata:
    """Return the limits by class, so that each split has the nearest possible number of rows.

    Of all limits that divide the rows alike, it is the one nearest to the limit of the share, by
    which rows of classes that come later are split.

    Raises:
        DataError: There are too many classes or too few rows, or rows that stay together have
            several classes.
    """
    splits = layout.splits
    values = {value for file in files for value in file.classes}
    classes = sorted(values, key=lambda value: (value is not None, value or ""))
    check_classes(splits, len(classes))
    numbers = {value: number for number, value in enumerate(classes)}
    of_files = [np.array([numbers[one] for one in file.classes], np.uint16) for file in files]
    totals = np.zeros(len(classes), np.int64)
    for file, of_file in zip(files, of_files, strict=True):
        np.add.at(totals, of_file, file.rows)
    targets, limits = _targets(splits, totals)
    low, high = np.zeros_like(targets, np.uint64), np.full_like(targets, 2**64 - 1, np.uint64)
    seen = np.zeros(len(classes), np.int64)
    for pairs in _ascending(files, of_files):
        if (np.diff(np.sort(pairs["hash"])) == 0).any():
            raise DataError(
                f"rows of one group, or equal rows, have several values of {splits.stratify!r}, so "
                "they cannot stay in one split: name a column for --stratify that has one value "
                "for each group"
            )
        of, rows = pairs["class"], pairs["rows"].astype(np.int64)
        ends = np.cumsum(rows)
        starts = np.searchsorted(of, np.arange(len(classes)))
        ends += (seen - np.append(0, ends)[starts])[of]
        for number in range(targets.shape[1]):
            # The hash is below the limit if that brings the number of rows nearer to the target.
            is_below = ends - rows / 2 <= targets[of, number]
            inside, outside = pairs[is_below], pairs[~is_below]
            above = np.minimum(inside["hash"], np.uint64(2**64 - 2)) + np.uint64(1)
            np.maximum.at(low[:, number], inside["class"], above)
            np.minimum.at(high[:, number], outside["class"], outside["hash"])
        np.add.at(seen, of, rows)
    found = np.clip(limits, low, high)
    strata = map(Stratum, classes, totals.tolist(), map(tuple, found.tolist()))
    return Strata(splits.stratify, splits.names, tuple(limits.tolist()), tuple(strata))


def _targets(splits: Splits, totals: Int64Array) -> tuple[npt.NDArray[np.float64], UInt64Array]:
    """Return the rows of each class below each limit, shape `[classes, limits]`, and plain limits.

    Targets are shifted by half a row at most, by another amount for each class. Otherwise a split
    of a small share would have no row of any small class, and too few rows.
    """
    if not splits.rows:
        shares = [share for _, share in splits.fractions]
        shifts = (0.5 + _GOLDEN * np.arange(len(totals))) % 1 - 0.5
        sums = np.array([math.fsum(shares[: number + 1]) for number in range(len(shares) - 1)])
        return totals[:, np.newaxis] * sums + shifts[:, np.newaxis], splits.buckets()
    wanted, rows = np.cumsum([count for _, count in splits.rows[:-1]]), int(totals.sum())
    if wanted[-1] > rows:
        raise DataError(
            f"--split asks for {wanted[-1]:,} rows, but there are {rows:,}: ask for fewer"
        )
    limits = [min(int(of) * 2**64 // max(rows, 1), 2**64 - 1) for of in wanted]
    return np.tile(wanted.astype(np.float64), (len(totals), 1)), np.array(limits, np.uint64)


def _ascending(
    files: Sequence[HashFile], of_files: Sequence[npt.NDArray[np.uint16]]
) -> Iterator[Entries]:
    """Yield the pairs of all files in chunks of ascending hashes, each sorted by class and hash."""
    ends = sum((file.edges for file in files), np.zeros(_RANGES + 1, np.int64))
    wanted = np.arange(0, int(ends[-1]), CHUNK_PAIRS)
    cuts = np.append(np.searchsorted(ends, wanted, side="right") - 1, _RANGES)
    for first, end in itertools.pairwise(np.unique(cuts).tolist()):
        parts = []
        for file, numbers in zip(files, of_files, strict=True):
            begin, stop = int(file.edges[first]), int(file.edges[end])
            if begin < stop:
                part = np.empty(stop - begin, _ENTRY)
                read_into(file.path, begin * _ENTRY.itemsize, part.view(np.uint8).data)
                part["class"] = numbers[part["class"]]
                parts.append(part)
        joined = np.concatenate(parts)
        yield _pairs(joined["hash"], joined["class"], joined["rows"])
