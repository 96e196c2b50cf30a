"""Plans the merge: cuts what all runs hold into shards, windows, and tasks for workers."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from beam_tfrecord.exchange.spill import RUN_BYTES
from beam_tfrecord.exchange.spill_files import BinCounts, Run, count_records, merge_counts
from beam_tfrecord.layout import Layout, cut_bins
from beam_tfrecord.places import bin_shift
from beam_tfrecord.storage import is_remote
from beam_tfrecord.workdir.job import Job

# Bytes that one worker merges at a time; it reads as much ahead.
WINDOW_BYTES = 36 * 2**20
# Small shards share a task, so that a task is worth scheduling.
TASK_BYTES = 128 * 2**20
MOST_RUN_BYTES = 512 * 2**20
MOST_WINDOW_BYTES = 512 * 2**20
# A read of a store costs a round trip and a fee, one of a disk a seek at most.
REMOTE_REQUEST_BYTES = 2**20
LOCAL_REQUEST_BYTES = 2**17
# With an estimate below this, however wrong, all runs can be merged at once.
ONE_ROUND_BYTES = 4 * 10**9
# Blocks in a runner's own shuffle go by ranges of about this size, of 2^8 to 2^16.
RANGE_BYTES = 256 * 2**20
LEAST_RANGE_BITS, MOST_RANGE_BITS = 8, 16
# A run whose records span this many of the 2^64 places may hold any place.
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
        records: Number of records; None if it is not known.
    """

    split: str
    shard: int
    first_place: int
    last_place: int
    bytes: int
    records: int | None


@dataclasses.dataclass(frozen=True)
class RunName:
    """The path of a run, and where its records are.

    Attributes:
        path: Path of the file.
        reach: First and last place of its records, both inclusive; None if they may be anywhere.
    """

    path: str
    reach: tuple[int, int] | None = None

    def may_hold(self, windows: Iterable[Window]) -> bool:
        """Return whether the run may hold records of some windows."""
        if self.reach is None:
            return True
        first, last = self.reach
        return any(w.first_place <= last and w.last_place >= first for w in windows)


def name_of(run: Run) -> RunName:
    """Return the name of a run; it has no reach if the run spans many of all places."""
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
    """Any number of runs together.

    Attributes:
        names: Names of the runs.
        counts: Counts of their records, by split.
    """

    names: tuple[RunName, ...] = ()
    counts: Mapping[str, BinCounts] = dataclasses.field(default_factory=dict)

    @property
    def records(self) -> int:
        """Number of records."""
        return count_records(self.counts)


def gather_runs(sets: Iterable[RunSet]) -> RunSet:
    """Join any number of sets of runs; associative, and in any order."""
    sets = list(sets)
    names = itertools.chain.from_iterable(one.names for one in sets)
    return RunSet(tuple(names), merge_counts(*(one.counts for one in sets)))


