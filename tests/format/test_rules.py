"""A dataset that older writing rules made is never taken for what the same job writes today."""

import re
from pathlib import Path

import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import TargetExists
from beam_tfrecord.format import manifest as rules


def _job(directory, **options):
    (directory / "in").mkdir(exist_ok=True)
    table = directory / "in" / "a.csv"
    if not table.exists():
        table.write_text("a,b\n1,x\n2,y\n3,z\n")
    return bt.write(str(table), directory / "out", splits={"x": 0.5, "y": 0.5}, **options)


def test_a_dataset_of_older_rules_is_refused_with_the_reason(tmp_path, monkeypatch):
    before = _job(tmp_path)
    monkeypatch.setattr(rules, "RULES", rules.RULES + 1)
    with pytest.raises(TargetExists) as refused:
        _job(tmp_path)
    assert str(refused.value).endswith(
        f"(different: {rules.RULES - 1} writing rules there, {rules.RULES} now (see the changelog))"
    )
    assert bt.Manifest.load(tmp_path / "out" / "manifest.json") == before
    after = _job(tmp_path, overwrite=True)
    assert after.fingerprint != before.fingerprint
    assert after.content == before.content
    assert _job(tmp_path) == after


def test_the_changelog_says_what_each_rule_changed():
    text = (Path(__file__).parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
    section = text.partition("\n### Writing rules\n")[2]
    numbers = [int(found) for found in re.findall(r"^(\d+)\. ", section, re.M)]
    assert numbers == list(range(1, rules.RULES + 1))
