"""Merging: slices of runs in, shard files out."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import itertools
import math
import os
from collections.abc import Generator, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from beam_tfrecord import native
from beam_tfrecord.errors import DataError
from beam_tfrecord.exchange.plan import (
    MOST_WINDOW_BYTES,
    WINDOW_BYTES,
    RunTask,
    Window,
    round_key,
    windows_held,
)
from beam_tfrecord.exchange.shard_writers import Piece, PieceWriter
from beam_tfrecord.exchange.spill import byte_pieces
from beam_tfrecord.exchange.spill_files import (
    PLACE_BYTES,
    Run,
    RunIndex,
    SortedIndex,
    index_sorted,
    join_indexes,
    read_index,
)
from beam_tfrecord.exchange.streaming_merge import Slice, lots_of
from beam_tfrecord.layout import Layout, cut_bins
from beam_tfrecord.places import SHUFFLED_BIN_SHIFT
from beam_tfrecord.storage import WRITE_BYTES, WholeFile, read_into


def slices_of(path: str, index: RunIndex, windows: Sequence[Window]) -> list[Slice]:
    """Return what a run holds of each window."""
    ranges = [index.slice(w.split, w.first_place, w.last_place) for w in windows]
    return [Slice(path, start, stop) for start, stop in ranges]


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
        # Entries lie end to end, so the next start gives the size of each.
        ends = np.append(self.starts, len(self.data) + PLACE_BYTES)
        return np.diff(ends)[self.order] - PLACE_BYTES


class Merger:
    """Merges windows into shards; its buffers are used again for each window.

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
                    lot = self._lot(group.span, data)
                    found += len(lot.starts)
                    yield group, lot
                if group.span.records is not None and found != group.span.records:
                    raise DataError(
                        f"runs of split {group.span.split!r} hold {found} records where "
                        f"{group.span.records} were written"
                    )

    def _is_small(self, group: WindowGroup) -> bool:
        return group.bytes <= 2 * self.window_bytes or group.span.records == 1

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


Bytes = npt.NDArray[np.uint8]

# A disk gives more when it is asked for several things at once.
READERS = 3


@dataclasses.dataclass(frozen=True)
class WindowGroup:
    """Neighbouring windows of one split, and what there is of them.

    Attributes:
        windows: In order.
        span: All of them as one window.
        slices: What each run holds of them.
    """

    windows: Sequence[Window]
    span: Window
    slices: Sequence[Slice]

    @property
    def bytes(self) -> int:
        """Bytes of all entries."""
        return sum(piece.stop - piece.start for piece in self.slices)


def groups_of(
    windows: Sequence[Window], slices: Sequence[Sequence[Slice]], most_bytes: int
) -> Iterator[WindowGroup]:
    """Put neighbouring windows of one split together, as far as they are small.

    Args:
        windows: In order.
        slices: For each run its slices, one a window.
        most_bytes: Of a group of more than one window.
    """
    for low, high in _read_together(windows, most_bytes):
        held = [piece for run in slices if (piece := _joined(run[low:high])) is not None]
        yield WindowGroup(windows[low:high], _spanning(windows[low:high]), held)


