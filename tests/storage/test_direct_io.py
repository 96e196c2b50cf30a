"""Files past the page cache hold what was written, at every size and on every way."""

import os
import resource

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_tfrecord.storage import direct_io
from beam_tfrecord.storage.direct_io import BLOCK_BYTES, SECTOR_BYTES, BlockFile, read_into


def _bytes(count):
    return np.random.default_rng(count).integers(0, 256, count, np.uint8).tobytes()


def _write(path, pieces, *, will_sync=True):
    file = BlockFile(str(path), will_sync=will_sync)
    for piece in pieces:
        file.write(memoryview(piece))
    file.finish()
    file.close()


@pytest.fixture(params=["direct", "ordinary", "unknown to the filesystem"])
def _way(request, monkeypatch):
    if request.param == "ordinary":
        monkeypatch.setattr(direct_io, "_DIRECT", 0)
    elif request.param == "unknown to the filesystem":
        # To open a file as a directory fails as O_DIRECT does where it is not known.
        monkeypatch.setattr(direct_io, "_DIRECT", os.O_DIRECTORY)


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("will_sync", [True, False])
@pytest.mark.parametrize(
    "size",
    [
        0,
        1,
        SECTOR_BYTES,
        BLOCK_BYTES - 1,
        BLOCK_BYTES,
        BLOCK_BYTES + 1,
        2 * BLOCK_BYTES + SECTOR_BYTES,
        3 * BLOCK_BYTES + SECTOR_BYTES + 5,
    ],
)
def test_files_of_every_size_are_whole(tmp_path, size, will_sync):
    data = _bytes(size)
    _write(tmp_path / "x", [data[:100], data[100:5000], data[5000:]], will_sync=will_sync)
    assert (tmp_path / "x").read_bytes() == data


def test_large_files_are_not_left_in_the_page_cache(tmp_path):
    _write(tmp_path / "x", [_bytes(3 * BLOCK_BYTES)])
    with open(tmp_path / "x", "rb") as file:
        try:
            os.preadv(file.fileno(), [bytearray(1)], BLOCK_BYTES, os.RWF_NOWAIT)
            cached = True
        except BlockingIOError:
            cached = False
    # A memory filesystem has its files nowhere else.
    assert cached == (os.stat(tmp_path).st_dev == os.stat("/dev/shm").st_dev)


@pytest.mark.slow_after(1)
@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("cached", [True, False])
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
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


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("start", [0, 5000, 10000, 20000])
def test_reading_past_the_end_is_an_error(tmp_path, start):
    _write(tmp_path / "x", [_bytes(10000)])
    _drop_from_cache(tmp_path / "x")
    with pytest.raises(EOFError, match="bytes early"):
        read_into(str(tmp_path / "x"), start, memoryview(bytearray(10001)))


def test_a_write_that_fails_in_the_background_is_raised(tmp_path):
    file = BlockFile(str(tmp_path / "x"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (BLOCK_BYTES, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            file.write(memoryview(_bytes(4 * BLOCK_BYTES)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        file.close()


def _drop_from_cache(path):
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
