"""Reads, writes, lists, renames and locks local files.

A file is written beside its final path, synced and renamed. Large files leave the page cache as it
was, since a dataset is larger than what a machine wants to hold in memory. Only regular files are
opened: anything else may block for ever, or have no end.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import shutil
import stat
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, cast

from beam_tfrecord.errors import DataError, TargetExists
from beam_tfrecord.storage.paths import Entry

BLOCK_BYTES = 4 * 2**20
_PAGE_BYTES = 4096
_LOOK_SECONDS = 0.01


class LocalFile:
    """A local file that is being written, from its start to its end.

    A file that outlasts the job gets its path when all its data is on the disk.
    """

    def __init__(self, path: str, temporary: str | None = None, *, outlasts: bool = True) -> None:
        head, tail = os.path.split(path)
        # Not by process id, which threads share, and jobs on other machines may have.
        beside = os.path.join(head, f".{tail}.{uuid.uuid4().hex[:8]}.part")
        self._path = path
        self._outlasts = outlasts
        self._written = (temporary or beside) if outlasts else path
        self._file = open(self._written, "wb", buffering=0)  # noqa: SIM115 - closed by its methods
        # A step of a pipeline that fails does not always abort the files that it was writing.
        weakref.finalize(self, self._file.close)
        self._sent = 0

    def write(self, data: memoryview) -> None:
        """Append all bytes of a buffer, which the caller may change afterwards."""
        while len(data):
            # The system may take fewer bytes than it is given.
            data = data[self._file.write(data[:BLOCK_BYTES]) :]
            if self._outlasts:
                self._send_to_disk()

    def _send_to_disk(self) -> None:
        """Make the kernel write complete blocks, and forget those that it has written before."""
        if (end := self._file.tell() // BLOCK_BYTES * BLOCK_BYTES) > self._sent:
            _forget(self._file.fileno(), max(0, end - 4 * BLOCK_BYTES), end)
            self._sent = end

    def finish(self) -> None:
        """Give the file its final path once all data is stored."""
        if self._outlasts:
            os.fsync(self._file.fileno())
        if self._sent:
            _forget(self._file.fileno(), 0, self._file.tell())
        self._file.close()
        if self._written != self._path:
            os.replace(self._written, self._path)

    def abort(self) -> None:
        """Remove the unfinished file."""
        self._file.close()
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._written)


def read_into(path: str, start: int, out: memoryview) -> None:
    """Fill `out` completely with the bytes of a file from `start`."""
    with open(open_file(path), "rb", buffering=0) as file:
        forgets = len(out) >= _PAGE_BYTES and hasattr(os, "posix_fadvise")
        if forgets:
            # The kernel must not read ahead what nobody would make it forget; not even to answer
            # whether a byte is cached.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            forgets = not is_cached(file.fileno(), start)
        first_page, end = start // _PAGE_BYTES * _PAGE_BYTES, start + len(out)
        file.seek(start)
        while len(out):
            count = file.readinto(out)
            if not count:
                raise EOFError(f"{path!r} ends {len(out)} bytes early")
            out = out[count:]
        if forgets:
            # With the pages at both ends: a reader of the next bytes must not find them cached.
            _forget(file.fileno(), first_page, end + _PAGE_BYTES)


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


def _forget(descriptor: int, start: int, end: int) -> None:
    """Drop the pages of a range that are on the disk from the page cache, and write the others."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, start, end - start, os.POSIX_FADV_DONTNEED)


class OnceFile(io.FileIO):
    """A local file for one read from end to end that leaves the page cache as it was.

    The kernel reads ahead, as for any file, and drops each page once it is read. So other files
    stay in the page cache, and the kernel fills the same few pages again and again, which is more
    than twice as fast as fresh pages for the whole file.
    """

    # These call `readinto`, unlike the methods of `FileIO`; nobody passes None as the size.
    read = io.RawIOBase.read  # type: ignore[assignment]
    readall = io.RawIOBase.readall

    def __init__(self, path: str) -> None:
        super().__init__(open_file(path))
        # Only the first byte shows whether the file was cached before: the kernel may just have
        # read later ones ahead. Even the first can mislead, since asking may make the kernel read
        # it; such a file then stays in the cache.
        self._forgets = hasattr(os, "posix_fadvise") and not is_cached(self.fileno(), 0)

    def readinto(self, out: Any) -> int:
        """Fill a buffer up to the end of the file, and return the number of bytes."""
        count = super().readinto(out)
        if self._forgets:
            # The range begins at 0, since the kernel holds pages in folios of up to megabytes and
            # does not drop a folio that lies only partly in the range.
            os.posix_fadvise(self.fileno(), 0, self.tell(), os.POSIX_FADV_DONTNEED)
        return count


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


class LocalFilesystem:
    """The filesystem of this machine, with all that is mounted on it."""

    def status(self, path: str) -> Entry | None:
        """Return size and version of a file, or None if there is no such file."""
        try:
            status = checked_status(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Entry(path, status.st_size, str(status.st_mtime_ns))

    def is_directory(self, path: str) -> bool:
        """Return whether there is such a directory."""
        return os.path.isdir(path)

    def names(self, directory: str) -> list[str]:
        """Return the sorted names in a directory; empty if it is missing."""
        try:
            return sorted(os.listdir(directory))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def files(self, directory: str) -> Iterator[Entry]:
        """Yield all files below a directory."""
        for parent, children, names in os.walk(directory):
            children.sort()
            for name in sorted(names):
                path = os.path.join(parent, name)
                # Temporary files of other programs may vanish during the walk.
                if os.path.isfile(path) and (entry := self.status(path)):
                    yield entry

    def read_into(self, path: str, start: int, out: memoryview, version: str) -> None:
        """Fill `out` with the bytes of a file from `start`."""
        read_into(path, start, out)

    def open(self, path: str, buffer_bytes: int | None = None, version: str = "") -> BinaryIO:
        """Open a file for reading, without a buffer."""
        return cast(BinaryIO, open(open_file(path), "rb", buffering=0))

    def publish(self, pairs: Iterable[tuple[str, str]], check: Callable[[], None]) -> None:
        """Rename files, and call `check` before each."""
        for temporary, path in pairs:
            check()
            os.replace(temporary, path)

    def remove(self, path: str) -> None:
        """Remove a file."""
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        """Remove a directory that this package made, with all in it, if it exists."""
        shutil.rmtree(path, ignore_errors=True)

    @contextlib.contextmanager
    def lease(self, path: str) -> Iterator[str]:
        """Lock a file for the time of a block, and yield the random token written into it.

        The operating system ends the lock with the process in any case.
        """
        while (descriptor := _locked(path)) is None:
            time.sleep(_LOOK_SECONDS)
        token = uuid.uuid4().hex
        try:
            os.truncate(descriptor, 0)
            os.write(descriptor, token.encode())
            yield token
        finally:
            try:
                with contextlib.suppress(FileNotFoundError):
                    os.remove(path)
            finally:
                os.close(descriptor)


def _locked(path: str) -> int | None:
    """Lock a file; return its descriptor, or None if the file was removed in the meantime."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
    with contextlib.ExitStack() as opened:
        opened.callback(os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TargetExists(
                f"another job is writing to {os.path.dirname(path)!r}: wait for it, "
                "or choose another output"
            ) from None
        # The previous job removes its file: a lock on a removed file would not stop another job.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                opened.pop_all()
                return descriptor
    return None
