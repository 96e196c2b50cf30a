"""Reads and writes local files directly, past the page cache.

A dataset is larger than what a machine wants to hold in memory, and its shards are synced before
they are published. So a copy in the page cache costs memory, and time if fresh memory is slow.
Instead, a thread writes complete blocks of 4 MiB to the disk directly (``O_DIRECT``, see open(2))
while the next block fills. The page cache is used for files smaller than a block when written, for
reads smaller than a sector of 4 KiB, and on filesystems without direct access. Only regular files
are opened: anything else may block for ever, or have no end.
"""

from __future__ import annotations

import collections
import concurrent.futures
import errno
import mmap
import os
import stat
import threading
import time

import numpy as np

from beam_tfrecord.errors import DataError

BLOCK_BYTES = 4 * 2**20
# The largest sector that disks have in practice; direct access needs multiples of it as sizes and
# offsets.
SECTOR_BYTES = 4096
# A disk that writes slower than this, for one thread, is better used through the page cache.
FAST_BYTES_PER_SECOND = 400 * 10**6

_DIRECT = getattr(os, "O_DIRECT", 0)
# Blocks are page-aligned, as direct access needs them, and are reused by later files.
_FREE_BLOCKS: collections.deque[mmap.mmap] = collections.deque(maxlen=8)