def _read_together(windows: Sequence[Window], most_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of neighbouring windows of one split that are read at once."""
    low, size = 0, 0
    for number, window in enumerate(windows):
        if number > low and (
            window.split != windows[low].split or size + window.bytes > most_bytes
        ):
            yield low, number
            low, size = number, 0
        size += window.bytes
    if windows:
        yield low, len(windows)


def _spanning(windows: Sequence[Window]) -> Window:
    first, last = windows[0], windows[-1]
    counts = [window.records for window in windows if window.records is not None]
    records = sum(counts) if len(counts) == len(windows) else None
    nbytes = sum(window.bytes for window in windows)
    return Window(first.split, first.shard, first.first_place, last.last_place, nbytes, records)


def _joined(slices: Sequence[Slice]) -> Slice | None:
    """Return what one run holds of neighbouring windows; None where that is nothing."""
    held = [piece for piece in slices if piece.stop > piece.start]
    return Slice(held[0].path, held[0].start, held[-1].stop) if held else None


@dataclasses.dataclass(frozen=True)
class _Begun:
    """What is being read.

    Attributes:
        data: What it is read into.
        reads: Under way.
    """

    data: Bytes
    reads: Sequence[concurrent.futures.Future[None]]

    def wait(self) -> Bytes:
        """Return the bytes when all of them are there."""
        for read in self.reads:
            read.result()
        return self.data


class SliceReader:
    """Reads slices of runs; its two buffers are used again for each group."""

    def __init__(self) -> None:
        self._buffers = [np.empty(0, np.uint8), np.empty(0, np.uint8)]

    def read(self, groups: Iterable[Sequence[Slice]], *, held: int) -> Generator[Bytes]:
        """Yield the bytes of the slices of each group, end to end.

        They are good until the next are asked for.

        Args:
            groups: Slices, group by group.
            held: Groups in memory, 1 or 2: with 2 each is read while the one before is worked on.

        Raises:
            OSError: A run cannot be read.
            EOFError: A run ends before its slice.
        """
        begun: collections.deque[_Begun] = collections.deque()
        with concurrent.futures.ThreadPoolExecutor(READERS, "read-runs") as pool:
            for number, slices in enumerate(groups):
                begun.append(self._begin(pool, slices, number % held))
                if len(begun) == held:
                    yield begun.popleft().wait()
            for rest in begun:
                yield rest.wait()

    def _begin(
        self, pool: concurrent.futures.Executor, slices: Sequence[Slice], buffer: int
    ) -> _Begun:
        sizes = (piece.stop - piece.start for piece in slices)
        edges = list(itertools.accumulate(sizes, initial=0))
        total = edges[-1]
        if total > len(self._buffers[buffer]):
            self._buffers[buffer] = np.empty(total + total // 16, np.uint8)
        data = self._buffers[buffer][:total]
        reads = [
            pool.submit(read_into, piece.path, piece.start, data[begin:end].data)
            for piece, (begin, end) in zip(slices, itertools.pairwise(edges), strict=True)
        ]
        return _Begun(data, reads)


def merge_runs(task: RunTask, paths: Sequence[str], layout: Layout, directory: str) -> Run | None:
    """Merge a range of places of some runs into a new one.

    Args:
        task: What to merge.
        paths: Of the runs.
        layout: Where records go.
        directory: Where to write.

    Returns:
        The new run, without counts; None where the runs hold nothing of the range.
    """
    offsets = np.stack([_offsets(read_index(path), task) for path in paths])
    sizes = np.diff(offsets, axis=1).sum(axis=0)
    if not sizes.any():
        return None
    merger = Merger(layout, directory, window_bytes=MOST_WINDOW_BYTES)
    indexes: list[SortedIndex] = []
    path = os.path.join(directory, f"run-{round_key(task, paths)}")
    numbers = np.arange(len(sizes), dtype=np.uint64)
    with WholeFile(path, outlasts=False) as file:
        pieces = math.ceil(int(sizes.sum()) / MOST_WINDOW_BYTES)
        for cut in cut_bins(numbers, np.zeros_like(sizes), sizes, pieces):
            window = Window(task.split, 0, task.first_place, task.last_place, cut.bytes, None)
            slices = [
                Slice(path, int(ends[cut.first]), int(ends[cut.last + 1]))
                for path, ends in zip(paths, offsets, strict=True)
                if ends[cut.last + 1] > ends[cut.first]
            ]
            for entries, places, record_bytes in merger.entries(window, slices):
                file.write(entries)
                indexes.append(
                    index_sorted((task.split,), None, places, record_bytes, SHUFFLED_BIN_SHIFT)
                )
        file.write(join_indexes(indexes).footer())
    return Run(path, {})


def _offsets(index: RunIndex, task: RunTask) -> npt.NDArray[np.int64]:
    """Return where every bin of a task's range begins in a run, and the end of the last."""
    shift = SHUFFLED_BIN_SHIFT
    first, last = task.first_place >> shift, task.last_place >> shift
    bins, offsets = index.splits.get(task.split, (np.zeros(0, "<u8"), np.zeros(1, "<i8")))
    edges = np.arange(first, last + 2, dtype=np.uint64)
    return np.asarray(offsets[np.searchsorted(bins, edges)], np.int64)
