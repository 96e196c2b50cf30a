"""Planning of shards from what all runs hold together."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping

import numpy as np

from beam_tfrecord.exchange.bin_counts import BinCounts
from beam_tfrecord.exchange.runs import Run
from beam_tfrecord.layout import Layout, cut_bins
from beam_tfrecord.places import bin_shift

# What one worker merges at a time; it reads as much ahead.
WINDOW_BYTES = 36 * 2**20
# Small shards share a task, so that a task is worth scheduling.
TASK_BYTES = 128 * 2**20
# Of the 2^64 places.
_WIDE_PLACES = 2**62


@dataclasses.dataclass(frozen=True)
class Window:
    """A contiguous range of places of one shard, merged at once.

    Attributes:
        split: Name of the split.
        shard: Number of the shard within the split, from 0.
        first_place: First place.
        last_place: Last place, inclusive.
        bytes: Size of the framed records.
        records: Number of records; None where it is not known.
    """

    split: str
    shard: int
    first_place: int
    last_place: int
    bytes: int
    records: int | None


@dataclasses.dataclass(frozen=True)
class MergePlan:
    """All merging there is to do; every task writes whole shards.

    Attributes:
        tasks: The windows of each task, in order.
    """

    tasks: tuple[tuple[Window, ...], ...]


@dataclasses.dataclass(frozen=True)
class RunName:
    """A run, and where its records are.

    Attributes:
        path: Of the file.
        reach: First and last place of its records, both inclusive; None: they may be anywhere.
    """

    path: str
    reach: tuple[int, int] | None = None

    def may_hold(self, windows: Iterable[Window]) -> bool:
        """Tell whether records of some windows may be in it."""
        if self.reach is None:
            return True
        first, last = self.reach
        return any(w.first_place <= last and w.last_place >= first for w in windows)


def name_of(run: Run) -> RunName:
    """Return the name of a run; one that spans much of the places is taken to hold any of them."""
    if not run.counts:
        return RunName(run.path)
    ends = [
        (int(of.bins[0]) << of.shift, (int(of.bins[-1]) + 1 << of.shift) - 1)
        for of in run.counts.values()
    ]
    reach = min(first for first, _ in ends), max(last for _, last in ends)
    is_wide = reach[1] - reach[0] >= _WIDE_PLACES
    return RunName(run.path, None if is_wide else reach)


@dataclasses.dataclass(frozen=True, eq=False)
class RunSet:
    """Any number of runs together; `merge` is associative and order-free.

    Attributes:
        names: Of the runs.
        counts: What they hold, by split.
    """

    names: tuple[RunName, ...] = ()
    counts: Mapping[str, BinCounts] = dataclasses.field(default_factory=dict)

    @property
    def records(self) -> int:
        """Number of records."""
        return count_records(self.counts)

    def merge(self, other: RunSet) -> RunSet:
        """Join two sets of runs."""
        return RunSet((*self.names, *other.names), merge_counts(self.counts, other.counts))


def count_records(counts: Mapping[str, BinCounts]) -> int:
    """Return the number of records of all splits."""
    return sum(int(of_split.rows.sum()) for of_split in counts.values())


def merge_counts(
    one: Mapping[str, BinCounts], other: Mapping[str, BinCounts]
) -> dict[str, BinCounts]:
    """Return the sums of two sets of runs, by split."""
    merged = dict(one)
    for name, counts in other.items():
        merged[name] = merged[name].merge(counts) if name in merged else counts
    return merged


def total_counts(runs: Iterable[Run]) -> dict[str, BinCounts]:
    """Return the sums over runs, by split."""
    total: dict[str, BinCounts] = {}
    for run in runs:
        total = merge_counts(total, run.counts)
    return total


def plan_merges(
    counts: Mapping[str, BinCounts],
    layout: Layout,
    *,
    window_bytes: int | None = None,
    task_bytes: int = 0,
) -> MergePlan:
    """Divide the bins of every split into shards, and the shards into tasks.

    Args:
        counts: What all runs hold, by split.
        layout: Where records go.
        window_bytes: What is merged at once, unless a single bin is more.
        task_bytes: Least size of a task, where there is so much.

    Raises:
        UsageError: The numbers of shards do not suit the splits.
    """
    names = split_order(counts, layout)
    most_bytes = WINDOW_BYTES if window_bytes is None else window_bytes
    # How full the fullest run was depends on batches and workers, the sum of all does not.
    shift = bin_shift(layout.shuffle, count_records(counts))
    counts = {name: counts[name].coarsened(max(shift, counts[name].shift)) for name in names}
    split_bytes = {name: int(counts[name].bytes.sum()) for name in names}
    shard_counts = layout.shards.counts(split_bytes)
    windows = [
        window
        for name in names
        if name in shard_counts
        for window in _windows(name, counts[name], shard_counts[name], most_bytes)
    ]
    return MergePlan(tuple(_tasks(windows, max(TASK_BYTES, window_bytes or 0, task_bytes))))


def split_order(names: Iterable[str], layout: Layout) -> list[str]:
    """Return names of splits in the order they were given, or else by name."""
    known = {name: i for i, name in enumerate(layout.splits.names)}
    return sorted(names, key=lambda name: (known.get(name, len(known)), name.encode()))


def _windows(split: str, counts: BinCounts, shards: int, most_bytes: int) -> Iterable[Window]:
    for number, cut in enumerate(cut_bins(counts.bins, counts.rows, counts.bytes, shards)):
        # Numbers of bins reach 2^64: a list of them would be searched as floats.
        first_bin, last_bin = np.uint64(cut.first), np.uint64(cut.last)
        inside = slice(
            int(counts.bins.searchsorted(first_bin)),
            int(counts.bins.searchsorted(last_bin, side="right")),
        )
        pieces = math.ceil(cut.bytes / most_bytes)
        for piece in cut_bins(
            counts.bins[inside], counts.rows[inside], counts.bytes[inside], pieces
        ):
            first, last = piece.first << counts.shift, (piece.last + 1 << counts.shift) - 1
            yield Window(split, number, first, last, piece.bytes, piece.rows)


def _tasks(windows: list[Window], most_bytes: int) -> Iterable[tuple[Window, ...]]:
    task: list[Window] = []
    size = 0
    for window in windows:
        starts_shard = not task or (window.split, window.shard) != (task[-1].split, task[-1].shard)
        if starts_shard and task and size + window.bytes > most_bytes:
            yield tuple(task)
            task, size = [], 0
        task.append(window)
        size += window.bytes
    if task:
        yield tuple(task)
