"""Framed records: scan, sort, gather, runs."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from beam_tfrecord import native
from tests.helpers.records import framed_records
from tests.native.strategies import RELAXED


def test_frame_refuses_nulls_other_types_and_short_arrays():
    out, starts = np.zeros(8, np.uint8), np.zeros(1, np.int64)
    with pytest.raises(ValueError, match="a null cannot be framed"):
        native.frame(pa.array([None], pa.binary()), out, 0, starts)
    with pytest.raises(TypeError, match="not string"):
        native.frame(pa.array(["x"]), out, 0, starts)
    with pytest.raises(ValueError, match="out is too short"):
        native.frame(pa.array([b"x"]), out, 0, starts)


def test_scan_stops_before_the_record_that_is_not_whole():
    data, starts = framed_records([b"a", b"bcd", b"e" * 400])
    ends = [*starts[1:].tolist(), len(data)]
    for cut in range(len(data) + 1):
        whole = sum(end <= cut for end in ends)
        found = native.scan_frames(data[:cut], True)
        assert found.starts.tolist() == starts[:whole].tolist()
        assert (found.consumed, found.fault) == ([0, *ends][whole], None)


def test_scan_without_verify_bounds_lengths():
    data, _ = framed_records([b"a", b"b"])
    huge = data[:17] + struct.pack("<Q", 2**62) + data[25:]
    assert native.scan_frames(huge, False).consumed == 17
    impossible = data[:17] + struct.pack("<Q", 2**64 - 5) + data[25:]
    assert native.scan_frames(impossible, False).fault == (17, "the length is impossible")


ITEMS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 65535]),
        st.sampled_from([0, 1, 255, 256, 2**32, 2**63, 2**64 - 1]),
        st.binary(max_size=3),
    ),
    max_size=40,
)


@RELAXED
@given(ITEMS, st.booleans(), st.booleans())
def test_sort_orders_by_split_place_and_bytes(items, with_splits, by_bytes):
    data, starts = framed_records([payload for _, _, payload in items])
    splits = np.array([split for split, _, _ in items], np.uint16) if with_splits else None
    sort_keys = np.array([sort_key for _, sort_key, _ in items], np.uint64)

    def key(i: int) -> tuple[int, int, bytes]:
        split, place, payload = items[i]
        return split if with_splits else 0, place, payload if by_bytes else b""

    expected = sorted(range(len(items)), key=key)
    assert native.sort_records(data, starts, splits, sort_keys, by_bytes).tolist() == expected


def test_sort_of_many_random_places_is_numpys():
    sort_keys = np.random.default_rng(4).integers(0, 2**64, 50_000, np.uint64)
    starts = np.zeros(len(sort_keys), np.int64)
    order = native.sort_records(b"", starts, None, sort_keys, False)
    assert (order == np.argsort(sort_keys, kind="stable")).all()


def test_gather_and_runs_keep_records_whole():
    payloads = [b"a", b"bb" * 300, b""]
    data, starts = framed_records(payloads)
    order, sort_keys = np.array([2, 0, 1, 0]), np.array([7, 2**64 - 1, 5], np.uint64)
    expected, _ = framed_records([b"", b"a", b"bb" * 300, b"a"])
    out = np.full(2000, 0xEE, np.uint8)
    size = native.gather(data, starts, None, order, out, 3)
    assert out[:3].tobytes() + out[3 + size :].tobytes() == b"\xee" * (2000 - size)
    assert out[3 : 3 + size].tobytes() == expected
    run_size = native.gather(data, starts, sort_keys, order, out, 0)
    run = native.scan_run(out[:run_size])
    assert run.sort_keys.tolist() == [5, 7, 2**64 - 1, 7]
    assert run.starts.tolist() == [8, 32, 57, 681]
    assert out[:8].tobytes() == bytes([5, 0, 0, 0, 0, 0, 0, 0])
    hashes = native.hash_records(out, run.starts, 1).tolist()
    assert hashes == [xxhash.xxh64_intdigest(p, 1) for p in (b"", b"a", b"bb" * 300, b"a")]


def test_positions_outside_of_the_data_are_refused():
    data, starts = framed_records([b"abc"])
    out, zero = np.zeros(100, np.uint8), np.zeros(1, np.int64)
    for start in (-1, 1, len(data), 2**62):
        bad = np.array([start], np.int64)
        for call in (
            lambda bad=bad: native.hash_records(data, bad, 0),
            lambda bad=bad: native.canonical_hashes(data, bad, 0),
            lambda bad=bad: native.gather(data, bad, None, zero, out, 0),
            lambda bad=bad: native.decode(data, bad, [(b"x", 1)]),
        ):
            with pytest.raises(ValueError, match="record 0"):
                call()
    with pytest.raises(ValueError, match="record 1: does not lie inside"):
        native.gather(data, starts, None, np.array([1]), out, 0)
    with pytest.raises(ValueError, match="out is too short"):
        native.gather(data, starts, None, zero, out[:18], 0)


def test_a_run_that_is_cut_is_refused():
    data, starts = framed_records([b"a", b"bcd"])
    out = np.zeros(100, np.uint8)
    sort_keys = np.zeros(2, np.uint64)
    size = native.gather(data, starts, sort_keys, np.array([0, 1]), out, 0)
    assert size == 52
    for cut in [*range(1, 25), *range(26, 52)]:
        with pytest.raises(ValueError, match=f"run entry at byte {0 if cut < 25 else 25} "):
            native.scan_run(out[:cut])


def test_shortest_doubles_print_as_numpy_prints_float32():
    rng = np.random.default_rng(0)
    exponents = np.arange(512, dtype=np.uint32) << 23  # of both signs
    ends = [exponents + np.uint32(bits) for bits in (0, 1, 2, 2**22, 2**23 - 1)]
    digits, powers = rng.integers(1, 10, 20_000), 10.0 ** rng.integers(-30, 20, 20_000)
    decimals = rng.integers(1, 10**digits) * powers
    drawn = rng.integers(0, 2**32, 20_000, np.uint32), np.arange(2_000, dtype=np.uint32)
    bits = np.concatenate([*ends, *drawn, decimals.astype(np.float32).view(np.uint32)])
    values = bits.view(np.float32)
    values = values[~np.isnan(values)]
    found = native.shortest_doubles(values)
    assert list(map(repr, found.tolist())) == [repr(float(str(value))) for value in values]
    assert found.astype(np.float32).tobytes() == values.tobytes()
