"""Finding the intact records of a damaged shard, and what lies between them."""

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
from beam_tfrecord.records.blocks import FRAME_BYTES, is_header

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


_LENGTH_BYTES, _HEADER_BYTES, _CRC_BYTES = 8, 12, 4
# Of a header, and of its length alone. Other lengths differ in their checksums by far more.
_FLIPPED_BITS, _FLIPPED_LENGTH_BITS = 3, 2
# For what only speeds up or sharpens a decision, on a stream of any size.
_MOST_LOOKED_AT_BYTES = 2**28
_VARINT_BYTES = 5
_MORE_BIT, _VARINT_BITS = 0x80, 7


@dataclasses.dataclass(frozen=True, eq=False)
class Chain:
    """Neighbouring framed records whose checksums are right.

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

    def without(self, first: int, count: int) -> list[Chain]:
        """Return what is left without some records."""
        ends = self.ends
        head, tail = self.starts[:first], self.starts[first + count :]
        parts = []
        if len(head):
            parts.append(Chain(self.start, int(ends[first - 1]), head))
        if len(tail):
            parts.append(Chain(int(tail[0]), self.stop, tail))
        return parts


@dataclasses.dataclass(frozen=True, eq=False)
class Resynced:
    """The records of a damaged stream.

    Attributes:
        chains: Those that hold them, in order.
        unsure: Chains that may be records or parts of a damaged one.
        framed: Start and stop of the stretches between chains that are whole damaged records, by
            what their lengths or checksums say.
    """

    chains: tuple[Chain, ...]
    unsure: tuple[Chain, ...]
    framed: frozenset[tuple[int, int]]

    @property
    def records(self) -> int:
        """Number of intact records."""
        return sum(chain.records for chain in self.chains)

    def unsure_in(self, start: int, stop: int) -> int:
        """Return how many framed records between two positions may be records."""
        return sum(one.records for one in self.unsure if start <= one.start < stop)


def resync(data: UInt8Array, records: int, nbytes: int) -> Resynced:
    """Return the intact records of a stream.

    Args:
        data: The stream.
        records: How many records it had before it was damaged.
        nbytes: Bytes that it had.
    """
    return _Resync(data, records, nbytes).run()


def header_length(data: UInt8Array, at: int) -> int | None:
    """Return the length of the record that begins at a byte; None where its checksum is wrong."""
    head = data[at : at + _HEADER_BYTES]
    if len(head) < _HEADER_BYTES or not is_header(head):
        return None
    return int.from_bytes(head[:_LENGTH_BYTES].tobytes(), "little")


def _chains(data: UInt8Array) -> Iterator[Chain]:
    """Yield all chains; the first begins with the stream, and may be empty."""
    at = 0
    while True:
        frames = native.scan_frames(data[at:], True)
        stop = at + frames.consumed
        yield Chain(at, stop, frames.starts + at)
        if stop == len(data) or (at := int(native.find_frame(data, stop + 1))) == len(data):
            return


class _Resync:
    """One stream: what is known of it, and the chains that are taken for its records."""

    def __init__(self, data: UInt8Array, records: int, nbytes: int) -> None:
        self._data = data
        self._records = records
        self._bytes = nbytes
        # By how much all damage together has changed the size.
        self._grown = len(data) - nbytes
        self._left_bytes = _MOST_LOOKED_AT_BYTES
        self._lengths: dict[int, int | None] = {}

    def run(self) -> Resynced:
        """Return the records."""
        first, *others = _chains(self._data)
        taken = [first]
        if others and others[-1].stop == len(self._data):
            *others, last = others
            before, at = self._follow(taken, [*others, last])
            if last in before or self._is_end(before, at, last):
                taken = self._with_end(before, last)
            else:
                taken = before
                others.append(last)
        else:
            taken, _ = self._follow(taken, others)
        others = [chain for chain in others if not any(_overlap(chain, one) for one in taken)]
        taken = self._lead_to(taken, others)
        unsure = [chain for chain in others if not any(_overlap(chain, one) for one in taken)]
        unsure = [chain for chain in unsure if not self._is_inside(taken, chain)]
        sure = taken
        if unsure and not self._values_hold_frames(sure):
            taken = self._with_likely(sure, unsure)
        unsure = [c for c in unsure if c not in taken and self._has_room(_together(sure, c))]
        taken = self._without_copies(taken)
        framed = {gap for gap in self._gaps(taken) if self._is_framed(*gap)}
        return Resynced(tuple(taken), tuple(unsure), frozenset(framed))

    def _follow(self, taken: list[Chain], others: Sequence[Chain]) -> tuple[list[Chain], int]:
        """Go on from record to record, over damaged ones, as far as their frames lead.

        Returns:
            The chains with those that were reached, and the position that was.
        """
        taken, at, left = list(taken), taken[-1].stop, self._records - taken[-1].records
        passed = 0
        while passed < len(others):
            # The damaged record is one of those that are left, unless bytes were only added.
            left -= self._grown <= 0
            rest = itertools.islice(others, passed, None)
            if (reached := self._next(at, rest, left)) is not None:
                taken.append(reached)
                at, left = reached.stop, left - reached.records
            elif (end := self._end_of(at)) is not None:
                at = end
            else:
                break
            while passed < len(others) and others[passed].start < at:
                passed += 1
        return taken, at

    def _next(self, at: int, others: Iterable[Chain], left: int) -> Chain | None:
        """Return the chain that begins where the damaged record at a byte ends."""
        others = list(others) if self._grown else others
        for grown in dict.fromkeys((self._grown, 0)):
            for chain in others:
                if chain.records <= left and self._is_record(at, chain.start, grown):
                    # Where bytes are gone, the stream may as well be cut off inside of a value.
                    return None if grown < 0 and self._is_value(chain) else chain
        return None

    def _end_of(self, at: int) -> int | None:
        """Return where a damaged record ends whose successor is damaged, too."""
        length = self._length(at)
        if length is None:
            return None
        end = at + FRAME_BYTES + length
        is_sure = not self._grown or self._length(end) is not None
        return end if end < len(self._data) and is_sure else None

    def _length(self, at: int) -> int | None:
        """Return the length of the record at a byte, a few flipped bits put right; else None."""
        if at not in self._lengths:
            head = self._data[at : at + _HEADER_BYTES].tobytes()
            self._lengths[at] = _nearest_length(head, max(self._bytes, len(self._data)))
        return self._lengths[at]

    def _is_record(self, start: int, stop: int, grown: int) -> bool:
        """Tell whether the bytes between two positions are one record, by what its frame says.

        Args:
            start: First byte.
            stop: Byte behind the last.
            grown: Bytes that the damage has added to the record.
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
        """Tell whether there were so many records, and those that the bytes between them cost."""
        return sum(chain.records for chain in chains) + self._cost(chains) <= self._records

    def _cost(self, chains: Sequence[Chain]) -> int:
        """Return how many records are lost at least, where these chains are intact."""
        gaps = len(self._gaps(chains))
        # Added bytes need not have cost a record.
        return max(0, gaps - 1) if self._grown > 0 else gaps

    def _gaps(self, chains: Sequence[Chain]) -> list[tuple[int, int]]:
        """Return start and stop of each stretch of bytes between chains."""
        ends = [0, *(chain.stop for chain in chains)]
        starts = [*(chain.start for chain in chains), len(self._data)]
        return [(end, start) for end, start in zip(ends, starts, strict=True) if start > end]

    def _is_framed(self, start: int, stop: int) -> bool:
        """Tell whether the bytes between two positions are whole damaged records."""
        at = start
        while at < stop:
            if self._is_record(at, stop, 0):
                return True
            if (length := self._length(at)) is None:
                return False
            at += FRAME_BYTES + length
        return False

    def _is_end(self, taken: list[Chain], at: int, last: Chain) -> bool:
        """Tell whether the chain that ends with the stream is one of records.

        Args:
            taken: The chains before it.
            at: Where the damaged record before it begins.
            last: The chain.
        """
        length = self._length(at)
        if self._grown >= 0 or length is None:
            return True
        size = FRAME_BYTES + length
        if at + size <= len(self._data):
            return True
        # The record lacks bytes: some from its middle, or all behind the end of the stream.
        lost = self._records - sum(chain.records for chain in taken) - last.records
        lost_bytes = self._bytes - at - (last.stop - last.start)
        is_possible = lost > 1 and lost_bytes >= size + (lost - 1) * FRAME_BYTES
        return is_possible and not self._is_value(last)

    def _is_value(self, chain: Chain) -> bool:
        """Tell whether the bytes before a chain say that a value of its size or more begins."""
        before = self._data[max(0, chain.start - _VARINT_BYTES - 1) : chain.start].tolist()
        for size in range(1, len(before)):
            varint = before[-size:]
            if before[-size - 1] != _BYTES_TAG or any(b < _MORE_BIT for b in varint[:-1]):
                continue
            value = sum((b % _MORE_BIT) << (_VARINT_BITS * i) for i, b in enumerate(varint))
            if varint[-1] < _MORE_BIT and value >= chain.stop - chain.start:
                return True
        return False

    def _with_end(self, taken: list[Chain], last: Chain) -> list[Chain]:
        """Return the chains with the last one, without records that are copies of earlier ones."""
        if last in taken:
            return taken
        together = [*taken, last]
        excess = sum(chain.records for chain in together) + self._cost(together) - self._records
        if excess <= 0:
            return together
        # The count alone may be off by copies that are elsewhere.
        earlier = np.concatenate([self._hashes(chain) for chain in taken])
        are_copies = np.isin(self._hashes(last)[:excess], earlier)
        return [*taken, *last.without(0, int(np.argmin(np.append(are_copies, False))))]

    def _hashes(self, chain: Chain) -> npt.NDArray[np.uint64]:
        """Return the hash of each record."""
        data = self._data[chain.start : chain.stop]
        return native.hash_records(data, chain.starts - chain.start, 0)

    def _lead_to(self, taken: list[Chain], others: Sequence[Chain]) -> list[Chain]:
        """Return the chains with those behind which one damaged record leads to one of them."""
        stop = len(self._data)
        for chain in sorted([*taken, *others], key=_start, reverse=True):
            if chain not in taken:
                grown = dict.fromkeys((self._grown, 0))
                if not any(self._is_record(chain.stop, stop, one) for one in grown):
                    continue
                with_chain = _together(taken, chain)
                if not self._has_room(with_chain):
                    continue
                taken = with_chain
            stop = chain.start
        return taken

    def _with_likely(self, taken: list[Chain], others: Sequence[Chain]) -> list[Chain]:
        """Return the chains with those that are likely to be records: no value holds any."""
        likely = [chain for chain in others if not self._is_claimed(taken, chain)]
        every = _together(taken, *likely)
        hashes = np.concatenate([self._hashes(chain) for chain in every])
        # Records that were written twice need no room of their own.
        if len(np.unique(hashes)) + self._cost(every) <= self._records:
            return every
        for chain in likely:
            if self._has_room(with_chain := _together(taken, chain)):
                taken = with_chain
        return taken

    def _is_inside(self, taken: list[Chain], chain: Chain) -> bool:
        """Tell whether a chain lies inside of the one record that lies around it."""
        start = max(one.stop for one in taken if one.stop <= chain.start)
        stop = min((one.start for one in taken if one.start > chain.start), default=len(self._data))
        return any(self._is_record(start, stop, grown) for grown in {0, self._grown})

    def _is_claimed(self, taken: list[Chain], chain: Chain) -> bool:
        """Tell whether the damaged record before a chain says that it goes on behind it."""
        start = max(one.stop for one in taken if one.stop <= chain.start)
        length = self._length(start)
        return length is not None and start + FRAME_BYTES + length >= chain.stop

    def _values_hold_frames(self, taken: Sequence[Chain]) -> bool:
        """Tell whether intact records have framed records in their payloads."""
        for chain in taken:
            for start, end in zip(chain.starts.tolist(), chain.ends.tolist(), strict=True):
                payload = self._data[start + _HEADER_BYTES : end - _CRC_BYTES]
                if self._left_bytes < len(payload):
                    return False
                self._left_bytes -= len(payload)
                if int(native.find_frame(payload, 0)) < len(payload):
                    return True
        return False

    def _without_copies(self, taken: list[Chain]) -> list[Chain]:
        """Leave out records that are there once more than they were written, one after the other.

        Where these are whole records, every checksum is right, and only their number is not.
        """
        excess = sum(chain.records for chain in taken) - self._records
        for number, chain in enumerate(taken):
            if 0 < excess <= chain.records // 2:
                hashes = self._hashes(chain)
                # How many records in a row are like those `excess` further on.
                alike = np.cumsum(np.append(0, hashes[:-excess] == hashes[excess:]))
                copies = np.flatnonzero(alike[excess:] - alike[:-excess] == excess)
                if len(copies):
                    parts = chain.without(int(copies[0]), excess)
                    return [*taken[:number], *parts, *taken[number + 1 :]]
        return taken


# A field of number 1 with a length, as all bytes of an Example are.
_BYTES_TAG = 0x0A


def _nearest_length(head: bytes, most: int) -> int | None:
    """Return the length, at most `most`, that a header says but for a few bits; else None."""
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


def _start(chain: Chain) -> int:
    return chain.start


def _together(taken: Sequence[Chain], *others: Chain) -> list[Chain]:
    """Return all chains in the order of the stream."""
    return sorted([*taken, *others], key=_start)


def _overlap(one: Chain, other: Chain) -> bool:
    return one.start < other.stop and other.start < one.stop
