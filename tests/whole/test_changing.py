"""A file that changes while it is read: one dataset of one state, or one clear line."""

import itertools

import pytest

from tests.helpers.marks import slow_after
from tests.whole.changing import CHANGES, INPUTS, MOMENTS, judge

# Every input with every change; the moments take turns, so each pair of a change and a moment and
# of an input and a moment comes up. `scripts/prove/run changes` tries all of them.
TURNS = [
    (kind, how, MOMENTS[(row + column) % len(MOMENTS)])
    for (row, kind), (column, how) in itertools.product(enumerate(INPUTS), enumerate(CHANGES))
]


# By default every other one, without those that need packages of a lake.
QUICK = [turn for turn in TURNS[::2] if turn[0] not in ("delta cut inside", "iceberg")]


@pytest.mark.parametrize(
    ("kind", "how", "moment"),
    slow_after(len(QUICK), QUICK + [turn for turn in TURNS if turn not in QUICK]),
)
def test_a_changed_input_is_one_state_or_one_line(tmp_path, kind, how, moment):
    judge(tmp_path, kind, how, moment, rows=40)
