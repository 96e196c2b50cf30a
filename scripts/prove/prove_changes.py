"""Every kind of input, changed in every way at every moment while a job reads it."""

from __future__ import annotations

import collections
import itertools
import logging
import random
import tempfile
from pathlib import Path
from typing import Any

from tests.whole.changing import CHANGES, INPUTS, MOMENTS, judge


def prove(*, rounds: int = 3, seed: int = 0) -> dict[str, Any]:
    """Return how many jobs there were, and what became of them, by the moment of the change.

    There are so many rounds of every input, change and moment. A dataset of no one
    state, or an error that is not clear, ends the proof.
    """
    logging.disable()
    draw = random.Random(seed)
    ended: collections.Counter[str] = collections.Counter()
    turns = list(itertools.product(INPUTS, CHANGES, MOMENTS))
    for kind, how, moment in turns * rounds:
        with tempfile.TemporaryDirectory() as scratch:
            found = judge(Path(scratch), kind, how, moment, rows=draw.randrange(15, 200))
        ended[f"{moment}: {found}"] += 1
    return {
        "jobs": ended.total(),
        "seed": seed,
        "inputs": list(INPUTS),
        "changes": list(CHANGES),
        "ended": dict(sorted(ended.items())),
    }
