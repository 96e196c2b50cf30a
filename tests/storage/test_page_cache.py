"""Local files hold what was written, at every size, and leave the page cache as it was."""

import ctypes
import mmap
import os
import resource

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_tfrecord.storage import WholeFile, read_into
from beam_tfrecord.storage.local import BLOCK_BYTES


def _bytes(count):
    return np.random.default_rng(count).integers(0, 256, count, np.uint8).tobytes()


def _write(path, pieces, *, outlasts=True):
    with WholeFile(str(path), outlasts=outlasts) as file:
        for piece in pieces:
            file.write(piece)


@pytest.mark.parametrize("outlasts", [True, False])
@pytest.mark.parametrize(
    "size",
    [
        0,
        1,
        4096,
        BLOCK_BYTES - 1,
        BLOCK_BYTES,
        BLOCK_BYTES + 1,
        2 * BLOCK_BYTES + 4096,
        3 * BLOCK_BYTES + 4096 + 5,
    ],
)
def test_files_of_every_size_are_whole(tmp_path, size, outlasts):
    data = _bytes(size)
    _write(tmp_path / "x", [data[:100], data[100:5000], data[5000:]], outlasts=outlasts)
    assert (tmp_path / "x").read_bytes() == data


def test_large_files_are_not_left_in_the_page_cache(tmp_path):
    _write(tmp_path / "x", [_bytes(3 * BLOCK_BYTES)])
    assert _cached_share(tmp_path / "x") < 0.5


def test_large_reads_leave_the_page_cache_as_it_was(tmp_path):
    path = tmp_path / "x"
    content = _bytes(2 * BLOCK_BYTES)
    _write(path, [content])
    size = BLOCK_BYTES // 4 + 5
    for start in range(0, len(content) - size, size):
        out = bytearray(size)
        read_into(str(path), start, memoryview(out))
        assert out == content[start : start + size]
    # A busy kernel may take a range for cached, because it reads what it is asked about.
    assert _cached_share(path) < 0.5
    path.read_bytes()
    read_into(str(path), 0, memoryview(out))
    assert _cached_share(path) > 0.5


def _cached_share(path):
    """Return the share of a file's pages that are in the page cache."""
    if os.stat(path).st_dev == os.stat("/dev/shm").st_dev:
        pytest.skip("a memory filesystem has its files nowhere else")
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        pages = (ctypes.c_ubyte * -(-len(mapped) // mmap.PAGESIZE))()
        first = ctypes.c_char.from_buffer(mapped)
        size = ctypes.c_size_t(len(mapped))
        ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(first)), size, pages)
        del first
    return sum(page & 1 for page in pages) / len(pages)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("cached", [True, False])
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_range_is_read_as_written(tmp_path, cached, data):
    path = tmp_path / "x"
    size = 2 * BLOCK_BYTES + 12345
    content = _bytes(size)
    if not path.exists():
        _write(path, [content])
    if cached:
        path.read_bytes()
    else:
        _drop_from_cache(path)
    start = data.draw(st.integers(0, size))
    length = data.draw(
        st.one_of(st.integers(0, min(20000, size - start)), st.integers(0, size - start))
    )
    out = bytearray(length)
    read_into(str(path), start, memoryview(out))
    assert out == content[start : start + length]


@pytest.mark.parametrize("start", [0, 5000, 10000, 20000])
def test_reading_past_the_end_is_an_error(tmp_path, start):
    _write(tmp_path / "x", [_bytes(10000)])
    _drop_from_cache(tmp_path / "x")
    with pytest.raises(EOFError, match="bytes early"):
        read_into(str(tmp_path / "x"), start, memoryview(bytearray(10001)))


def test_a_write_that_fails_is_raised(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (BLOCK_BYTES + 10, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            _write(tmp_path / "x", [_bytes(4 * BLOCK_BYTES)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == []


def _drop_from_cache(path):
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
