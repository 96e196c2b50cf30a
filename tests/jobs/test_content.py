"""A copy of the input, or a chmod, is no edit: the bytes that were read decide."""

import json
import os
import shutil

import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import TargetExists
from beam_tfrecord.hashes import hash_ranges
from beam_tfrecord.workdir.job_file import INPUT_STATE, INPUT_XXH64, dump_job, load_job
from tests.whole.changing import INPUTS, NEW, small_units, write_files
from tests.whole.test_resume import stop_before_publishing

# The first one of each format runs by default.
_OF_FILES = ["csv", "parquet", "npy", "csv.gz", "csv cut inside", "parquet cut inside"]
_OF_FILES += [kind for kind in INPUTS if kind not in (*_OF_FILES, "pictures")]
# The CRC in the directory of a zip file is compared, and no hash.
_OF_FILES = [kind for kind in _OF_FILES if not kind.endswith("in zips")]
KINDS = pytest.mark.parametrize("kind", _OF_FILES)
EDITED = "the input was edited since the dataset in"


@pytest.fixture(autouse=True)
def cut(request):
    """Cut the files of those kinds that are to be cut."""
    callspec = getattr(request.node, "callspec", None)
    with small_units("csv" if callspec is None else callspec.params["kind"]):
        yield


def write(source, out, kind, **options):
    """Write a dataset, and return what its ``job.json`` tells."""
    bt.write(source, out, source_options=INPUTS[kind].options, **options)
    return load_job((out / "job.json").read_text())


def is_read_only(path):
    path.chmod(0o440)


def is_copied(path):
    copy = path.with_name(f".{path.name}")
    shutil.copy2(path, copy)
    copy.replace(path)


@pytest.mark.slow_after(1)
@KINDS
@pytest.mark.parametrize("touch", [is_read_only, is_copied])
def test_a_copy_is_no_edit(tmp_path, kind, touch):
    paths = write_files(tmp_path / "in", kind, 40)
    before = write(tmp_path / "in", tmp_path / "out", kind)
    for path in paths:
        state = path.stat().st_ctime_ns, path.stat().st_ino
        touch(path)
        assert (path.stat().st_ctime_ns, path.stat().st_ino) != state
    assert write(tmp_path / "in", tmp_path / "out", kind) == before


@pytest.mark.slow
@KINDS
def test_one_other_byte_under_the_same_size_and_time_is_an_edit(tmp_path, kind):
    first, *_ = write_files(tmp_path / "in", kind, 40)
    write(tmp_path / "in", tmp_path / "out", kind)
    status, new = first.stat(), INPUTS[kind].make(0, 40, NEW)
    assert len(new) == status.st_size
    first.write_bytes(new)
    os.utime(first, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(TargetExists, match=EDITED):
        write(tmp_path / "in", tmp_path / "out", kind)
    write(tmp_path / "in", tmp_path / "out", kind, overwrite=True)


@pytest.mark.slow
@KINDS
def test_the_hash_is_of_the_bytes_alone(tmp_path, kind):
    write_files(tmp_path / "in", kind, 40)
    hashes = {
        write(tmp_path / "in", tmp_path / name, kind, **options)[INPUT_XXH64]
        for name, options in {
            "plain": {},
            "source order": {"shuffle": False},
            "two workers": {"pipeline_options": ["--direct_num_workers=2"]},
        }.items()
    }
    write_files(tmp_path / "again", kind, 40)
    hashes.add(write(tmp_path / "again", tmp_path / "copy", kind)[INPUT_XXH64])
    assert len(hashes) == 1
    write_files(tmp_path / "other", kind, 40, NEW)
    assert write(tmp_path / "other", tmp_path / "new", kind)[INPUT_XXH64] not in hashes


@pytest.mark.slow
@KINDS
def test_what_an_earlier_attempt_has_hashed_counts(tmp_path, kind):
    write_files(tmp_path / "in", kind, 40)
    options = {"source_options": INPUTS[kind].options}
    stop_before_publishing(str(tmp_path / "in"), tmp_path / "out", **options)
    resumed = write(tmp_path / "in", tmp_path / "out", kind)
    assert resumed["attempts"] == 2
    whole = write(tmp_path / "in", tmp_path / "whole", kind)
    assert resumed[INPUT_XXH64] == whole[INPUT_XXH64]


@pytest.mark.parametrize(("kind", "options"), [("csv", {"limit": 10}), ("pictures", {})])
def test_where_no_hash_was_noted_it_is_an_edit(tmp_path, kind, options):
    (path, *_) = write_files(tmp_path / "in", kind, 40)
    told = write(tmp_path / "in", tmp_path / "out", kind, **options)
    assert INPUT_XXH64 not in told
    assert write(tmp_path / "in", tmp_path / "out", kind, **options) == told
    path.chmod(0o440)
    with pytest.raises(TargetExists, match=EDITED):
        write(tmp_path / "in", tmp_path / "out", kind, **options)


def test_a_job_that_noted_no_state_is_judged_by_size_and_time(tmp_path):
    (path, *_) = write_files(tmp_path / "in", "csv", 40)
    told = write(tmp_path / "in", tmp_path / "out", "csv")
    older = {name: told[name] for name in told if name not in (INPUT_STATE, INPUT_XXH64)}
    (tmp_path / "out" / "job.json").write_text(dump_job(older))
    path.chmod(0o440)
    assert write(tmp_path / "in", tmp_path / "out", "csv") == older


def test_columns_that_are_not_read_do_not_count(tmp_path):
    """The hash of a Parquet file is of its footer and of the column chunks that are read."""
    write_files(tmp_path / "in", "parquet", 40)
    path = tmp_path / "in" / "0.parquet"
    chunk = pq.ParquetFile(path).metadata.row_group(1).column(0)
    told = write(tmp_path / "in", tmp_path / "out", "parquet", columns=["state"])
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(chunk.data_page_offset + chunk.total_compressed_size - 1)
        file.write(b"\x7f")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert write(tmp_path / "in", tmp_path / "out", "parquet", columns=["state"]) == told
    shutil.rmtree(tmp_path / "out")
    whole = write(tmp_path / "in", tmp_path / "out", "parquet", columns=["id"])
    assert whole[INPUT_XXH64] != told[INPUT_XXH64]


def test_a_stage_is_written_anew_only_where_its_input_is_another(tmp_path):
    (path, *_) = write_files(tmp_path / "in", "csv", 40)
    bt.extract(tmp_path / "in", tmp_path / "stage")
    before = json.loads((tmp_path / "stage" / "job.json").read_text())
    path.chmod(0o440)
    bt.extract(tmp_path / "in", tmp_path / "stage")
    assert json.loads((tmp_path / "stage" / "job.json").read_text()) == before
    status = path.stat()
    path.chmod(0o640)
    path.write_bytes(INPUTS["csv"].make(0, 40, NEW))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(TargetExists, match=EDITED):
        bt.extract(tmp_path / "in", tmp_path / "stage")


def test_ranges_that_end_behind_a_file_are_refused(tmp_path):
    (tmp_path / "x").write_bytes(b"0123456789")
    whole = hash_ranges(str(tmp_path / "x"), [(0, 10)], name="x")
    assert whole != hash_ranges(str(tmp_path / "x"), [(0, 9)], name="x")
    assert whole != hash_ranges(str(tmp_path / "x"), [(0, 10)], name="y")
    with pytest.raises(EOFError, match="has become shorter"):
        hash_ranges(str(tmp_path / "x"), [(0, 11)], name="x")
