"""Pictures on remote filesystems: a listing tells the folders, and pictures are read whole.

An object store has no folders, only names with slashes in them, so that the folders are what a
pass over the listing shows. It comes in the order of the names, and is never held in memory.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence

from beam_tfrecord import storage
from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.images.files import Files, read_each
from beam_tfrecord.sources.images.pack import Found

# These list objects in the byte order of their names; of others nothing is known.
_SORTED_SCHEMES = ("gs://", "s3://")


def remote_root(paths: Sequence[str]) -> str | None:
    """Return the one remote directory among the inputs; None where all are local.

    Raises:
        UsageError: There are several inputs, or a pattern.
    """
    remote = [path for path in paths if storage.is_remote(path)]
    if not remote:
        return None
    if len(paths) > 1 or glob.has_magic(remote[0]):
        raise UsageError(
            f"cannot read {remote[0]!r} so: give one directory of pictures, without a pattern"
        )
    return storage.absolute_path(remote[0])


def remote_folders(root: str, depth: int) -> list[str]:
    """Return the names of all folders that are `depth` folders below `root`, sorted."""
    names = {
        parts[depth]
        for entry in storage.list_files(root)
        if len(parts := entry.path[len(root) + 1 :].split("/")) > depth + 1
    }
    return sorted(names)


def list_remote(root: str) -> Iterator[tuple[str, Found]]:
    """Yield path relative to `root`, and what is found there, in order of the paths."""
    entries = storage.list_files(root)
    if not root.startswith(_SORTED_SCHEMES):
        entries = iter(sorted(entries, key=lambda entry: entry.path))
    for entry in entries:
        name = entry.path[len(root) + 1 :]
        yield name, Found(name.encode(), entry.bytes, entry.version)


def read_remote(paths: Sequence[str], sizes: Sequence[int]) -> Files:
    """Read whole files, whatever their expected sizes.

    Raises:
        StorageError: The filesystem cannot be reached.
    """
    return read_each(paths, storage.read_bytes)
