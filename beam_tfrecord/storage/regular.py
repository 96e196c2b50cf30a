"""Regular files: nothing else is opened, for it may block for ever, or have no end."""

from __future__ import annotations

import errno
import os
import stat

from beam_tfrecord.errors import DataError


def open_file(path: str, flags: int = 0) -> int:
    """Open a regular file, or a link to one, for reading; return its descriptor.

    Args:
        path: The file.
        flags: Further flags of open(2).

    Raises:
        DataError: It is a pipe, a device or another thing of that kind.
        OSError: It cannot be opened.
    """
    checked_status(path)
    # It may have been replaced since; a pipe without a writer blocks whoever opens it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | flags)
    try:
        _check(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def checked_status(path: str) -> os.stat_result:
    """Return what is known of a file or directory, links followed, without opening it.

    Raises:
        DataError: It is neither of them, or a link that leads to itself.
        OSError: It is not there, or cannot be looked at.
    """
    try:
        status = os.stat(path)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise DataError(f"{path!r} is a link that leads to itself: restore the file") from None
    if not stat.S_ISDIR(status.st_mode):
        _check(path, status)
    return status


def _check(path: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(status.st_mode):
        raise DataError(f"{path!r} is no regular file: restore the file")
