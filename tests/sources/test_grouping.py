from hypothesis import given
from hypothesis import strategies as st

from beam_tfrecord.sources.base import InputFile, Unit
from beam_tfrecord.sources.groups import Group, group_units, grown_bytes, one_group

FILE = InputFile("/in/f", "f", 1)


def units(sizes):
    return [Unit(f"f#{i}", FILE, i, i, i + 1, 1, n, n) for i, n in enumerate(sizes)]


def grouped(sizes, limit=100):
    return [[u.encoded_bytes for u in g.units] for g in group_units(units(sizes), limit)]


def test_small_neighbours_share_a_group():
    assert grouped([30, 30, 30, 30, 30, 30]) == [[30, 30, 30], [30, 30, 30]]
    assert grouped([60, 60, 60]) == [[60, 60], [60]]
    assert grouped([60, 90, 60]) == [[60], [90], [60]]
    assert grouped([100, 0, 0, 100]) == [[100, 0, 0], [100]]
    assert grouped([500, 1, 500]) == [[500], [1], [500]]
    assert grouped([]) == []


def test_groups_know_where_they_begin():
    first, second = group_units(units([60, 60, 60]), 100)
    assert (first.number, first.first_unit) == (0, 0)
    assert (second.number, second.first_unit) == (1, 2)


def test_one_group():
    listed = units([500, 500])
    assert one_group(listed) == [Group(0, 0, tuple(listed))]
    assert one_group([]) == []


@given(st.lists(st.integers(0, 300), max_size=40))
def test_groups_hold_all_units_in_order_and_none_is_far_too_large(sizes):
    groups = group_units(units(sizes), 100)
    assert [u.index for g in groups for u in g.units] == list(range(len(sizes)))
    assert [g.number for g in groups] == list(range(len(groups)))
    assert [g.first_unit for g in groups] == [g.units[0].index for g in groups]
    for group in groups:
        first, *rest = (u.encoded_bytes for u in group.units)
        assert first + sum(rest) <= max(first, 2 * 100 - first)


def test_groups_grow_once_there_are_many():
    assert grown_bytes(0, 400, 100) == 100
    assert grown_bytes(1000, 400, 100) == 100
    assert grown_bytes(12800, 400, 100) == 200
    assert grown_bytes(10**6, 400, 100) == 400
    assert grown_bytes(10**6, 100, 100) == 100
