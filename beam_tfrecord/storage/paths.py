"""Spellings of paths: local ones and URLs."""

from __future__ import annotations

import os

from beam_tfrecord.errors import UsageError

_OUTPUT_SCHEMES = ("gs", "s3")
_FIRST_PRINTED = ord(" ")
_MOST_NAME_BYTES, _MOST_NAME_PARTS = 255, 16
_SYSTEM_NAMES = frozenset(("thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", "@eadir"))


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
