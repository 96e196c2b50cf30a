"""Local files that are read from end to end, once, and leave the page cache as they found it."""

from __future__ import annotations

import io
import os
from typing import Any

from beam_tfrecord.storage.direct_io import is_cached
from beam_tfrecord.storage.regular import open_file


class OnceFile(io.RawIOBase):
    """A local file read from end to end, once: what was not cached before is not cached after.

    The kernel reads ahead, as for any file, and is told of what has been read that nobody needs
    it. So other files stay in the page cache, and the same few pages are filled again and again,
    which is more than twice as fast as to take fresh ones for the whole file.

    Args:
        path: The file.

    Raises:
        DataError: It is no regular file.
        OSError: It cannot be opened or, from `readinto`, not be read.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._descriptor = open_file(path)
        self._at = 0
        # Later bytes are no sign: the kernel may just have read them ahead. The first is no sure
        # one: the question may make the kernel read it, on a busy machine before it answers. Such
        # a file then stays in the cache.
        self._forgets = hasattr(os, "posix_fadvise") and not is_cached(self._descriptor, 0)

    def readable(self) -> bool:
        """Tell that it is for reading."""
        return True

    def seekable(self) -> bool:
        """Tell that it may be read again from anywhere."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go on from a byte of the file."""
        bases = {os.SEEK_SET: 0, os.SEEK_CUR: self._at}
        base = bases[whence] if whence in bases else os.fstat(self._descriptor).st_size
        self._at = base + offset
        return self._at

    def readinto(self, out: Any) -> int:
        """Fill a buffer as far as the file goes."""
        count = os.preadv(self._descriptor, [out], self._at)
        if self._forgets:
            # From the very start: pages are kept in folios, of up to megabytes, and one that only
            # reaches into a range is not forgotten with it.
            os.posix_fadvise(self._descriptor, 0, self._at + count, os.POSIX_FADV_DONTNEED)
        self._at += count
        return count

    def close(self) -> None:
        """Close the file; a second time nothing happens."""
        if not self.closed:
            os.close(self._descriptor)
        super().close()
