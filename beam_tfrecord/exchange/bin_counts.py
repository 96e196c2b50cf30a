"""`BinCounts`: how many records, and bytes of them, lie in each bin of places."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

UInt64Array = npt.NDArray[np.uint64]
Int64Array = npt.NDArray[np.int64]

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
