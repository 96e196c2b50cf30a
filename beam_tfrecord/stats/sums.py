"""Exact sums of numbers and of their squares, as Python integers: no order of adding changes them.

Numbers are cut into pieces of so few bits that an int64 or a float64 holds the sum of the pieces.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

FLOAT_UNIT = 1074
"""Sums of floats are in units of 2**-1074, the smallest float64; of squares, in 2**-2148."""

_CHUNK = 2**14
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
    """Return the sum of finite floats, and that of their squares, in units of `FLOAT_UNIT`."""
    size = np.abs(values)
    is_usual = ((size > 2.0**-450) | (size == 0)) & (size < 2.0**450)
    total = squares = 0
    for value in values[~is_usual].tolist():  # their squares are no floats
        whole = whole_units(value)
        total, squares = total + whole, squares + whole * whole
    usual = values if is_usual.all() else values[is_usual]
    for start in range(0, len(usual), _CHUNK):
        x = usual[start : start + _CHUNK]
        # Two halves of 26 bits, whose products are exact (Dekker, 1971); all bits of a float32 are
        # in the first one.
        scaled = x * (2.0**27 + 1)
        high = scaled - (scaled - x)
        low = x - high
        total += _sum(x, FLOAT_UNIT)
        squares += _sum(high * high, 2 * FLOAT_UNIT)
        if low.any():
            squares += _sum(2 * high * low, 2 * FLOAT_UNIT) + _sum(low * low, 2 * FLOAT_UNIT)
    return total, squares


def _sum(values: npt.NDArray[np.float64], unit: int) -> int:
    """Return the exact sum of floats in units of 2**-unit.

    Adding and subtracting a large power of two rounds all values to so few bits that a float holds
    their sum; then comes what was rounded off (Rump et al., Accurate floating-point summation,
    2008).
    """
    total = 0
    while most := float(max(values.max(initial=0), -values.min(initial=0))):
        power = 2.0 ** (math.frexp(most)[1] + len(values).bit_length())
        rounded = (values + power) - power
        total += whole_units(float(rounded.sum()), unit)
        values = values - rounded
    return total


def whole_units(value: float, unit: int = FLOAT_UNIT) -> int:
    """Return a float in units of 2**-unit, of which it is a multiple."""
    top, bottom = value.as_integer_ratio()
    return top * (2**unit // bottom)
