"""Exact mean and variance, against fractions and in any order."""

import math
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.lazy import Lazy

operations = Lazy("beam_tfrecord.preprocess.operations")

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("tensorflow")]

FLOATS = st.lists(st.floats(allow_nan=False, allow_infinity=False, width=64), max_size=30)


def moments(*parts):
    """Return rows, finite values, mean and variance of parts, joined in their order."""
    combine = operations.CombineMoments()
    sums = combine.create_accumulator()
    for part in parts:
        sums = combine.add_input(sums, (np.array(part, np.float64), np.int64(len(part))))
    return combine.extract_output(sums).tolist()


@given(FLOATS)
def test_mean_and_variance_are_rounded_once(values):
    *_, found_mean, found_variance = moments(values)
    exact = [Fraction(value) for value in values]
    if not exact:
        assert (found_mean, found_variance) == (0.0, 0.0)
        return
    mean = sum(exact) / len(exact)
    assert found_mean == float(mean)
    variance = sum((value - mean) ** 2 for value in exact) / len(exact)
    is_finite = variance <= Fraction(sys.float_info.max)
    assert found_variance == (float(variance) if is_finite else math.inf)


@given(FLOATS, st.integers(0, 30))
def test_pieces_and_their_order_do_not_matter(values, cut):
    one, other = values[:cut], values[cut:]
    assert moments(one, other) == moments(other, one) == moments(values)


def test_nan_and_infinities_are_left_out_but_their_rows_count():
    assert moments([1.0, np.nan, np.inf, 3.0, -np.inf, np.nan]) == [6.0, 2.0, 2.0, 1.0]


@pytest.mark.parametrize("count", [1, 100_000])
def test_large_batches_do_not_overflow(count):
    value = 1.0 - 2.0**-53
    assert moments(np.full(count, value)) == [count, count, value, 0.0]
