"""Finding the intact records of a damaged shard, and what lies between them.

Behind damage, records are found again by their checksums. But a value may hold framed records too,
and those of a damaged record look like its neighbours. What the manifest says of the shard tells
them apart: see `beam_tfrecord.dataset.resync`.
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

from beam_tfrecord.dataset.resync import header_length, resync
from beam_tfrecord.manifest import Shard
from beam_tfrecord.records.tfrecord import FRAME_BYTES

UInt8Array = npt.NDArray[np.uint8]
Int64Array = npt.NDArray[np.int64]

# What a call of the codec decompressed before it met damage is gone with the call: little.
_PIECE_BYTES = 512
_MOST_MORE_BYTES = 2**24
_GZIP_CONTAINER = 31
# The stubs of isal take its error for an instance.
_CODEC_ERROR = cast(type[Exception], isal_zlib.IsalError)


@dataclasses.dataclass(frozen=True)
class LostBytes:
    """Bytes of a record stream that hold no intact record.

    Attributes:
        start: Position of the first byte, after decompression.
        stop: Position behind the last.
        most_records: How many records they can hold.
        unsure: Framed records in them that may be records, or parts of a damaged one.
        is_framed: The lengths or checksums in them say that they are whole damaged records.
    """

    start: int
    stop: int
    most_records: int
    unsure: int
    is_framed: bool


@dataclasses.dataclass(frozen=True, eq=False)
class IntactRecords:
    """Neighbouring intact records.

    Attributes:
        data: Their bytes, framed; a view of the file.
        starts: Position in `data` of each, shape `[records]`.
    """

    data: UInt8Array
    starts: Int64Array


def salvage(
    path: str, shard: Shard, *, compression: str, scratch: str
) -> Iterator[IntactRecords | LostBytes]:
    """Yield the intact records of a shard, and what was lost between them, in order.

    Args:
        path: The shard; where it is missing nothing is yielded.
        shard: What the manifest says of it.
        compression: ``""`` or ``GZIP``. Of a damaged gzip stream, what comes before the damage is
            all there is.
        scratch: Directory for the decompressed stream.

    Raises:
        OSError: The file cannot be read.
    """
    with contextlib.suppress(FileNotFoundError), _stream(path, shard, compression, scratch) as data:
        yield from _records_in(data, shard)


@contextlib.contextmanager
def _stream(path: str, shard: Shard, compression: str, scratch: str) -> Iterator[UInt8Array]:
    if not compression:
        yield _mapped(path)
        return
    with tempfile.NamedTemporaryFile(dir=scratch) as plain:
        for piece in _decompressed(path):
            plain.write(piece)
            # A few bytes of a forged file may stand for any number.
            if plain.tell() > 2 * shard.bytes + _MOST_MORE_BYTES:
                break
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


def _records_in(data: UInt8Array, shard: Shard) -> Iterator[IntactRecords | LostBytes]:
    found = resync(data, shard.examples, shard.bytes)
    at = 0
    for chain in (*found.chains, None):
        stop = len(data) if chain is None else chain.start
        if stop > at:
            most, is_framed = _most_records(data, at, stop), (at, stop) in found.framed
            yield LostBytes(at, stop, most, found.unsure_in(at, stop), is_framed)
        if chain is not None and len(chain.starts):
            yield IntactRecords(data[chain.start : chain.stop], chain.starts - chain.start)
        at = stop if chain is None else chain.stop


def _most_records(data: UInt8Array, start: int, stop: int) -> int:
    """Return the largest number of records that lost bytes can have held."""
    length = header_length(data, start)
    if length is not None and start + FRAME_BYTES + length >= stop:
        return 1
    return max(1, (stop - start) // FRAME_BYTES)
