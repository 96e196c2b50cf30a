"""Decimals, and numbers as text, as float64: rounded once, however they are stored.

A number has a nearest float64. Were that rounded to float32, the number would have been rounded
twice: halfway between two float32 it may take the wrong one. So there is a second float64 for each
number, which rounds to float32 as the number does, and whose distance from what is stored is the
loss. Both are the same where the float64 *stands for* the number: written with as many digits, it
is that number, as 0.1 is. (Where it does, but is halfway between two float32, the second one is
two steps beside it.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.features.lowering_text import to_text
from beam_tfrecord.native._csv import Filler
from beam_tfrecord.native.values import AS_DOUBLE, Target

Float64Array = npt.NDArray[np.float64]

_NUMBER = Target(0, AS_DOUBLE, 8)
_ONE_COLUMN = (ord(","), None, None, False)
_LINE_END = ord("\n")
_ROWS = 2**16
# Integers of 15 digits come back from a float64, and 10^22 is the greatest power that is exact.
_FEW_DIGITS = 10**15
_EXACT_POWER = 22


class Rounded(NamedTuple):
    """Numbers as float64, nulls where they were.

    Attributes:
        nearest: The nearest to each.
        exact: What rounds to float32 as the numbers do.
    """

    nearest: pa.Array
    exact: pa.Array

    @property
    def error(self) -> float:
        """The largest relative error of the nearest ones; 0 where each stands for its number."""
        if self.exact is self.nearest:
            return 0.0
        return relative_error(self.nearest, self.exact)


def relative_error(stored: pa.Array, exact: pa.Array) -> float:
    """Return the largest relative error of float64 that are stored instead of exact ones.

    What is two steps beside the stored one says how it rounds, and is no loss.
    """
    one, other = stored.drop_null().to_numpy(), exact.drop_null().to_numpy()
    beside = np.nextafter(one, other)
    stands = (beside != other) & (np.nextafter(beside, other) == other)
    changed = np.flatnonzero((one != other) & ~stands & ~np.isnan(other))
    lengths = np.sort(np.abs([one[changed], other[changed]]), axis=0)
    errors = (lengths[1] - lengths[0]) / np.where(lengths[0], lengths[0], lengths[1])
    return float(errors.max(initial=0.0))


def round_text(text: pa.Array) -> Rounded:
    """Return the numbers that text says.

    Raises:
        pyarrow.ArrowInvalid: A text is no number, or one too large for a float64.
    """
    known = pc.cast(text, pa.float64())
    plain = pc.replace_substring_regex(pc.cast(text, pa.string()), r"^\+", "")
    nearest, exact, bad = _parsed(plain.drop_null())
    # The notation is Arrow's: it knows some that the kernel does not.
    nearest[bad] = exact[bad] = known.drop_null().to_numpy()[bad]
    if np.isinf(nearest[bad]).any():
        raise pa.ArrowInvalid("a number is too large for float64")
    return _with_nulls(text, nearest, exact)


def round_decimals(values: pa.Array) -> Rounded:
    """Return decimals as float64."""
    present = values.drop_null()
    digits, is_short = _short_digits(present)
    scale = values.type.scale
    power = np.float64(10 ** min(abs(scale), _EXACT_POWER))
    nearest = digits / power if scale > 0 else digits * power
    is_short &= abs(scale) <= _EXACT_POWER
    # Halfway between two float32 a number counts that is not this very float64.
    halfway = nearest.view(np.int64) & 0x1FFFFFFF == 0x10000000
    if is_short.all() and not halfway.any():
        return _with_nulls(values, nearest, nearest)
    if 0 < scale <= _EXACT_POWER:
        halfway &= digits % 5**scale != 0
    long = np.flatnonzero(~is_short | halfway)
    exact = nearest.copy()
    nearest[long], exact[long], _ = _parsed(pc.cast(to_text(present.take(long)), pa.string()))
    return _with_nulls(values, nearest, exact)


def _short_digits(values: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the unscaled integers of decimals, and which of them are there: those of few digits.

    The others are 0.
    """
    width = values.type.bit_width
    kind = np.int32 if width == 32 else np.int64
    words = np.frombuffer(values.buffers()[1] or b"", kind)
    words = words.reshape(-1, max(1, width // 64))[values.offset : values.offset + len(values)]
    low = words[:, 0].astype(np.int64)
    is_short = (low > -_FEW_DIGITS) & (low < _FEW_DIGITS)
    for word in words.T[1:]:
        is_short &= word == low >> 63
    return low if is_short.all() else np.where(is_short, low, 0), is_short


def _parsed(text: pa.Array) -> tuple[Float64Array, Float64Array, list[int]]:
    """Return what numbers are as float64, twice, and which of them the kernel does not know."""
    nearest, exact, bad = np.zeros(len(text)), np.zeros(len(text)), []
    for start in range(0, len(text), _ROWS):
        part = text.slice(start, _ROWS)
        stop = start + len(part)
        filler = Filler(
            _ONE_COLUMN, 1, [_NUMBER], keep_blank=True, nulls=[], always=[], capacity=len(part)
        )
        filler.feed(_lines(part), 0, True)
        bad += [start + fault.row for fault in filler.take_faults()]
        ((values, _, _, found),) = filler.take()
        nearest[start:stop] = values.view(np.float64)
        exact[start:stop] = nearest[start:stop] if found is None else found
    return nearest, exact, bad


def _lines(text: pa.Array) -> npt.NDArray[np.uint8]:
    """Return text of no nulls and no line ends as lines."""
    _, offsets, data = text.buffers()
    ends = np.frombuffer(offsets, np.int32)[text.offset : text.offset + len(text) + 1]
    return np.insert(np.frombuffer(data, np.uint8)[: ends[-1]], ends[1:], _LINE_END)[ends[0] :]


def _with_nulls(source: pa.Array, nearest: Float64Array, exact: Float64Array) -> Rounded:
    is_same = exact is nearest or np.array_equal(nearest, exact, equal_nan=True)
    if not source.null_count:
        first = pa.array(nearest)
        return Rounded(first, first if is_same else pa.array(exact))
    rows = np.flatnonzero(source.is_valid().to_numpy(zero_copy_only=False))
    mask = np.ones(len(source), bool)
    mask[rows] = False
    whole = []
    for values in (nearest,) if is_same else (nearest, exact):
        spread = np.zeros(len(source))
        spread[rows] = values
        whole.append(pa.array(spread, mask=mask))
    return Rounded(whole[0], whole[-1])
