"""The page of guarantees: each has a test that is there, and a long proof that was run."""

import importlib
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
PROMISES = re.findall(r"^- \*\*.*\n(?:  .*\n)*", PAGE, re.MULTILINE)


def test_every_guarantee_has_a_test():
    assert len(PROMISES) > 20
    for promise in PROMISES:
        tests = re.findall(r"`(tests/[\w/]+\.py)`", promise)
        assert tests, promise
        for path in tests:
            assert (ROOT / path).is_file(), path


RESULTS = ROOT / "scripts" / "prove" / "results"
# What a proof has to try: names in a module of the tests.
LEVELS = [
    ("changes", "tests.whole.changing", "INPUTS"),
    ("containers", "tests.whole.containers", "VARIANTS"),
    ("elements", "tests.runners.slow_bundles", "WAYS"),
    ("numbers", "tests.whole.number_ways", "WAYS"),
    ("repair", "tests.dataset.damaging", "KINDS"),
    ("repair", "tests.dataset.damaging", "HARD_KINDS"),
    ("replaced", "tests.dataset.replacing", "READERS"),
    ("replaced", "tests.dataset.replacing", "TF_READERS"),
    ("types", "tests.whole.type_families", "FAMILIES"),
    ("types", "tests.whole.type_readers", "CHECKS"),
]


def test_every_proof_is_named_and_has_a_result():
    named = set(re.findall(r"`scripts/prove/run (\w+)`", PAGE))
    proofs = (ROOT / "scripts" / "prove").glob("prove_*.py")
    there = {path.stem.removeprefix("prove_") for path in proofs}
    assert named == there == {path.stem for path in RESULTS.glob("*.json")}


@pytest.mark.slow
@pytest.mark.parametrize(("proof", "module", "names"), LEVELS)
def test_the_last_result_of_a_proof_has_all_that_there_is_now(proof, module, names):
    levels = getattr(importlib.import_module(module), names)
    result = words_of(json.loads((RESULTS / f"{proof}.json").read_text(encoding="utf-8")))
    assert {getattr(level, "__name__", level) for level in levels} <= result


def words_of(found):
    """Return the keys and texts of a result; of one such as ``gzip: rows`` also the last part."""
    if isinstance(found, str):
        return {found, found.rpartition(": ")[2]}
    parts = [*found, *found.values()] if isinstance(found, dict) else found
    return set().union(*map(words_of, parts)) if isinstance(found, dict | list) else set()
