"""Many small files read by the kernel: side by side, and what is not as expected left out."""

import ctypes
import errno
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from beam_tfrecord.native import _files as files
from beam_tfrecord.sources.images.read import read_local


def read(paths, sizes, room):
    out = np.zeros(room, np.uint8)
    status = files.read_files([os.fsencode(p) for p in paths], np.array(sizes, np.int64), out)
    return status.tolist(), out.tobytes()


def test_files_lie_side_by_side_and_others_leave_no_gap(tmp_path):
    for name, content in (("a", b"one"), ("longer", b"four!"), ("empty", b""), ("b", b"two")):
        (tmp_path / name).write_bytes(content)
    names = ["a", "missing", "longer", "empty", "b", "."]
    status, out = read([tmp_path / name for name in names], [3, 3, 4, 0, 3, 3], 17)
    assert status == [0, errno.ENOENT, files.OTHER_SIZE, 0, 0, errno.EISDIR]
    assert out[:6] == b"onetwo"


def test_a_file_that_was_cut_meanwhile_has_another_size(tmp_path):
    (tmp_path / "a").write_bytes(b"12")
    assert read([tmp_path / "a"], [3], 4)[0] == [files.OTHER_SIZE]


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert read([tmp_path / "pipe"], [3], 4)[0] == [files.OTHER_SIZE]


def test_a_file_that_is_given_in_parts_is_read_to_its_end():
    # The system tells of another process by the page.
    code = "import ssl; print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        maps = Path(f"/proc/{process.pid}/maps")
        whole = maps.read_bytes()
        status, out = read([maps], [len(whole)], len(whole) + 1)
        process.communicate(b"\n")
    with_one_read = 4096
    assert len(whole) > with_one_read
    assert status == [0]
    assert out[:-1] == whole


@pytest.mark.parametrize(
    ("sizes", "room", "words"),
    [([3], 3, "too few"), ([3, 3], 9, "sizes"), ([-1], 9, "negative")],
)
def test_wrong_calls_are_refused(sizes, room, words):
    with pytest.raises(ValueError, match=words):
        read([Path("a")], sizes, room)


def test_no_files_are_no_fault():
    assert read([], [], 1)[0] == []


def test_what_is_not_as_expected_is_read_apart(tmp_path):
    for name, content in (("a", b"one"), ("b", b"three"), ("c", b"endless")):
        (tmp_path / name).write_bytes(content)
    found = read_local([str(tmp_path / name) for name in "abcd"], [3, 3, 3, 3], most=5)
    assert [bytes(found.content(index)) for index in range(3)] == [b"one", b"three", b"endles"]
    with pytest.raises(FileNotFoundError):
        found.content(3)
    assert found.array([0, 1], {}).to_pylist() == [b"one", b"three"]
    assert found.array([1, 0], {0: b"new"}).to_pylist() == [b"three", b"new"]


def test_files_as_expected_become_arrow_without_a_copy(tmp_path):
    for name, content in (("a", b"one"), ("b", b"three")):
        (tmp_path / name).write_bytes(content)
    found = read_local([str(tmp_path / name) for name in "ab"], [3, 5], most=9)
    array = found.array([0, 1], {})
    assert array.to_pylist() == [b"one", b"three"]
    start = np.frombuffer(found.content(0), np.uint8).ctypes.data
    assert array.buffers()[2].address == start
    assert found.array([1], {}).to_pylist() == [b"three"]


def test_files_are_hashed_as_hashlib_hashes_them(tmp_path):
    contents = [os.urandom(size) for size in (0, 1, 55, 56, 64, 20_000)]
    for number, content in enumerate(contents):
        (tmp_path / str(number)).write_bytes(content)
    names = [str(tmp_path / str(number)) for number in range(6)] + [str(tmp_path / "missing")]
    found = read_local(names, [*map(len, contents), 3], most=10**6)
    expected = [hashlib.sha256(content).hexdigest() for content in contents]
    assert found.sha256(range(6)) == expected
    assert found.sha256([5, 1]) == [expected[5], expected[1]]
    assert found.sha256([]) == []


def test_without_the_library_of_hashlib_its_functions_are_called(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"content")
    found = read_local([str(tmp_path / "a")], [7], most=10**6)
    direct = found.sha256([0])
    monkeypatch.setattr("beam_tfrecord.sources.images.read._sha256_address", lambda: 0)
    assert found.sha256([0]) == direct == [hashlib.sha256(b"content").hexdigest()]


def test_a_file_read_apart_is_hashed_too(tmp_path):
    for name in "ab":
        (tmp_path / name).write_bytes(name.encode() * 9)
    # The size is not what it was when the directory was listed.
    found = read_local([str(tmp_path / name) for name in "ab"], [9, 5], most=10**6)
    assert found.sha256([0, 1]) == [hashlib.sha256(name * 9).hexdigest() for name in (b"a", b"b")]


def test_ranges_outside_of_the_data_are_not_hashed():
    data = np.zeros(4, np.uint8)
    for start, size in ((-1, 1), (0, 5), (5, 0), (2, -1), (2**62, 2**62)):
        with pytest.raises(ValueError, match="outside of the data"):
            files.hash_files(0, data, np.array([start]), np.array([size]))
    with pytest.raises(ValueError, match="1 starts, but 2 sizes"):
        files.hash_files(0, data, np.array([0]), np.array([0, 1]))


def test_files_that_are_not_in_the_page_cache_are_the_same(tmp_path):
    paths = [tmp_path / f"{number:03d}" for number in range(100)]
    for number, path in enumerate(paths):
        path.write_bytes(os.urandom(5000 + number))
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    sizes = [path.stat().st_size for path in paths]
    paths[50].unlink()
    status, out = read(paths, sizes, sum(sizes) + 1)
    assert [number for number, failed in enumerate(status) if failed] == [50]
    kept = paths[:50] + paths[51:]
    assert out.startswith(b"".join(path.read_bytes() for path in kept))


def test_a_function_that_fails_hashes_nothing(tmp_path, monkeypatch):
    pointer = ctypes.c_void_p
    failing = ctypes.CFUNCTYPE(pointer, pointer, ctypes.c_size_t, pointer)(lambda *_: None)
    address = ctypes.cast(failing, pointer).value
    data = np.zeros(4, np.uint8)
    assert files.hash_files(address, data, np.array([0]), np.array([4])) is None
    (tmp_path / "a").write_bytes(b"content")
    found = read_local([str(tmp_path / "a")], [7], most=10**6)
    monkeypatch.setattr("beam_tfrecord.sources.images.read._sha256_address", lambda: address)
    assert found.sha256([0]) == [hashlib.sha256(b"content").hexdigest()]
