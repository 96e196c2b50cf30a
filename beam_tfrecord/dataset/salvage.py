"""Finds the intact records of a damaged shard, and the bytes that were lost between them.

Behind damage, framed records are found again by their checksums. Neighbouring ones are a *chain*.
Records that the damage left intact are chains, and so are framed records inside the value of a
damaged record. Three kinds of evidence distinguish them:

* Counts. The manifest says how many records and bytes there were. Every stretch of bytes between
  two chains of records has cost at least one record, unless bytes were added.
* Frames. A damaged record usually still ends where the next one begins. Its length field shows
  this, since few flipped bits fall into it; if it does not, the checksum of the payload does. Bytes
  that the damage added or removed change the distance by as much as the size of the stream.
* The end. The last chain of the stream holds records, not framed bytes of a value: after a value
  follows at least the checksum of its own record. Only a stream that was cut off inside of a value
  may end with a chain of the other kind.

Chains without evidence count as records if no value of the stream holds framed records; otherwise
they are left out, and counted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import struct
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
from isal import isal_zlib

from beam_tfrecord import native
from beam_tfrecord.manifest import Shard
from beam_tfrecord.records.tfrecord import FRAME_BYTES, is_header

UInt8Array = npt.NDArray[np.uint8]
Int64Array = npt.NDArray[np.int64]

# Bytes that the codec decompressed before it found damage are lost with the call, so calls are
# small.
_PIECE_BYTES = 512
_MOST_MORE_BYTES = 2**24
_GZIP_CONTAINER = 31
# The stubs of isal declare its error as an instance.
_CODEC_ERROR = cast(type[Exception], isal_zlib.IsalError)

_LENGTH_BYTES, _HEADER_BYTES, _CRC_BYTES = 8, 12, 4
# Flipped bits in a header, and in its length alone. Other lengths differ by far more.
_FLIPPED_BITS, _FLIPPED_LENGTH_BITS = 3, 2
# A limit for checks that only speed up or sharpen a decision, on a stream of any size.
_MOST_LOOKED_AT_BYTES = 2**28
# The tag of protobuf field 1 with a length, which precedes all bytes of an Example.
_BYTES_TAG = 0x0A
_VARINT_BYTES, _MORE_BIT, _VARINT_BITS = 5, 0x80, 7


@dataclasses.dataclass(frozen=True)
class LostBytes:
    """Bytes of a record stream that hold no intact record.

    Attributes:
        start: Position of the first byte, after decompression.
        stop: Position behind the last.
        most_records: Number of records that they can hold at most.
        unsure: Number of framed records in them that may be records, or parts of a damaged one.
        is_framed: True if lengths or checksums show that they are complete damaged records.
    """

    start: int
    stop: int
    most_records: int
    unsure: int
    is_framed: bool


@dataclasses.dataclass(frozen=True, eq=False)
class Chain:
    """Neighbouring framed records with correct checksums.

    Attributes:
        start: Position of the first byte in the stream.
        stop: Position behind the last.
        starts: Position of each record in the stream, shape `[records]`.
    """

    start: int
    stop: int
    starts: Int64Array

    @property
    def records(self) -> int:
        """Number of records."""
        return len(self.starts)

    @property
    def ends(self) -> Int64Array:
        """Position behind each record, shape `[records]`."""
        return np.append(self.starts, self.stop)[1:]

    def records_in(self, data: UInt8Array) -> tuple[UInt8Array, Int64Array]:
        """Return the framed records as a view of the stream, and their positions in the view."""
        return data[self.start : self.stop], self.starts - self.start

    def without(self, first: int, count: int) -> list[Chain]:
        """Return what remains without some records."""
        head, tail = self.starts[:first], self.starts[first + count :]
        parts = []
        if len(head):
            parts.append(Chain(self.start, int(self.ends[first - 1]), head))
        if len(tail):
            parts.append(Chain(int(tail[0]), self.stop, tail))
        return parts


def salvage(data: UInt8Array, shard: Shard) -> tuple[list[Chain], list[LostBytes]]:
    """Return the intact records of a damaged stream, and what was lost between them, in order."""
    return _Salvage(data, shard.examples, shard.bytes).parts()


@contextlib.contextmanager
def record_stream(path: str, shard: Shard, compression: str, scratch: str) -> Iterator[UInt8Array]:
    """Map the record stream of a shard into memory, as far as it can be decompressed.

    Args:
        path: The shard's file.
        shard: The manifest's description of it.
        compression: ``""`` or ``GZIP``.
        scratch: Directory for the decompressed stream.
    """
    if not compression:
        yield _mapped(path)
        return
    with tempfile.NamedTemporaryFile(dir=scratch) as plain:
        for piece in _decompressed(path):
            plain.write(piece)
            # A few bytes of a forged file can decompress to any number.
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


def _chains(data: UInt8Array) -> Iterator[Chain]:
    """Yield all chains of a stream; the first one begins with the stream, and may be empty."""
    at = 0
    while True:
        frames = native.scan_frames(data[at:], True)
        stop = at + frames.consumed
        yield Chain(at, stop, frames.starts + at)
        if stop == len(data) or (at := int(native.find_frame(data, stop + 1))) == len(data):
            return


class _Salvage:
    """Decides which chains of a stream, which had `records` and `nbytes`, are its records."""

    def __init__(self, data: UInt8Array, records: int, nbytes: int) -> None:
        self._data = data
        self._records = records
        self._bytes = nbytes
        # The bytes that all damage together has added.
        self._grown = len(data) - nbytes
        self._left_bytes = _MOST_LOOKED_AT_BYTES
        self._lengths: dict[int, int | None] = {}

    def parts(self) -> tuple[list[Chain], list[LostBytes]]:
        """Return the intact records, and the bytes between them."""
        chains, unsure = self._decide()
        lost = [self._lost(start, stop, unsure) for start, stop in self._gaps(chains)]
        return [chain for chain in chains if chain.records], lost

    def _gaps(self, chains: Sequence[Chain]) -> list[tuple[int, int]]:
        """Return start and end of the stretches between chains that are in order."""
        starts = [0, *(chain.stop for chain in chains)]
        stops = [*(chain.start for chain in chains), len(self._data)]
        return [(start, stop) for start, stop in zip(starts, stops, strict=True) if start < stop]

    def _lost(self, start: int, stop: int, unsure: Sequence[Chain]) -> LostBytes:
        inside = sum(chain.records for chain in unsure if start <= chain.start < stop)
        head = self._data[start : start + _HEADER_BYTES]
        most = max(1, (stop - start) // FRAME_BYTES)
        if len(head) == _HEADER_BYTES and is_header(head):
            length = int.from_bytes(head[:_LENGTH_BYTES].tobytes(), "little")
            most = 1 if start + FRAME_BYTES + length >= stop else most
        return LostBytes(start, stop, most, inside, self._is_framed(start, stop))

    def _decide(self) -> tuple[list[Chain], list[Chain]]:
        """Return the chains of records, and those that may be records or parts of one."""
        first, *others = _chains(self._data)
        accepted, at = self._follow(first, others)
        last = others[-1] if others else first
        is_at_end = last.stop == len(self._data) and last not in accepted
        if is_at_end and self._is_end(accepted, at, last):
            accepted.append(last)
        accepted = self._lead_to(accepted, others)
        unsure = [chain for chain in others if chain not in accepted]
        sure = accepted
        if unsure and not self._values_hold_frames(sure):
            likely = [chain for chain in unsure if not self._is_claimed(sure, chain)]
            if self._has_room(together := _in_order([*sure, *likely])):
                accepted = together
        unsure = [c for c in unsure if c not in accepted and self._has_room(_in_order([*sure, c]))]
        return self._without_copies(accepted), unsure

    def _follow(self, first: Chain, others: Sequence[Chain]) -> tuple[list[Chain], int]:
        """Return the chains, and the position, that the frames of damaged records lead to."""
        accepted, at, left = [first], first.stop, self._records - first.records
        passed = 0
        while passed < len(others):
            # The damaged record is one of those that are left, unless bytes were only added.
            left -= self._grown <= 0
            rest = itertools.islice(others, passed, None)
            if (reached := self._next(at, rest, left)) is not None:
                accepted.append(reached)
                at, left = reached.stop, left - reached.records
            elif (end := self._end_of(at)) is not None:
                at = end
            else:
                break
            while passed < len(others) and others[passed].start < at:
                passed += 1
        return accepted, at

    def _next(self, at: int, others: Iterable[Chain], left: int) -> Chain | None:
        """Return the chain that begins where the damaged record at a byte ends."""
        others = list(others) if self._grown else others
        for grown in dict.fromkeys((self._grown, 0)):
            for chain in others:
                if chain.records <= left and self._is_record(at, chain.start, grown):
                    # If bytes are gone, the stream may also be cut off inside of a value.
                    return None if grown < 0 and self._is_value(chain) else chain
        return None

    def _end_of(self, at: int) -> int | None:
        """Return the end of a damaged record whose successor is damaged, too."""
        length = self._length(at)
        if length is None:
            return None
        end = at + FRAME_BYTES + length
        is_sure = not self._grown or self._length(end) is not None
        return end if end < len(self._data) and is_sure else None

    def _length(self, at: int) -> int | None:
        """Return the length of the record at a byte, a few flipped bits corrected; else None."""
        if at not in self._lengths:
            head = self._data[at : at + _HEADER_BYTES].tobytes()
            self._lengths[at] = _nearest_length(head, max(self._bytes, len(self._data)))
        return self._lengths[at]

    def _is_record(self, start: int, stop: int, grown: int) -> bool:
        """Return True if the bytes between two positions are one record by its frame.

        The damage has added `grown` bytes to the record.
        """
        length = stop - start - FRAME_BYTES
        if self._length(start) == length - grown:
            return length >= 0
        if grown or length < 0 or self._left_bytes < length:
            return False
        self._left_bytes -= length
        payload = self._data[start + _HEADER_BYTES : stop - _CRC_BYTES]
        crc = int.from_bytes(self._data[stop - _CRC_BYTES : stop].tobytes(), "little")
        return bool(native.masked_crc32c(payload) == crc)

    def _has_room(self, chains: Sequence[Chain]) -> bool:
        """Return True if the chains, and a record for each gap, are not more than `records`."""
        gaps = len(self._gaps(chains))
        # Added bytes need not have cost a record.
        cost = max(0, gaps - 1) if self._grown > 0 else gaps
        return sum(chain.records for chain in chains) + cost <= self._records

    def _is_framed(self, start: int, stop: int) -> bool:
        """Return True if the bytes between two positions are complete damaged records."""
        at = start
        while at < stop:
            if self._is_record(at, stop, 0):
                return True
            if (length := self._length(at)) is None:
                return False
            at += FRAME_BYTES + length
        return False

    def _is_end(self, accepted: Sequence[Chain], at: int, last: Chain) -> bool:
        """Return True if `last`, the chain that ends with the stream, holds records.

        `accepted` are the chains before it, and `at` is the start of the damaged record between.
        """
        length = self._length(at)
        if self._grown >= 0 or length is None:
            return True
        size = FRAME_BYTES + length
        if at + size <= len(self._data):
            return True
        # The record lacks bytes: some from its middle, or all behind the end of the stream.
        lost = self._records - sum(chain.records for chain in accepted) - last.records
        lost_bytes = self._bytes - at - (last.stop - last.start)
        is_possible = lost > 1 and lost_bytes >= size + (lost - 1) * FRAME_BYTES
        return is_possible and not self._is_value(last)

    def _is_value(self, chain: Chain) -> bool:
        """Return True if the bytes before a chain begin a value of its size or more."""
        before = self._data[max(0, chain.start - _VARINT_BYTES - 1) : chain.start].tolist()
        for size in range(1, len(before)):
            varint = before[-size:]
            if before[-size - 1] != _BYTES_TAG or any(b < _MORE_BIT for b in varint[:-1]):
                continue
            value = sum((b % _MORE_BIT) << (_VARINT_BITS * i) for i, b in enumerate(varint))
            if varint[-1] < _MORE_BIT and value >= chain.stop - chain.start:
                return True
        return False

    def _lead_to(self, accepted: list[Chain], others: Sequence[Chain]) -> list[Chain]:
        """Return `accepted` and all chains that one damaged record connects to a later chain."""
        stop = len(self._data)
        for chain in reversed(_in_order({*accepted, *others})):
            if chain not in accepted:
                together = _in_order([*accepted, chain])
                grown = dict.fromkeys((self._grown, 0))
                leads = any(self._is_record(chain.stop, stop, one) for one in grown)
                if not leads or not self._has_room(together):
                    continue
                accepted = together
            stop = chain.start
        return accepted

    def _is_claimed(self, accepted: Sequence[Chain], chain: Chain) -> bool:
        """Return True if the damaged record before a chain says that it ends behind the chain."""
        start = max(one.stop for one in accepted if one.stop <= chain.start)
        length = self._length(start)
        return length is not None and start + FRAME_BYTES + length >= chain.stop

    def _values_hold_frames(self, accepted: Sequence[Chain]) -> bool:
        """Return True if intact records have framed records in their payloads."""
        for chain in accepted:
            for start, end in zip(chain.starts.tolist(), chain.ends.tolist(), strict=True):
                payload = self._data[start + _HEADER_BYTES : end - _CRC_BYTES]
                if self._left_bytes < len(payload):
                    return False
                self._left_bytes -= len(payload)
                if int(native.find_frame(payload, 0)) < len(payload):
                    return True
        return False

    def _without_copies(self, accepted: list[Chain]) -> list[Chain]:
        """Return the chains without surplus records that repeat those just before them.

        A block of complete records that was written twice has only correct checksums; only the
        number of records is wrong.
        """
        excess = sum(chain.records for chain in accepted) - self._records
        for number, chain in enumerate(accepted):
            if 0 < excess <= chain.records // 2:
                data = self._data[chain.start : chain.stop]
                hashes = native.hash_records(data, chain.starts - chain.start, 0)
                # How many records in a row equal those `excess` further on.
                alike = np.cumsum(np.append(0, hashes[:-excess] == hashes[excess:]))
                copies = np.flatnonzero(alike[excess:] - alike[:-excess] == excess)
                if len(copies):
                    parts = chain.without(int(copies[0]), excess)
                    return [*accepted[:number], *parts, *accepted[number + 1 :]]
        return accepted


def _nearest_length(head: bytes, most: int) -> int | None:
    """Return the length, at most `most`, that a header had before a few bits flipped; else None."""
    if len(head) < _HEADER_BYTES:
        return None
    length, crc = (int(number) for number in struct.unpack("<QI", head))
    if (length >> most.bit_length()).bit_count() > _FLIPPED_LENGTH_BITS:
        return None
    for count in range(_FLIPPED_LENGTH_BITS + 1):
        for bits in itertools.combinations(range(8 * _LENGTH_BYTES), count):
            likely = length ^ sum(1 << bit for bit in bits)
            if likely > most:
                continue
            wrong = crc ^ int(native.masked_crc32c(likely.to_bytes(_LENGTH_BYTES, "little")))
            if count + wrong.bit_count() <= _FLIPPED_BITS:
                return likely
    return None


def _in_order(chains: Iterable[Chain]) -> list[Chain]:
    return sorted(chains, key=lambda chain: chain.start)