class BlockFile:
    """A new file, written from its start to its end, in blocks past the page cache if possible."""

    def __init__(self, path: str, *, will_sync: bool = True) -> None:
        self._path = path
        self._will_sync = will_sync
        # Before the file is open, because there may be no memory for it.
        self._block = _take_block()
        self._descriptor: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        self._is_direct = False
        self._filled = 0
        self._written = 0
        self._writer: concurrent.futures.ThreadPoolExecutor | None = None
        # At most one write is under way, so writes are in order.
        self._pending: concurrent.futures.Future[None] | None = None

    def write(self, data: memoryview) -> None:
        """Append all bytes of a buffer, which the caller may change afterwards."""
        at = 0
        while at < len(data):
            count = min(BLOCK_BYTES - self._filled, len(data) - at)
            _copy(data[at : at + count], memoryview(self._block)[self._filled :])
            self._filled += count
            at += count
            if self._filled == BLOCK_BYTES:
                self._hand_over(BLOCK_BYTES)

    def finish(self) -> None:
        """Write the rest of the data, and wait; if `will_sync`, until all data is on the disk."""
        size = self._written + self._filled
        if self._is_direct and self._filled:
            # Only complete sectors can be written: the excess is cut off below.
            self._hand_over(-(-self._filled // SECTOR_BYTES) * SECTOR_BYTES)
        self._wait()
        if self._filled:
            _write_at(self._open(), memoryview(self._block)[: self._filled], self._written)
        elif self._written != size:
            os.ftruncate(self._open(), size)
        if self._will_sync:
            os.fsync(self._open())

    def close(self) -> None:
        """Close the file, even if it is not finished; a second call does nothing."""
        if self._descriptor is None:
            return
        if self._writer is not None:
            # The thread uses its block and the descriptor until it ends, with or without an error.
            self._writer.shutdown()
        descriptor, self._descriptor = self._descriptor, None
        _FREE_BLOCKS.append(self._block)
        os.close(descriptor)

    def _open(self) -> int:
        if self._descriptor is None:
            raise ValueError(f"write to closed file {self._path!r}")
        return self._descriptor

    def _hand_over(self, nbytes: int) -> None:
        """Write the first bytes of the block in the background, and begin another block."""
        self._wait()
        if self._writer is None:
            self._writer = concurrent.futures.ThreadPoolExecutor(1, "write-blocks")
            may_be_direct = bool(_DIRECT) and (self._will_sync or _RATE.is_fast())
            self._is_direct = may_be_direct and self._go_direct()
        block, self._block = self._block, _take_block()
        self._pending = self._writer.submit(
            _write_block, self._open(), block, nbytes, self._written, is_direct=self._is_direct
        )
        self._written += nbytes
        self._filled = 0

    def _wait(self) -> None:
        if self._pending is not None:
            self._pending.result()

    def _go_direct(self) -> bool:
        """Open the file again for direct writing; return False if that is not possible."""
        try:
            descriptor = os.open(self._path, os.O_WRONLY | _DIRECT)
        except OSError:
            return False
        os.close(self._open())
        self._descriptor = descriptor
        return True


def read_into(path: str, start: int, out: memoryview) -> None:
    """Fill `out` completely with the bytes of a file from `start`.

    If the first byte is in the page cache, all bytes are read through the page cache, else past it.
    """
    descriptor = open_file(path)
    try:
        done = 0
        if _DIRECT and len(out) >= SECTOR_BYTES and not is_cached(descriptor, start):
            done = _read_directly(path, start, out)
        while done < len(out):
            count = os.preadv(descriptor, [out[done:]], start + done)
            if not count:
                raise EOFError(f"{path!r} ends {len(out) - done} bytes early")
            done += count
    finally:
        os.close(descriptor)


def is_cached(descriptor: int, start: int) -> bool:
    """Return whether a byte of a file is in the page cache."""
    try:
        os.preadv(descriptor, [bytearray(1)], start, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except (OSError, AttributeError):
        # The filesystem or this build of Python cannot tell: True makes callers read as usual.
        return True
    return True


def _read_directly(path: str, start: int, out: memoryview) -> int:
    """Read past the page cache; return the number of bytes that were filled, maybe too few."""
    try:
        descriptor = os.open(path, os.O_RDONLY | _DIRECT)
    except OSError:
        return 0
    block = _take_block()
    end = start + len(out)
    at = start // SECTOR_BYTES * SECTOR_BYTES
    done = 0
    try:
        with memoryview(block) as view:
            while done < len(out):
                want = min(BLOCK_BYTES, -(-(end - at) // SECTOR_BYTES) * SECTOR_BYTES)
                got = os.preadv(descriptor, [view[:want]], at)
                skip = max(start - at, 0)
                useful = min(at + got, end) - (at + skip)
                if useful <= 0:
                    break
                _copy(view[skip : skip + useful], out[done:])
                done += useful
                at += got
                if got % SECTOR_BYTES:
                    break  # The end of the file.
    except OSError:
        # The caller reads the rest as usual, which works or raises an error that tells the cause.
        pass
    finally:
        os.close(descriptor)
        _FREE_BLOCKS.append(block)
    return done


class _Rate:
    """The measured speed of direct writes of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bytes = 0
        self._seconds = 0.0

    def add(self, nbytes: int, seconds: float) -> None:
        """Count one write."""
        with self._lock:
            self._bytes += nbytes
            self._seconds += seconds

    def is_fast(self) -> bool:
        """Return whether the writes so far were fast; True if there were none."""
        with self._lock:
            return self._bytes >= FAST_BYTES_PER_SECOND * self._seconds


_RATE = _Rate()


def _take_block() -> mmap.mmap:
    try:
        return _FREE_BLOCKS.pop()
    except IndexError:
        return mmap.mmap(-1, BLOCK_BYTES)


def _write_block(
    descriptor: int, block: mmap.mmap, nbytes: int, offset: int, *, is_direct: bool
) -> None:
    """Write the first bytes of a block, and release the block; measure a direct write."""
    started = time.perf_counter()
    try:
        with memoryview(block) as view:
            _write_at(descriptor, view[:nbytes], offset)
    finally:
        _FREE_BLOCKS.append(block)
    if is_direct:
        _RATE.add(nbytes, time.perf_counter() - started)


def _write_at(descriptor: int, data: memoryview, offset: int) -> None:
    position = 0
    while position < len(data):
        position += os.pwrite(descriptor, data[position:], offset + position)


def _copy(source: memoryview, target: memoryview) -> None:
    """Copy all of `source` to the start of `target`, without Python's lock."""
    np.copyto(
        np.frombuffer(target, np.uint8, len(source)), np.frombuffer(source, np.uint8, len(source))
    )


def open_file(path: str) -> int:
    """Open a regular file, or a link to one, for reading; return its descriptor."""
    checked_status(path)
    # The file may have been replaced since; a pipe without a writer blocks its reader.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        _check(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def checked_status(path: str) -> os.stat_result:
    """Return the status of a file or directory without opening it; links are followed."""
    try:
        status = os.stat(path)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise DataError(f"{path!r} is a link that leads to itself: restore the file") from None
    if not stat.S_ISDIR(status.st_mode):
        _check(path, status)
    return status


def _check(path: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(status.st_mode):
        raise DataError(f"{path!r} is not a regular file: restore the file")
