"""Every option with every kind of element and source, and every way to ask for an order."""

from __future__ import annotations

import collections
import itertools
import logging
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.images.picture_combinations import PICTURES, check_picture, is_sound_picture
from tests.whole.combinations import (
    PIPELINES,
    REAL,
    REFUSED_PIPELINES,
    WRITES,
    Case,
    check_pipeline,
    check_write,
    covering,
    is_sound_pipeline,
    is_sound_write,
    whole_case,
)

# What decides the order and the shards of elements: all of these with each other.
_ORDER = ("kind", "size", "shuffle", "splits", "shards", "compression")


def prove(*, cases: int, seed: int) -> dict[str, Any]:
    """Return how many cases were written and refused, by family; a wrong one ends the proof.

    Args:
        cases: Most cases of each family.
        seed: Of the choice of cases.
    """
    logging.disable(logging.CRITICAL)
    real = {**PIPELINES, "size": (REAL,)}
    families: dict[str, tuple[Sequence[Case], Callable[[Case, Path], str]]] = {
        "order of elements": (_orders(seed), check_pipeline),
        "pairs of a pipeline": (covering(PIPELINES, is_sound_pipeline, seed=seed), check_pipeline),
        "pairs of a pipeline, a real table": (
            covering(real, is_sound_pipeline, seed=seed + 1),
            check_pipeline,
        ),
        "pairs of write": (covering(WRITES, is_sound_write, seed=seed), check_write),
        "pairs of write, a real table": (
            covering({**WRITES, "size": (REAL,)}, is_sound_write, seed=seed + 1),
            check_write,
        ),
        "pairs of pictures": (covering(PICTURES, is_sound_picture, seed=seed), check_picture),
        "to be refused": ([whole_case(levels) for levels in REFUSED_PIPELINES], check_pipeline),
    }
    found = {}
    for name, (made, check) in families.items():
        found[name] = {"of": len(made), **_run(made[:cases], check)}
    return {"seed": seed, "families": found}


def _orders(seed: int) -> list[Case]:
    choices = itertools.product(*(PIPELINES[name] for name in _ORDER))
    made = [whole_case(dict(zip(_ORDER, levels, strict=True))) for levels in choices]
    made = [case for case in made if is_sound_pipeline(case)]
    random.Random(seed).shuffle(made)
    return made


def _run(cases: Sequence[Case], check: Callable[[Case, Path], str]) -> dict[str, int]:
    found: collections.Counter[str] = collections.Counter()
    for case in cases:
        with tempfile.TemporaryDirectory() as scratch:
            try:
                found[check(case, Path(scratch))] += 1
            except Exception as error:
                raise SystemExit(f"wrong: {case}: {type(error).__name__}: {error}") from error
    return dict(sorted(found.items()))