def plan_merges(
    counts: Mapping[str, BinCounts],
    layout: Layout,
    *,
    window_bytes: int | None = None,
    task_bytes: int = 0,
) -> list[tuple[Window, ...]]:
    """Divide the bins of every split into shards, and the shards into tasks.

    Args:
        counts: Counts of the records of all runs, by split.
        layout: Where records go.
        window_bytes: Bytes that are merged at once, unless a single bin is more.
        task_bytes: Least size of a task, if there is so much.

    Returns:
        The windows of each task, in order; every task writes complete shards.

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
    return list(_tasks(windows, max(TASK_BYTES, window_bytes or 0, task_bytes)))


def split_order(names: Iterable[str], layout: Layout) -> list[str]:
    """Return names of splits in the order of the layout, and others behind them by name."""
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


# Bytes that a task of a round writes: many for the footers it reads, and few to do again.
PART_BYTES = 4 * 2**30
# Least size of a task of the last round, which reads the footers of all batches first.
LAST_TASK_BYTES = 4 * MOST_WINDOW_BYTES


@dataclasses.dataclass(frozen=True)
class RunTask:
    """A task of a round: merge a range of places of neighbouring runs.

    Attributes:
        first_run: Position of the first run among all names, in order.
        end_run: End of the runs, exclusive.
        split: Name of the split.
        first_place: First place.
        last_place: Last place, inclusive.
    """

    first_run: int
    end_run: int
    split: str
    first_place: int
    last_place: int

    def key(self, paths: Sequence[str]) -> str:
        """Return the key of the task within its job; `paths` are those of its runs."""
        return work_key((self.split, self.first_place, self.last_place), paths)


def needs_round(names: Sequence[RunName], layout: Layout, request: int) -> bool:
    """Return whether there are too many runs to be merged at once."""
    return layout.shuffle and _count_wide(names) > most_fan_in(request)


def window_bytes_of(runs: RunSet, layout: Layout, request: int) -> int:
    """Return the size of the windows of the last round."""
    if needs_round(runs.names, layout, request):
        return MOST_WINDOW_BYTES
    return window_bytes_for(_count_wide(runs.names), request)


def plan_round(runs: RunSet, layout: Layout, request: int) -> Iterator[RunTask]:
    """Yield the tasks of a round before the last one; none if the last one is enough.

    Args:
        runs: All runs.
        layout: Where records go.
        request: Least bytes of a read.
    """
    if not needs_round(runs.names, layout, request):
        return
    wide = _count_wide(runs.names)
    batches = math.ceil(wide / most_fan_in(request))
    bounds = [wide * number // batches for number in range(batches + 1)]
    ranges = list(_ranges(runs.counts, batches))
    for first, end in itertools.pairwise(bounds):
        for split, first_place, last_place in ranges:
            yield RunTask(first, end, split, first_place, last_place)


def names_in_order(names: Sequence[RunName]) -> tuple[RunName, ...]:
    """Return names in the order that tasks count them: those that may hold any place first."""
    return tuple(sorted(names, key=lambda name: (name.reach is not None, name.path)))


def after_round(names: Sequence[RunName], merged: Sequence[RunName]) -> tuple[RunName, ...]:
    """Return the runs of the last round, sorted.

    Args:
        names: The runs of the job.
        merged: The runs that a round before the last one made of those that may hold any place.
    """
    left = [name for name in names if name.reach is not None] if merged else names
    # A task that ran twice returns the same name twice.
    return tuple(sorted({*left, *merged}, key=lambda name: name.path))


def _count_wide(names: Sequence[RunName]) -> int:
    return sum(name.reach is None for name in names)


def _ranges(counts: Mapping[str, BinCounts], batches: int) -> Iterator[tuple[str, int, int]]:
    for split in sorted(counts):
        bins = counts[split]
        parts = math.ceil(int(bins.bytes.sum()) / (PART_BYTES * batches))
        for cut in cut_bins(bins.bins, bins.rows, bins.bytes, parts):
            yield split, cut.first << bins.shift, (cut.last + 1 << bins.shift) - 1


def work_key(work: tuple[Any, ...], paths: Iterable[str]) -> str:
    """Return the key of work on some runs within its job, the same whenever it is planned."""
    names = [os.path.basename(path) for path in paths]
    return hashlib.sha256(repr((*work, names)).encode()).hexdigest()[:32]


def request_bytes(directory: str) -> int:
    """Return the least bytes that one read of a run in a directory should have."""
    return REMOTE_REQUEST_BYTES if is_remote(directory) else LOCAL_REQUEST_BYTES


def run_bytes_of(job: Job) -> int:
    """Return the size of the runs of a job, and so of the groups that are spilled together."""
    return run_bytes_for(job.total_bytes, request_bytes(job.directory))


def may_need_round(job: Job) -> bool:
    """Return whether there may be more runs than can be merged at once."""
    if job.exchange == "runner" or not job.layout.shuffle:
        return False
    return job.total_bytes is None or job.total_bytes >= ONE_ROUND_BYTES


def run_bytes_for(total_bytes: int | None, request: int) -> int:
    """Return the size of runs, so that runs and windows grow alike.

    Args:
        total_bytes: Estimate of all records together; None if it is not known.
        request: Least bytes of a read.
    """
    if total_bytes is None:
        return RUN_BYTES
    # A window is at most `w` and there are `total / run` runs: request <= w * run / total, and
    # windows of twice the size of runs, or two of their size, take about the same memory.
    return min(max(RUN_BYTES, math.isqrt(total_bytes * request // 2)), MOST_RUN_BYTES)


def window_bytes_for(runs: int, request: int) -> int:
    """Return the size of windows that read from so many runs."""
    return min(max(WINDOW_BYTES, runs * request), MOST_WINDOW_BYTES)


def windows_held(window_bytes: int) -> int:
    """Return how many windows a merge holds: 2, one of them read ahead, unless they are large."""
    return 2 if 2 * window_bytes <= MOST_WINDOW_BYTES else 1


def most_fan_in(request: int) -> int:
    """Return how many runs can be merged at once."""
    return max(2, MOST_WINDOW_BYTES // request)


def range_bits_for(total_bytes: int | None) -> int:
    """Return the leading bits of a place that name its range in a runner's own shuffle."""
    ranges = (total_bytes or 0) // RANGE_BYTES
    return min(max(LEAST_RANGE_BITS, ranges.bit_length()), MOST_RANGE_BITS)
