"""A round of merging before the last one: some runs become fewer and larger ones.

Runs are divided into batches of as many as can be merged at once, and the places into ranges. A
task merges what one batch holds of one range into a new run. A window of the last round then
reads from as many runs as there are batches.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from beam_tfrecord.exchange.bin_counts import BinCounts
from beam_tfrecord.exchange.lots import Slice
from beam_tfrecord.exchange.merge import Merger
from beam_tfrecord.exchange.plan import RunName, RunSet, Window
from beam_tfrecord.exchange.runs import (
    Run,
    RunIndex,
    SortedIndex,
    index_sorted,
    join_indexes,
    read_index,
)
from beam_tfrecord.exchange.sizes import MOST_WINDOW_BYTES, most_fan_in, window_bytes_for
from beam_tfrecord.layout import Layout, cut_bins
from beam_tfrecord.places import SHUFFLED_BIN_SHIFT
from beam_tfrecord.storage import WholeFile

# What a task writes: enough for its footers to be worth reading, and soon done again.
PART_BYTES = 4 * 2**30
# Of the last round: a task looks into the footers of all batches before it reads a record.
LAST_TASK_BYTES = 4 * MOST_WINDOW_BYTES


@dataclasses.dataclass(frozen=True)
class RunTask:
    """Merging of a range of places of neighbouring runs.

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


def needs_round(names: Sequence[RunName], layout: Layout, request: int) -> bool:
    """Tell whether there are too many runs to be merged at once."""
    return layout.shuffle and _count_wide(names) > most_fan_in(request)


def window_bytes_of(runs: RunSet, layout: Layout, request: int) -> int:
    """Return the size of the windows of the last round."""
    if needs_round(runs.names, layout, request):
        return MOST_WINDOW_BYTES
    return window_bytes_for(_count_wide(runs.names), request)


def task_bytes_of(runs: RunSet, layout: Layout, request: int) -> int:
    """Return the least size of the tasks of the last round."""
    return LAST_TASK_BYTES if needs_round(runs.names, layout, request) else 0


def plan_round(runs: RunSet, layout: Layout, request: int) -> Iterator[RunTask]:
    """Yield the tasks of a round before the last one; none where the last one is enough.

    Args:
        runs: All there are.
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
    """Return the runs of the last round, sorted, given what became of those before it."""
    left = [name for name in names if name.reach is not None] if merged else names
    # A task that was tried twice has told the same name twice.
    return tuple(sorted({*left, *merged}, key=lambda name: name.path))


def _count_wide(names: Sequence[RunName]) -> int:
    return sum(name.reach is None for name in names)


def _ranges(counts: Mapping[str, BinCounts], batches: int) -> Iterator[tuple[str, int, int]]:
    for split in sorted(counts):
        bins = counts[split]
        parts = math.ceil(int(bins.bytes.sum()) / (PART_BYTES * batches))
        for cut in cut_bins(bins.bins, bins.rows, bins.bytes, parts):
            yield split, cut.first << bins.shift, (cut.last + 1 << bins.shift) - 1


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


def round_key(task: RunTask, paths: Sequence[str]) -> str:
    """Return what tells a task from any other of the same job, whenever it is planned."""
    names = [os.path.basename(path) for path in paths]
    told = repr((task.split, task.first_place, task.last_place, names))
    return hashlib.sha256(told.encode()).hexdigest()[:32]


def _offsets(index: RunIndex, task: RunTask) -> npt.NDArray[np.int64]:
    """Return where every bin of a task's range begins in a run, and the end of the last."""
    shift = SHUFFLED_BIN_SHIFT
    first, last = task.first_place >> shift, task.last_place >> shift
    bins, offsets = index.splits.get(task.split, (np.zeros(0, "<u8"), np.zeros(1, "<i8")))
    edges = np.arange(first, last + 2, dtype=np.uint64)
    return np.asarray(offsets[np.searchsorted(bins, edges)], np.int64)
