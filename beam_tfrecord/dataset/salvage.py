"""Finds the intact records of a damaged shard, and the bytes that were lost between them.

A shard is a stream of records. The *frame* of a record is its length before it and the checksums of
both. After damage, the checksums show where framed records begin again. A *chain* is a run of
neighbouring framed records. There are two kinds of chains: records that the damage left intact, and
framed records inside the value of a damaged record. Three kinds of evidence distinguish them:

* Counts. The manifest says how many records and bytes there were. Every stretch of bytes between
  two chains of records has cost at least one record, unless bytes were added.
* Frames. A damaged record usually still ends where the next one begins. Its length field shows
  this, since few flipped bits fall into it; if it does not, the checksum of the payload does. Bytes
  that the damage added or removed change the distance by as much as the size of the stream.
* The end. The last chain of the stream holds records, not framed bytes of a value: after a value
  follows at least the checksum of its own record. Only a stream that was cut off inside of a value
  may end with a chain of the other kind.

Chains without evidence count as records if no value of an intact record holds framed records.
Otherwise they are left out, and counted.
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

# If a call of the codec finds damage, the bytes that it decompressed before are lost. Small calls
# lose few bytes.
_PIECE_BYTES = 512
_MAX_MORE_BYTES = 2**24
_GZIP_CONTAINER = 31
# The stubs of isal declare its error as an instance.
_CODEC_ERROR = cast(type[Exception], isal_zlib.IsalError)

_LENGTH_BYTES, _HEADER_BYTES, _CRC_BYTES = 8, 12, 4
# The most bits that may have flipped in a header, and in its length alone. The right length differs
# from a wrong one by far more.
_FLIPPED_BITS, _FLIPPED_LENGTH_BITS = 3, 2
# Some checks only improve a decision. In total they read at most this many bytes of a stream.
_MAX_CHECKED_BYTES = 2**28
# The tag of protobuf field 1 with a length, which precedes all bytes of an Example.
_BYTES_TAG = 0x0A
_VARINT_BYTES, _MORE_BIT, _VARINT_BITS = 5, 0x80, 7


@dataclasses.dataclass(frozen=True)
class LostBytes:
    """Bytes of a record stream that hold no intact record."""

    start: int
    stop: int
    max_records: int
    unsure: int
    is_framed: bool


@dataclasses.dataclass(frozen=True, eq=False)
class Chain:
    """Neighbouring framed records with correct checksums."""

    start: int
    stop: int
    starts: Int64Array

    @property
    def records(self) -> int:
        """Number of records."""
        return len(self.starts)

    @property
    def ends(self) -> Int64Array:
        """Position after each record, shape `[records]`."""
        return np.append(self.starts, self.stop)[1:]

    def records_in(self, data: UInt8Array) -> tuple[UInt8Array, Int64Array]:
        """Return the chain's bytes as a view of `data`, and the records' positions in the view."""
        return data[self.start : self.stop], self.starts - self.start

    def without(self, first: int, count: int) -> list[Chain]:
        """Return the chains that remain without `count` records from number `first` on."""
        head, tail = self.starts[:first], self.starts[first + count :]
        parts = []
        if len(head):
            parts.append(Chain(self.start, int(self.ends[first - 1]), head))
        if len(tail):
            parts.append(Chain(int(tail[0]), self.stop, tail))
        return parts


def salvage(data: UInt8Array, shard: Shard) -> tuple[list[Chain], list[LostBytes]]:
    """Return the intact records of a damaged stream and the lost bytes between them, in order."""
    return _Salvage(data, shard.examples, shard.bytes).parts()


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


def _chains(data: UInt8Array) -> Iterator[Chain]:
    """Yield all chains of a stream; the first one starts at byte 0, and may be empty."""
    at = 0
    while True:
        frames = native.scan_frames(data[at:], True)
        stop = at + frames.consumed
        yield Chain(at, stop, frames.starts + at)
        if stop == len(data) or (at := int(native.find_frame(data, stop + 1))) == len(data):
            return


class _Salvage:
    """Decides which chains of a damaged stream are its records."""

    def __init__(self, data: UInt8Array, records: int, nbytes: int) -> None:
        self._data = data
        self._records = records
        self._bytes = nbytes
        # Number of bytes that all damage together added; negative if it removed bytes.
        self._grown = len(data) - nbytes
        self._left_bytes = _MAX_CHECKED_BYTES
        self._lengths: dict[int, int | None] = {}

    def parts(self) -> tuple[list[Chain], list[LostBytes]]:
        """Return the chains of intact records, and the lost bytes between them."""
        chains, unsure = self._decide()
        lost = [self._lost(start, stop, unsure) for start, stop in self._gaps(chains)]
        return [chain for chain in chains if chain.records], lost

    def _gaps(self, chains: Sequence[Chain]) -> list[tuple[int, int]]:
        """Return start and end of each stretch of bytes outside of chains, which are in order."""
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
        """Return the chains of records, and the chains that may be records or parts of one."""
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
        """Return the chains that follow from the frames of damaged records, and the last position.

        The search starts after the first chain. Each damaged record leads to the chain that begins
        at its end, or to another damaged record.
        """
        accepted, at, left = [first], first.stop, self._records - first.records
        passed = 0
        while passed < len(others):
            # The damage has cost one of the records that are left, unless it only added bytes.
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
        """Return the chain that begins where the damaged record at position `at` ends."""
        others = list(others) if self._grown else others
        for grown in dict.fromkeys((self._grown, 0)):
            for chain in others:
                if chain.records <= left and self._is_record(at, chain.start, grown):
                    # The chain may lie inside the value of a record that is cut off at its end.
                    return None if grown < 0 and self._is_value(chain) else chain
        return None

    def _end_of(self, at: int) -> int | None:
        """Return the end of the damaged record at position `at` if another one follows it."""
        length = self._length(at)
        if length is None:
            return None
        end = at + FRAME_BYTES + length
        is_sure = not self._grown or self._length(end) is not None
        return end if end < len(self._data) and is_sure else None

    def _length(self, at: int) -> int | None:
        """Return the length of the record at a position, with a few flipped bits corrected."""
        if at not in self._lengths:
            head = self._data[at : at + _HEADER_BYTES].tobytes()
            self._lengths[at] = _nearest_length(head, max(self._bytes, len(self._data)))
        return self._lengths[at]

    def _is_record(self, start: int, stop: int, grown: int) -> bool:
        """Return True if the frame shows that the bytes from `start` to `stop` are one record.

        The damage may have added `grown` bytes to the record.
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
        """Return True if the chains, and a record for each gap, fit the number of records."""
        gaps = len(self._gaps(chains))
        # If bytes were added, one gap may have cost no record.
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
        """Return True if the last chain of the stream holds records."""
        length = self._length(at)
        if self._grown >= 0 or length is None:
            return True
        size = FRAME_BYTES + length
        if at + size <= len(self._data):
            return True
        # The damaged record lacks bytes: some in its middle, or all after the end of the stream.
        lost = self._records - sum(chain.records for chain in accepted) - last.records
        lost_bytes = self._bytes - at - (last.stop - last.start)
        is_possible = lost > 1 and lost_bytes >= size + (lost - 1) * FRAME_BYTES
        return is_possible and not self._is_value(last)

    def _is_value(self, chain: Chain) -> bool:
        """Return True if the bytes before a chain are the tag and length of a value around it."""
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
        """Return `accepted` and each chain that a single damaged record connects to the next one.

        The end of the stream counts as the next chain of the last one.
        """
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
        """Return True if a chain lies inside the damaged record before it, by that one's length."""
        start = max(one.stop for one in accepted if one.stop <= chain.start)
        length = self._length(start)
        return length is not None and start + FRAME_BYTES + length >= chain.stop

    def _values_hold_frames(self, accepted: Sequence[Chain]) -> bool:
        """Return True if an intact record has framed records in its payload.

        After a limited number of bytes the search ends, and the answer is False.
        """
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
        """Return the chains without a surplus block of records that repeats the one before it.

        If a block of complete records was written twice, all checksums are correct, and only the
        number of records is wrong.
        """
        excess = sum(chain.records for chain in accepted) - self._records
        for number, chain in enumerate(accepted):
            if 0 < excess <= chain.records // 2:
                data = self._data[chain.start : chain.stop]
                hashes = native.hash_records(data, chain.starts - chain.start, 0)
                # Running count of the records that equal the one `excess` records later.
                alike = np.cumsum(np.append(0, hashes[:-excess] == hashes[excess:]))
                copies = np.flatnonzero(alike[excess:] - alike[:-excess] == excess)
                if len(copies):
                    parts = chain.without(int(copies[0]), excess)
                    return [*accepted[:number], *parts, *accepted[number + 1 :]]
        return accepted


def _nearest_length(head: bytes, most: int) -> int | None:
    """Return the length in a header before a few of its bits flipped."""
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
