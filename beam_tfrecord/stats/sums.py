"""Exact sums of numbers and of their squares, as Python integers: no order of adding changes them.

A float is a mantissa of 53 bits times a power of two. The mantissas of one exponent are added in
pieces that are so small that a float64 holds each sum exactly.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FLOAT_UNIT = 1074
"""Sums of floats are in units of 2**-1074, the smallest float64; of squares, in 2**-2148."""

_CHUNK = 2**15
_LIMB, _MASK = 18, 2**18 - 1
_INT_LIMB, _INT_MASK = 21, 2**21 - 1


def int_sums(values: npt.NDArray[np.int64]) -> tuple[int, int]:
    """Return the sum of integers, and that of their squares."""
    total = squares = 0
    for start in range(0, len(values), 2**18):
        x = values[start : start + 2**18]
        a, b, c = x >> 2 * _INT_LIMB, (x >> _INT_LIMB) & _INT_MASK, x & _INT_MASK
        total += (int(a.sum()) << 2 * _INT_LIMB) + (int(b.sum()) << _INT_LIMB) + int(c.sum())
        products = (a @ a, 2 * (a @ b), 2 * (a @ c) + b @ b, 2 * (b @ c), c @ c)
        squares += sum(int(one) << _INT_LIMB * (4 - i) for i, one in enumerate(products))
    return total, squares


def float_sums(values: npt.NDArray[np.float64]) -> tuple[int, int]:
    """Return the sum of finite floats, and that of their squares, in units of `FLOAT_UNIT`."""
    total = squares = 0
    for start in range(0, len(values), _CHUNK):
        one, square = _chunk_sums(values[start : start + _CHUNK])
        total, squares = total + one, squares + square
    return total, squares


def _chunk_sums(values: npt.NDArray[np.float64]) -> tuple[int, int]:
    bits = values.view(np.int64)
    exponents = (bits >> 52) & 2047
    mantissas = (bits & (2**52 - 1)) | ((exponents > 0).astype(np.int64) << 52)
    exponents = np.maximum(exponents, 1) - 1
    sign = np.where(bits < 0, -1.0, 1.0)
    total = squares = 0
    if not np.any(mantissas & (2**29 - 1)):  # float32, which are most: 24 bits
        short = mantissas >> 29
        total += _weighed(exponents, short * sign, 29, 1)
        square = short * short
        squares += _weighed(exponents, square & (2**24 - 1), 58, 2)
        return total, squares + _weighed(exponents, square >> 24, 82, 2)
    a, b, c = mantissas >> 2 * _LIMB, (mantissas >> _LIMB) & _MASK, mantissas & _MASK
    for i, limb in enumerate((c, b, a)):
        total += _weighed(exponents, limb * sign, _LIMB * i, 1)
    for i, product in enumerate((c * c, 2 * b * c, 2 * a * c + b * b, 2 * a * b, a * a)):
        squares += _weighed(exponents, product, _LIMB * i, 2)
    return total, squares


def _weighed(
    exponents: npt.NDArray[np.int64], weights: npt.NDArray[np.generic], shift: int, power: int
) -> int:
    """Return the sum of weights * 2**(power * exponent + shift)."""
    sums = np.bincount(exponents, weights)
    return sum(int(sums[i]) << (power * int(i) + shift) for i in np.flatnonzero(sums))
