"""Random damage costs no intact record, makes up none, and is listed; hard damage is told as it is.

`scripts/prove/run repair` does the same a thousand times.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from tests.damaging import HARD_KINDS, KINDS, damage_and_repair, tables

ROUNDS = 8
HARD_ROUNDS = 4


@pytest.mark.parametrize("kind", KINDS)
def test_damage_costs_no_intact_record_and_makes_up_none(kind: str, tmp_path: Path) -> None:
    draw = random.Random(kind)
    found = tables(draw)
    for number, values in itertools.product(range(ROUNDS), found):
        directory = tmp_path / f"{number} {values}"
        done = damage_and_repair(directory, found[values], kind, draw)
        assert (done.lost, done.invented, done.listed) == (0, 0, True), directory.name
        assert done.honest, directory.name


@pytest.mark.parametrize("kind", HARD_KINDS)
def test_no_count_denies_what_hard_damage_costs(kind: str, tmp_path: Path) -> None:
    draw = random.Random(kind)
    found = tables(draw)
    for number, values in itertools.product(range(HARD_ROUNDS), found):
        directory = tmp_path / f"{number} {values}"
        done = damage_and_repair(directory, found[values], kind, draw)
        assert done.honest, (directory.name, done)
