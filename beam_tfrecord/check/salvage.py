"""Finds the intact records of a damaged shard, and the bytes that were lost between them.

A shard is a stream of records. The *frame* of a record is its length before it and the checksums of
both. Where a record is damaged, and its length is not, the next one begins at its end. Otherwise
the next one begins where all checksums of a frame are right. Values that hold framed records make
that ambiguous: then a part of a damaged value may come out as a record.
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
from beam_tfrecord.format.manifest import Shard
from beam_tfrecord.records.tfrecord import FRAME_BYTES, HEADER_BYTES, payload_bytes

UInt8Array = npt.NDArray[np.uint8]
Int64Array = npt.NDArray[np.int64]

# If a call of the codec finds damage, the bytes that it decompressed before are lost. Small calls
# lose few bytes.
_PIECE_BYTES = 512
_MAX_MORE_BYTES = 2**24
_GZIP_CONTAINER = 31
# The stubs of isal declare its error as an instance.
_CODEC_ERROR = cast(type[Exception], isal_zlib.IsalError)


@dataclasses.dataclass(frozen=True)
class LostBytes:
    """Bytes of a record stream that hold no intact record.

    They are framed if they are exactly one record, by its length.
    """

    start: int
    stop: int
    is_framed: bool

    @property
    def max_records(self) -> int:
        """The most records that the bytes can have held."""
        return 1 if self.is_framed else max(1, (self.stop - self.start) // FRAME_BYTES)


@dataclasses.dataclass(frozen=True, eq=False)
class Intact:
    """Neighbouring intact records: their bytes, and where each begins, shape `[records]`."""

    data: UInt8Array
    starts: Int64Array


def salvage(data: UInt8Array) -> Iterator[Intact | LostBytes]:
    """Yield the intact records of a damaged stream and the lost bytes between them, in order."""
    at = 0
    while at < len(data):
        frames = native.scan_frames(data[at:], True)
        if frames.consumed:
            yield Intact(data[at : at + frames.consumed], frames.starts)
        start = at + frames.consumed
        if start == len(data):
            return
        at, is_framed = _next_record(data, start)
        yield LostBytes(start, at, is_framed)


def _next_record(data: UInt8Array, start: int) -> tuple[int, bool]:
    """Return where a record follows a damaged one, and whether that one's length says so."""
    end = _end_of(data, start)
    if end is not None and (end == len(data) or _end_of(data, end) is not None):
        return end, True
    found = int(native.find_frame(data, start + 1))
    is_cut_off = end is not None and end > len(data) == found
    return found, is_cut_off


def _end_of(data: UInt8Array, start: int) -> int | None:
    """Return the end of the record at a position, if the checksum of its length is right."""
    length = payload_bytes(data[start : start + HEADER_BYTES])
    return None if length is None else start + FRAME_BYTES + length


@contextlib.contextmanager
def record_stream(path: str, shard: Shard, compression: str, scratch: str) -> Iterator[UInt8Array]:
    """Map the record stream of a shard into memory, as far as it can be decompressed."""
    if not compression:
        yield _mapped(path)
        return
    with tempfile.NamedTemporaryFile(dir=scratch) as plain:
        for piece in _decompressed(path):
            plain.write(piece)
            # A small forged file can decompress to any number of bytes.
            if plain.tell() > 2 * shard.bytes + _MAX_MORE_BYTES:
                break
        plain.flush()
        yield _mapped(plain.name)


def _decompressed(path: str) -> Iterator[bytes]:
    """Yield the decompressed members of a gzip file, up to its end or its first damage."""
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
