"""Reads and writes files by path, ``gs://``, ``s3://`` or ``az://`` URL; reads other URLs.

All file access of the package goes through the functions here, by path or URL. An output file is
there completely or not at all: an error while writing leaves nothing, and on an object store an
interrupted upload never becomes an object. After a temporary failure of the network, requests are
repeated for a bounded time. Lasting failures raise a `StorageError` that names the URL.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, cast

from beam_tfrecord.errors import DataError, LeaseLost, UsageError
from beam_tfrecord.storage import object_lease
from beam_tfrecord.storage.azure import AzureStorage
from beam_tfrecord.storage.gcs import GcsStorage
from beam_tfrecord.storage.local import LocalFile, LocalFilesystem, OnceFile
from beam_tfrecord.storage.object_store import ObjectStore, ObjectWriter, ReadableStore
from beam_tfrecord.storage.paths import (
    WRITABLE,
    Entry,
    absolute_path,
    is_hidden,
    is_plain_name,
    is_remote,
    is_web,
    output_path,
    path_text,
    plain_path,
    public_path,
)
from beam_tfrecord.storage.s3 import S3Storage
from beam_tfrecord.storage.web_and_beam import BeamFilesystem, WebServers

# Large enough that the number of calls costs no time.
WRITE_BYTES = 8 * 2**20

# A manifest of a million shards or input files is smaller.
_SMALL_BYTES = 256 * 2**20

_LOCAL = LocalFilesystem()
_OBJECT_STORES: dict[str, ObjectStore] = {
    "gs": GcsStorage(),
    "s3": S3Storage(),
    "az": AzureStorage(),
}
_WEB = WebServers()
_BEAM = BeamFilesystem()


def _filesystem(path: str) -> LocalFilesystem | ObjectStore | WebServers | BeamFilesystem:
    if not is_remote(path):
        return _LOCAL
    if is_web(path):
        return _WEB
    return _OBJECT_STORES.get(path.partition("://")[0], _BEAM)


def _writable(path: str) -> LocalFilesystem | ObjectStore:
    found = _filesystem(path)
    if isinstance(found, WebServers | BeamFilesystem):
        scheme = path.partition("://")[0]
        raise UsageError(
            f"cannot write to {os.path.dirname(public_path(path))!r}: {scheme}:// is for input "
            f"only: pass {WRITABLE}"
        )
    return found


class WholeFile:
    """A file being written, which appears under its name only when `close` succeeds.

    As a context manager it is closed at the end of the block, or removed if the block ends with an
    error.
    """

    def __init__(self, path: str, *, temporary: str | None = None, outlasts: bool = True) -> None:
        self.path = path
        self._writer: LocalFile | ObjectWriter
        filesystem = _writable(path)
        if isinstance(filesystem, ObjectStore):
            self._writer = ObjectWriter(filesystem, path)
        else:
            self._writer = LocalFile(path, temporary, outlasts=outlasts)

    def write(self, data: Any) -> None:
        """Write all bytes of a buffer."""
        self._writer.write(memoryview(data).cast("B"))

    def close(self) -> None:
        """Give the file its name once all data is stored; if that fails, remove the file."""
        try:
            self._writer.finish()
        except BaseException:
            self._writer.abort()
            raise

    def abort(self) -> None:
        """Discard all data that was written."""
        self._writer.abort()

    def __enter__(self) -> WholeFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


@dataclasses.dataclass(frozen=True)
class Lease:
    """The right to write to an output directory, as a value that can be sent to workers."""

    path: str
    token: str

    def check(self) -> None:
        """Check that this job still holds the lease; called before each final write."""
        try:
            holder = read_bytes(self.path)
        except FileNotFoundError:
            holder = b""
        if self.token.encode() not in holder:
            raise LeaseLost(
                f"{self.path!r} is no longer this job's: another job has taken the output over, "
                "and this one stops before it writes anything more"
            )


@contextlib.contextmanager
def lease(directory: str, name: str = ".lock") -> Iterator[Lease]:
    """Hold the lease of an output directory for the time of a block, so that no other job writes.

    Locally the lease is a lock of the operating system, which ends with the process. On an object
    store it is an object that is created only if there is none, and renewed while the job lives.
    """
    filesystem = _writable(directory)
    path = os.path.join(directory, name)
    held: AbstractContextManager[str]
    if isinstance(filesystem, LocalFilesystem):
        held = filesystem.lease(path)
    else:
        held = object_lease.held(filesystem, path)
    with held as token:
        yield Lease(path, token)


def put(path: str, data: bytes) -> None:
    """Write a file that consists of `data`."""
    with WholeFile(path) as file:
        file.write(data)


def put_if(path: str, data: bytes, version: str, *, temporary: str) -> bool:
    """Write a file unless its version is another than `version`; return whether it was written.

    An empty `version` means that there is no such file. An object store compares and writes in one
    step. In a directory the caller holds the lease, and `temporary` names the half-written file.
    """
    filesystem = _writable(path)
    if isinstance(filesystem, ObjectStore):
        return filesystem.put_matching(path, data, version) is not None
    entry = status(path)
    if version != ("" if entry is None else entry.version):
        return False
    with WholeFile(path, temporary=temporary) as file:
        file.write(data)
    return True


def status(path: str) -> Entry | None:
    """Return size and version of a file, or None if there is no such file."""
    return _filesystem(path).status(path)


def exists(path: str) -> bool:
    """Return whether there is such a file."""
    return status(path) is not None


def file_size(path: str) -> int:
    """Return the size of a file."""
    entry = status(path)
    if entry is None:
        raise FileNotFoundError(f"no such file: {path!r}")
    return entry.bytes


def is_directory(path: str) -> bool:
    """Return whether there is such a directory; on an object store, an object below that name."""
    return _filesystem(path).is_directory(path)


def list_names(directory: str) -> list[str]:
    """Return the sorted names of files and directories in a directory; empty if it is missing."""
    return _filesystem(directory).names(directory)


def list_files(directory: str) -> Iterator[Entry]:
    """Yield all files below a directory, at any depth."""
    return _filesystem(directory).files(directory)


def open_read(path: str, *, buffer_bytes: int | None = None, version: str = "") -> BinaryIO:
    """Open a file for reading, as a file object that can seek."""
    return _filesystem(path).open(path, buffer_bytes, version)


def open_once(path: str) -> BinaryIO:
    """Open a file for one read from end to end, which keeps a local file out of the page cache."""
    return open_read(path) if is_remote(path) else cast(BinaryIO, OnceFile(path))


def read_bytes(path: str) -> bytes:
    """Return all bytes of a file."""
    filesystem = _filesystem(path)
    if isinstance(filesystem, ReadableStore):
        return filesystem.read_bytes(path)
    with filesystem.open(path) as file:
        return file.read()


def read_small(path: str) -> bytes:
    """Return all bytes of a file that is small unless it is damaged, such as a manifest."""
    entry = status(path)
    if entry is not None and entry.bytes > _SMALL_BYTES:
        raise DataError(
            f"{path!r} has {entry.bytes:,} bytes, and a file of this kind at most "
            f"{_SMALL_BYTES:,}: restore the file"
        )
    return read_bytes(path)


def read_into(path: str, start: int, out: memoryview, *, version: str = "") -> None:
    """Fill `out` completely with the bytes of a file from `start`."""
    _filesystem(path).read_into(path, start, out, version)


def publish_files(
    pairs: Iterable[tuple[str, str]], *, check: Callable[[], None] | None = None
) -> None:
    """Give finished files of one filesystem their final names, replacing older files.

    Local files are renamed. Objects are copied by their store, so their bytes do not pass through
    this machine; the temporary objects stay until their directory is removed.
    """
    pairs = list(pairs)
    if pairs:
        _writable(pairs[0][1]).publish(pairs, check or (lambda: None))


def remove(path: str) -> None:
    """Remove a file."""
    _writable(path).remove(path)


def remove_tree(path: str) -> None:
    """Remove a directory that this package made, with all in it, if it exists."""
    _writable(path).remove_tree(path)


def make_directory(path: str) -> None:
    """Make a directory and its parents, if the filesystem has directories."""
    if not is_remote(path):
        os.makedirs(path, exist_ok=True)


def remove_directory(path: str) -> None:
    """Remove a directory if it exists and is empty."""
    if not is_remote(path):
        with contextlib.suppress(OSError):
            os.rmdir(path)


def sync_directory(path: str) -> None:
    """Make the names in a local directory survive a power cut."""
    if not is_remote(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
