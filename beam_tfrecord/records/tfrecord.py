"""Files of records: the TFRecord framing on disk, plain or compressed with gzip.

A record is its length (8 bytes, little-endian), the masked CRC-32C of those 8 bytes, the payload,
and the masked CRC-32C of the payload: the format of TensorFlow's ``RecordWriter``. Writing is
here; reading is in `reader_blocks` and offered from here too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
from isal import isal_zlib

from beam_tfrecord import native
from beam_tfrecord.errors import UsageError
from beam_tfrecord.records.blocks import (
    COMPRESSIONS,
    RecordBlock,
    RecordFault,
    read_blocks,
    read_records,
)
from beam_tfrecord.storage import WholeFile

__all__ = [
    "COMPRESSIONS",
    "GzipCompressor",
    "RecordBlock",
    "RecordFault",
    "ShardStream",
    "frame_record",
    "read_blocks",
    "read_records",
    "write_records",
]

# Level 3 is half as fast and saves less than one percent on examples.
_GZIP_LEVEL = 2
_GZIP_CONTAINER = 31
_GZIP_PIECE_BYTES = 2**20


class GzipCompressor:
    """A gzip member whose bytes depend on the data alone.

    The header has no name and time 0. Data is cut at fixed positions, since where the codec is
    fed decides what it emits.
    """

    def __init__(self) -> None:
        self._codec = isal_zlib.compressobj(level=_GZIP_LEVEL, wbits=_GZIP_CONTAINER)
        self._pending = bytearray()

    def compress(self, data: Any) -> Iterator[bytes]:
        """Yield the compressed bytes that are ready after `data`."""
        view = memoryview(data).cast("B")
        at = 0
        if self._pending:
            at = min(_GZIP_PIECE_BYTES - len(self._pending), len(view))
            self._pending += view[:at]
            if len(self._pending) < _GZIP_PIECE_BYTES:
                return
            yield self._codec.compress(self._pending)
            self._pending = bytearray()
        while len(view) - at >= _GZIP_PIECE_BYTES:
            yield self._codec.compress(view[at : at + _GZIP_PIECE_BYTES])
            at += _GZIP_PIECE_BYTES
        self._pending += view[at:]

    def flush(self) -> bytes:
        """Return the last bytes."""
        return self._codec.compress(self._pending) + self._codec.flush()


class ShardStream:
    """A shard being written: framed records in, a whole file out.

    Used as a context manager it takes the file away unless `close` was called.

    Args:
        path: Final path.
        compression: ``""`` or ``GZIP``.
        temporary: Where to write before that; by default beside it.

    Raises:
        UsageError: The compression is not known.
    """

    def __init__(self, path: str, compression: str, temporary: str | None = None) -> None:
        if compression not in COMPRESSIONS:
            raise UsageError(f"compression {compression!r} is not known: use '' or 'GZIP'")
        self._codec = GzipCompressor() if compression else None
        self._hash = native.XXH64(0)
        self._stored_hash = native.XXH64(0)
        self._bytes = 0
        self._file: WholeFile | None = WholeFile(path, temporary=temporary)

    def write(self, buffer: Any) -> None:
        """Write a buffer of framed records, or a part of one."""
        if self._file is None:
            raise ValueError("write to a closed shard")
        view = memoryview(buffer).cast("B")
        self._hash.update(view)
        self._bytes += len(view)
        if self._codec is None:
            self._file.write(view)
            return
        for piece in self._codec.compress(view):
            self._stored_hash.update(piece)
            self._file.write(piece)

    @property
    def stored_xxh64(self) -> str:
        """XXH64 of the compressed file once it is closed, 16 hex digits; empty without a codec."""
        return f"{self._stored_hash.intdigest():016x}" if self._codec else ""

    def close(self) -> tuple[int, str]:
        """Publish the file.

        Returns:
            The size of the record stream before compression, and its XXH64 as 16 hex digits.
        """
        if self._file is None:
            raise ValueError("close of a closed shard")
        if self._codec is not None:
            rest = self._codec.flush()
            self._stored_hash.update(rest)
            self._file.write(rest)
        file, self._file = self._file, None
        file.close()
        return self._bytes, f"{self._hash.intdigest():016x}"

    def abort(self) -> None:
        """Take away what was written; nothing happens after `close`."""
        if self._file is not None:
            self._file.abort()
            self._file = None

    def __enter__(self) -> ShardStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.abort()


def write_records(
    path: str | os.PathLike[str], records: Iterable[bytes], *, compression: str = ""
) -> tuple[int, str]:
    """Write a file of records; it is there under its name only when whole.

    Returns:
        The size of the record stream before compression, and its XXH64 as 16 hex digits.
    """
    with ShardStream(os.fspath(path), compression) as shard:
        for record in records:
            shard.write(frame_record(record))
        return shard.close()


def frame_record(payload: bytes) -> bytes:
    """Return one framed record."""
    values = pa.array([payload], pa.large_binary())
    out = np.empty(native.frame_bound(values), dtype=np.uint8)
    size = native.frame(values, out, 0, np.empty(1, dtype=np.int64))
    return out[:size].tobytes()
