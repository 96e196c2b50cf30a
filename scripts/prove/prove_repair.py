"""Random damage to shards: no intact record is lost, and no count denies a loss."""

from __future__ import annotations

import collections
import itertools
import random
import tempfile
from pathlib import Path
from typing import Any

from tests.dataset.damaging import HARD_KINDS, KINDS, damage_and_repair, tables


def prove(*, damages: int = 2100, seed: int = 0) -> dict[str, Any]:
    """Return how many repairs there were, by kind of damage, and what hard damage cost.

    A count or a line that denies a loss ends the proof. So does, unless damage is hard, an intact
    record that is lost; or, if no value holds framed records, one that is made up.
    """
    found = tables(random.Random(seed))
    done: collections.Counter[str] = collections.Counter()
    hard: collections.Counter[str] = collections.Counter()
    from_values = 0
    turns = itertools.cycle(itertools.product(found, KINDS | HARD_KINDS))
    for number, (values, kind) in enumerate(itertools.islice(turns, damages)):
        with tempfile.TemporaryDirectory() as scratch:
            draw = random.Random(f"{seed} {number}")
            one = damage_and_repair(Path(scratch), found[values], kind, draw)
        is_exact = not one.lost and (values != "plain" or (one.listed and not one.invented))
        if not one.honest or (kind in KINDS and not is_exact):
            raise SystemExit(f"damage {number} ({kind} of {values}): {one}")
        done[kind] += 1
        if kind in HARD_KINDS:
            hard["intact records lost"] += one.lost
            hard["records made up or there twice"] += one.invented
        else:
            from_values += one.invented
    return {
        "damages": damages,
        "seed": seed,
        "values": list(found),
        "by kind": dict(done),
        "intact records lost": 0,
        "framed records of damaged values taken for records": from_values,
        "losses denied": 0,
        "under hard damage": dict(hard),
    }
