"""Presets of job services, and sources that workers in other directories can read."""

import pytest

from beam_tfrecord.errors import UsageError
from beam_tfrecord.runners.start import portable_presets, prism_presets, runner_options
from beam_tfrecord.sources.csv.source import Csv
from beam_tfrecord.sources.images.source import Images
from beam_tfrecord.sources.sql.source import Sql


def test_portable_alone_is_the_embedded_service():
    assert portable_presets(()) == ["--job_endpoint=embed", "--environment_type=LOOPBACK"]
    assert portable_presets(("--environment_type=EXTERNAL",)) == ["--job_endpoint=embed"]
    assert portable_presets(("--job_endpoint", "host:1")) == []
    assert portable_presets(("--job_endpoint=host:1",)) == []


def test_prism_is_what_is_on_the_path(tmp_path, monkeypatch):
    program = tmp_path / "prism"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert prism_presets(()) == [f"--prism_location={program}", "--prism_log_level=error"]
    assert f"--prism_location={program}" in runner_options("prism")
    assert prism_presets(("--prism_location=/other",)) == []


def test_no_prism_is_told_and_nothing_is_fetched(tmp_path, monkeypatch):
    for name in ("PATH", "GOBIN", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    with pytest.raises(UsageError, match=r"no prism on this machine: install it \(go install "):
        prism_presets(())
    assert list(tmp_path.iterdir()) == []


def test_workers_get_paths_in_full(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "names.txt").write_text("a\nb\n")

    def sent(source):
        return source.to_send()[0]

    paths = sent(Csv(["in/*.csv", "gs://lake/x.csv", "file:///data/y.csv"])).paths
    assert paths == (f"{tmp_path}/in/*.csv", "gs://lake/x.csv", "/data/y.csv")
    assert sent(Sql("sqlite:///a b.db", table="t")).url == f"sqlite:///{tmp_path}/a%20b.db"
    assert sent(Sql("a b.db", table="t")).url == f"{tmp_path}/a b.db"
    assert sent(Sql("postgresql://host/db", table="t")).url == "postgresql://host/db"
    images = sent(Images("photos.csv", base="photos", labels="names.txt"))
    assert (images.base, images.labels) == (f"{tmp_path}/photos", f"{tmp_path}/names.txt")
    assert sent(Images("photos", labels=["a", "b"])).labels == ("a", "b")
