"""What the package asks of a filesystem, whichever it is.

Two kinds stand behind it: local directories, where a file is written under a temporary name and
renamed, and object stores, where an upload is visible under its final name only once it is whole.
Either way nobody ever sees a part of a file.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, Protocol

from beam_tfrecord.errors import LeaseLost


@dataclasses.dataclass(frozen=True)
class Entry:
    """A file as its filesystem tells it.

    Attributes:
        path: Path or URL.
        bytes: Size.
        version: Changes whenever the content does: modification time in ns, generation or etag.
    """

    path: str
    bytes: int
    version: str


class Writer(Protocol):
    """A file that is being written, from its start to its end."""

    def write(self, data: Any) -> None:
        """Append all bytes of a buffer, which may be used again at once."""

    def close(self) -> None:
        """Make the file visible; where that fails, leave nothing."""

    def abort(self) -> None:
        """Leave nothing of what was written."""


@dataclasses.dataclass(frozen=True)
class Lease:
    """The right to write to an output directory: a value that workers can be given.

    Attributes:
        path: File of the lease.
        token: What this job wrote into it.
    """

    path: str
    token: str

    def check(self) -> None:
        """Make sure that the lease is still this job's; to be called before each final write.

        Raises:
            LeaseLost: Another job has taken it, or it was given back.
        """
        from beam_tfrecord.storage import read_bytes

        try:
            holder = read_bytes(self.path)
        except FileNotFoundError:
            holder = b""
        if self.token.encode() not in holder:
            raise LeaseLost(
                f"{self.path!r} is no longer this job's: another job has taken the output over, "
                "and this one stops before it writes anything more"
            )


class Filesystem(abc.ABC):
    """A filesystem; every path is absolute, and a missing file is a `FileNotFoundError`."""

    @abc.abstractmethod
    def status(self, path: str) -> Entry | None:
        """Return a file, or None where there is none."""

    @abc.abstractmethod
    def is_directory(self, path: str) -> bool:
        """Tell whether a directory is there; on an object store, anything below that name."""

    @abc.abstractmethod
    def names(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted; none where it is missing."""

    @abc.abstractmethod
    def files(self, directory: str) -> Iterator[Entry]:
        """Yield all files below a directory, through and through."""

    @abc.abstractmethod
    def read_into(self, path: str, start: int, out: memoryview, version: str) -> None:
        """Fill `out` with the bytes of a file from `start`.

        Args:
            path: The file.
            start: Position of the first byte.
            out: Where to.
            version: Refuse any other version of the file; empty: take the one that is there.

        Raises:
            EOFError: The file ends before.
        """

    @abc.abstractmethod
    def open(self, path: str, buffer_bytes: int | None, version: str = "") -> BinaryIO:
        """Open a file for reading; it can be sought in.

        Args:
            path: The file.
            buffer_bytes: Size of the buffer; 0: none; None: what suits the filesystem.
            version: On an object store, refuse any other version of the file; empty: take the one
                that is there.

        Raises:
            InputChanged: It is of another version.
        """

    def open_once(self, path: str) -> BinaryIO:
        """Open a file that is read once, from end to end."""
        return self.open(path, None)

    def read_bytes(self, path: str) -> bytes:
        """Return all bytes of a file."""
        with self.open(path, None) as file:
            return file.read()

    @abc.abstractmethod
    def create(self, path: str, temporary: str | None, *, outlasts: bool) -> Writer:
        """Begin a file that appears under its name once it is whole.

        Args:
            path: Final path.
            temporary: Where to write before that, where the filesystem can rename.
            outlasts: It must survive a crash of the machine.
        """

    @abc.abstractmethod
    def put_absent(self, path: str, data: bytes) -> bool:
        """Write a whole file unless there is one; tell whether the file there is this one."""

    @abc.abstractmethod
    def publish(self, pairs: Iterable[tuple[str, str]], check: Callable[[], None]) -> None:
        """Give finished files their final names, in place of any older ones; check before each."""

    @abc.abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file."""

    @abc.abstractmethod
    def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it; it may be gone already."""

    @abc.abstractmethod
    def lease(self, directory: str) -> AbstractContextManager[Lease]:
        """Hold an output directory for one job."""

    def make_directory(self, path: str) -> None:  # noqa: B027 - most stores have none
        """Make a directory and those above it."""

    def remove_directory(self, path: str) -> None:  # noqa: B027
        """Remove a directory if it is empty."""

    def sync_directory(self, path: str) -> None:  # noqa: B027
        """Make the names in a directory outlast a power cut."""
