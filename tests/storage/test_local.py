import errno
import fcntl
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from beam_tfrecord import storage
from beam_tfrecord.errors import LeaseLost, TargetExists, UsageError
from beam_tfrecord.storage import WholeFile, absolute_path, lease, output_path, put
from tests.storage.conftest import contend


def names(directory):
    return sorted(os.listdir(directory))


def test_paths_become_absolute(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert absolute_path("/a/../b/") == "/b"
    assert absolute_path("file:///a") == "/a"
    assert absolute_path(Path("/a/b")) == "/a/b"
    assert absolute_path("a") == f"{tmp_path}/a"
    assert absolute_path("gs://b/a//") == "gs://b/a"
    assert absolute_path("hdfs://host/a") == "hdfs://host/a"


def test_outputs_are_local_or_on_an_object_store():
    for path in ("/b", "gs://b/x", "s3://b/x", "s3://b", "az://b/x"):
        assert output_path(path) == path
    with pytest.raises(UsageError, match="cannot write to 'hdfs://b/x': give a local directory"):
        output_path("hdfs://b/x")
    with pytest.raises(UsageError, match="names no bucket"):
        output_path("gs:///x")


def test_clients_of_clouds_are_imported_where_they_are_used():
    code = "import sys, beam_tfrecord.storage; print(sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    for name in ("boto3", "google.cloud.storage", "azure.core", "apache_beam", "pyarrow"):
        assert repr(name) not in loaded.stdout


def test_what_is_there_is_told(tmp_path):
    storage.make_directory(str(tmp_path / "d" / "e"))
    put(str(tmp_path / "d" / "e" / "f"), b"abc")
    put(str(tmp_path / "d" / "b"), b"")
    assert storage.list_names(str(tmp_path / "d")) == ["b", "e"]
    assert storage.list_names(str(tmp_path / "none")) == []
    found = [(entry.path, entry.bytes) for entry in storage.list_files(str(tmp_path / "d"))]
    assert found == [(f"{tmp_path}/d/b", 0), (f"{tmp_path}/d/e/f", 3)]
    assert storage.status(str(tmp_path / "none")) is None
    assert storage.is_directory(str(tmp_path / "d"))
    assert not storage.is_directory(str(tmp_path / "d" / "b"))
    with pytest.raises(FileNotFoundError):
        storage.file_size(str(tmp_path / "none"))
    out = bytearray(2)
    storage.read_into(str(tmp_path / "d" / "e" / "f"), 1, memoryview(out))
    assert out == b"bc"


def test_files_are_published_while_the_check_holds(tmp_path):
    checks = []

    def fail_at_the_second():
        checks.append(1)
        if len(checks) == 2:
            raise LeaseLost("lost")

    for name in ("1", "2", "b"):
        put(str(tmp_path / name), name.encode())
    pairs = [(str(tmp_path / old), str(tmp_path / new)) for old, new in (("1", "a"), ("2", "b"))]
    with pytest.raises(LeaseLost):
        storage.publish_files(pairs, check=fail_at_the_second)
    assert names(tmp_path) == ["2", "a", "b"]
    storage.publish_files(pairs[1:])
    assert (tmp_path / "b").read_bytes() == b"2"


def test_scratch_is_taken_away_where_writing_it_fails(tmp_path):
    def write_half():
        with WholeFile(str(tmp_path / "half"), outlasts=False) as file:
            file.write(b"half")
            raise RuntimeError

    with WholeFile(str(tmp_path / "run"), outlasts=False) as file:
        file.write(b"whole")
    with pytest.raises(RuntimeError):
        write_half()
    assert names(tmp_path) == ["run"]
    assert (tmp_path / "run").read_bytes() == b"whole"


def test_a_lost_lease_is_noticed(tmp_path):
    with lease(str(tmp_path)) as held:
        held.check()
        # Of a job that took the file away and locked one of its own.
        (tmp_path / ".lock").unlink()
        with pytest.raises(LeaseLost, match="is no longer this job's"):
            held.check()
        with lease(str(tmp_path)) as other:
            other.check()
            with pytest.raises(LeaseLost):
                held.check()


def test_a_file_appears_when_it_is_whole(tmp_path):
    with WholeFile(str(tmp_path / "f")) as file:
        file.write(b"ab")
        file.write(np.array([1, 2], np.uint8))
        assert "f" not in names(tmp_path)
    assert (tmp_path / "f").read_bytes() == b"ab\x01\x02"
    assert names(tmp_path) == ["f"]


def test_a_file_may_be_written_twice_at_a_time(tmp_path):
    path = tmp_path / "a"
    with WholeFile(str(path)) as one, WholeFile(str(path)) as other:
        one.write(memoryview(b"one"))
        other.write(memoryview(b"other"))
    assert path.read_bytes() == b"one"
    assert names(tmp_path) == ["a"]


def test_an_error_leaves_what_was_there(tmp_path):
    def write_half(path):
        with WholeFile(path) as file:
            file.write(b"new")
            raise RuntimeError

    put(str(tmp_path / "f"), b"old")
    with pytest.raises(RuntimeError):
        write_half(str(tmp_path / "f"))
    assert (tmp_path / "f").read_bytes() == b"old"
    assert names(tmp_path) == ["f"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_disk_that_fails_at_the_end_leaves_nothing(tmp_path, monkeypatch, call):
    def fail(*_):
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="no space left"):
        put(str(tmp_path / "f"), b"new")
    assert names(tmp_path) == []


def test_one_job_holds_a_directory(tmp_path):
    with lease(str(tmp_path)):
        with pytest.raises(TargetExists, match="another job is writing to"), lease(str(tmp_path)):
            pytest.fail("two jobs hold one directory")
        with pytest.raises(TargetExists), lease(str(tmp_path)):
            pytest.fail("a refused job set the directory free")
    assert names(tmp_path) == []
    with lease(str(tmp_path)):
        pass


def test_a_lease_ends_with_an_error(tmp_path):
    with pytest.raises(RuntimeError), lease(str(tmp_path)):
        raise RuntimeError
    assert names(tmp_path) == []


@pytest.mark.parametrize(("owner", "call"), [(fcntl, "flock"), (os, "remove")])
def test_a_lock_that_fails_leaves_no_descriptor(tmp_path, monkeypatch, owner, call):
    def fail(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(owner, call, fail)
    before = names("/proc/self/fd")
    with pytest.raises(OSError, match="No locks available"), lease(str(tmp_path)):
        assert owner is os
    assert names("/proc/self/fd") == before


def test_two_jobs_never_hold_one_directory_at_a_time(tmp_path):
    assert contend(str(tmp_path), 200) == (0, 600)


@pytest.mark.parametrize("size", [0, 1, 4096, 5 * 2**20 + 17, 13 * 2**20])
def test_a_file_read_once_has_all_bytes_from_anywhere(tmp_path, size):
    content = random.Random(size).randbytes(size)
    path = tmp_path / "file"
    path.write_bytes(content)
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with storage.open_once(str(path)) as once:
        assert once.read(12) == content[:12]
        assert once.seek(0) == 0
        assert once.read() == content
        assert once.read(1) == b""
        assert once.seek(size // 2 - size, os.SEEK_END) == size // 2
        assert once.read() == content[size // 2 :]
