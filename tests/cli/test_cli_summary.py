"""What the commands say: summaries, warnings, plans and schemas."""

import json
import os
import re

import pytest

from beam_tfrecord.cli.job_commands import summary
from beam_tfrecord.errors import OutputWarning
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.jobs import api
from beam_tfrecord.jobs.plan import plan_of
from beam_tfrecord.jobs.settings import make_settings
from beam_tfrecord.options.jobs import WriteOptions
from tests.helpers.cli_stand_ins import manifest_of, run


def test_a_dataset_that_is_there_already(fake_job, tmp_path):
    manifest = tmp_path / "manifest.json"
    manifest.write_text("{}")
    os.utime(manifest, (0, 0))
    ran = run("write", "a.csv", tmp_path)
    assert ran.exit_code == 0
    assert manifest.stat().st_mtime > 0  # newer than what Make compares it with
    assert ran.stderr == f"{tmp_path} already holds this dataset: nothing to do\n"


def test_a_replaced_dataset_is_not_taken_for_the_old_one(fake_job, tmp_path, monkeypatch):
    (tmp_path / "manifest.json").write_text("{}")

    def write(inputs, output, **kwargs):
        (tmp_path / ".new").write_text("{}")
        (tmp_path / ".new").rename(tmp_path / "manifest.json")
        return manifest_of()

    monkeypatch.setattr(api, "write", write)
    assert run("write", "a.csv", tmp_path, "--overwrite").stderr.startswith("wrote 1,000 rows")


def test_warnings_of_python_are_lines_too(fake_job, monkeypatch):
    import warnings

    def write(inputs, output, **kwargs):
        warnings.warn("1 row rejected", OutputWarning, stacklevel=1)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("a library's own worry", DeprecationWarning, stacklevel=1)
        return manifest_of()

    monkeypatch.setattr(api, "write", write)
    lines = run("write", "a.csv", "out").stderr.splitlines()
    assert lines[0].startswith("wrote ")
    assert lines[1:] == ["warning: 1 row rejected"]


def test_a_summary_says_that_rows_were_left_out(tmp_path):
    (tmp_path / "in.csv").write_text("a\n1\n2\n3\n")
    (tmp_path / "f.py").write_text("def f(row):\n    return row if row['a'] > 1 else None\n")
    ran = run("write", tmp_path / "in.csv", tmp_path / "out", "--map", f"{tmp_path / 'f.py'}:f")
    assert "wrote 2 of 3 rows, 1 shard" in ran.stderr


def test_summary_of_compressed_shards_says_both_sizes(tmp_path):
    (tmp_path / "data-00000-of-00001.tfrecord").write_bytes(b"x" * 25)
    manifest = manifest_of(splits={"data": (1, 90)}, compression="GZIP")
    assert "(25 B compressed from 90 B)" in summary(manifest, str(tmp_path), seconds=0)


def test_plan_prints_lines_or_json_on_stdout(fake_job, tmp_path):
    (tmp_path / "a.csv").write_text("a\n1\n2\n")
    words = (tmp_path / "a.csv", tmp_path / "out")
    fake_job.result = plan_of(
        make_settings(WriteOptions(*words, splits="train=0.5,test=0.5", seed=7))
    )
    ran = run("plan", *words)
    assert ran.stderr == ""
    lines = dict(line.split(": ", 1) for line in ran.stdout.splitlines())
    assert lines["input"] == "csv, 1 file, 4 B, 2 rows"
    assert lines["passes over the input"] == "3: scan for row ends, infer types, read and encode"
    assert re.fullmatch(
        r"1 shard of about \d+ B in train \(0.5\), 1 shard .* in test .*", lines["shards"]
    )
    assert re.fullmatch(
        r"the input is read 3 times, and writing needs about \d+ B of space at the output",
        lines["in short"],
    )
    assert not {"unit", "group", "exchange", "round"} & {*re.findall(r"[a-z]+", ran.stdout)}
    assert json.loads(run("plan", *words, "--json").stdout) == fake_job.result


def test_schema_prints_json_that_can_be_read_back(fake_job):
    fake_job.result = Schema((Feature("x", "int64", nullable=False), Feature("name", "text")))
    ran = run("schema", "a.csv", "--from", "csv")
    assert ran.stderr == ""
    assert Schema.loads(ran.stdout) == fake_job.result


@pytest.mark.slow
def test_a_dry_run_says_what_is_read_and_written_and_its_steps_if_asked(tmp_path):
    (tmp_path / "a.csv").write_text("a\n1\n2\n")
    words = ("write", tmp_path / "a.csv", tmp_path / "out", "--dry-run", "--seed", "7")
    short = run(*words).stdout
    assert short == run("plan", *words[1:3], "--seed", "7").stdout
    steps = run(*words, "--verbose").stdout.removeprefix(short)
    assert {"Read", "Publish"} <= json.loads(steps)["graph"].keys()
    assert not (tmp_path / "out").exists()
