"""Makes directories that only the current user can write to, so that no one else can add code."""

from __future__ import annotations

import errno
import os
import stat


def private_directory(path: str) -> str:
    """Make a directory that only the current user can write to, or check an existing directory.

    The path may be a symbolic link of the user to such a directory.

    Returns:
        The path.

    Raises:
        OSError: The directory cannot be made, belongs to another user, or others may write to it.
    """
    os.makedirs(path, mode=0o700, exist_ok=True)
    link, found = os.lstat(path), os.stat(path)
    if not (link.st_uid == found.st_uid == os.getuid()):
        raise PermissionError(errno.EPERM, "it belongs to another user", path)
    if stat.S_IMODE(found.st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(errno.EPERM, "other users may write to it", path)
    return path
