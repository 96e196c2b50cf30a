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


def joined(parts):
    merged = operations.Moments()
    for part in parts:
        merged = merged.merge(operations.moments_of(np.array(part, np.float64), len(part)))
    return merged


@given(FLOATS)
def test_mean_and_variance_are_rounded_once(values):
    found = joined([values])
    exact = [Fraction(value) for value in values]
    if not exact:
        assert (found.mean, found.variance) == (0.0, 0.0)
        return
    mean = sum(exact) / len(exact)
    assert found.mean == float(mean)
    variance = sum((value - mean) ** 2 for value in exact) / len(exact)
    is_finite = variance <= Fraction(sys.float_info.max)
    assert found.variance == (float(variance) if is_finite else math.inf)


@given(FLOATS, st.integers(0, 30))
def test_pieces_and_their_order_do_not_matter(values, cut):
    parts = [values[:cut], values[cut:]]
    assert joined(parts) == joined(parts[::-1]) == joined([values])


def test_nan_and_infinities_are_left_out_but_their_rows_count():
    combine = operations.CombineMoments()
    of_batch = (np.array([1.0, np.nan, np.inf, 3.0]), np.int64(6))
    found = combine.extract_output(combine.add_input(combine.create_accumulator(), of_batch))
    assert found.tolist() == [6.0, 2.0, 2.0, 1.0]


@pytest.mark.parametrize("count", [1, 100_000])
def test_large_batches_do_not_overflow(count):
    value = 1.0 - 2.0**-53
    found = operations.moments_of(np.full(count, value), count)
    assert (found.mean, found.variance) == (value, 0.0)
