"""Finding the intact records of a damaged shard, and what lies between them.

A record whose length is sound is passed by that length. Behind a damaged length the next record is
looked for byte by byte: its two checksums tell it from anything else.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Iterator
from typing import cast

import numpy as np
import numpy.typing as npt
from isal import isal_zlib

from beam_tfrecord import native
from beam_tfrecord.loading.blocks import FRAME_BYTES, is_header

UInt8Array = npt.NDArray[np.uint8]
Int64Array = npt.NDArray[np.int64]

# What a call of the codec decompressed before it met damage is gone with the call: little.
_PIECE_BYTES = 512
_GZIP_CONTAINER = 31
_LENGTH_BYTES, _HEADER_BYTES = 8, 12
# The stubs of isal take its error for an instance.
_CODEC_ERROR = cast(type[Exception], isal_zlib.IsalError)


@dataclasses.dataclass(frozen=True)
class LostBytes:
    """Bytes of a record stream that hold no intact record.

    Attributes:
        start: Position of the first byte, after decompression.
        stop: Position behind the last.
        most_records: How many records they can have held.
    """

    start: int
    stop: int
    most_records: int


@dataclasses.dataclass(frozen=True, eq=False)
class IntactRecords:
    """Neighbouring intact records.

    Attributes:
        data: Their bytes, framed; a view of the file.
        starts: Position in `data` of each, shape `[records]`.
    """

    data: UInt8Array
    starts: Int64Array


def salvage(path: str, *, compression: str, scratch: str) -> Iterator[IntactRecords | LostBytes]:
    """Yield the intact records of a shard, and what was lost between them, in order.

    Args:
        path: The shard; where it is missing nothing is yielded.
        compression: ``""`` or ``GZIP``. Of a damaged gzip stream, what comes before the damage is
            all there is.
        scratch: Directory for the decompressed stream.

    Raises:
        OSError: The file cannot be read.
    """
    with contextlib.suppress(FileNotFoundError), _stream(path, compression, scratch) as data:
        yield from _records_in(data)


@contextlib.contextmanager
def _stream(path: str, compression: str, scratch: str) -> Iterator[UInt8Array]:
    if not compression:
        yield _mapped(path)
        return
    with tempfile.NamedTemporaryFile(dir=scratch) as plain:
        for piece in _decompressed(path):
            plain.write(piece)
        plain.flush()
        yield _mapped(plain.name)


def _decompressed(path: str) -> Iterator[bytes]:
    """Yield a gzip file's stream, members joined, up to its end or its first damage."""
    codec = isal_zlib.decompressobj(wbits=_GZIP_CONTAINER)
    with open(path, "rb") as file:
        while piece := file.read(_PIECE_BYTES):
            while piece:
                try:
                    yield codec.decompress(piece)
                except _CODEC_ERROR:
                    return
                piece = codec.unused_data
                if codec.eof:
                    codec = isal_zlib.decompressobj(wbits=_GZIP_CONTAINER)


def _mapped(path: str) -> UInt8Array:
    # An empty file cannot be mapped.
    if not os.path.getsize(path):
        return np.empty(0, np.uint8)
    return np.memmap(path, np.uint8, "r")


def _records_in(data: UInt8Array) -> Iterator[IntactRecords | LostBytes]:
    at = 0
    while at < len(data):
        frames = native.scan_frames(data[at:], True)
        if frames.consumed:
            yield IntactRecords(data[at : at + frames.consumed], frames.starts)
            at += frames.consumed
        if at < len(data):
            end = _next_record(data, at)
            yield LostBytes(at, end, _most_records(data, at, end))
            at = end


def _next_record(data: UInt8Array, at: int) -> int:
    """Return where reading goes on behind a record that is not intact."""
    if _has_length(data, at):
        size = FRAME_BYTES + _length(data, at)
        if size <= len(data) - at:
            return at + size
    return int(native.find_frame(data, at + 1))


def _most_records(data: UInt8Array, start: int, stop: int) -> int:
    """Return the largest number of records that lost bytes can have held."""
    if _has_length(data, start) and start + FRAME_BYTES + _length(data, start) >= stop:
        return 1
    return max(1, (stop - start) // FRAME_BYTES)


def _has_length(data: UInt8Array, at: int) -> bool:
    head = data[at : at + _HEADER_BYTES]
    return len(head) == _HEADER_BYTES and is_header(head)


def _length(data: UInt8Array, at: int) -> int:
    return int.from_bytes(data[at : at + _LENGTH_BYTES].tobytes(), "little")
