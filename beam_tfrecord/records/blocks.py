"""Reading files of records in *blocks*: many whole records in one buffer.

No Python runs per record, and memory is one block whatever the size of the file. See `tfrecord`
for the format.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt
from isal import igzip, isal_zlib

from beam_tfrecord import native
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.storage import open_once, open_read

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
