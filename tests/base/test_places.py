import struct

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from beam_tfrecord.batch import Origin
from beam_tfrecord.errors import DataError
from beam_tfrecord.layout import Splits
from beam_tfrecord.places import (
    bin_shift,
    places_by_bytes,
    places_by_origin,
    places_in_source_order,
    purpose_seed,
)
from tests.helpers.records import framed

ALL = np.arange(3)


def test_places_of_rows_as_xxhash_computes_them():
    places = places_by_origin(Origin("f.csv#1", 5, 10), np.array([0, 2]), 3, 99)
    unit = xxhash.xxh64_intdigest(b"f.csv#1", 99)
    assert places.tolist() == [
        xxhash.xxh64_intdigest(struct.pack("<Qqq", unit, row, 0), 99) for row in (10, 12)
    ]


def test_seeds_of_purposes_as_xxhash_computes_them():
    assert purpose_seed(7, "place") == xxhash.xxh64_intdigest(b"place", 7)
    assert len({purpose_seed(0, purpose) for purpose in ("place", "split", "content")}) == 3


def test_a_place_does_not_depend_on_the_shape_of_the_batch():
    whole = places_by_origin(Origin("u", 0, 4), ALL, 3, 1).tolist()
    numbered = Origin("u", 3, np.array([4, 5, 6]))
    assert places_by_origin(numbered, ALL, 3, 1).tolist() == whole
    with_zeros = Origin("u", 0, 4, sub=np.zeros(3, np.int64))
    assert places_by_origin(with_zeros, ALL, 3, 1).tolist() == whole
    assert places_by_origin(Origin("u", 0, 5), np.arange(1), 1, 1).tolist() == whole[1:2]


@pytest.mark.parametrize(
    "other",
    [Origin("v", 0, 4), Origin("u", 0, 104), Origin("u", 0, 4, sub=np.ones(3, np.int64))],
    ids=["unit", "row", "sub-index"],
)
def test_unit_row_and_sub_index_decide_a_place(other):
    places = places_by_origin(Origin("u", 0, 4), ALL, 3, 1)
    assert not set(places.tolist()) & set(places_by_origin(other, ALL, 3, 1).tolist())


def test_a_seed_changes_every_place():
    one, two = (places_by_origin(Origin("u", 0, 4), ALL, 3, seed) for seed in (1, 2))
    assert not set(one.tolist()) & set(two.tolist())


def test_places_by_bytes_are_hashes_of_the_payload():
    payloads = [b"abc", b"", b"x" * 1000]
    frames = [framed(payload) for payload in payloads]
    starts = np.array([0, len(frames[0]), len(frames[0]) + len(frames[1])], np.int64)
    places = places_by_bytes(np.frombuffer(b"".join(frames), np.uint8), starts, 3)
    assert places.tolist() == [xxhash.xxh64_intdigest(payload, 3) for payload in payloads]


def test_source_order_is_unit_then_row():
    assert places_in_source_order(Origin("u", 3, 7), ALL, 3).tolist() == [
        (3 << 40) + 7,
        (3 << 40) + 8,
        (3 << 40) + 9,
    ]
    last = Origin("u", 2**24 - 1, 2**40 - 1)
    assert places_in_source_order(last, np.arange(1), 1).tolist() == [2**64 - 1]


@pytest.mark.parametrize("origin", [Origin("u", 2**24, 0), Origin("u", 0, 2**40 - 1)])
def test_what_source_order_cannot_hold_is_refused(origin):
    with pytest.raises(DataError, match="unit 'u' is out of the range of source order"):
        places_in_source_order(origin, ALL, 3)


def test_every_split_is_spread_evenly_over_the_places():
    rows = 40_000
    places = places_by_origin(Origin("u", 0, 0), np.arange(rows), rows, purpose_seed(0, "place"))
    hashes = places_by_origin(Origin("u", 0, 0), np.arange(rows), rows, purpose_seed(0, "split"))
    numbers = Splits((("a", 0.75), ("b", 0.25))).assign(hashes)
    for number, expected in ((0, 3750), (1, 1250)):
        eighths = np.bincount((places[numbers == number] >> np.uint64(61)).astype(int), minlength=8)
        # 6 standard deviations of 40,000 draws at 3/32 or 1/32 are at most 350.
        assert np.abs(eighths - expected).max() < 350


def test_few_records_in_source_order_can_be_cut_anywhere():
    assert [bin_shift(False, n) for n in (0, 1023, 1024, 2048, 10**6, 10**12)] == [
        *(0, 0, 1, 2, 10, 10)
    ]
    assert [bin_shift(True, n) for n in (0, 10**12)] == [48, 48]


@given(st.integers(0, 2**50), st.integers(0, 2**50))
def test_bins_only_grow_with_the_records(one, more):
    assert bin_shift(False, one) <= bin_shift(False, one + more)
