"""`Numbers`: a summary of many numbers, which merges to the same bytes in any order.

A number is known by its *key*, an int64 in the same order: an integer itself, or the bits of a
float64. Up to `KEPT` different values, all are kept with their counts, and everything is exact.
Beyond, a *bin* holds all keys that are equal without their `shift` low bits, with the smallest
shift that leaves at most `KEPT` bins. Quartiles and histograms then come from bins; number, mean
and deviation stay exact.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import sys
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from beam_tfrecord.native.kernel_types import Int64Array
from beam_tfrecord.stats.distinct import KEPT, Distinct, add_equal, mix, run_starts, unmix

Kind = Literal["int", "uint", "float"]
_LOW_BITS = np.int64(2**63 - 1)


@dataclasses.dataclass(frozen=True, eq=False)
class Bins:
    """Counts of keys by bin: the different keys without their low bits, ascending."""

    shift: int
    keys: Int64Array
    counts: Int64Array

    @classmethod
    def of(cls, shift: int, keys: Int64Array, counts: Int64Array) -> Bins:
        """Return bins of ascending keys, wide enough that there are at most `KEPT`."""
        keys, counts, _ = add_equal(keys, counts)
        if len(keys) > KEPT:
            # The highest bit in which neighbours differ tells at which shift they become one bin.
            differing = (keys[1:] ^ keys[:-1]).view(np.uint64)
            differing &= ~(differing >> np.uint64(1))  # else the float below may be rounded up
            highest = np.frexp(differing.astype(np.float64))[1]
            left = len(keys) - np.cumsum(np.bincount(highest, minlength=65))
            more = int(np.argmax(left <= KEPT))
            shift += more
            keys, counts, _ = add_equal(keys >> more, counts)
        return cls(shift, keys, counts)

    def merge(self, other: Bins) -> Bins:
        """Return the bins of two parts together."""
        shift = max(self.shift, other.shift)
        keys = np.concatenate([one.keys >> (shift - one.shift) for one in (self, other)])
        order = np.argsort(keys, kind="stable")
        counts = np.concatenate([self.counts, other.counts])
        return Bins.of(shift, keys[order], counts[order])

    @property
    def middles(self) -> Int64Array:
        """The key in the middle of each bin."""
        return (self.keys << self.shift) + ((1 << self.shift) >> 1)


@dataclasses.dataclass(frozen=True, eq=False)
class Numbers:
    """A summary of numbers that are not null; `Numbers.of` makes it, `merge` adds two.

    Attributes:
        kind: What the keys stand for.
        nan: Number of NaN. Neither these nor infinities are in anything that follows.
        inf: Number of infinities of either sign.
        zeros: Number of zeros of either sign.
        low: Smallest key; None if there is no finite number.
        high: Largest key.
        distinct: The different values.
        bins: Counts by bin, if not all values are kept.
        sums: Sum of all numbers and of their squares, if not all values are kept.
    """

    kind: Kind
    nan: int
    inf: int
    zeros: int
    low: int | None
    high: int | None
    distinct: Distinct
    bins: Bins | None = None
    sums: tuple[int, int] | None = None

    @classmethod
    def of(cls, values: npt.NDArray[Any], known: Numbers | None = None) -> Numbers:
        """Summarize an array of numbers.

        `known` saves work: a summary of what this will be added to, or of some of the values.
        """
        kind: Kind = {"f": "float", "u": "uint"}.get(values.dtype.kind, "int")  # type: ignore[assignment]
        values = np.sort(values)
        nan = inf = 0
        if kind == "float":  # NaN are the last ones
            number = int(np.searchsorted(values, np.inf, "right"))
            first, last = np.searchsorted(values, -np.inf, "right"), np.searchsorted(values, np.inf)
            nan, inf = len(values) - number, number - int(last - first)
            values = values[first:last] + values.dtype.type(0)  # no negative zero
        if (known is None or known.bins is None) and len(values) > 4 * KEPT:
            known = cls.of(values[:: len(values) // (2 * KEPT)])
        starts = run_starts(values)
        keys, counts = _keys(values[starts], kind), np.diff(starts, append=len(values))
        made = cls(
            *(kind, nan, inf),
            zeros=int(np.searchsorted(values, 0, "right") - np.searchsorted(values, 0)),
            low=int(keys[0]) if len(keys) else None,
            high=int(keys[-1]) if len(keys) else None,
            distinct=Distinct.of(mix(keys), counts, None if known is None else known.distinct),
        )
        if made.distinct.is_complete:
            return made
        shift = 0 if known is None or known.bins is None else known.bins.shift
        return dataclasses.replace(
            made, bins=Bins.of(shift, keys >> shift, counts), sums=_sums(values, kind)
        )

    def merge(self, other: Numbers) -> Numbers:
        """Return the summary of the numbers of both."""
        lows = [one.low for one in (self, other) if one.low is not None]
        highs = [one.high for one in (self, other) if one.high is not None]
        distinct = self.distinct.merge(other.distinct)
        ones, twos = ((0, 0), (0, 0)) if distinct.is_complete else (self._all_sums, other._all_sums)
        return Numbers(
            self.kind,
            self.nan + other.nan,
            self.inf + other.inf,
            self.zeros + other.zeros,
            min(lows, default=None),
            max(highs, default=None),
            distinct,
            None if distinct.is_complete else self._all_bins.merge(other._all_bins),
            None if distinct.is_complete else (ones[0] + twos[0], ones[1] + twos[1]),
        )

    @property
    def _all_bins(self) -> Bins:
        if self.bins is not None:
            return self.bins
        keys = unmix(self.distinct.hashes)
        order = np.argsort(keys)
        return Bins.of(0, keys[order], self.distinct.counts[order])

    @functools.cached_property
    def _all_sums(self) -> tuple[int, int]:
        return _sums_of(self.kind, self.distinct) if self.sums is None else self.sums

    @property
    def is_exact(self) -> bool:
        """Whether quartiles, histogram and the number of different values are exact."""
        return self.bins is None

    @property
    def count(self) -> int:
        """Number of finite numbers."""
        return int(self._all_bins.counts.sum())

    @property
    def min(self) -> float | None:
        """The smallest number; None if there is none."""
        return None if self.low is None else value_of(self.low, self.kind)

    @property
    def max(self) -> float | None:
        """The largest number; None if there is none."""
        return None if self.high is None else value_of(self.high, self.kind)

    @property
    def mean(self) -> float | None:
        """The mean, rounded once; None if there is no number."""
        unit = FLOAT_UNIT if self.kind == "float" else 0
        return float(Fraction(self._all_sums[0], self.count << unit)) if self.count else None

    @property
    def std(self) -> float | None:
        """The deviation of the population (divided by n, as NumPy does), rounded once."""
        if not self.count:
            return None
        (total, squares), n = self._all_sums, self.count
        unit = FLOAT_UNIT if self.kind == "float" else 0
        # The root of an integer with 128 bits more than a float needs.
        variance = n * squares - total * total
        return float(Fraction(math.isqrt(variance << 256), n << (unit + 128)))

    @property
    def quartiles(self) -> list[float]:
        """The values at a quarter, a half and three quarters of all, by linear interpolation."""
        keys, counts = self._ordered()
        ends = np.cumsum(counts)
        found = []
        for quarter in (1, 2, 3):
            rank, part = divmod((int(ends[-1]) - 1) * quarter, 4)
            at = np.searchsorted(ends, [rank, min(rank + 1, int(ends[-1]) - 1)], side="right")
            low, high = (value_of(int(keys[one]), self.kind) for one in at)
            found.append(_between(low, high, part / 4))
        return found

    def histogram(self, edges: Sequence[float]) -> list[int]:
        """Return how many numbers lie between edges; those beyond are in the first and the last."""
        keys, counts = self._ordered()
        values = _values_of(keys, self.kind).astype(np.float64)
        positions = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
        positions[values == edges[-1]] = len(edges) - 2
        return [int(n) for n in np.bincount(positions, counts, minlength=len(edges) - 1)]

    def top(self) -> list[tuple[float, int]]:
        """Return the kept values with their counts, the most frequent first."""
        values = _values_of(unmix(self.distinct.hashes), self.kind).tolist()
        found = zip(values, self.distinct.counts.tolist(), strict=True)
        return sorted(found, key=lambda pair: (-pair[1], pair[0]))

    def edges(self, most: int = 24) -> list[float]:
        """Return edges of 8 to `most` equal steps, which are 1, 2, 2.5 or 5 times a power of ten.

        If the range is more than twice that of all but the lowest and the highest hundredth, these
        go into the first and the last step. Empty if all numbers are equal.
        """
        if self.low == self.high:
            return []
        keys, counts = self._ordered()
        ends = np.cumsum(counts)
        n = int(ends[-1])
        inner = np.searchsorted(ends, [n // 100, n - 1 - n // 100], side="right")
        low, high = (value_of(int(keys[at]), self.kind) for at in inner)
        first, last = value_of(self.low or 0, self.kind), value_of(self.high or 0, self.kind)
        if low == high or last / 2 - first / 2 <= high - low:
            low, high = first, last
        steps = min(max(round(2 * n ** (1 / 3)), 8), most)
        return nice_edges(low, high, steps, is_whole=self.kind != "float")

    def _ordered(self) -> tuple[Int64Array, Int64Array]:
        """Return keys, ascending, and their counts: exact, or of the middles of bins."""
        bins = self._all_bins
        if self.bins is None:
            return bins.keys, bins.counts
        assert self.low is not None
        assert self.high is not None
        return np.clip(bins.middles, self.low, self.high), bins.counts


def nice_edges(low: float, high: float, steps: int, *, is_whole: bool) -> list[float]:
    """Return the edges of about `steps` equal steps from below `low` to above `high`."""
    width = Fraction(high) - Fraction(low)
    power = math.floor(math.log10(max(float(width / steps), 5e-324)))
    sizes = [Fraction(10) ** (power + more) * size for more in (0, 1) for size in _SIZES]
    step = next(size for size in sizes if size * steps >= width)
    if is_whole:
        step = Fraction(math.ceil(step))
    first, last = math.floor(Fraction(low) / step), math.ceil(Fraction(high) / step)
    if is_whole:
        last = math.floor(Fraction(high) / step) + 1  # a whole number is below its upper edge
    last = max(last, first + 1)
    edges = [step * at for at in range(first, last + 1)]
    return [int(edge) if is_whole else float(min(max(edge, -_MOST), _MOST)) for edge in edges]


_MOST = Fraction(sys.float_info.max)
_SIZES = (Fraction(1), Fraction(2), Fraction(5, 2), Fraction(5))


def value_of(key: int, kind: Kind) -> float:
    """Return the number of a key."""
    value: float = _values_of(np.array([key]), kind)[0].item()
    return value


def _values_of(keys: Int64Array, kind: Kind) -> npt.NDArray[Any]:
    """Return the numbers of keys; the inverse of `_keys`."""
    if kind == "float":
        return (keys ^ ((keys >> 63) & _LOW_BITS)).view(np.float64)
    return keys.view(np.uint64) ^ np.uint64(2**63) if kind == "uint" else keys


def _keys(values: npt.NDArray[Any], kind: Kind) -> Int64Array:
    """Return the keys of ascending numbers."""
    if kind == "float":
        bits = values.astype(np.float64).view(np.int64)
        bits[: np.searchsorted(values, 0)] ^= _LOW_BITS
        return bits
    if kind == "uint":
        return (values.astype(np.uint64) ^ np.uint64(2**63)).view(np.int64)
    return values.astype(np.int64)


def _sums(values: npt.NDArray[Any], kind: Kind) -> tuple[int, int]:
    """Return the exact sum of numbers, and that of their squares."""
    if kind == "float":
        return float_sums(values)
    total, squares = int_sums(_keys(values, kind))
    if kind == "uint":  # (key + 2^63)^2
        n = len(values)
        return total + (n << 63), squares + (total << 64) + (n << 126)
    return total, squares


def _sums_of(kind: Kind, distinct: Distinct) -> tuple[int, int]:
    """Return the exact sums of values that are all kept."""
    wholes = _values_of(unmix(distinct.hashes), kind)
    shifts = np.zeros(len(wholes), np.int64)
    if kind == "float":
        mantissas, exponents = np.frexp(wholes)
        wholes, shifts = (mantissas * 2.0**53).astype(np.int64), exponents + FLOAT_UNIT - 53
    total = squares = 0
    parts = (wholes.tolist(), shifts.tolist(), distinct.counts.tolist())
    for whole, shift, count in zip(*parts, strict=True):
        total += count * whole << shift
        squares += count * whole * whole << 2 * shift
    return total, squares


def _between(low: float, high: float, part: float) -> float:
    """Return the value at a part of the way between two, as NumPy's quantile computes it."""
    if low == high or not part:
        return low
    step = high - low
    if math.isinf(step):
        return low * (1 - part) + high * part
    return high - step * (1 - part) if part >= 0.5 else low + step * part


