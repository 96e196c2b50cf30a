"""Many small files read by the kernel: side by side, and what is not as expected left out."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from beam_tfrecord.sources.images.files import read_local

files = pytest.importorskip("beam_tfrecord.native._files")


def read(paths: list[Path], sizes: list[int], room: int) -> tuple[list[int], bytes]:
    out = np.zeros(room, np.uint8)
    status = files.read_files([os.fsencode(p) for p in paths], np.array(sizes, np.int64), out)
    return status.tolist(), out.tobytes()


def test_files_lie_side_by_side_and_others_leave_no_gap(tmp_path: Path) -> None:
    for name, content in (("a", b"one"), ("longer", b"four!"), ("empty", b""), ("b", b"two")):
        (tmp_path / name).write_bytes(content)
    names = ["a", "missing", "longer", "empty", "b", "."]
    status, out = read([tmp_path / name for name in names], [3, 3, 4, 0, 3, 3], 17)
    assert status == [0, errno.ENOENT, files.OTHER_SIZE, 0, 0, errno.EISDIR]
    assert out[:6] == b"onetwo"


def test_a_file_that_was_cut_meanwhile_has_another_size(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12")
    assert read([tmp_path / "a"], [3], 4)[0] == [files.OTHER_SIZE]


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert read([tmp_path / "pipe"], [3], 4)[0] == [files.OTHER_SIZE]


@pytest.mark.parametrize(
    ("sizes", "room", "words"),
    [([3], 3, "too few"), ([3, 3], 9, "sizes"), ([-1], 9, "negative")],
)
def test_wrong_calls_are_refused(sizes: list[int], room: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read([Path("a")], sizes, room)


def test_no_files_are_no_fault() -> None:
    assert read([], [], 1)[0] == []


def test_what_is_not_as_expected_is_read_apart(tmp_path: Path) -> None:
    for name, content in (("a", b"one"), ("b", b"three"), ("c", b"endless")):
        (tmp_path / name).write_bytes(content)
    found = read_local([str(tmp_path / name) for name in "abcd"], [3, 3, 3, 3], most=5)
    assert [bytes(found.content(index)) for index in range(3)] == [b"one", b"three", b"endles"]
    with pytest.raises(FileNotFoundError):
        found.content(3)
    assert found.array([0, 1], {}).to_pylist() == [b"one", b"three"]
    assert found.array([1, 0], {0: b"new"}).to_pylist() == [b"three", b"new"]


def test_files_as_expected_become_arrow_without_a_copy(tmp_path: Path) -> None:
    for name, content in (("a", b"one"), ("b", b"three")):
        (tmp_path / name).write_bytes(content)
    found = read_local([str(tmp_path / name) for name in "ab"], [3, 5], most=9)
    array = found.array([0, 1], {})
    assert array.to_pylist() == [b"one", b"three"]
    start = np.frombuffer(found.content(0), np.uint8).ctypes.data
    assert array.buffers()[2].address == start
    assert found.array([1], {}).to_pylist() == [b"three"]
