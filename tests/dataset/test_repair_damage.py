"""Random damage costs no intact record, makes up none, and is listed; hard damage is told as it is.

`scripts/prove/run repair` does the same a thousand times.
"""

import itertools
import random

import pytest

from tests.dataset.damaging import HARD_KINDS, KINDS, damage_and_repair, tables
from tests.helpers.effort import examples

ROUNDS = 8
HARD_ROUNDS = 4


@pytest.mark.parametrize("kind", KINDS)
def test_damage_costs_no_intact_record_and_makes_up_none(kind, tmp_path):
    for name, done in _repairs(kind, ROUNDS, tmp_path):
        assert (done.lost, done.invented, done.listed) == (0, 0, True), name
        assert done.honest, name


@pytest.mark.parametrize("kind", HARD_KINDS)
def test_no_count_denies_what_hard_damage_costs(kind, tmp_path):
    for name, done in _repairs(kind, HARD_ROUNDS, tmp_path):
        assert done.honest, (name, done)


def _repairs(kind, rounds, tmp_path):
    draw = random.Random(kind)
    found = tables(draw)
    repairs = itertools.product(range(rounds), found)
    for number, values in itertools.islice(repairs, examples(rounds * len(found))):
        name = f"{number} {values}"
        yield name, damage_and_repair(tmp_path / name, found[values], kind, draw)
