"""Files of the output: written whole or not at all.

A file appears under its final name only when every byte of it is on the disk: it is written
beside it under a temporary name, synced, and renamed. An error while writing leaves nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from beam_tfrecord.direct_io import BlockFile
from beam_tfrecord.errors import TargetExists, UsageError

# Large enough that the kernel, not the number of calls, sets the pace.
WRITE_BYTES = 8 * 2**20


def local_path(path: str | os.PathLike[str]) -> str:
    """Return a local path as an absolute one.

    Raises:
        UsageError: It names a remote filesystem.
    """
    text = os.fspath(path).removeprefix("file://")
    if "://" in text:
        raise UsageError(f"cannot write to {text!r}: only local directories are supported")
    return os.path.abspath(text)


class WholeFile:
    """A file that is there under its name only after a clean `close`.

    Args:
        path: Final path.
        temporary: Where to write before that; by default beside it.
    """

    def __init__(self, path: str, *, temporary: str | None = None) -> None:
        self.path = path
        head, tail = os.path.split(path)
        self._temporary = temporary or os.path.join(head, f".{tail}.{os.getpid()}.part")
        self._file = BlockFile(self._temporary)

    def write(self, data: Any) -> None:
        """Write all bytes of a buffer."""
        self._file.write(memoryview(data).cast("B"))

    def close(self) -> None:
        """Sync the file and give it its name; where that fails, take it away."""
        try:
            self._file.sync()
            self._file.close()
            os.replace(self._temporary, self.path)
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """Take away what was written."""
        self._file.close()
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._temporary)

    def __enter__(self) -> WholeFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


def put(path: str, data: bytes) -> None:
    """Write a whole file at once."""
    with WholeFile(path) as file:
        file.write(data)


def sync_directory(path: str) -> None:
    """Make renames in a directory outlast a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_tree(path: str) -> None:
    """Remove a directory of ours and all in it; it may be gone already."""
    shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def lease(directory: str) -> Iterator[None]:
    """Hold an output directory for one job.

    The lock is the operating system's: it ends with the process, however that ends.

    Raises:
        TargetExists: Another job holds it.
    """
    path = os.path.join(directory, ".lock")
    while (descriptor := _locked(path)) is None:
        pass
    try:
        yield
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
        os.close(descriptor)


def _locked(path: str) -> int | None:
    """Lock a file; return its descriptor, or None where the file was removed meanwhile."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The job before removes its file: a lock on that one would not keep the next job out.
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
