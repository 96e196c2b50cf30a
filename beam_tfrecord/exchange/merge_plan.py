"""Plans the merge of runs, which are sorted spill files of records, into shards.

The plan divides all records, by their *sort keys* (64-bit positions in the order of the dataset),
into shards, and each shard into *sections* that fit into memory. A task of a worker is some
sections. Runs count their records by *bin*: all sort keys with the same leading bits. If there are
too many runs to merge at once, a *round* first merges them into fewer, longer runs.
"""

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
from beam_tfrecord.format.layout import Layout, cut_bins
from beam_tfrecord.format.sort_keys import bin_shift
from beam_tfrecord.job_state.job import Job
from beam_tfrecord.job_state.run_files import BinCounts, SpillRun, count_records, merge_counts
from beam_tfrecord.storage import is_remote

# Bytes that one worker merges at a time, while it reads as many ahead.
SECTION_BYTES = 36 * 2**20
# Small shards share a task, so that a task is worth scheduling.
TASK_BYTES = 128 * 2**20
MOST_RUN_BYTES = 512 * 2**20
MOST_SECTION_BYTES = 512 * 2**20
# A read from an object store costs a round trip and a fee; a read from a disk costs at most a seek.
REMOTE_REQUEST_BYTES = 2**20
LOCAL_REQUEST_BYTES = 2**17
# Below this estimated size all runs can be merged at once, even if the estimate is far off.
ONE_ROUND_BYTES = 4 * 10**9
# The runner's own shuffle groups records into 2^8 to 2^16 ranges of sort keys of about this size.
RANGE_BYTES = 256 * 2**20
LEAST_RANGE_BITS, MOST_RANGE_BITS = 8, 16
# A run whose records span this many of the 2^64 sort keys counts as one that may hold any sort key.
_WIDE_KEYS = 2**62


@dataclasses.dataclass(frozen=True)
class Section:
    """A section of a shard: a range of sort keys whose records are merged at once."""

    split: str
    shard: int
    first_key: int
    last_key: int
    bytes: int
    records: int | None


@dataclasses.dataclass(frozen=True)
class RunName:
    """The path of a run and the range of its sort keys."""

    path: str
    reach: tuple[int, int] | None = None

    def may_hold(self, sections: Iterable[Section]) -> bool:
        """Return whether the run may hold records of at least one of the sections."""
        if self.reach is None:
            return True
        first, last = self.reach
        return any(one.first_key <= last and one.last_key >= first for one in sections)


def name_of(run: SpillRun) -> RunName:
    """Return the `RunName` of a run; its reach is None if wide (2^62 sort keys) or unknown."""
    if not run.counts:
        return RunName(run.path)
    ends = [
        (int(of.bins[0]) << of.shift, (int(of.bins[-1]) + 1 << of.shift) - 1)
        for of in run.counts.values()
    ]
    reach = min(first for first, _ in ends), max(last for _, last in ends)
    is_wide = reach[1] - reach[0] >= _WIDE_KEYS
    return RunName(run.path, None if is_wide else reach)


@dataclasses.dataclass(frozen=True, eq=False)
class RunSet:
    """A set of runs, with the counts of all their records."""

    names: tuple[RunName, ...] = ()
    counts: Mapping[str, BinCounts] = dataclasses.field(default_factory=dict)

    @property
    def records(self) -> int:
        """Number of records."""
        return count_records(self.counts)


def gather_runs(found: Iterable[RunSet | SpillRun]) -> RunSet:
    """Return the set of all runs; runs and sets may be joined in any order and grouping."""
    sets = [
        one if isinstance(one, RunSet) else RunSet((name_of(one),), one.counts) for one in found
    ]
    names = itertools.chain.from_iterable(one.names for one in sets)
    return RunSet(tuple(names), merge_counts(*(one.counts for one in sets)))


def plan_merges(
    counts: Mapping[str, BinCounts], layout: Layout, *, task_bytes: int = 0
) -> list[tuple[Section, ...]]:
    """Divide the bins of every split into shards, and the shards into tasks."""
    names = split_order(counts, layout)
    # The shift of each run depends on batches and workers; the number of all records does not.
    shift = bin_shift(layout.shuffle, count_records(counts))
    counts = {name: counts[name].coarsened(max(shift, counts[name].shift)) for name in names}
    split_bytes = {name: int(counts[name].bytes.sum()) for name in names}
    shard_counts = layout.shards.counts(split_bytes)
    sections = [
        section
        for name in names
        if name in shard_counts
        for section in _sections(name, counts[name], shard_counts[name])
    ]
    return list(_tasks(sections, max(TASK_BYTES, task_bytes)))


def split_order(names: Iterable[str], layout: Layout) -> list[str]:
    """Return names of splits in the order of the layout, followed by all others sorted by name."""
    known = {name: i for i, name in enumerate(layout.splits.names)}
    return sorted(names, key=lambda name: (known.get(name, len(known)), name.encode()))


def _sections(split: str, counts: BinCounts, shards: int) -> Iterable[Section]:
    for number, cut in enumerate(cut_bins(counts.bins, counts.rows, counts.bytes, shards)):
        # Numbers of bins reach 2^64: NumPy would compare Python integers with them as floats.
        first_bin, last_bin = np.uint64(cut.first), np.uint64(cut.last)
        inside = slice(
            int(counts.bins.searchsorted(first_bin)),
            int(counts.bins.searchsorted(last_bin, side="right")),
        )
        pieces = math.ceil(cut.bytes / SECTION_BYTES)
        for piece in cut_bins(
            counts.bins[inside], counts.rows[inside], counts.bytes[inside], pieces
        ):
            first, last = piece.first << counts.shift, (piece.last + 1 << counts.shift) - 1
            yield Section(split, number, first, last, piece.bytes, piece.rows)


