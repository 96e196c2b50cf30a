"""Makes temporary directories and removes them, and checks that a directory is private."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tempfile
import weakref
from collections.abc import Iterator


def private_directory(path: str) -> str:
    """Make a directory that only the current user can write to, or check an existing directory.

    So no one else can add code to it.

    The path may be a symbolic link of the user to such a directory.
    """
    os.makedirs(path, mode=0o700, exist_ok=True)
    link, found = os.lstat(path), os.stat(path)
    if not (link.st_uid == found.st_uid == os.getuid()):
        raise PermissionError(errno.EPERM, "it belongs to another user", path)
    if stat.S_IMODE(found.st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(errno.EPERM, "other users may write to it", path)
    return path


_scratch: set[str] = set()


@contextlib.contextmanager
def scratch_directory() -> Iterator[str]:
    """Make a temporary directory, and remove it at the end of the block."""
    directory = tempfile.mkdtemp(prefix="beam-tfrecord-")
    _scratch.add(directory)
    try:
        yield directory
    finally:
        _remove(directory)


def remove_with(owner: object, directory: str) -> None:
    """Remove a directory as soon as `owner` is no longer used, or at the end of this process."""
    _scratch.add(directory)
    weakref.finalize(owner, _remove, directory)


def remove_scratch() -> None:
    """Remove what `scratch_directory` and `remove_with` left, before this process is ended."""
    for directory in tuple(_scratch):
        _remove(directory)


def _remove(directory: str) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    _scratch.discard(directory)
