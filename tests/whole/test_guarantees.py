"""The page of guarantees: each has a test that is there, and a long proof that can be run."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
ROWS = [
    line.strip("| ").split(" | ")
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("| guarantee")
]


def test_every_guarantee_has_limits_and_a_test():
    assert len(ROWS) > 20
    for row in ROWS:
        tests = re.findall(r"`(tests/[\w/]+\.py)`", " ".join(row))
        assert tests, row[0]
        for path in tests:
            assert (ROOT / path).is_file(), path


def test_every_proof_is_named_and_every_named_one_is_there():
    named = set(re.findall(r"`scripts/prove/run (\w+)`", PAGE))
    # Documents are part of another proof.
    there = {
        path.stem.removeprefix("prove_")
        for path in (ROOT / "scripts" / "prove").glob("prove_*.py")
        if "def prove(" in path.read_text(encoding="utf-8")
    }
    assert named == there
