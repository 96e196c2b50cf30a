"""Merging: slices of runs in, shard files out."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import heapq
import itertools
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from beam_tfrecord import native
from beam_tfrecord.errors import DataError
from beam_tfrecord.exchange.plan import WINDOW_BYTES, Window
from beam_tfrecord.exchange.runs import PLACE_BYTES, RunIndex
from beam_tfrecord.exchange.spill import byte_pieces
from beam_tfrecord.layout import Layout
from beam_tfrecord.places import purpose_seed
from beam_tfrecord.reader_blocks import FRAME_BYTES
from beam_tfrecord.storage import WRITE_BYTES, file_size, open_read, read_into
from beam_tfrecord.tfrecord import ShardStream

MASK64 = 2**64 - 1
# A bin above the window is merged record by record, through buffers of this size a run.
STREAM_BYTES = 2**20
# A disk gives more when it is asked for several things at once.
READERS = 3


@dataclasses.dataclass(frozen=True)
class Slice:
    """A contiguous range of bytes of a run that belongs to one window."""

    path: str
    start: int
    stop: int


@dataclasses.dataclass(frozen=True)
class Piece:
    """A shard that was written under a temporary name.

    Attributes:
        split: Name of the split.
        order: Position among the shards of the split.
        path: Of the file.
        examples: Number of records.
        bytes: Size of the record stream.
        xxh64: Hash of the record stream, 16 hex digits.
        content: Sum of the hashes of all examples modulo 2^64.
        stored_bytes: Size of the file.
        stored_xxh64: Hash of the file where it is compressed; else empty.
    """

    split: str
    order: tuple[int, ...]
    path: str
    examples: int
    bytes: int
    xxh64: str
    content: int
    stored_bytes: int
    stored_xxh64: str = ""


def slices_of(path: str, index: RunIndex, windows: Sequence[Window]) -> list[Slice]:
    """Return what a run holds of each window."""
    ranges = [index.slice(w.split, w.first_place, w.last_place) for w in windows]
    return [Slice(path, start, stop) for start, stop in ranges]


class PieceWriter:
    """Writes the records of one shard, and counts and hashes them on the way.

    Args:
        directory: Where to write.
        split: Name of the split.
        order: Position among the shards of the split.
        compression: ``""`` or ``GZIP``.
    """

    def __init__(
        self, directory: str, split: str, order: tuple[int, ...], compression: str
    ) -> None:
        name = "-".join(("shard", split, *map(str, order), uuid.uuid4().hex))
        self._path = os.path.join(directory, name)
        self._split, self._order = split, order
        self._stream = ShardStream(self._path, compression)
        self._seed = purpose_seed(0, "content")
        self._examples = 0
        self._content = 0

    def write(self, data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]) -> None:
        """Write whole framed records, all of `data`."""
        hashes = native.hash_records(data, starts, self._seed)
        self._content = (self._content + int(hashes.sum(dtype=np.uint64))) & MASK64
        self._examples += len(starts)
        self._stream.write(data)

    def close(self) -> Piece:
        """Finish the file."""
        nbytes, xxh64 = self._stream.close()
        return Piece(
            self._split,
            self._order,
            self._path,
            self._examples,
            nbytes,
            xxh64,
            self._content,
            file_size(self._path),
            self._stream.stored_xxh64,
        )

    def abort(self) -> None:
        """Take away what was written."""
        self._stream.abort()


class Merger:
    """Merges windows into shards; its buffers are kept from one window to the next."""

    def __init__(self, layout: Layout, directory: str) -> None:
        self._layout = layout
        self._directory = directory
        self._in = np.empty(0, np.uint8)
        self._out = np.empty(0, np.uint8)

    def merge(
        self, windows: Sequence[Window], slices: Sequence[Sequence[Slice]]
    ) -> Iterator[Piece]:
        """Write the shards of one task.

        Args:
            windows: The windows of the task, in order.
            slices: For each run its slices, one a window.

        Raises:
            DataError: A run does not hold what its footer says.
        """
        writer: PieceWriter | None = None
        open_shard: tuple[str, int] | None = None
        try:
            for number, window in enumerate(windows):
                shard = (window.split, window.shard)
                if shard != open_shard:
                    if writer is not None:
                        yield writer.close()
                    writer = PieceWriter(
                        self._directory, window.split, (window.shard,), self._layout.compression
                    )
                    open_shard = shard
                assert writer is not None
                of_window = [run[number] for run in slices if run[number].stop > run[number].start]
                for data, starts in self._sorted(window, of_window):
                    writer.write(data, starts)
            if writer is not None:
                yield writer.close()
        except BaseException:
            if writer is not None:
                writer.abort()
            raise

    def _sorted(
        self, window: Window, slices: Sequence[Slice]
    ) -> Iterator[tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]]:
        total = sum(piece.stop - piece.start for piece in slices)
        if total > 2 * WINDOW_BYTES and window.records > 1:
            yield from self._streamed(window, slices)
            return
        data = self._read(slices, total)
        try:
            starts, places = native.scan_run(data)
        except ValueError as error:
            raise DataError(f"a run of split {window.split!r} is damaged: {error}") from error
        _check_count(window, len(starts))
        order = native.sort_records(data, starts, None, places, self._layout.shuffle)
        # Entries lie end to end, so the next one tells the size of each.
        sizes = np.diff(starts, append=total + PLACE_BYTES)[order] - PLACE_BYTES
        for low, high, nbytes in byte_pieces(sizes, WRITE_BYTES):
            if nbytes > len(self._out):
                self._out = np.empty(max(nbytes, WRITE_BYTES), np.uint8)
            native.gather(data, starts, order[low:high], self._out, 0)
            ends = np.cumsum(sizes[low:high])
            yield self._out[:nbytes], ends - sizes[low:high]

    def _read(self, slices: Sequence[Slice], total: int) -> npt.NDArray[np.uint8]:
        if total > len(self._in):
            self._in = np.empty(total + total // 16, np.uint8)
        view = self._in.data
        ends = list(itertools.accumulate(piece.stop - piece.start for piece in slices))
        reads = (
            (piece.path, piece.start, view[end - (piece.stop - piece.start) : end])
            for piece, end in zip(slices, ends, strict=True)
        )
        with concurrent.futures.ThreadPoolExecutor(READERS, "read-runs") as pool:
            list(pool.map(lambda read: read_into(*read), reads))
        return self._in[:total]

    def _streamed(
        self, window: Window, slices: Sequence[Slice]
    ) -> Iterator[tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]]:
        """Merge slices that are too large together, one record at a time."""
        runs = [_entries(piece) for piece in slices]
        if self._layout.shuffle:
            merged = heapq.merge(*runs, key=lambda entry: (entry[0], entry[1][12:-4]))
        else:
            merged = heapq.merge(*runs, key=lambda entry: entry[0])
        found = 0
        for data, starts in _in_buffers(record for _, record in merged):
            found += len(starts)
            yield data, starts
        _check_count(window, found)


def _check_count(window: Window, found: int) -> None:
    if found != window.records:
        raise DataError(
            f"runs of split {window.split!r} hold {found} records where {window.records} were "
            "written"
        )


def _in_buffers(
    records: Iterable[bytes],
) -> Iterator[tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]]:
    """Join framed records to buffers worth a write."""
    pending: list[bytes] = []
    starts: list[int] = []
    size = 0
    for record in records:
        pending.append(record)
        starts.append(size)
        size += len(record)
        if size >= WRITE_BYTES:
            yield np.frombuffer(b"".join(pending), np.uint8), np.array(starts, np.int64)
            pending, starts, size = [], [], 0
    if pending:
        yield np.frombuffer(b"".join(pending), np.uint8), np.array(starts, np.int64)


def _entries(piece: Slice) -> Iterator[tuple[int, bytes]]:
    """Yield (place, framed record) of a slice, reading it in small steps."""
    header = PLACE_BYTES + 8
    with open_read(piece.path, buffer_bytes=STREAM_BYTES) as file:
        file.seek(piece.start)
        left = piece.stop - piece.start
        while left > 0:
            head = file.read(header)
            size = int.from_bytes(head[PLACE_BYTES:], "little") + FRAME_BYTES
            if len(head) < header or size > left - PLACE_BYTES:
                raise DataError(f"run {piece.path!r} is damaged")
            record = head[PLACE_BYTES:] + file.read(size - 8)
            if len(record) < size:
                raise DataError(f"run {piece.path!r} is damaged: it ends too early")
            yield int.from_bytes(head[:PLACE_BYTES], "little"), record
            left -= PLACE_BYTES + size
