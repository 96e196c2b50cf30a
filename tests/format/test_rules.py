"""A dataset that older writing rules made is never taken for what the same job writes today."""

import re
from pathlib import Path

import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import TargetExists
from beam_tfrecord.format import manifest as rules

# What the release without any rules wrote as fingerprint for `_job` (and for its stage).
BEFORE_ALL_RULES = "209a1aeed4c7f09a2bf71bb6c78744e5"
STAGE_BEFORE_ALL_RULES = "b5e9ee6be8883978fc689f2488f4609a"


def _job(directory, **options):
    (directory / "in").mkdir(exist_ok=True)
    table = directory / "in" / "a.csv"
    if not table.exists():
        table.write_text("a,b\n1,x\n2,y\n3,z\n")
    return bt.write(str(table), directory / "out", splits={"x": 0.5, "y": 0.5}, **options)


def test_no_rules_leave_the_fingerprint_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(rules, "RULES", 0)
    assert _job(tmp_path).fingerprint == BEFORE_ALL_RULES
    stage = bt.extract(str(tmp_path / "in" / "a.csv"), tmp_path / "stage")
    assert stage.fingerprint == STAGE_BEFORE_ALL_RULES


def test_a_dataset_of_older_rules_is_not_nothing_to_do(tmp_path, monkeypatch):
    before = _job(tmp_path)
    there = rules.RULES
    monkeypatch.setattr(rules, "RULES", there + 1)
    with pytest.raises(TargetExists) as refused:
        _job(tmp_path)
    assert str(refused.value) == (
        f"{str(tmp_path / 'out')!r} already holds another dataset: pass --overwrite to replace it, "
        f"or choose another output (different: writing rules: {there} there, {there + 1} now (see "
        "the changelog))"
    )
    assert bt.Manifest.load(tmp_path / "out" / "manifest.json") == before
    after = _job(tmp_path, overwrite=True)
    assert after.fingerprint != before.fingerprint
    assert after.content == before.content
    written = (tmp_path / "out" / "job.json").read_bytes()
    assert _job(tmp_path, overwrite=True) == after
    assert (tmp_path / "out" / "job.json").read_bytes() == written


def test_the_changelog_says_what_each_rule_changed():
    text = (Path(__file__).parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
    section = text.partition("\n### Writing rules\n")[2]
    numbers = [int(found) for found in re.findall(r"^(\d+)\. ", section, re.M)]
    assert numbers == list(range(1, rules.RULES + 1))
