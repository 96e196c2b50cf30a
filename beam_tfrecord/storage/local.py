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
from beam_tfrecord.storage.filesystem import Entry, Filesystem, Writer


class ScratchFile:
    """A local file that is read again soon and then removed, so not worth a sync or a rename."""

    def __init__(self, path: str, *, will_sync: bool = False) -> None:
        self._written = path
        self._file = BlockFile(path, will_sync=will_sync)

    def write(self, data: Any) -> None:
        """Write all bytes of a buffer."""
        self._file.write(memoryview(data).cast("B"))

    def close(self) -> None:
        """Finish the file; if that fails, remove it."""
        try:
            self._finish()
        except BaseException:
            self.abort()
            raise

    def _finish(self) -> None:
        self._file.finish()
        self._file.close()

    def abort(self) -> None:
        """Remove what was written."""
        self._file.close()
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._written)


class LocalFile(ScratchFile):
    """A local file that is written under a temporary name, and renamed when it is synced.

    Args:
        path: Final path.
        temporary: Where to write before that; by default beside the final path.
    """

    def __init__(self, path: str, temporary: str | None = None) -> None:
        head, tail = os.path.split(path)
        super().__init__(
            temporary or os.path.join(head, f".{tail}.{os.getpid()}.part"), will_sync=True
        )
        self._path = path

    def _finish(self) -> None:
        self._file.sync()
        self._file.close()
        os.replace(self._written, self._path)


class OnceFile(io.RawIOBase):
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

    def __init__(self, path: str) -> None:
        super().__init__()
        self._descriptor = open_file(path)
        self._at = 0
        # Later bytes are no sign: the kernel may just have read them ahead. Even the first can
        # mislead: the question may make the kernel read it before it answers. Such a file then
        # stays in the cache.
        self._forgets = hasattr(os, "posix_fadvise") and not is_cached(self._descriptor, 0)

    def readable(self) -> bool:
        """Return True: the file is for reading."""
        return True

    def seekable(self) -> bool:
        """Return True: the file can seek."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a byte of the file."""
        bases = {os.SEEK_SET: 0, os.SEEK_CUR: self._at}
        base = bases[whence] if whence in bases else os.fstat(self._descriptor).st_size
        self._at = base + offset
        return self._at

    def readinto(self, out: Any) -> int:
        """Fill a buffer as far as the file goes."""
        count = os.preadv(self._descriptor, [out], self._at)
        if self._forgets:
            # From the very start: the kernel holds pages in folios of up to megabytes, and does not
            # drop a folio that only reaches into a range.
            os.posix_fadvise(self._descriptor, 0, self._at + count, os.POSIX_FADV_DONTNEED)
        self._at += count
        return count

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if not self.closed:
            os.close(self._descriptor)
        super().close()


class LocalFilesystem(Filesystem):
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

    def open(self, path: str, buffer_bytes: int | None, version: str = "") -> BinaryIO:
        """Open a file for reading."""
        return open(open_file(path), "rb", buffering=buffer_bytes or 0)

    def open_once(self, path: str) -> BinaryIO:
        """Open a file that is read once, from end to end."""
        return cast(BinaryIO, OnceFile(path))

    def create(self, path: str, temporary: str | None, *, outlasts: bool) -> Writer:
        """Begin a file that appears under its name once it is complete."""
        return LocalFile(path, temporary) if outlasts else ScratchFile(path)

    def put_absent(self, path: str, data: bytes) -> bool:
        """Write a file unless there is one."""
        head, tail = os.path.split(path)
        temporary = os.path.join(head, f".{tail}.{uuid.uuid4().hex}.part")
        file = LocalFile(temporary)
        try:
            file.write(data)
            file.close()
            # Unlike a rename, a link never replaces what is there.
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(temporary)
        return True

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

    def make_directory(self, path: str) -> None:
        """Make a directory and its parents."""
        os.makedirs(path, exist_ok=True)

    def remove_directory(self, path: str) -> None:
        """Remove a directory if it is empty."""
        with contextlib.suppress(OSError):
            os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        """Make renames in a directory survive a power cut."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

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
