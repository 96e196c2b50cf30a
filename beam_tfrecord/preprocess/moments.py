"""Computes exact mean and variance, independent of the order and the batches of the values.

Floating-point sums depend on the order of their terms, and a runner's workers have no fixed order.
This module sums the values and their squares as integers, so that merging sums is exact. A double
is an integer mantissa of 53 bits times a power of two (IEEE 754).
"""

from __future__ import annotations

import fractions
import functools
import math
import operator
from collections.abc import Iterable
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import numpy.typing as npt

_MANTISSA_BITS = 53
_HALF_BITS = 27
_HALF = 2**_HALF_BITS - 1
# The smallest double is 2^-1074; the lowest bit of its normalised mantissa is up to 53 bits lower.
_LOWEST_EXPONENT = -1074 - _MANTISSA_BITS
_UNIT = fractions.Fraction(1, 2**-_LOWEST_EXPONENT)


class Moments(NamedTuple):
    """Exact sums over the values of some rows."""

    rows: int = 0
    finite: int = 0
    total: int = 0
    squares: int = 0

    def merge(self, other: Moments) -> Moments:
        """Return the sums over both parts of the data."""
        return Moments(*map(operator.add, self, other))

    @property
    def mean(self) -> float:
        """Mean of the finite values, rounded once; 0 if there are none."""
        return float(_UNIT * fractions.Fraction(self.total, max(1, self.finite)))

    @property
    def variance(self) -> float:
        """Variance (of the population), rounded once; 0 if there are no finite values."""
        spread = self.squares * self.finite - self.total * self.total
        try:
            return float(_UNIT**2 * fractions.Fraction(spread, max(1, self.finite**2)))
        except OverflowError:
            return math.inf


def moments_of(values: npt.NDArray[np.float64], rows: int) -> Moments:
    """Return the sums over the finite values among `values`, shape `[n]`, of `rows` rows."""
    finite = values[np.isfinite(values)]
    parts, exponents = np.frexp(finite)
    mantissas = np.ldexp(parts, _MANTISSA_BITS).astype(np.int64)
    highs, lows = mantissas >> _HALF_BITS, mantissas & _HALF
    total = squares = 0
    # np.bincount adds up in double precision, so every term has to stay far below 2^53.
    powers, which = np.unique(exponents, return_inverse=True)
    terms = [_sums(which, part) for part in (highs, lows)]
    products = [
        [_sums(which, half) for half in (product >> _HALF_BITS, product & _HALF)]
        for product in (highs * highs, highs * lows, lows * lows)
    ]
    for i, power in enumerate(powers.tolist()):
        shift = power - _MANTISSA_BITS - _LOWEST_EXPONENT
        total += ((terms[0][i] << _HALF_BITS) + terms[1][i]) << shift
        high, middle, low = ((one[i] << _HALF_BITS) + other[i] for one, other in products)
        square = (high << 2 * _HALF_BITS) + (middle << _HALF_BITS + 1) + low
        squares += square << 2 * shift
    return Moments(rows, len(finite), total, squares)


def _sums(which: npt.NDArray[np.intp], values: npt.NDArray[np.int64]) -> list[int]:
    """Return the exact sum of the values for each number in `which`."""
    return [int(one) for one in np.bincount(which, values.astype(np.float64))]


class CombineMoments(beam.CombineFn):
    """Combines batches, pairs of values (shape `[n]`) and a number of rows, to their moments."""

    def create_accumulator(self) -> Moments:
        """Return the sums over no values."""
        return Moments()

    def add_input(self, accumulator: Moments, element: tuple[Any, ...]) -> Moments:
        """Return the sums with the values of one more batch."""
        values, rows = element
        return accumulator.merge(moments_of(np.asarray(values, np.float64), int(rows)))

    def merge_accumulators(self, accumulators: Iterable[Moments]) -> Moments:
        """Return the sums over the data of all accumulators."""
        return functools.reduce(Moments.merge, accumulators, Moments())

    def extract_output(self, accumulator: Moments) -> npt.NDArray[np.float64]:
        """Return number of rows, number of finite values, mean and variance, shape `[4]`."""
        rows, finite, *_ = accumulator
        return np.array([rows, finite, accumulator.mean, accumulator.variance], np.float64)
