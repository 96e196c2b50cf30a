"""Merging of slices that are too large together to be held: a lot of neighbouring places at a time.

Every slice is read from its begin to its end in steps of one request. What lies before the last
place that was read of *every* slice is complete, and is handed on; so as much is held as there are
slices, times a step, however much a range of places holds.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from beam_tfrecord import native
from beam_tfrecord.errors import DataError
from beam_tfrecord.exchange.spill_files import PLACE_BYTES
from beam_tfrecord.records.tfrecord import FRAME_BYTES
from beam_tfrecord.storage import WRITE_BYTES, read_into

# Of one request.
STEP_BYTES = 2**20
_LENGTH_BYTES = 8
_ENTRY_BYTES = PLACE_BYTES + FRAME_BYTES

# A lot: whole entries of runs, end to end.
Lot = npt.NDArray[np.uint8]


@dataclasses.dataclass(frozen=True)
class Slice:
    """A contiguous range of bytes of a run that belongs to one window."""

    path: str
    start: int
    stop: int


def lots_of(slices: Sequence[Slice], *, most_bytes: int, by_bytes: bool) -> Iterator[Lot]:
    """Yield all entries of some slices, in lots whose places do not overlap, in their order.

    Args:
        slices: Each sorted by place.
        most_bytes: Of the records of one place that are held at once.
        by_bytes: Records of equal place are sorted by their bytes.

    Raises:
        DataError: A slice holds no whole entries.
    """
    feeds = [_Feed(piece) for piece in slices]
    # Each has to hold something before any can be taken from.
    while feeds := [feed for feed in feeds if feed.load()]:
        unread = [feed.last_place for feed in feeds if feed.has_more]
        if not unread:
            yield _joined([feed.take(feed.data.size) for feed in feeds])
            continue
        bound = min(unread)
        if taken := [part for feed in feeds if (part := feed.take(feed.size_below(bound))).size]:
            yield _joined(taken)
            continue
        # All that is held of some slice is of one place: its end has to be found.
        if sum(feed.data.size for feed in feeds) > most_bytes:
            yield from _one_place(feeds, bound, by_bytes)
        else:
            for feed in feeds:
                if feed.has_more and feed.last_place == bound:
                    feed.read_on()


def _joined(parts: Sequence[Lot]) -> Lot:
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


def _one_place(feeds: Sequence[_Feed], place: int, by_bytes: bool) -> Iterator[Lot]:
    """Yield the entries of one place, of which there are too many to hold."""
    entries = [feed.entries_of(place) for feed in feeds]
    if by_bytes:
        merged = heapq.merge(*entries, key=_payload)
    else:
        merged = (entry for of_feed in entries for entry in of_feed)
    pending: list[bytes] = []
    size = 0
    for entry in merged:
        pending.append(entry)
        size += len(entry)
        if size >= WRITE_BYTES:
            yield np.frombuffer(b"".join(pending), np.uint8)
            pending, size = [], 0
    if pending:
        yield np.frombuffer(b"".join(pending), np.uint8)


def _payload(entry: bytes) -> bytes:
    return entry[PLACE_BYTES + FRAME_BYTES - 4 : -4]


class _Feed:
    """A slice on its way: what was read of it and not yet taken, and where the rest begins."""

    def __init__(self, piece: Slice) -> None:
        self._path = piece.path
        self._at = piece.start
        self._stop = piece.stop
        self._torn = b""
        self.data: Lot = np.empty(0, np.uint8)
        self._starts: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._places: npt.NDArray[np.uint64] = np.empty(0, np.uint64)

    @property
    def has_more(self) -> bool:
        """Whether a part was not read yet."""
        return self._at < self._stop

    @property
    def last_place(self) -> int:
        """The place of the last entry that is held."""
        return int(self._places[-1])

    def load(self) -> bool:
        """Hold at least one entry; False at the end."""
        if not self.data.size and self.has_more:
            self.read_on()
        return bool(self.data.size)

    def read_on(self) -> None:
        """Hold the entries of one more step."""
        found = self.data[:0]
        step = STEP_BYTES
        while not found.size and self.has_more:
            found = self._step(step)
            # A record that is larger than a step is read in larger ones.
            step *= 2
        if not self.has_more and self._torn:
            raise DataError(f"run {self._path!r} is damaged: it ends too early")
        self.data = np.concatenate([self.data, found]) if self.data.size else found
        try:
            frames, self._places = native.scan_run(self.data)
        except ValueError as error:
            raise DataError(f"run {self._path!r} is damaged: {error}") from error
        self._starts = frames - PLACE_BYTES

    def _step(self, nbytes: int) -> Lot:
        buffer = bytearray(len(self._torn) + min(nbytes, self._stop - self._at))
        buffer[: len(self._torn)] = self._torn
        read_into(self._path, self._at, memoryview(buffer)[len(self._torn) :])
        self._at += len(buffer) - len(self._torn)
        end = _end_of_entries(buffer)
        self._torn = bytes(buffer[end:])
        return np.frombuffer(buffer, np.uint8, end)

    def size_below(self, place: int) -> int:
        """Return the bytes of the held entries before a place."""
        return self._size_of(int(np.searchsorted(self._places, np.uint64(place))))

    def _size_of(self, entries: int) -> int:
        return int(self._starts[entries]) if entries < len(self._starts) else self.data.size

    def take(self, nbytes: int) -> Lot:
        """Return the first so many bytes of what is held, and hold them no more."""
        taken, self.data = self.data[:nbytes], self.data[nbytes:]
        gone = int(np.searchsorted(self._starts, nbytes))
        self._starts, self._places = self._starts[gone:] - nbytes, self._places[gone:]
        return taken

    def entries_of(self, place: int) -> Iterator[bytes]:
        """Take the entries of the first place that is held, one by one, and read on for more."""
        while self.load() and int(self._places[0]) == place:
            until = int(np.searchsorted(self._places, np.uint64(place), side="right"))
            bounds = [*self._starts[:until].tolist(), self._size_of(until)]
            held = self.take(bounds[-1]).tobytes()
            for low, high in itertools.pairwise(bounds):
                yield held[low:high]


def _end_of_entries(buffer: bytearray) -> int:
    """Return where the last whole entry in a buffer ends."""
    end, size = 0, len(buffer)
    while size - end >= _ENTRY_BYTES:
        at = end + PLACE_BYTES
        nbytes = int.from_bytes(buffer[at : at + _LENGTH_BYTES], "little") + _ENTRY_BYTES
        if nbytes > size - end:
            break
        end += nbytes
    return end
