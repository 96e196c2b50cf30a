"""Exact sums of numbers and of their squares, as Python integers: no order of adding changes them.

Numbers are cut into limbs of so few bits that 64 bits hold the sum of the products of a chunk.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_tfrecord.stats.distinct import run_starts

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
