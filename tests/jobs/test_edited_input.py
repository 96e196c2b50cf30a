"""A rerun is "nothing to do" only for files of the same size, times and inode."""

import json
import os
import shutil

import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import TargetExists
from beam_tfrecord.format.job_file import INPUT_STATE, dump_job, load_job
from tests.whole.changing import INPUTS, NEW, write_files

EDITED = "the input was edited since the dataset in"


def write(source, out, kind="csv", **options):
    """Write a dataset, and return what its ``job.json`` tells."""
    bt.write(source, out, source_options=INPUTS[kind].options, **options)
    return load_job((out / "job.json").read_text())


def is_read_only(path):
    path.chmod(0o440)


def is_copied(path):
    copy = path.with_name(f".{path.name}")
    shutil.copy2(path, copy)
    copy.replace(path)


def has_other_bytes(path):
    status, new = path.stat(), INPUTS["csv"].make(0, 40, NEW)
    assert len(new) == status.st_size
    path.write_bytes(new)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("touch", [is_read_only, is_copied, has_other_bytes])
@pytest.mark.slow_after(1)
def test_a_file_that_was_touched_needs_overwrite(tmp_path, touch):
    (path, *_) = write_files(tmp_path / "in", "csv", 40)
    told = write(tmp_path / "in", tmp_path / "out")
    assert write(tmp_path / "in", tmp_path / "out") == told
    touch(path)
    with pytest.raises(TargetExists, match=EDITED):
        write(tmp_path / "in", tmp_path / "out")
    assert write(tmp_path / "in", tmp_path / "out", overwrite=True) != told


@pytest.mark.parametrize(("kind", "options"), [("csv", {"limit": 10}), ("pictures", {})])
def test_every_job_compares_the_states_of_files(tmp_path, kind, options):
    (path, *_) = write_files(tmp_path / "in", kind, 40)
    told = write(tmp_path / "in", tmp_path / "out", kind, **options)
    assert write(tmp_path / "in", tmp_path / "out", kind, **options) == told
    path.chmod(0o440)
    with pytest.raises(TargetExists, match=EDITED):
        write(tmp_path / "in", tmp_path / "out", kind, **options)


def test_a_job_that_noted_no_state_is_judged_by_size_and_time(tmp_path):
    (path, *_) = write_files(tmp_path / "in", "csv", 40)
    told = write(tmp_path / "in", tmp_path / "out")
    older = {name: told[name] for name in told if name != INPUT_STATE}
    (tmp_path / "out" / "job.json").write_text(dump_job(older))
    path.chmod(0o440)
    assert write(tmp_path / "in", tmp_path / "out") == older


def test_a_stage_is_written_anew_only_where_its_input_is_another(tmp_path):
    (path, *_) = write_files(tmp_path / "in", "csv", 40)
    bt.extract(tmp_path / "in", tmp_path / "stage")
    before = json.loads((tmp_path / "stage" / "job.json").read_text())
    bt.extract(tmp_path / "in", tmp_path / "stage")
    assert json.loads((tmp_path / "stage" / "job.json").read_text()) == before
    has_other_bytes(path)
    with pytest.raises(TargetExists, match=EDITED):
        bt.extract(tmp_path / "in", tmp_path / "stage")