def _tasks(sections: list[Section], max_bytes: int) -> Iterable[tuple[Section, ...]]:
    task: list[Section] = []
    size = 0
    for section in sections:
        starts_shard = task and (section.split, section.shard) != (task[-1].split, task[-1].shard)
        if starts_shard and size + section.bytes > max_bytes:
            yield tuple(task)
            task, size = [], 0
        task.append(section)
        size += section.bytes
    if task:
        yield tuple(task)


# Bytes that a task of a round writes: far more than the footers that it reads, but few enough to
# write again after a failure.
PART_BYTES = 4 * 2**30
# Minimum size of a task after a round, since each task first reads the footers of all runs.
LAST_TASK_BYTES = 4 * MOST_SECTION_BYTES


@dataclasses.dataclass(frozen=True)
class RunTask:
    """A task of a round: the merge of a range of sort keys of neighbouring runs into one run."""

    first_run: int
    end_run: int
    split: str
    first_key: int
    last_key: int

    def key(self, paths: Sequence[str]) -> str:
        """Return the key of the task within its job, from the paths of its runs."""
        return work_key((self.split, self.first_key, self.last_key), paths)


def needs_round(names: Sequence[RunName], layout: Layout, request: int) -> bool:
    """Return whether there are too many runs to merge all at once."""
    return layout.shuffle and _count_wide(names) > max_fan_in(request)


def task_bytes_of(runs: RunSet, layout: Layout, request: int) -> int:
    """Return the size in bytes that tasks of the merge into shards grow to."""
    if needs_round(runs.names, layout, request):
        return LAST_TASK_BYTES
    return section_bytes_for(_count_wide(runs.names), request)


def plan_round(runs: RunSet, layout: Layout, request: int) -> Iterator[RunTask]:
    """Yield the tasks of a round before the merge into shards; none if no round is needed."""
    if not needs_round(runs.names, layout, request):
        return
    wide = _count_wide(runs.names)
    batches = math.ceil(wide / max_fan_in(request))
    bounds = [wide * number // batches for number in range(batches + 1)]
    ranges = list(_ranges(runs.counts, batches))
    for first, end in itertools.pairwise(bounds):
        for split, first_key, last_key in ranges:
            yield RunTask(first, end, split, first_key, last_key)


def names_in_order(names: Sequence[RunName]) -> tuple[RunName, ...]:
    """Return names in the order that `RunTask` numbers: first runs that may hold any sort key."""
    return tuple(sorted(names, key=lambda name: (name.reach is not None, name.path)))


def after_round(names: Sequence[RunName], merged: Sequence[RunName]) -> tuple[RunName, ...]:
    """Return the runs to merge into shards, sorted by path."""
    left = [name for name in names if name.reach is not None] if merged else names
    # A runner may run a task twice: its run has the same name both times.
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
    """Return a key for work on some runs; every attempt at the job computes the same key."""
    names = [os.path.basename(path) for path in paths]
    return hashlib.sha256(repr((*work, names)).encode()).hexdigest()[:32]


def request_bytes(directory: str) -> int:
    """Return how many bytes a read from a run in `directory` should have at least."""
    return REMOTE_REQUEST_BYTES if is_remote(directory) else LOCAL_REQUEST_BYTES


def run_bytes_of(job: Job) -> int:
    """Return the size in bytes of the runs of a job."""
    return run_bytes_for(job.total_bytes, request_bytes(job.directory))


def may_need_round(job: Job) -> bool:
    """Return whether a job may have more runs than can be merged at once."""
    if job.exchange == "runner" or not job.layout.shuffle:
        return False
    return job.total_bytes is None or job.total_bytes >= ONE_ROUND_BYTES


def run_bytes_for(total_bytes: int | None, request: int) -> int:
    """Return the size of runs in bytes; runs grow with the data as fast as sections do."""
    if total_bytes is None:
        return RUN_BYTES
    # A section of `s` bytes reads about `s * run / total` from each of the `total / run` runs. That
    # should be at least `request`. A merge holds 2 * `run` bytes: one section, or two of half.
    return min(max(RUN_BYTES, math.isqrt(total_bytes * request // 2)), MOST_RUN_BYTES)


def section_bytes_for(runs: int, request: int) -> int:
    """Return the size in bytes of sections that are merged from `runs` runs."""
    return min(max(SECTION_BYTES, runs * request), MOST_SECTION_BYTES)


def sections_held(section_bytes: int) -> int:
    """Return how many sections a merge holds in memory: 2 (one is read ahead), or 1 large one."""
    return 2 if 2 * section_bytes <= MOST_SECTION_BYTES else 1


def max_fan_in(request: int) -> int:
    """Return how many runs can be merged at once, if each is read in steps of `request` bytes."""
    return max(2, MOST_SECTION_BYTES // request)


def range_bits_for(total_bytes: int | None) -> int:
    """Return how many leading bits of a sort key number its range in a runner's shuffle."""
    ranges = (total_bytes or 0) // RANGE_BYTES
    return min(max(LEAST_RANGE_BITS, ranges.bit_length()), MOST_RANGE_BITS)
