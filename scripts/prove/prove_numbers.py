"""Random decimal numbers through every way into a dataset, against exact fractions."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

from tests.number_texts import random_texts
from tests.number_ways import WAYS, check_bytes, check_text, check_way

_COLUMNS = 400


def prove(*, rounds: int, seed: int) -> dict[str, Any]:
    """Return how many numbers were compared; raise where one is rounded twice, or a loss hidden."""
    numbers = dict.fromkeys((*WAYS, "bytes", "text"), 0)
    with tempfile.TemporaryDirectory() as directory:
        for number in range(rounds):
            rng = random.Random(seed + number)
            rows = rng.choice([1, 2, 3, 5])
            columns = {f"c{index}": random_texts(rng, rows) for index in range(_COLUMNS)}
            for way in WAYS:
                numbers[way] += check_way(way, columns, Path(directory))
            numbers["bytes"] += check_bytes(columns, Path(directory))
            numbers["text"] += check_text(columns, Path(directory))
            print(f"round {number + 1:,} of {rounds:,}", flush=True)
    return {"seed": seed, "rounds": rounds, "numbers": numbers}
