"""Random damage costs no intact record, makes up none, and is listed.

`scripts/prove/run repair` does the same a thousand times.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from tests.damaging import KINDS, damage_and_repair, tables

ROUNDS = 8


@pytest.mark.parametrize("kind", KINDS)
def test_damage_costs_no_intact_record_and_makes_up_none(kind: str, tmp_path: Path) -> None:
    draw = random.Random(kind)
    found = tables(draw)
    for number, values in itertools.product(range(ROUNDS), found):
        directory = tmp_path / f"{number} {values}"
        done = damage_and_repair(directory, found[values], kind, draw)
        assert (done.lost, done.invented, done.listed) == (0, 0, True), directory.name
