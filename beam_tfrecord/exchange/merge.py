"""Merging: slices of runs in, shard files out."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import uuid
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from beam_tfrecord import native
from beam_tfrecord.errors import DataError
from beam_tfrecord.exchange.lots import Slice, lots_of
from beam_tfrecord.exchange.plan import WINDOW_BYTES, Window
from beam_tfrecord.exchange.reading import SliceReader, WindowGroup, groups_of
from beam_tfrecord.exchange.runs import PLACE_BYTES, RunIndex
from beam_tfrecord.exchange.sizes import windows_held
from beam_tfrecord.exchange.spill import byte_pieces
from beam_tfrecord.layout import Layout
from beam_tfrecord.places import purpose_seed
from beam_tfrecord.records.tfrecord import ShardStream
from beam_tfrecord.storage import WRITE_BYTES, file_size

MASK64 = 2**64 - 1


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

    def write(
        self, data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.uint64]:
        """Write whole framed records, all of `data`; return their hashes."""
        hashes = native.hash_records(data, starts, self._seed)
        self._content = (self._content + int(hashes.sum(dtype=np.uint64))) & MASK64
        self._examples += len(starts)
        self._stream.write(data)
        return hashes

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


@dataclasses.dataclass(frozen=True, eq=False)
class Lot:
    """Entries of several runs together, and the order that they belong in.

    Attributes:
        data: The entries.
        starts: Where the frame of each begins, shape `[n]`.
        places: Of each, shape `[n]`.
        order: Indices of the entries in order, shape `[n]`.
    """

    data: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    places: npt.NDArray[np.uint64]
    order: npt.NDArray[np.int64]

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Bytes of each framed record, in order, shape `[n]`."""
        # Entries lie end to end, so the next one tells the size of each.
        ends = np.append(self.starts, len(self.data) + PLACE_BYTES)
        return np.diff(ends)[self.order] - PLACE_BYTES


class Merger:
    """Merges windows into shards; its buffers are kept from one window to the next.

    Args:
        layout: Where records go.
        directory: Where shards are written.
        window_bytes: What is merged at once, unless a single bin is more.
    """

    def __init__(
        self,
        layout: Layout,
        directory: str,
        *,
        window_bytes: int | None = None,
    ) -> None:
        self._layout = layout
        self._directory = directory
        self.window_bytes = WINDOW_BYTES if window_bytes is None else window_bytes
        self._reader = SliceReader()
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
            for window, data, starts in self._sorted(windows, slices):
                shard = (window.split, window.shard)
                if shard != open_shard:
                    if writer is not None:
                        yield writer.close()
                    writer = PieceWriter(
                        self._directory, window.split, (window.shard,), self._layout.compression
                    )
                    open_shard = shard
                assert writer is not None
                writer.write(data, starts)
            if writer is not None:
                yield writer.close()
        except BaseException:
            if writer is not None:
                writer.abort()
            raise

    def _sorted(
        self, windows: Sequence[Window], slices: Sequence[Sequence[Slice]]
    ) -> Iterator[tuple[Window, npt.NDArray[np.uint8], npt.NDArray[np.int64]]]:
        groups = list(groups_of(windows, slices, self.window_bytes))
        for group, lot in self._lots(groups):
            places, sizes = lot.places[lot.order], lot.sizes
            for window in group.windows:
                first = int(np.searchsorted(places, np.uint64(window.first_place)))
                end = int(np.searchsorted(places, np.uint64(window.last_place), side="right"))
                for data, starts in self._records(lot, sizes, first, end):
                    yield window, data, starts

    def _records(
        self, lot: Lot, sizes: npt.NDArray[np.int64], first: int, end: int
    ) -> Iterator[tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]]:
        for low, high, nbytes in byte_pieces(sizes[first:end], WRITE_BYTES):
            low, high, out = first + low, first + high, self._room(nbytes)
            native.gather(lot.data, lot.starts, lot.order[low:high], out, 0)
            ends = np.cumsum(sizes[low:high])
            yield out[:nbytes], ends - sizes[low:high]

    def entries(
        self, window: Window, slices: Sequence[Slice]
    ) -> Iterator[tuple[memoryview, npt.NDArray[np.uint64], npt.NDArray[np.int64]]]:
        """Yield run entries of a window in order, and the place and record size of each."""
        for _, lot in self._lots([WindowGroup([window], window, slices)]):
            sizes = lot.sizes
            for low, high, nbytes in byte_pieces(sizes + PLACE_BYTES, WRITE_BYTES):
                order, out = lot.order[low:high], self._room(nbytes)
                native.gather_run(lot.data, lot.starts, lot.places, order, out, 0)
                yield out[:nbytes].data, lot.places[order], sizes[low:high]

    def _lots(self, groups: Sequence[WindowGroup]) -> Iterator[tuple[WindowGroup, Lot]]:
        """Yield what each group holds: all of it, or where that is too much some at a time.

        Raises:
            DataError: A run does not hold what its footer says.
        """
        are_small = [self._is_small(group) for group in groups]
        wanted = (group.slices for group, small in zip(groups, are_small, strict=True) if small)
        read = self._reader.read(wanted, held=windows_held(self.window_bytes))
        with contextlib.closing(read):
            for group, small in zip(groups, are_small, strict=True):
                found = 0
                for data in itertools.islice(read, 1) if small else self._streamed(group):
                    lot = self._lot(group.whole, data)
                    found += len(lot.starts)
                    yield group, lot
                if group.whole.records is not None and found != group.whole.records:
                    raise DataError(
                        f"runs of split {group.whole.split!r} hold {found} records where "
                        f"{group.whole.records} were written"
                    )

    def _is_small(self, group: WindowGroup) -> bool:
        return group.bytes <= 2 * self.window_bytes or group.whole.records == 1

    def _streamed(self, group: WindowGroup) -> Iterator[npt.NDArray[np.uint8]]:
        most_bytes = 2 * self.window_bytes
        return lots_of(group.slices, most_bytes=most_bytes, by_bytes=self._layout.shuffle)

    def _lot(self, window: Window, data: npt.NDArray[np.uint8]) -> Lot:
        try:
            starts, places = native.scan_run(data)
        except ValueError as error:
            raise DataError(f"a run of split {window.split!r} is damaged: {error}") from error
        order = native.sort_records(data, starts, None, places, self._layout.shuffle)
        return Lot(data, starts, places, order)

    def _room(self, nbytes: int) -> npt.NDArray[np.uint8]:
        if nbytes > len(self._out):
            self._out = np.empty(max(nbytes, WRITE_BYTES), np.uint8)
        return self._out
