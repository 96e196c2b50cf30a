"""Exact sums of numbers and of their squares, as Python integers: no order of adding changes them.

Numbers are cut into pieces of so few bits that an int64 or a float64 holds the sum of the pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from beam_tfrecord.stats.distinct import run_starts

FLOAT_UNIT = 1126
"""Sums of floats are in units of 2**-1126, which all mantissas are multiples of; of squares, in
2**-2252."""

_CHUNK = 2**15
_INT_LIMB, _INT_MASK = 21, 2**21 - 1


def int_sums(values: npt.NDArray[np.int64]) -> tuple[int, int]:
    """Return the sum of integers, and that of their squares."""
    total = squares = 0
    for start in range(0, len(values), _CHUNK):
        x = values[start : start + _CHUNK]
        a, b, c = x >> 2 * _INT_LIMB, (x >> _INT_LIMB) & _INT_MASK, x & _INT_MASK
        total += (int(a.sum()) << 2 * _INT_LIMB) + (int(b.sum()) << _INT_LIMB) + int(c.sum())
        products = (a @ a, 2 * (a @ b), 2 * (a @ c) + b @ b, 2 * (b @ c), c @ c)
        squares += sum(int(one) << _INT_LIMB * (4 - i) for i, one in enumerate(products))
    return total, squares


def float_sums(values: npt.NDArray[np.float64]) -> tuple[int, int]:
    """Return the sum of finite floats, and that of their squares, in units of `FLOAT_UNIT`.

    This is fast if they are sorted: the mantissas of a run of one exponent are added at once.
    """
    total = squares = 0
    for start in range(0, len(values), _CHUNK):
        mantissas, exponents = np.frexp(values[start : start + _CHUNK])
        starts = run_starts(exponents)
        runs = _Runs(starts, exponents[starts].tolist())
        high = _rounded(mantissas, 26)
        total += runs.sum(high, 26, 1)
        squares += runs.squares(high * high, 26)
        low = mantissas - high
        if low.any():  # not for a float32
            total += runs.sum(low, 53, 1)
            squares += runs.squares(2 * high * low, 52) + runs.squares(low * low, 78)
    return total, squares


class _Runs(NamedTuple):
    """Runs of mantissas of one exponent."""

    starts: npt.NDArray[np.int64]
    exponents: Sequence[int]

    def sum(self, pieces: npt.NDArray[np.float64], bits: int, power: int) -> int:
        """Return the sum of pieces, multiples of 2**-bits, times 2**(power * exponent)."""
        sums = np.add.reduceat(pieces, self.starts) * 2.0**bits
        pairs = zip(sums.tolist(), self.exponents, strict=True)
        return sum(int(one) << power * (exponent + FLOAT_UNIT) - bits for one, exponent in pairs)

    def squares(self, products: npt.NDArray[np.float64], bits: int) -> int:
        """Return the sum of products of mantissas, in two pieces of 26 bits."""
        high = _rounded(products, bits)
        return self.sum(high, bits, 2) + self.sum(products - high, bits + 26, 2)


def _rounded(values: npt.NDArray[np.float64], bits: int) -> npt.NDArray[np.float64]:
    """Return floats below 2**(26 - bits) rounded to multiples of 2**-bits."""
    large = 1.5 * 2.0 ** (52 - bits)  # so large that floats near it are these multiples
    return (values + large) - large
