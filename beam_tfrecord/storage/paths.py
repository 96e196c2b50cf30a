"""Checks and normalizes paths and URLs of files, and refuses outputs that cannot be written to."""

from __future__ import annotations

import dataclasses
import os
from urllib.parse import unquote

from beam_tfrecord.errors import UsageError

OUTPUT_SCHEMES = ("gs", "s3", "az")
WRITABLE = "a local directory, or one on gs://, s3:// or az://"
_FIRST_PRINTED = ord(" ")
_MAX_NAME_BYTES, _MAX_NAME_PARTS = 255, 16
_SYSTEM_NAMES = frozenset(("thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", "@eadir"))


@dataclasses.dataclass(frozen=True)
class Entry:
    """A file, as a listing shows it."""

    path: str
    bytes: int
    version: str


def is_hidden(name: str) -> bool:
    """Return whether a name is that of a hidden file, or of one that an operating system makes."""
    return name.startswith(".") or name.lower() in _SYSTEM_NAMES


def is_plain_name(name: object) -> bool:
    """Return whether a name that was read from a file leads nowhere outside of its directory."""
    if not isinstance(name, str) or any(ord(letter) < _FIRST_PRINTED for letter in name):
        return False
    parts = name.split("/")
    return (
        all(
            part not in ("", ".", "..") and len(os.fsencode(part)) <= _MAX_NAME_BYTES
            for part in parts
        )
        and len(parts) <= _MAX_NAME_PARTS
    )


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is the URL of a remote filesystem."""
    scheme, colon, _ = os.fspath(path).partition("://")
    return bool(colon) and scheme != "file"


def is_web(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is the URL of a file of a web server, which may have a query."""
    return os.fspath(path).startswith(("http://", "https://"))


def public_path(path: str) -> str:
    """Return a path for messages: of the URL of a web server without what may be secret."""
    if not is_web(path):
        return path
    scheme, _, rest = path.partition("://")
    place, slash, name = rest.partition("?")[0].partition("#")[0].partition("/")
    return f"{scheme}://{place.rpartition('@')[2]}{slash}{name}"


def plain_path(path: str) -> str:
    """Return a path as it is, and of the URL of a web server its host and its decoded path."""
    if not is_web(path):
        return path
    scheme, colon, rest = public_path(path).partition("://")
    return f"{scheme}{colon}{unquote(rest)}"


def path_text(path: str | os.PathLike[str]) -> str:
    """Return a path or URL as text, without ``file://``."""
    text = os.fspath(path).removeprefix("file://")
    if not text:
        raise UsageError("a path is empty: give a file, a directory or a URL")
    return text


def absolute_path(path: str | os.PathLike[str]) -> str:
    """Return the absolute form of a local path, or a URL without slashes at its end.

    The URL of a file of a web server is returned as it is.
    """
    text = path_text(path)
    if is_web(text):
        return text
    if is_remote(text):
        scheme, _, rest = text.partition("://")
        return f"{scheme}://{rest.rstrip('/')}"
    return os.path.abspath(text)


def output_path(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of an output."""
    text = absolute_path(path)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"the name of output {text!r} is not utf-8: choose another, or run with PYTHONUTF8=1 "
            "if the locale (LC_ALL) is not one of UTF-8"
        ) from error
    scheme, colon, rest = text.partition("://")
    if colon and scheme not in OUTPUT_SCHEMES:
        raise UsageError(f"cannot write to {public_path(text)!r}: give {WRITABLE}")
    if colon and not rest.partition("/")[0]:
        raise UsageError(f"cannot write to {text!r}: it names no bucket")
    return text
