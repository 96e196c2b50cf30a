"""Files of records: the TFRecord framing on disk, plain or compressed with gzip.

A record is its length (8 bytes, little-endian), the masked CRC-32C of those 8 bytes, the payload,
and the masked CRC-32C of the payload: the format of TensorFlow's ``RecordWriter``. Writing is
here; reading is in `reader_blocks` and offered from here too.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from isal import igzip, isal_zlib

from beam_tfrecord import native
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.storage import WholeFile, open_once, open_read

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


UInt8Array = npt.NDArray[np.uint8]
Int64Array = npt.NDArray[np.int64]

COMPRESSIONS = ("", "GZIP")

# Enough to hide the cost of a call, small enough for many shards to be open at once.
BLOCK_BYTES = 8 * 2**20

FRAME_BYTES = 16
_LENGTH_BYTES = 8
_HEADER_BYTES = 12
_GZIP_MAGIC = b"\x1f\x8b\x08"
# The stubs of isal take its error for an instance.
_CODEC_ERRORS = (EOFError, igzip.BadGzipFile, cast(type[Exception], isal_zlib.IsalError))


@dataclasses.dataclass(frozen=True)
class RecordFault:
    """Bytes of a record file that are not a sound record.

    Attributes:
        position: Byte position of the record in the record stream: after decompression.
        record: Number of the record within the file, from 0.
        reason: What is wrong, in a few words.
    """

    position: int
    record: int
    reason: str

    @property
    def where(self) -> str:
        """The place within the file."""
        return f"byte {self.position} (record {self.record})"


@dataclasses.dataclass(frozen=True, eq=False)
class RecordBlock:
    """Consecutive records of a file.

    Attributes:
        data: The bytes of the framed records, shape `[bytes]`.
        starts: Position in `data` of every sound record, shape `[records]`.
        position: Byte position of the block in the record stream.
        first_record: Number of its first record within the file.
    """

    data: UInt8Array
    starts: Int64Array
    position: int
    first_record: int

    def payloads(self) -> Iterator[bytes]:
        """Yield the payload of every record."""
        begins = self.starts + _HEADER_BYTES
        ends = begins + payload_lengths(self.data, self.starts)
        view = self.data.data
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            yield view[begin:end].tobytes()

    def slice(self, start: int, stop: int) -> RecordBlock:
        """Return the records `start` to `stop` over the same bytes."""
        return dataclasses.replace(
            self, starts=self.starts[start:stop], first_record=self.first_record + start
        )


def payload_lengths(data: UInt8Array, starts: Int64Array) -> Int64Array:
    """Return the length of the payload of every framed record, shape `[records]`."""
    digits = data[starts[:, None] + np.arange(_LENGTH_BYTES)]
    lengths: Int64Array = digits.view("<i8")[:, 0]
    return lengths


def record_sizes(data: UInt8Array, starts: Int64Array) -> Int64Array:
    """Return the size of every framed record, its frame included, shape `[records]`."""
    return payload_lengths(data, starts) + FRAME_BYTES


def read_blocks(
    path: str | os.PathLike[str],
    *,
    compression: str | None = None,
    block_bytes: int = BLOCK_BYTES,
    on_fault: Callable[[RecordFault], None] | None = None,
    is_once: bool = False,
) -> Iterator[RecordBlock]:
    """Yield the records of a file in order, in blocks of about `block_bytes`.

    A record larger than a block makes a block of its own. Blocks own their memory.

    Args:
        path: The file.
        compression: ``""``, ``GZIP`` (several members too), or None: seen from the first bytes.
        block_bytes: Size of a block.
        on_fault: Called with every fault instead of raising. A record whose payload is damaged
            is left out and reading goes on; after any other fault the file ends.
        is_once: Nobody will read the file again soon: keep it out of the page cache. Blocks are
            for now only, too: the next one takes the memory of the last.

    Raises:
        DataError: The file is missing, cut off or damaged.
    """
    name = os.fspath(path)

    def fail(fault: RecordFault) -> None:
        raise DataError(
            f"{name!r} is damaged at {fault.where}: {fault.reason}: restore the file or write "
            "the dataset again"
        )

    try:
        with (open_once if is_once else open_read)(name) as file:
            known = _sniff(file) if compression is None else compression
            stream = _open_stream(file, known)
            yield from _Scanner(stream, on_fault or fail, reuse=is_once).blocks(block_bytes)
    except FileNotFoundError:
        raise DataError(f"{name!r} is missing: restore it or write the dataset again") from None
    except IsADirectoryError:
        raise DataError(f"{name!r} is a directory: restore the file") from None


def read_records(
    path: str | os.PathLike[str], *, compression: str | None = None
) -> Iterator[bytes]:
    """Yield the payload of every record of a file; see `read_blocks`."""
    for block in read_blocks(path, compression=compression):
        yield from block.payloads()


def _sniff(file: BinaryIO) -> str:
    """Tell whether a file is compressed, and rewind it.

    A plain file may begin with the magic number of gzip, as a record's length; then the CRC of
    that length follows.
    """
    head = file.read(_HEADER_BYTES)
    file.seek(0)
    if not head.startswith(_GZIP_MAGIC):
        return ""
    return "" if len(head) == _HEADER_BYTES and is_header(head) else "GZIP"


def is_header(head: Any) -> bool:
    """Tell whether 12 bytes are a length with its checksum."""
    crc = int.from_bytes(bytes(head[_LENGTH_BYTES:_HEADER_BYTES]), "little")
    return bool(native.masked_crc32c(head[:_LENGTH_BYTES]) == crc)


def _open_stream(file: BinaryIO, compression: str) -> BinaryIO:
    if compression not in COMPRESSIONS:
        raise UsageError(f"compression {compression!r} is not known: use '' or 'GZIP'")
    # The stubs of isal leave its constructor untyped.
    return cast(BinaryIO, igzip.IGzipFile(fileobj=file)) if compression else file  # type: ignore[no-untyped-call]


class _Scanner:
    """Cuts a stream of bytes into blocks of whole records; fresh memory a block, or `reuse` it."""

    def __init__(
        self, stream: BinaryIO, on_fault: Callable[[RecordFault], None], *, reuse: bool
    ) -> None:
        self._stream = stream
        self._on_fault = on_fault
        self._reuse = reuse
        self._position = 0
        self._record = 0
        self._ended = False
        self._codec_error = ""

    def blocks(self, block_bytes: int) -> Iterator[RecordBlock]:
        """Yield the blocks; memory is one block, or one record where that is larger."""
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
            # Grown by doubling: a length is not to be trusted with memory before its bytes came.
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
            # Told at the end: what was decompressed before may still hold whole records.
            self._ended = True
            self._codec_error = str(error)
        return filled

    def _scan(self, data: UInt8Array) -> tuple[Int64Array, int, int]:
        """Return the starts of sound records, the records passed, and the bytes passed."""
        parts: list[Int64Array] = []
        at = records = 0
        while True:
            frames = native.scan_frames(data[at:], True)
            parts.append(frames.starts + at)
            records += len(frames.starts)
            if frames.fault is None:
                at += frames.consumed
                break
            position, reason = frames.fault
            at += position
            self._report(at, reason, records)
            size = FRAME_BYTES + int.from_bytes(data[at : at + _LENGTH_BYTES].tobytes(), "little")
            if not is_header(data[at : at + _HEADER_BYTES]) or size > len(data) - at:
                self._ended = True
                return np.concatenate(parts), records, len(data)
            at += size
            records += 1
        starts = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return starts, records, self._check_next(data, at, records)

    def _check_next(self, data: UInt8Array, at: int, records: int) -> int:
        """Return `at`, or the end where the length that begins there is not sound."""
        head = data[at : at + _HEADER_BYTES]
        if len(head) == _HEADER_BYTES and not is_header(head):
            self._report(at, "the checksum of the length does not match", records)
            self._ended = True
            return len(data)
        return at

    def _report(self, at: int, reason: str, records: int = 0) -> None:
        self._on_fault(RecordFault(self._position + at, self._record + records, reason))
