"""The interface of a filesystem, and the spelling of paths.

Local directories write a file under a temporary name and rename it. Object stores make an upload
visible under its final name once it is complete. Either way nobody ever sees a part of a file.
"""

from __future__ import annotations

import abc
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, NoReturn, Protocol

from beam_tfrecord.errors import UsageError

OUTPUT_SCHEMES = ("gs", "s3", "az")
_OUTPUTS = "a local directory, or one on gs://, s3:// or az://"
_FIRST_PRINTED = ord(" ")
_MOST_NAME_BYTES, _MOST_NAME_PARTS = 255, 16
_SYSTEM_NAMES = frozenset(("thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", "@eadir"))


@dataclasses.dataclass(frozen=True)
class Entry:
    """A file in a listing.

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
        """Append all bytes of a buffer, which the caller may use again at once."""

    def close(self) -> None:
        """Make the file visible; if that fails, leave nothing."""

    def abort(self) -> None:
        """Leave nothing of what was written."""


class Filesystem(abc.ABC):
    """A filesystem; every path is absolute, and a missing file is a `FileNotFoundError`.

    The methods that write refuse, unless a subclass replaces them.
    """

    @abc.abstractmethod
    def status(self, path: str) -> Entry | None:
        """Return size and version of a file, or None if there is no such file."""

    @abc.abstractmethod
    def is_directory(self, path: str) -> bool:
        """Return whether there is a directory; on an object store, anything below that name."""

    @abc.abstractmethod
    def names(self, directory: str) -> list[str]:
        """Return the sorted names in a directory; none if it is missing."""

    @abc.abstractmethod
    def files(self, directory: str) -> Iterator[Entry]:
        """Yield all files below a directory, at any depth."""

    @abc.abstractmethod
    def read_into(self, path: str, start: int, out: memoryview, version: str) -> None:
        """Fill `out` with the bytes of a file from `start`; a version as for `open`.

        Raises:
            EOFError: The file ends earlier.
        """

    @abc.abstractmethod
    def open(self, path: str, buffer_bytes: int | None, version: str = "") -> BinaryIO:
        """Open a file for reading; the file object can seek.

        Args:
            path: The file.
            buffer_bytes: Size of the buffer; 0: none; None: what suits the filesystem.
            version: On an object store, refuse any other version; empty: open the current one.

        Raises:
            InputChanged: The file has another version.
        """

    def open_once(self, path: str) -> BinaryIO:
        """Open a file that is read once, from end to end."""
        return self.open(path, None)

    def read_bytes(self, path: str) -> bytes:
        """Return all bytes of a file."""
        with self.open(path, None) as file:
            return file.read()

    def create(self, path: str, temporary: str | None, *, outlasts: bool) -> Writer:
        """Begin a file that appears under its name once it is complete.

        Args:
            path: Final path.
            temporary: Where to write before that, if the filesystem can rename.
            outlasts: The file must survive a crash of the machine.
        """
        _refuse(path)

    def put_absent(self, path: str, data: bytes) -> bool:
        """Write a file unless there is one; return whether the file there is this one."""
        _refuse(path)

    def publish(self, pairs: Iterable[tuple[str, str]], check: Callable[[], None]) -> None:
        """Move finished files to their final names, over older files; call `check` before each."""
        _refuse(next(iter(pairs))[1])

    def remove(self, path: str) -> None:
        """Remove a file."""
        _refuse(path)

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it, if it exists."""
        _refuse(path)

    def lease(self, path: str) -> AbstractContextManager[str]:
        """Hold the lock file of an output directory; return the token that the file holds."""
        _refuse(path)

    def make_directory(self, path: str) -> None:  # noqa: B027 - most stores have none
        """Make a directory and its parents."""

    def remove_directory(self, path: str) -> None:  # noqa: B027
        """Remove a directory if it is empty."""

    def sync_directory(self, path: str) -> None:  # noqa: B027
        """Make the names in a directory survive a power cut."""


def _refuse(path: str) -> NoReturn:
    scheme = path.partition("://")[0]
    raise UsageError(
        f"cannot write to {os.path.dirname(path)!r}: {scheme}:// is for input alone: give "
        f"{_OUTPUTS}"
    )


def is_hidden(name: str) -> bool:
    """Return whether people do not see a file, or did not put it there."""
    return name.startswith(".") or name.lower() in _SYSTEM_NAMES


def is_plain_name(name: object) -> bool:
    """Return whether a name from a file is that of a file in, or below, the same directory."""
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
    """Return whether a path is the URL of a remote filesystem."""
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
        UsageError: Its filesystem is for reading alone, it names no bucket, or it is not UTF-8,
            which Beam needs to pass it on.
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
    if colon and scheme not in OUTPUT_SCHEMES:
        raise UsageError(f"cannot write to {text!r}: give {_OUTPUTS}")
    if colon and not rest.partition("/")[0]:
        raise UsageError(f"cannot write to {text!r}: it names no bucket")
    return text
