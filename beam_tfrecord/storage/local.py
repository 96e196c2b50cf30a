"""Reads, writes, lists, renames and locks local files.

A file is written beside its final path, synced and renamed. Large files are read and written past
the page cache (see `direct_io`).
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, cast

from beam_tfrecord.errors import TargetExists
from beam_tfrecord.storage.direct_io import (
    BlockFile,
    checked_status,
    is_cached,
    open_file,
    read_into,
)
from beam_tfrecord.storage.paths import Entry

_LOOK_SECONDS = 0.01


class LocalFile:
    """A local file that is being written, from its start to its end."""

    def __init__(self, path: str, temporary: str | None = None, *, outlasts: bool = True) -> None:
        head, tail = os.path.split(path)
        # Not by process id, which threads share, and jobs on other machines may have.
        beside = os.path.join(head, f".{tail}.{uuid.uuid4().hex[:8]}.part")
        self._path = path
        self._written = (temporary or beside) if outlasts else path
        self._file = BlockFile(self._written, will_sync=outlasts)

    def write(self, data: memoryview) -> None:
        """Append all bytes of a buffer, which the caller may change afterwards."""
        self._file.write(data)

    def finish(self) -> None:
        """Give the file its final path once all data is stored."""
        self._file.finish()
        self._file.close()
        if self._written != self._path:
            os.replace(self._written, self._path)

    def abort(self) -> None:
        """Remove the unfinished file."""
        self._file.close()
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._written)


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
