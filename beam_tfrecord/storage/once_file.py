"""Local files that are read from end to end, once: past the page cache, and ahead of the reader."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import io
import mmap
import os
from typing import Any

from beam_tfrecord.storage.direct_io import BLOCK_BYTES, copy, give_block, read_into, take_block


@dataclasses.dataclass(frozen=True)
class _Piece:
    """Bytes of the file that are being read, or have been.

    Attributes:
        start: Position of the first byte.
        count: How many there are.
        block: Where they are.
        reading: Done when all of them are there.
    """

    start: int
    count: int
    block: mmap.mmap
    reading: concurrent.futures.Future[None]


class OnceFile(io.RawIOBase):
    """A local file read from end to end, once: what was not cached before is not cached after.

    Other files stay in the page cache, and nothing waits for memory that it would take. Nothing
    reads ahead of a reader that goes past the page cache, so a thread of the file does: while one
    block is worked on, the next one is read.

    Args:
        path: The file.

    Raises:
        OSError: It cannot be opened or, from `readinto`, not be read.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._bytes = os.stat(path).st_size
        self._at = 0
        self._reader = concurrent.futures.ThreadPoolExecutor(1, "read-ahead")
        self._piece: _Piece | None = None
        self._next: _Piece | None = None

    def readable(self) -> bool:
        """Tell that it is for reading."""
        return True

    def seekable(self) -> bool:
        """Tell that it may be read again from anywhere."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go on from a byte of the file."""
        begin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._bytes}[whence]
        self._at = begin + offset
        return self._at

    def readinto(self, out: Any) -> int:
        """Fill a buffer as far as the file goes."""
        view = memoryview(out).cast("B")
        done = 0
        try:
            while done < len(view) and self._at < self._bytes:
                count = self._copy_from(self._piece_here(), view[done:])
                self._at += count
                done += count
        except EOFError:
            return 0  # It was cut meanwhile: to whoever reads, its end.
        return done

    def close(self) -> None:
        """Close the file; a second time nothing happens."""
        if not self.closed:
            # What is being read into a block must end before another file gets it.
            self._reader.shutdown()
            self._drop(self._piece)
            self._drop(self._next)
        super().close()

    def _piece_here(self) -> _Piece:
        """Return the piece with the byte that is next, and have the one behind it read."""
        piece = self._piece
        if piece is None or not piece.start <= self._at < piece.start + piece.count:
            ahead, self._next = self._next, None
            if ahead is None or ahead.start != self._at:
                self._drop(ahead)
                ahead = self._begin(self._at)
            self._drop(piece)
            self._piece = piece = ahead
        piece.reading.result()
        end = piece.start + piece.count
        if self._next is None and end < self._bytes:
            self._next = self._begin(end)
        return piece

    def _copy_from(self, piece: _Piece, out: memoryview) -> int:
        begin = self._at - piece.start
        count = min(piece.count - begin, len(out))
        with memoryview(piece.block) as view:
            copy(view[begin : begin + count], out)
        return count

    def _begin(self, start: int) -> _Piece:
        count = min(BLOCK_BYTES, self._bytes - start)
        block = take_block()
        return _Piece(start, count, block, self._reader.submit(self._read, start, count, block))

    def _read(self, start: int, count: int, block: mmap.mmap) -> None:
        with memoryview(block) as view:
            read_into(self._path, start, view[:count])

    def _drop(self, piece: _Piece | None) -> None:
        if piece is not None:
            concurrent.futures.wait([piece.reading])
            give_block(piece.block)
