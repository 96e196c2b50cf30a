"""Listing of input files on remote filesystems, by the same rules as local ones."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Sequence

from beam_tfrecord import storage
from beam_tfrecord.errors import UsageError
from beam_tfrecord.storage import Entry


def remote_entries(path: str) -> Iterator[Entry]:
    """Yield the visible files that a URL names: a file, all below a directory, or a pattern.

    Raises:
        UsageError: There is no bucket of that name, or the name is a pattern.
        StorageError: The filesystem cannot be reached.
    """
    path = storage.absolute_path(path)
    bucket, _, key = path.partition("://")[2].partition("/")
    if glob.has_magic(bucket):
        raise UsageError(f"cannot read {path!r}: the name of a bucket cannot be a pattern")
    entry = storage.status(path) if key else None
    if entry is not None:
        yield entry
    elif glob.has_magic(path):
        yield from _matches(path)
    else:
        yield from _visible(path, storage.list_files(path))


def _matches(pattern: str) -> Iterator[Entry]:
    parts = pattern.split("/")
    literal = next(at for at, part in enumerate(parts) if glob.has_magic(part))
    root = "/".join(parts[:literal])
    # What matches may be a directory too: then all below it.
    matches = re.compile(_translated(parts[literal:]) + "(?:/.*)?", re.DOTALL).fullmatch
    for entry in _visible(root, storage.list_files(root)):
        if matches(entry.path[len(root) + 1 :]):
            yield entry


def _visible(root: str, entries: Iterator[Entry]) -> Iterator[Entry]:
    """Yield the entries without a name below `root` that begins with a dot or an underscore."""
    for entry in entries:
        if not any(part.startswith((".", "_")) for part in entry.path[len(root) + 1 :].split("/")):
            yield entry


def _translated(parts: Sequence[str]) -> str:
    """Return the regular expression of a pattern: ``**`` stands for any number of directories."""
    out = []
    for part in parts:
        if part == "**":
            out.append("(?:[^/]+/)*")
        else:
            out.append(_translated_part(part) + "/")
    expression = "".join(out)
    return expression.removesuffix("/") if parts[-1] != "**" else f"{expression}[^/]+"


def _translated_part(part: str) -> str:
    out = ""
    at = 0
    while at < len(part):
        char = part[at]
        at += 1
        if char == "*":
            out += "[^/]*"
        elif char == "?":
            out += "[^/]"
        elif char == "[" and (end := part.find("]", at + 1)) > 0:
            inside = part[at:end].replace("\\", r"\\")
            out += f"[^{inside[1:]}]" if inside.startswith("!") else f"[{inside}]"
            at = end + 1
        else:
            out += re.escape(char)
    return out
