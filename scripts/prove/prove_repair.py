"""Random damage to shards: no intact record is lost, none made up, and every loss is listed."""

from __future__ import annotations

import collections
import itertools
import random
import tempfile
from pathlib import Path
from typing import Any

from tests.dataset.damaging import HARD_KINDS, KINDS, damage_and_repair, tables


def prove(*, damages: int, seed: int) -> dict[str, Any]:
    """Return how many repairs there were, by kind of damage, and how many left records out.

    An intact record that is lost, one that is made up, or a loss that is not listed ends the proof.
    Under hard damage a count or a line that denies a loss does.
    """
    found = tables(random.Random(seed))
    done: collections.Counter[str] = collections.Counter()
    hard: collections.Counter[str] = collections.Counter()
    withheld = 0
    turns = itertools.cycle(itertools.product(found, KINDS | HARD_KINDS))
    for number, (values, kind) in enumerate(itertools.islice(turns, damages)):
        with tempfile.TemporaryDirectory() as scratch:
            draw = random.Random(f"{seed} {number}")
            one = damage_and_repair(Path(scratch), found[values], kind, draw)
        is_exact = one.listed and not one.lost and not one.invented
        if not one.honest or (kind in KINDS and not is_exact):
            raise SystemExit(f"damage {number} ({kind} of {values}): {one}")
        done[kind] += 1
        withheld += bool(one.withheld)
        if kind in HARD_KINDS:
            hard["intact records lost"] += one.lost
            hard["records made up or there twice"] += one.invented
    return {
        "damages": damages,
        "seed": seed,
        "values": list(found),
        "by kind": dict(done),
        "intact records lost": 0,
        "records made up": 0,
        "losses denied": 0,
        "under hard damage": dict(hard),
        "repairs that left out framed records for want of evidence": withheld,
    }
