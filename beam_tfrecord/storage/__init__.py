"""Files wherever they are: local paths, ``gs://`` and ``s3://``; any URL that Beam reads, as input.

All file access of the package goes through the functions here, by path or URL. Files of the
output are written whole or not at all: an error while writing leaves nothing, and on an object
store an upload that is cut never becomes an object. Temporary failures of a network are tried
again for a bounded time; lasting ones are a `StorageError` that names the URL.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, BinaryIO

from beam_tfrecord.errors import DataError
from beam_tfrecord.storage.filesystem import (
    Entry,
    Filesystem,
    Lease,
    absolute_path,
    is_hidden,
    is_plain_name,
    is_remote,
    output_path,
)
from beam_tfrecord.storage.local import LocalFilesystem

__all__ = [
    "Entry",
    "Lease",
    "WRITE_BYTES",
    "WholeFile",
    "absolute_path",
    "exists",
    "file_size",
    "is_directory",
    "is_hidden",
    "is_plain_name",
    "is_remote",
    "lease",
    "list_files",
    "list_names",
    "make_directory",
    "open_once",
    "open_read",
    "output_path",
    "publish_files",
    "put",
    "put_if_absent",
    "read_bytes",
    "read_into",
    "read_small",
    "remove",
    "remove_directory",
    "remove_tree",
    "status",
    "sync_directory",
]

# Large enough that the kernel, not the number of calls, sets the pace.
WRITE_BYTES = 8 * 2**20

# A manifest of a million shards or input files is smaller.
_SMALL_BYTES = 256 * 2**20

_LOCAL = LocalFilesystem()


def _filesystem(path: str) -> Filesystem:
    scheme, colon, _ = path.partition("://")
    return _remote(scheme) if colon and scheme != "file" else _LOCAL


@functools.cache
def _remote(scheme: str) -> Filesystem:
    # Imported where they are used: clients of clouds take half a second, and may be missing.
    if scheme == "gs":
        from beam_tfrecord.storage.gcs import GoogleStorage

        return GoogleStorage()
    if scheme == "s3":
        from beam_tfrecord.storage.s3 import AmazonStorage

        return AmazonStorage()
    from beam_tfrecord.storage.beam import BeamFilesystem

    return BeamFilesystem()


class WholeFile:
    """A file that is there under its name only after a clean `close`.

    Used as a context manager it is closed at the end, or taken away where an error left the block.

    Args:
        path: Final path.
        temporary: Where to write before that on a filesystem that can rename; by default beside it.
        outlasts: False for a file that is read again soon and then thrown away: it need not
            survive a crash of the machine, and may be visible while it is written.
    """

    def __init__(self, path: str, *, temporary: str | None = None, outlasts: bool = True) -> None:
        self.path = path
        self._writer = _filesystem(path).create(path, temporary, outlasts=outlasts)

    def write(self, data: Any) -> None:
        """Write all bytes of a buffer."""
        self._writer.write(data)

    def close(self) -> None:
        """Give the file its name once all of it is stored; where that fails, take it away."""
        self._writer.close()

    def abort(self) -> None:
        """Take away what was written."""
        self._writer.abort()

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


def put_if_absent(path: str, data: bytes) -> bool:
    """Write a whole file at once unless there is one; of several writers one wins.

    Returns:
        Whether the file that is there was written by this call.
    """
    return _filesystem(path).put_absent(path, data)


def status(path: str) -> Entry | None:
    """Return size and version of a file, or None where there is none."""
    return _filesystem(path).status(path)


def exists(path: str) -> bool:
    """Tell whether a file is there."""
    return status(path) is not None


def file_size(path: str) -> int:
    """Return the size of a file.

    Raises:
        FileNotFoundError: There is none.
    """
    entry = status(path)
    if entry is None:
        raise FileNotFoundError(f"no such file: {path!r}")
    return entry.bytes


def is_directory(path: str) -> bool:
    """Tell whether a directory is there; on an object store, anything below that name."""
    return _filesystem(path).is_directory(path)


def list_names(directory: str) -> list[str]:
    """Return the names of files and directories in a directory, sorted; none if it is missing."""
    return _filesystem(directory).names(directory)


def list_files(directory: str) -> Iterator[Entry]:
    """Yield all files below a directory, through and through."""
    return _filesystem(directory).files(directory)


def open_read(path: str, *, buffer_bytes: int | None = None, version: str = "") -> BinaryIO:
    """Open a file for reading; it can be sought in.

    Args:
        path: The file.
        buffer_bytes: Size of the buffer, so of a request to an object store; 0: none. By default
            a local file has none, and that of any other is meant for reading from end to end.
        version: On an object store, refuse any other version of the file.

    Raises:
        FileNotFoundError: There is none.
        InputChanged: It is of another version.
    """
    return _filesystem(path).open(path, buffer_bytes, version)


def open_once(path: str) -> BinaryIO:
    """Open a file that is read once, from end to end: a local one past the page cache.

    Raises:
        FileNotFoundError: There is none.
    """
    return _filesystem(path).open_once(path)


def read_bytes(path: str) -> bytes:
    """Return all bytes of a file.

    Raises:
        FileNotFoundError: There is none.
    """
    return _filesystem(path).read_bytes(path)


def read_small(path: str) -> bytes:
    """Return all bytes of a file that is small by its kind, such as a manifest.

    Raises:
        DataError: It is so large that it is none, and would fill the memory.
        FileNotFoundError: There is none.
    """
    entry = status(path)
    if entry is not None and entry.bytes > _SMALL_BYTES:
        raise DataError(
            f"{path!r} has {entry.bytes:,} bytes, and a file of this kind at most "
            f"{_SMALL_BYTES:,}: restore the file"
        )
    return read_bytes(path)


def read_into(path: str, start: int, out: memoryview, *, version: str = "") -> None:
    """Fill `out` with exactly the bytes of a file from `start`.

    Args:
        path: The file.
        start: Position of the first byte.
        out: Where to.
        version: On an object store, refuse any other version of the file.

    Raises:
        EOFError: The file ends before.
        FileNotFoundError: There is none.
    """
    _filesystem(path).read_into(path, start, out, version)


def publish_files(
    pairs: Iterable[tuple[str, str]], *, check: Callable[[], None] | None = None
) -> None:
    """Give finished files of one filesystem their final names, in place of older files.

    Locally they are renamed. An object store copies them by itself, without their bytes passing
    through this machine, and keeps the temporary ones until their directory is removed.

    Args:
        pairs: Temporary and final path of each.
        check: Called before each of them, such as `Lease.check`; what it raises ends the call.
    """
    pairs = list(pairs)
    if pairs:
        _filesystem(pairs[0][1]).publish(pairs, check or _unchecked)


def _unchecked() -> None:
    return


def remove(path: str) -> None:
    """Remove a file.

    Raises:
        FileNotFoundError: There is none.
    """
    _filesystem(path).remove(path)


def remove_tree(path: str) -> None:
    """Remove a directory of ours and all in it; it may be gone already."""
    _filesystem(path).remove_tree(path)


def make_directory(path: str) -> None:
    """Make a directory and those above it, where the filesystem has such a thing."""
    _filesystem(path).make_directory(path)


def remove_directory(path: str) -> None:
    """Remove a directory if it is there and empty."""
    _filesystem(path).remove_directory(path)


def sync_directory(path: str) -> None:
    """Make the names in a directory outlast a power cut."""
    _filesystem(path).sync_directory(path)


def lease(directory: str) -> AbstractContextManager[Lease]:
    """Hold an output directory for one job.

    Locally by a lock of the operating system, which ends with the process; on an object store by
    an object that is created on condition that there is none, and renewed while the job lives.

    Raises:
        TargetExists: Another job holds it.
    """
    return _filesystem(directory).lease(directory)
