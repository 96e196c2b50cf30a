"""Random damage to shards and indexes: rows by number are right, or one line says why not."""

from __future__ import annotations

import collections
import random
import re
import tempfile
from pathlib import Path
from typing import Any

import beam_tfrecord as bt
from tests.dataset.index_damage import make, read_damaged


def prove(*, cases: int = 100_000, seed: int = 0) -> dict[str, Any]:
    """Return how often each error was raised, and how often all rows were right.

    A wrong row, or an error of several lines, ends the proof.
    """
    ends: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as name:
        files = make(Path(name))
        ids = bt.load(Path(name) / "out").arrow()["id"].to_pylist()
        for number in range(cases):
            out = Path(name) / ("out", "unlisted")[number % 2]
            try:
                error = read_damaged(out, files, ids, random.Random(f"{seed} {number}"))
            except AssertionError as wrong:
                raise SystemExit(f"case {number} of seed {seed}: {wrong}") from wrong
            text = re.sub(r"\d[\d,]*", "…", error.replace(str(out), "…"))
            ends[re.sub(r"'.*?'", "…", text) or "all rows are right"] += 1
    return {"cases": cases, "seed": seed, "wrong rows": 0, "ends": dict(ends.most_common())}
