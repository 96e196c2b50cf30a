"""Counts the different values of a column: exactly for few, by a sample of their hashes for many.

A `Distinct` keeps the `KEPT` smallest 64-bit hashes of the values, each with its count ("bottom-k"
or "KMV": Bar-Yossef et al., Counting distinct elements in a data stream, 2002). Any order of
merging gives the same result. Up to `KEPT` different values it holds the whole column. Beyond, the
counts of the kept values are still exact, and the number of different values is estimated from the
largest hash that is kept: its standard error is 1 / sqrt(KEPT - 2), or 2.2 %.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord.native.kernel_types import Int64Array, UInt64Array

KEPT = 2048
_HIGHEST = 2**64 - 1

_Key = TypeVar("_Key", np.uint64, np.int64)


@dataclasses.dataclass(frozen=True, eq=False)
class Distinct:
    """The smallest hashes of values, ascending, with how often each value occurs.

    Attributes:
        hashes: uint64[n], n <= `KEPT`.
        counts: int64[n].
        is_complete: Whether the hash of every value is kept.
        values: The values themselves, if their hashes do not tell them: binary[n].
    """

    hashes: UInt64Array
    counts: Int64Array
    is_complete: bool = True
    values: pa.Array | None = None

    @classmethod
    def of(
        cls,
        hashes: UInt64Array,
        counts: Int64Array,
        known: Distinct | None = None,
        values: pa.Array | None = None,
    ) -> Distinct:
        """Return the distinct values of a part of a column, given the hash and count of each.

        What is above the limit of `known`, to which these will be added, is left out.
        """
        near = np.flatnonzero(hashes <= np.uint64(_HIGHEST if known is None else known.limit))
        is_complete = len(near) <= KEPT and (known is None or known.is_complete)
        if len(near) > KEPT:
            near = near[np.argpartition(hashes[near], KEPT)[:KEPT]]
        order = near[np.argsort(hashes[near])]
        found = None if values is None else values.take(pa.array(order))
        return cls(hashes[order], counts[order], is_complete, found)

    @property
    def limit(self) -> int:
        """Hashes above it need no look: they would not be kept."""
        return _HIGHEST if self.is_complete else int(self.hashes[-1])

    def merge(self, other: Distinct) -> Distinct:
        """Return the distinct values of two parts together."""
        hashes = np.concatenate([self.hashes, other.hashes])
        order = np.argsort(hashes, kind="stable")
        counts = np.concatenate([self.counts, other.counts])[order]
        joined, sums, first = add_equal(hashes[order], counts)
        values = None
        if self.values is not None and other.values is not None:
            both = pa.concat_arrays([self.values, other.values])
            values = both.take(pa.array(order[first]))
        is_complete = self.is_complete and other.is_complete
        return Distinct(joined, sums, is_complete, values).cut()

    def cut(self) -> Distinct:
        """Keep the smallest hashes alone."""
        if len(self.hashes) <= KEPT:
            return self
        values = None if self.values is None else self.values.slice(0, KEPT)
        return Distinct(self.hashes[:KEPT], self.counts[:KEPT], is_complete=False, values=values)

    def number_among(self, values: int) -> int:
        """Return the number of different values: exact if all are kept, else an estimate.

        Args:
            values: Number of all values, which no estimate exceeds.
        """
        if self.is_complete or len(self.hashes) < KEPT:
            return len(self.hashes)
        return min(round((KEPT - 1) * 2**64 / int(self.hashes[-1])), values)


def add_equal(
    keys: npt.NDArray[_Key], counts: Int64Array
) -> tuple[npt.NDArray[_Key], Int64Array, Int64Array]:
    """Return the different ones of ascending keys, their counts added, and where each is first."""
    starts = run_starts(keys)
    return keys[starts], np.add.reduceat(counts, starts) if len(starts) else counts, starts


def run_starts(values: npt.NDArray[Any]) -> Int64Array:
    """Return where each run of equal values begins."""
    is_first = np.ones(len(values), bool)
    is_first[1:] = values[1:] != values[:-1]
    return np.flatnonzero(is_first)


# A bijection of 64-bit numbers; what decides are the upper bits, to which both products carry.
_FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_INVERSES = np.uint64(0x319642B2D24D8EC3), np.uint64(0x96DE1B173F119089)
_ADDED, _HALF = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


def mix(keys: Int64Array) -> UInt64Array:
    """Return a hash of each 64-bit number; `unmix` is the inverse."""
    x = keys.view(np.uint64) + _ADDED
    x *= _FACTORS[0]
    x ^= x >> _HALF
    x *= _FACTORS[1]
    return x


def unmix(hashes: UInt64Array) -> Int64Array:
    """Return the numbers that `mix` hashed."""
    x = hashes * _INVERSES[0]
    x ^= x >> _HALF
    keys: Int64Array = (x * _INVERSES[1] - _ADDED).view(np.int64)
    return keys
