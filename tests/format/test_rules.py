"""A dataset that older writing rules made is never taken for what the same job writes today."""

import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import TargetExists
from beam_tfrecord.format import manifest_parts as rules


def _job(directory, **options):
    (directory / "in").mkdir(exist_ok=True)
    table = directory / "in" / "a.csv"
    if not table.exists():
        table.write_text("a,b\n1,x\n2,y\n3,z\n")
    return bt.write(str(table), directory / "out", splits={"x": 0.5, "y": 0.5}, **options)


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
