"""The input of a job is listed once, by whoever starts it, unless it is very long."""

import os

import beam_tfrecord as bt
from beam_tfrecord.sources import files
from beam_tfrecord.sources.csv.source import Csv
from beam_tfrecord.sources.files import list_input


def write_inputs(folder):
    for name, text in (("a.csv", "x\n1\n2\n"), ("b.csv", "x\n3\n")):
        (folder / name).write_text(text)


def test_more_than_a_pipeline_carries_is_left_to_workers(tmp_path, monkeypatch):
    write_inputs(tmp_path)
    monkeypatch.setattr(files, "MOST_SENT_BYTES", 10)
    found = list_input(Csv(tmp_path / "*.csv"))
    assert found.sent is None
    assert [file.name for file in found.outlines] == ["a.csv", "b.csv"]
    manifest = bt.write(tmp_path / "*.csv", tmp_path / "out")
    assert manifest.examples == 3


def test_a_job_lists_its_input_once(tmp_path, monkeypatch):
    write_inputs(tmp_path)
    listed = []

    def files(source, original=Csv.files):  # type: ignore[no-untyped-def]
        listed.append(os.getpid())
        return original(source)

    monkeypatch.setattr(Csv, "files", files)
    bt.write(tmp_path / "*.csv", tmp_path / "out")
    assert len(listed) == 1
