"""A file that changes while it is read: one dataset of one state, or one clear line."""

import itertools

import pytest

from tests.whole.changing import CHANGES, INPUTS, MOMENTS, judge

# Every input with every change; the moments take turns, so each pair of a change and a moment and
# of an input and a moment comes up. `scripts/prove/run changes` tries all of them.
TURNS = [
    (kind, how, MOMENTS[(row + column) % len(MOMENTS)])
    for (row, kind), (column, how) in itertools.product(enumerate(INPUTS), enumerate(CHANGES))
]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(("kind", "how", "moment"), TURNS)
def test_a_changed_input_is_one_state_or_one_line(tmp_path, kind, how, moment):
    judge(tmp_path, kind, how, moment, rows=40)
