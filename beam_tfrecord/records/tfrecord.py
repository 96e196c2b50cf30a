"""Reads and writes TFRecord files, plain or compressed with gzip.

A record is the length of the payload (8 bytes, little-endian), the masked CRC-32C of those 8 bytes,
the payload, and the masked CRC-32C of the payload: the format of TensorFlow's ``RecordWriter``.

Files are read in *blocks*: many records in one buffer, which the native kernel checks without
Python code for single records. Memory is one block, independent of the size of the file.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
from isal import igzip, isal_zlib

from beam_tfrecord import native
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.native.kernel_types import Int64Array, UInt8Array
from beam_tfrecord.rows.batch import EXAMPLES_SCHEMA
from beam_tfrecord.storage import WholeFile, open_once, open_read

COMPRESSIONS = ("", "GZIP")

# Large enough to hide the cost of a call, small enough for many shards to be open at once.
BLOCK_BYTES = 8 * 2**20

FRAME_BYTES = 16
# A record begins with its length and the checksum of that.
LENGTH_BYTES, HEADER_BYTES = 8, 12
_GZIP_MAGIC = b"\x1f\x8b\x08"
# The type stubs of isal declare its error class as an instance.
_CODEC_ERRORS = (EOFError, igzip.BadGzipFile, cast(type[Exception], isal_zlib.IsalError))

# Not 3: it is half as fast and saves less than one percent on examples.
_GZIP_LEVEL = 2
_GZIP_CONTAINER = 31
_GZIP_PIECE_BYTES = 2**20
# Protobuf has no longer messages.
_MOST_BYTES = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class RecordFault:
    """The position of a damaged or incomplete record in a file, and the reason."""

    position: int
    record: int
    reason: str

    @property
    def where(self) -> str:
        """The position as text for messages."""
        return f"byte {self.position} (record {self.record})"


@dataclasses.dataclass(frozen=True, eq=False)
class RecordBlock:
    """Consecutive records of a file in one buffer."""

    data: UInt8Array
    starts: Int64Array
    position: int
    first_record: int

    def payloads(self) -> Iterator[bytes]:
        """Yield the payload of every record."""
        begins = self.starts + HEADER_BYTES
        digits = self.data[self.starts[:, None] + np.arange(LENGTH_BYTES)]
        ends = begins + digits.view("<i8")[:, 0]
        view = self.data.data
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            yield view[begin:end].tobytes()

    def slice(self, start: int, stop: int) -> RecordBlock:
        """Return a block of the records `start` to `stop` that shares the bytes of this one."""
        return dataclasses.replace(
            self, starts=self.starts[start:stop], first_record=self.first_record + start
        )


def framed_batch(block: RecordBlock) -> pa.RecordBatch:
    """Return the framed records of a block as the values of one column, without a copy.

    All records of the block have to be intact, so that they follow each other.
    """
    offsets = np.append(block.starts, len(block.data))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(block.data)]
    column = pa.Array.from_buffers(pa.large_binary(), len(block.starts), buffers)
    return pa.RecordBatch.from_arrays([column], schema=EXAMPLES_SCHEMA)


def framed_records(column: pa.Array) -> tuple[UInt8Array, Int64Array]:
    """Return the bytes of a column of framed records, and where each record begins."""
    if not len(column):
        return np.empty(0, np.uint8), np.empty(0, np.int64)
    _, ends, values = column.buffers()
    offsets = np.frombuffer(ends, np.int64)[column.offset : column.offset + len(column) + 1]
    data = np.frombuffer(values, np.uint8)[offsets[0] : offsets[-1]]
    return data, offsets[:-1] - offsets[0]


def read_blocks(
    path: str | os.PathLike[str],
    *,
    compression: str | None = None,
    block_bytes: int = BLOCK_BYTES,
    on_fault: Callable[[RecordFault], None] | None = None,
    is_once: bool = False,
) -> Iterator[RecordBlock]:
    """Yield the records of a file in order, in blocks of about `block_bytes`.

    A record larger than a block forms a block of its own.
    """
    name = os.fspath(path)

    def fail(fault: RecordFault) -> None:
        raise DataError(
            f"{name!r} is damaged at {fault.where}: {fault.reason}: restore the file, write the "
            "dataset again, or save its intact records with repair"
        )

    try:
        with (open_once if is_once else open_read)(name) as file:
            known = detect_compression(file) if compression is None else compression
            stream = _open_stream(file, known)
            yield from _Scanner(stream, on_fault or fail, reuse=is_once).blocks(block_bytes)
    except FileNotFoundError:
        raise DataError(f"{name!r} is missing: restore it or write the dataset again") from None
    except IsADirectoryError:
        raise DataError(f"{name!r} is a directory: restore the file") from None


def read_part(
    file: BinaryIO,
    start: int,
    stop: int,
    *,
    compression: str,
    first_record: int,
    on_fault: Callable[[RecordFault], None],
) -> Iterator[RecordBlock]:
    """Yield the records of a part of an open file, in blocks of about `BLOCK_BYTES`."""
    file.seek(start)
    stream = _open_stream(
        file if compression else cast(BinaryIO, _Range(file, stop - start)), compression
    )
    yield from _Scanner(stream, on_fault, reuse=False, at=(start, first_record)).blocks(BLOCK_BYTES)


class _Range:
    """The next bytes of a file as a stream that ends after them."""

    def __init__(self, file: BinaryIO, nbytes: int) -> None:
        self._file, self._left = file, nbytes

    def readinto(self, buffer: memoryview) -> int:
        """Fill a buffer with bytes, and return their number; 0 at the end."""
        count: int = self._file.readinto(buffer[: self._left])  # type: ignore[attr-defined]
        self._left -= count
        return count


def detect_compression(file: BinaryIO) -> str:
    """Return the compression of a file by its first bytes, and rewind the file.

    The length of the first record of a plain file may look like the magic number of gzip, but then
    the checksum of that length follows.
    """
    head = file.read(HEADER_BYTES)
    file.seek(0)
    if not head.startswith(_GZIP_MAGIC):
        return ""
    return "GZIP" if payload_bytes(head) is None else ""


def payload_bytes(head: Any) -> int | None:
    """Return the length of a record that begins with `head`, if the checksum of it is right."""
    length, crc = bytes(head[:LENGTH_BYTES]), bytes(head[LENGTH_BYTES:HEADER_BYTES])
    is_right = len(crc) == HEADER_BYTES - LENGTH_BYTES and (
        native.masked_crc32c(length) == int.from_bytes(crc, "little")
    )
    return int.from_bytes(length, "little") if is_right else None


def _open_stream(file: BinaryIO, compression: str) -> BinaryIO:
    if compression not in COMPRESSIONS:
        raise UsageError(f"compression {compression!r} is not known: use '' or 'GZIP'")
    # The stubs of isal leave its constructor untyped.
    return cast(BinaryIO, igzip.IGzipFile(fileobj=file)) if compression else file  # type: ignore[no-untyped-call]


class _Scanner:
    """Cuts a stream of bytes into blocks of complete records."""

    def __init__(
        self,
        stream: BinaryIO,
        on_fault: Callable[[RecordFault], None],
        *,
        reuse: bool,
        at: tuple[int, int] = (0, 0),
    ) -> None:
        self._stream = stream
        self._on_fault = on_fault
        self._reuse = reuse
        self._position, self._record = at
        self._ended = False
        self._codec_error = ""

    def blocks(self, block_bytes: int) -> Iterator[RecordBlock]:
        """Yield the blocks, each of about `block_bytes` or of one larger record."""
        memory = rest = np.empty(0, dtype=np.uint8)
        wanted = block_bytes
        while not self._ended:
            if not self._reuse or len(memory) < wanted:
                memory = np.empty(max(wanted, len(rest) + 1), dtype=np.uint8)
            memory[: len(rest)] = rest
            data = memory[: self._fill(memory, len(rest))]
            starts, records, consumed = self._scan(data)
            if consumed:
                yield RecordBlock(data[:consumed], starts, self._position, self._record)
            self._position += consumed
            self._record += records
            rest = data[consumed:]
            # Double the block for a large record; its length may be damaged, so do not trust it.
            wanted = block_bytes if consumed else 2 * len(data)
        if self._codec_error:
            self._report(0, f"the gzip stream is damaged: {self._codec_error}")
        elif len(rest):
            self._report(0, f"the file ends within this record, after {len(rest)} bytes of it")

    def _fill(self, data: UInt8Array, filled: int) -> int:
        view = data.data
        try:
            while filled < len(data) and not self._ended:
                count = self._stream.readinto(view[filled:])  # type: ignore[attr-defined]
                self._ended = not count
                filled += count
        except _CODEC_ERRORS as error:
            # Reported at the end: the bytes decompressed before may contain complete records.
            self._ended = True
            self._codec_error = str(error)
        return filled

    def _scan(self, data: UInt8Array) -> tuple[Int64Array, int, int]:
        """Return the starts of intact records, the number of all records, and their bytes."""
        parts: list[Int64Array] = []
        at = records = 0
        while True:
            frames = native.scan_frames(data[at:], True)
            parts.append(frames.starts + at)
            records += len(frames.starts)
            at += frames.consumed
            head = data[at : at + HEADER_BYTES]
            length = int.from_bytes(head[:LENGTH_BYTES].tobytes(), "little")
            if frames.fault is not None:
                reason = frames.fault[1]
            elif len(head) == HEADER_BYTES and length > _MOST_BYTES:
                reason = f"it has {length:,} bytes, and an example has at most {_MOST_BYTES:,}"
            else:
                return np.concatenate(parts), records, at
            self._report(at, reason, records)
            if payload_bytes(head) is None or length + FRAME_BYTES > len(data) - at:
                self._ended = True
                return np.concatenate(parts), records, len(data)
            at += length + FRAME_BYTES
            records += 1

    def _report(self, at: int, reason: str, records: int = 0) -> None:
        self._on_fault(RecordFault(self._position + at, self._record + records, reason))


class GzipCompressor:
    """Compresses data into a gzip member whose bytes depend only on the data.

    The header has no file name and time 0. The output of the codec depends on the sizes of the
    pieces that it gets, so the data is cut at fixed positions.
    """

    def __init__(self) -> None:
        self._codec = isal_zlib.compressobj(level=_GZIP_LEVEL, wbits=_GZIP_CONTAINER)
        self._pending = bytearray()

    def compress(self, data: Any) -> Iterator[bytes]:
        """Add `data`, and yield the compressed bytes that are ready."""
        self._pending += data
        while len(self._pending) >= _GZIP_PIECE_BYTES:
            piece = self._pending[:_GZIP_PIECE_BYTES]
            del self._pending[:_GZIP_PIECE_BYTES]
            yield self._codec.compress(piece)

    def flush(self) -> bytes:
        """Return the last bytes."""
        return self._codec.compress(self._pending) + self._codec.flush()


class ShardStream:
    """Writes framed records to a shard file, which gets its final path only at `close`."""

    def __init__(self, path: str, compression: str) -> None:
        self._codec = GzipCompressor() if compression else None
        self._hash = native.XXH64(0)
        self._stored_hash = native.XXH64(0)
        self._bytes = 0
        self._file = WholeFile(path)

    def write(self, buffer: Any) -> None:
        """Write a buffer of framed records, or a part of a record."""
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
        """XXH64 of the file after `close`, 16 hex digits; empty without compression."""
        return f"{self._stored_hash.intdigest():016x}" if self._codec else ""

    def close(self) -> tuple[int, str]:
        """Give the file its final path; return size and hash of the records."""
        if self._codec is not None:
            rest = self._codec.flush()
            self._stored_hash.update(rest)
            self._file.write(rest)
        self._file.close()
        return self._bytes, f"{self._hash.intdigest():016x}"

    def abort(self) -> None:
        """Remove the unfinished file."""
        self._file.abort()
