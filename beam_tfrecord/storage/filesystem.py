"""What the package asks of a filesystem, whichever it is.

Two kinds stand behind it: local directories, where a file is written under a temporary name and
renamed, and object stores, where an upload is visible under its final name only once it is whole.
Either way nobody ever sees a part of a file.
"""

from __future__ import annotations

import abc
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, Protocol

from beam_tfrecord.errors import LeaseLost, UsageError

_OUTPUT_SCHEMES = ("gs", "s3")
_FIRST_PRINTED = ord(" ")
_MOST_NAME_BYTES, _MOST_NAME_PARTS = 255, 16
_SYSTEM_NAMES = frozenset(("thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", "@eadir"))


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


def is_hidden(name: str) -> bool:
    """Tell whether a file or directory is one that people do not see, or did not put there."""
    return name.startswith(".") or name.lower() in _SYSTEM_NAMES


def is_plain_name(name: object) -> bool:
    """Tell whether a name from a file is that of a file in, or below, the same directory."""
    if not isinstance(name, str) or any(ord(letter) < _FIRST_PRINTED for letter in name):
        return False
    parts = name.split("/")
    return (
        all(
            part not in ("", ".", "..") and len(os.fsencode(part)) <= _MOST_NAME_BYTES
            for part in parts
        )
        and len(parts) <= _MOST_NAME_PARTS
    )


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Tell whether a path is the URL of a remote filesystem."""
    scheme, colon, _ = os.fspath(path).partition("://")
    return bool(colon) and scheme != "file"


def absolute_path(path: str | os.PathLike[str]) -> str:
    """Return a local path as an absolute one, and a URL without slashes at its end."""
    text = os.fspath(path)
    if is_remote(text):
        scheme, _, rest = text.partition("://")
        return f"{scheme}://{rest.rstrip('/')}"
    return os.path.abspath(text.removeprefix("file://"))


def output_path(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of an output.

    Raises:
        UsageError: It is on a filesystem that cannot be written to, names no bucket, or is not
            UTF-8, as Beam has to pass it on.
    """
    text = absolute_path(path)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"the name of output {text!r} is not utf-8: choose another, or run with PYTHONUTF8=1 "
            "where the locale (LC_ALL) is not one of UTF-8"
        ) from error
    scheme, colon, rest = text.partition("://")
    if colon and scheme not in _OUTPUT_SCHEMES:
        raise UsageError(
            f"cannot write to {text!r}: give a local directory, or one on gs:// or s3://"
        )
    if colon and not rest.partition("/")[0]:
        raise UsageError(f"cannot write to {text!r}: it names no bucket")
    return text
