"""Objects as files: read by ranges, written in one request or in parts."""

from __future__ import annotations

import contextlib
import io
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

from beam_tfrecord.errors import BeamTFRecordError
from beam_tfrecord.storage.filesystem import Entry

if TYPE_CHECKING:
    from beam_tfrecord.storage.objects import ObjectStore

# A request takes some 50 ms before its first byte comes: fewer and larger ones hide that.
READ_BYTES = 8 * 2**20


class Upload(Protocol):
    """An upload in parts, none of which is visible before the last one is there."""

    def send(self, part: bytes) -> None:
        """Upload the next part; all but the last are `part_bytes` long."""

    def finish(self, last: bytes) -> None:
        """Upload the last part, and make the object visible."""

    def cancel(self) -> None:
        """Forget the parts."""


class ObjectReader(io.RawIOBase):
    """One version of an object as a file that can be sought in."""

    def __init__(self, store: ObjectStore, entry: Entry) -> None:
        super().__init__()
        self._store = store
        self._entry = entry
        self._at = 0

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def seekable(self) -> bool:
        """Tell that it can be sought in."""
        return True

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._at

    def size(self) -> int:
        """Return the size of the object."""
        return self._entry.bytes

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to a position."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._entry.bytes}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readall(self) -> bytes:
        """Return all that follows."""
        # Inherited, this would ask for a few kilobytes at a time.
        out = bytearray(max(0, self._entry.bytes - self._at))
        for low in range(0, len(out), READ_BYTES):
            self.readinto(memoryview(out)[low : low + READ_BYTES])
        return bytes(out)

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer as far as the object goes."""
        out = memoryview(buffer).cast("B")
        out = out[: max(0, self._entry.bytes - self._at)]
        if len(out):
            self._store.read_into(self._entry.path, self._at, out, self._entry.version)
        self._at += len(out)
        return len(out)


class ObjectWriter:
    """An object being written: in one request if it is small, else in parts in the background.

    Args:
        store: Where.
        path: URL of the object.
    """

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._store = store
        self._path = path
        self._part = bytearray()
        self._parts = 0
        self._upload: Upload | None = None
        self._sender: ThreadPoolExecutor | None = None
        # At most one part is under way, so parts are in order and memory is two of them.
        self._pending: Future[None] | None = None
        self._closed = False

    def write(self, data: Any) -> None:
        """Append all bytes of a buffer."""
        if self._closed:
            raise ValueError(f"write to closed object {self._path!r}")
        view = memoryview(data).cast("B")
        at = 0
        while at < len(view):
            limit = self._store.part_bytes(self._parts)
            # A full part waits for more: the last one must not be empty.
            if len(self._part) == limit:
                self._hand_over()
                continue
            count = min(limit - len(self._part), len(view) - at)
            self._part += view[at : at + count]
            at += count

    def close(self) -> None:
        """Make the object visible."""
        if self._closed:
            return
        try:
            self._wait()
            if self._upload is None:
                self._store.put_whole(self._path, bytes(self._part))
            else:
                self._upload.finish(bytes(self._part))
        except BaseException:
            self.abort()
            raise
        self._end()

    def abort(self) -> None:
        """Forget what was uploaded; nothing of it was ever visible."""
        if self._closed:
            return
        with contextlib.suppress(Exception):
            self._wait()
        if self._upload is not None:
            # A part that was sent is worth no error in place of the one that led here.
            with contextlib.suppress(BeamTFRecordError):
                self._upload.cancel()
        self._end()

    def _hand_over(self) -> None:
        self._wait()
        if self._upload is None:
            self._upload = self._store.start_upload(self._path)
            self._sender = ThreadPoolExecutor(1, "upload-parts")
        assert self._sender is not None
        self._pending = self._sender.submit(self._upload.send, bytes(self._part))
        self._part = bytearray()
        self._parts += 1

    def _wait(self) -> None:
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def _end(self) -> None:
        self._closed = True
        self._part = bytearray()
        if self._sender is not None:
            self._sender.shutdown()