FLOAT_UNIT = 1126
"""Sums of floats are in units of 2**-1126, which all floats are multiples of; of squares, in
2**-2252."""

_CHUNK_BYTES = 2**17
_INT_LIMB, _INT_MASK = 21, 2**21 - 1


def int_sums(values: npt.NDArray[np.int64]) -> tuple[int, int]:
    """Return the sum of integers, and that of their squares."""
    total = squares = 0
    for x in _chunks(values):
        a, b, c = x >> 2 * _INT_LIMB, (x >> _INT_LIMB) & _INT_MASK, x & _INT_MASK
        total += (int(a.sum()) << 2 * _INT_LIMB) + (int(b.sum()) << _INT_LIMB) + int(c.sum())
        products = (a @ a, 2 * (a @ b), 2 * (a @ c) + b @ b, 2 * (b @ c), c @ c)
        squares += sum(int(one) << _INT_LIMB * (4 - i) for i, one in enumerate(products))
    return total, squares


def float_sums(values: npt.NDArray[np.floating[Any]]) -> tuple[int, int]:
    """Return the sum of finite floats, and that of their squares, in units of `FLOAT_UNIT`.

    This is fast if they are sorted: the fractions of a run of one exponent are added at once.
    """
    if values.dtype.itemsize < 4:
        values = values.astype(np.float32)
    word, size, limb_bits, bias = _FORMATS[values.dtype.itemsize]
    total = squares = 0
    for bits in _chunks(values.view(word)):
        heads = bits >> size
        starts = run_starts(heads)
        counts = np.diff(starts, append=len(bits))
        limbs = [
            (at, ((bits & (2**size - 1)) >> at & (2**limb_bits - 1)).astype(np.uint64))
            for at in range(0, size, limb_bits)
        ]
        # By run: the sum of the fractions, and that of their squares.
        ones: Any = sum(np.add.reduceat(limb, starts).astype(object) << at for at, limb in limbs)
        twos: Any = sum(
            np.add.reduceat(a * b, starts).astype(object) << i + j + (i != j)
            for (i, a), (j, b) in itertools.combinations_with_replacement(limbs, 2)
        )
        runs = zip(heads[starts].tolist(), counts.tolist(), ones, twos, strict=True)
        for head, count, one, two in runs:
            exponent = head & (2 * bias + 1)
            hidden = 2**size if exponent else 0
            shift = max(exponent, 1) - bias - size + FLOAT_UNIT
            total += (one + count * hidden) * (1 if head == exponent else -1) << shift
            squares += two + 2 * hidden * one + count * hidden**2 << 2 * shift
    return total, squares


# By the bytes of a float: its bits, those of its fraction, those of a limb, and the bias.
_FORMATS = {4: (np.uint32, 23, 23, 127), 8: (np.uint64, 52, 18, 1023)}


def _chunks(values: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Return parts that fit into a cache, and have so few numbers that sums fit into 64 bits."""
    return np.array_split(values, values.nbytes // _CHUNK_BYTES + 1)
