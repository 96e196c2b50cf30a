"""Random damage costs no intact record, and no count denies what it costs.

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
        assert done.lost == 0, name
        assert done.honest, name
        if name.endswith("plain"):
            assert (done.invented, done.listed) == (0, True), name


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
