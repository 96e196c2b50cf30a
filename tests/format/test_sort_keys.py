import numpy as np
import pytest

from beam_tfrecord.errors import DataError
from beam_tfrecord.format.layout import Splits
from beam_tfrecord.format.sort_keys import (
    purpose_seed,
    sort_keys_by_origin,
    sort_keys_in_source_order,
)
from beam_tfrecord.rows.batch import Origin

ALL = np.arange(3)


def test_source_order_is_unit_then_row():
    assert sort_keys_in_source_order(Origin("u", 3, 7), ALL, 3).tolist() == [
        (3 << 40) + 7,
        (3 << 40) + 8,
        (3 << 40) + 9,
    ]
    last = Origin("u", 2**24 - 1, 2**40 - 1)
    assert sort_keys_in_source_order(last, np.arange(1), 1).tolist() == [2**64 - 1]


@pytest.mark.parametrize("origin", [Origin("u", 2**24, 0), Origin("u", 0, 2**40 - 1)])
def test_what_source_order_cannot_hold_is_refused(origin):
    with pytest.raises(DataError, match="unit 'u' is out of the range of source order"):
        sort_keys_in_source_order(origin, ALL, 3)


def test_every_split_is_spread_evenly_over_the_sort_keys():
    rows = 40_000
    origin, every = Origin("u", 0, 0), np.arange(rows)
    sort_keys = sort_keys_by_origin(origin, every, rows, purpose_seed(0, "place"))
    hashes = sort_keys_by_origin(origin, every, rows, purpose_seed(0, "split"))
    numbers = Splits((("a", 0.75), ("b", 0.25))).assign(hashes)
    for number, expected in ((0, 3750), (1, 1250)):
        of_split = sort_keys[numbers == number]
        eighths = np.bincount((of_split >> np.uint64(61)).astype(int), minlength=8)
        # 6 standard deviations of 40,000 draws at 3/32 or 1/32 are at most 350.
        assert np.abs(eighths - expected).max() < 350
