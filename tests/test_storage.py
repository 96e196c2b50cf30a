from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from beam_tfrecord.errors import TargetExists, UsageError
from beam_tfrecord.storage import (
    WholeFile,
    lease,
    local_path,
    put,
    remove_tree,
)


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def test_local_paths() -> None:
    assert local_path("/a/../b/") == "/b"
    assert local_path("file:///a") == "/a"
    assert local_path(Path("/a/b")) == "/a/b"
    with pytest.raises(UsageError, match="cannot write to 'gs://b/x'"):
        local_path("gs://b/x")


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    with WholeFile(str(tmp_path / "f")) as file:
        file.write(b"ab")
        file.write(np.array([1, 2], np.uint8))
        assert "f" not in names(tmp_path)
    assert (tmp_path / "f").read_bytes() == b"ab\x01\x02"
    assert names(tmp_path) == ["f"]


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    def write_half(path: str) -> None:
        with WholeFile(path) as file:
            file.write(b"new")
            raise RuntimeError

    put(str(tmp_path / "f"), b"old")
    with pytest.raises(RuntimeError):
        write_half(str(tmp_path / "f"))
    assert (tmp_path / "f").read_bytes() == b"old"
    assert names(tmp_path) == ["f"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_disk_that_fails_at_the_end_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="no space left"):
        put(str(tmp_path / "f"), b"new")
    assert names(tmp_path) == []


def test_one_job_holds_a_directory(tmp_path: Path) -> None:
    with lease(str(tmp_path)):
        with pytest.raises(TargetExists, match="another job is writing to"), lease(str(tmp_path)):
            pytest.fail("two jobs hold one directory")
        with pytest.raises(TargetExists), lease(str(tmp_path)):
            pytest.fail("a refused job set the directory free")
    assert names(tmp_path) == []
    with lease(str(tmp_path)):
        pass


def test_a_lease_ends_with_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), lease(str(tmp_path)):
        raise RuntimeError
    assert names(tmp_path) == []


def test_two_jobs_never_hold_one_directory_at_a_time(tmp_path: Path) -> None:
    holders: list[int] = []
    together: list[int] = []
    taken = [0, 0, 0]

    def work(number: int) -> None:
        while taken[number] < 300:
            try:
                with lease(str(tmp_path)):
                    holders.append(number)
                    if len(holders) > 1:
                        together.append(number)
                    holders.remove(number)
                    taken[number] += 1
            except TargetExists:
                if 300 in taken:
                    return

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == []
    assert max(taken) == 300


def test_trees_are_removed_even_if_gone(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    remove_tree(str(tmp_path / "a"))
    remove_tree(str(tmp_path / "a"))
    assert names(tmp_path) == []
