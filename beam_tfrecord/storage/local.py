"""Local files: written beside their final path, synced and renamed; read past the page cache."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import shutil
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


class LocalFile:
    """A local file that is being written, from its start to its end.

    Args:
        path: Final path.
        temporary: Where to write before that; by default beside the final path.
        outlasts: The file is synced and then renamed; else it is written under its final path.
    """

    def __init__(self, path: str, temporary: str | None = None, *, outlasts: bool = True) -> None:
        head, tail = os.path.split(path)
        beside = os.path.join(head, f".{tail}.{os.getpid()}.part")
        self._path = path
        self._written = (temporary or beside) if outlasts else path
        self._file = BlockFile(self._written, will_sync=outlasts)

    def write(self, data: memoryview) -> None:
        """Append all bytes of a buffer, which the caller may use again at once."""
        self._file.write(data)

    def finish(self) -> None:
        """Give the file its final path once all of it is stored."""
        self._file.finish()
        self._file.close()
        if self._written != self._path:
            os.replace(self._written, self._path)

    def abort(self) -> None:
        """Remove what was written."""
        self._file.close()
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._written)


class OnceFile(io.FileIO):
    """A local file for one read from end to end that leaves the page cache as it found it.

    The kernel reads ahead, as for any file, and drops each page once it is read. So other files
    stay in the page cache, and the kernel fills the same few pages again and again, which is more
    than twice as fast as fresh pages for all of the file.

    Args:
        path: The file.

    Raises:
        DataError: The path is no regular file.
        OSError: The file cannot be opened or, from `readinto`, not be read.
    """

    # These read by `readinto`, unlike those of `FileIO`; nobody passes None.
    read = io.RawIOBase.read  # type: ignore[assignment]
    readall = io.RawIOBase.readall

    def __init__(self, path: str) -> None:
        super().__init__(open_file(path))
        # Later bytes are no sign: the kernel may just have read them ahead. Even the first can
        # mislead: the question may make the kernel read it before it answers. Such a file then
        # stays in the cache.
        self._forgets = hasattr(os, "posix_fadvise") and not is_cached(self.fileno(), 0)

    def readinto(self, out: Any) -> int:
        """Fill a buffer as far as the file goes."""
        count = super().readinto(out)
        if self._forgets:
            # From the very start: the kernel holds pages in folios of up to megabytes, and does not
            # drop a folio that only reaches into a range.
            os.posix_fadvise(self.fileno(), 0, self.tell(), os.POSIX_FADV_DONTNEED)
        return count


class LocalFilesystem:
    """Directories of this machine, and those mounted on it."""

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
        """Return the sorted names in a directory; none if it is missing."""
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
                # Temporary files of others come and go meanwhile.
                if os.path.isfile(path) and (entry := self.status(path)):
                    yield entry

    def read_into(self, path: str, start: int, out: memoryview, version: str) -> None:
        """Fill `out` with the bytes of a file from `start`."""
        read_into(path, start, out)

    def open(self, path: str, buffer_bytes: int | None = None, version: str = "") -> BinaryIO:
        """Open a file for reading, without a buffer."""
        return cast(BinaryIO, open(open_file(path), "rb", buffering=0))

    def publish(self, pairs: Iterable[tuple[str, str]], check: Callable[[], None]) -> None:
        """Rename files."""
        for temporary, path in pairs:
            check()
            os.replace(temporary, path)

    def remove(self, path: str) -> None:
        """Remove a file."""
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        """Remove a directory of ours and all in it, if it exists."""
        shutil.rmtree(path, ignore_errors=True)

    @contextlib.contextmanager
    def lease(self, path: str) -> Iterator[str]:
        """Hold a lock file of the operating system, which ends with the process in any case.

        Raises:
            TargetExists: Another job holds it.
        """
        while (descriptor := _locked(path)) is None:
            pass
        token = uuid.uuid4().hex
        os.truncate(descriptor, 0)
        os.write(descriptor, token.encode())
        try:
            yield token
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)
            os.close(descriptor)


def _locked(path: str) -> int | None:
    """Lock a file; return its descriptor, or None if the file was removed meanwhile."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The previous job removes its file: a lock on that one would not stop the next job.
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
    except FileNotFoundError:
        pass
    except BlockingIOError:
        os.close(descriptor)
        raise TargetExists(
            f"another job is writing to {os.path.dirname(path)!r}: wait for it, "
            "or choose another output"
        ) from None
    os.close(descriptor)
    return None
