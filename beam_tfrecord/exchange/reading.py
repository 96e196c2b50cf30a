"""Reading what runs hold of windows, the next ones while the last are worked on."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import itertools
from collections.abc import Generator, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from beam_tfrecord.exchange.lots import Slice
from beam_tfrecord.exchange.plan import Window
from beam_tfrecord.storage import read_into

Bytes = npt.NDArray[np.uint8]

# A disk gives more when it is asked for several things at once.
READERS = 3


@dataclasses.dataclass(frozen=True)
class WindowGroup:
    """Neighbouring windows of one split, and what there is of them.

    Attributes:
        windows: In order.
        whole: All of them as one window.
        slices: What each run holds of them.
    """

    windows: Sequence[Window]
    whole: Window
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
    """Reads slices of runs; its two buffers are kept from one time to the next."""

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
