"""Types of Parquet columns: which join, and which values a cast refuses."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_tfrecord.features.type_join import can_cast, cast_exactly, join_types

_TEXT = pa.dictionary(pa.int8(), pa.string())


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (pa.int8(), pa.int32(), pa.int32()),
        (pa.uint32(), pa.int32(), pa.int64()),
        (pa.uint64(), pa.int64(), None),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.int32(), pa.float64(), None),
        (pa.int64(), pa.string(), None),
        (pa.string(), pa.large_string(), pa.large_string()),
        (pa.string(), pa.binary(), None),
        (pa.date32(), pa.date64(), pa.date64()),
        (pa.date32(), pa.timestamp("us"), None),
        (pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("us")),
        (pa.timestamp("s", "UTC"), pa.timestamp("ns", "UTC"), pa.timestamp("ns", "UTC")),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), None),
        (pa.timestamp("us", "UTC"), pa.timestamp("us", "Asia/Tokyo"), None),
        (pa.decimal128(10, 2), pa.decimal128(9, 4), pa.decimal128(12, 4)),
        (pa.decimal128(38, 0), pa.decimal128(38, 2), None),
        (pa.list_(pa.int8()), pa.list_(pa.int64()), pa.list_(pa.int64())),
        (pa.list_(pa.int8()), pa.large_list(pa.int8()), pa.large_list(pa.int8())),
        (pa.list_(pa.int8()), pa.list_(pa.string()), None),
        (
            pa.struct([("a", pa.int8()), ("b", pa.string())]),
            pa.struct([("a", pa.int16()), ("b", pa.string())]),
            pa.struct([("a", pa.int16()), ("b", pa.string())]),
        ),
        (pa.struct([("a", pa.int8())]), pa.struct([("b", pa.int8())]), None),
    ],
)
def test_types_join_only_where_exact(one, other, expected):
    assert join_types(one, other) == expected
    assert join_types(other, one) == expected


@pytest.mark.parametrize(
    ("of", "to"),
    [
        (pa.float64(), pa.float32()),
        (pa.string(), pa.int64()),
        (pa.int64(), pa.string()),
        (pa.timestamp("us"), pa.date32()),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.decimal128(5, 2), pa.float64()),
        (pa.list_(pa.float64()), pa.list_(pa.float32())),
        (pa.int64(), pa.list_(pa.int64())),
        (pa.int64(), pa.timestamp("us")),
        (pa.bool_(), pa.float32()),
    ],
)
def test_casts_that_could_change_a_value_are_refused(of, to):
    assert not can_cast(of, to)


@pytest.mark.parametrize(
    ("values", "to", "expected", "misfits"),
    [
        (pa.array([1, None, 300]), pa.uint8(), [1, None, None], [2]),
        (pa.array([2**53, 2**53 + 1]), pa.float64(), [2.0**53, None], [1]),
        (pa.array([2**24 + 1, 7]), pa.float32(), [None, 7.0], [0]),
        (pa.array([1.0, 1.5, float("nan")]), pa.int64(), [1, None, None], [1, 2]),
        (pa.array([True, False]), pa.int64(), [1, 0], []),
        (pa.array([b"ok", b"\xff"]), pa.string(), ["ok", None], [1]),
        (pa.array(["a", None]).dictionary_encode(), pa.string(), ["a", None], []),
        (pa.array(["a", None]), _TEXT, ["a", None], []),
        (pa.array([[1], [2, 300], None]), pa.list_(pa.int8()), [[1], None, None], [1]),
        (pa.nulls(2), pa.list_(pa.int8()), [None, None], []),
        (pa.array([b"ab", b"c"]), pa.binary(2), [b"ab", None], [1]),
    ],
)
def test_cast_keeps_what_fits(values, to, expected, misfits):
    assert can_cast(values.type, to)
    cast, rows = cast_exactly(values, to)
    assert cast.type == to
    assert cast.to_pylist() == expected
    assert rows.tolist() == misfits


def test_times_that_do_not_fit_the_unit_are_misfits():
    years = pa.array([10**9, 10**12], pa.timestamp("s"))
    finer, late = cast_exactly(years, pa.timestamp("ns"))
    assert finer.cast(pa.int64()).to_pylist() == [10**18, None]
    assert late.tolist() == [1]
    coarser, cut = cast_exactly(pa.array([1500, 2000], pa.timestamp("ms")), pa.timestamp("s"))
    assert coarser.cast(pa.int64()).to_pylist() == [None, 2]
    assert cut.tolist() == [0]


_WIDTHS = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64()]


@given(st.sampled_from(_WIDTHS), st.sampled_from(_WIDTHS), st.data())
def test_joined_integers_hold_every_value_of_both(one, other, data):
    joined = join_types(one, other)
    bits = one.bit_width
    low = -(2 ** (bits - 1)) if pa.types.is_signed_integer(one) else 0
    values = data.draw(st.lists(st.integers(low, low + 2**bits - 1)))
    cast, misfits = cast_exactly(pa.array(values, one), joined)
    assert cast.to_pylist() == values
    assert not len(misfits)


def test_the_items_of_null_lists_are_null():
    lists = pa.array([None, None], pa.list_(pa.float64()))
    fixed, misfits = cast_exactly(lists, pa.list_(pa.float64(), 2))
    assert (fixed.values.null_count, len(misfits)) == (4, 0)
