"""The order of an epoch is a permutation, and looks like one drawn at random."""

import collections

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_tfrecord.errors import UsageError
from beam_tfrecord.loading.order import Order
from tests.helpers.effort import examples

ORDERS = st.builds(
    Order,
    count=st.integers(1, 5000),
    seed=st.one_of(st.none(), st.integers(0, 2**64 - 1)),
    epoch=st.integers(0, 2**32),
    chunk=st.integers(1, 300),
    window=st.integers(1, 7),
)


@settings(deadline=None)
@given(ORDERS)
def test_every_example_is_there_once(order):
    indices = order.indices(0, order.count)
    assert sorted(indices.tolist()) == list(range(order.count))
    if order.seed is None:
        assert indices.tolist() == list(range(order.count))


@settings(deadline=None)
@given(ORDERS, st.data())
def test_a_part_of_an_epoch_is_a_part_of_all_of_it(order, data):
    start = data.draw(st.integers(0, order.count))
    stop = data.draw(st.integers(start, order.count))
    assert order.indices(start, stop).tolist() == order.indices(0, order.count)[start:stop].tolist()


def test_a_large_epoch_needs_no_memory_for_all_of_it():
    order = Order(2**52 - 1, seed=3)
    found = order.indices(2**51, 2**51 + 1000)
    assert len(set(found.tolist())) == 1000
    assert found.max() < order.count


@pytest.mark.slow_after(7)
@pytest.mark.parametrize("count", [2, 3, 5, 8, 13, 100])
@pytest.mark.parametrize("chunk", [1, 4])
def test_every_example_comes_at_every_position_equally_often(count, chunk):
    epochs = examples(2000)
    seen = np.zeros((count, count))
    for epoch in range(epochs):
        order = Order(count, seed=7, epoch=epoch, chunk=chunk, window=2)
        seen[np.arange(count), order.indices(0, count)] += 1
    expected = epochs / count
    chi_squared = ((seen - expected) ** 2 / expected).sum()
    freedom = (count - 1) ** 2
    # Six standard deviations above the mean of the distribution.
    assert chi_squared < freedom + 6 * np.sqrt(2 * freedom)


def test_every_permutation_of_four_comes_equally_often():
    epochs = examples(12_000)
    seen = collections.Counter(
        tuple(Order(4, seed=1, epoch=epoch).indices(0, 4).tolist()) for epoch in range(epochs)
    )
    expected = epochs / 24
    chi_squared = sum((count - expected) ** 2 / expected for count in seen.values())
    assert len(seen) == 24
    assert chi_squared < 23 + 6 * np.sqrt(2 * 23)


def test_positions_outside_of_the_epoch_and_other_seeds_are_errors():
    order = Order(2012, seed=1)
    assert order.indices(2000, 2012).max() < 2012
    for start, stop in ((2000, 2100), (-5, 5), (5, 2), (0, 2013)):
        with pytest.raises(IndexError, match="are outside of the epoch, which has 2,012 rows"):
            order.indices(start, stop)
    for seed in (1.5, 2**64):
        with pytest.raises(UsageError, match=f"seed {seed} is out of range"):
            Order(5, seed=seed)
    for epoch in (-1, 2**64):
        with pytest.raises(UsageError, match=f"epoch {epoch} is out of range: .* to 2\\^64 - 1"):
            Order(5, seed=0, epoch=epoch)
    assert Order(5, seed=0, epoch=2**64 - 1).indices(0, 5).max() == 4


def test_neighbours_are_not_neighbours_any_more():
    indices = Order(100_000, seed=5).indices(0, 100_000)
    gaps = np.abs(np.diff(indices))
    # The mean distance of two numbers drawn at random is a third of the range.
    assert abs(gaps.mean() / 100_000 - 1 / 3) < 0.01
    assert (gaps == 1).mean() < 1e-3
    assert abs(np.corrcoef(np.arange(100_000), indices)[0, 1]) < 0.02
