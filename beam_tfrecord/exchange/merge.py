"""Merges runs, which are sorted spill files of records, into shards or into a longer run.

A shard is merged in *sections*, ranges of sort keys (positions in the order of the dataset).
Neighbouring sections are read together, ahead of time, and sorted in memory. A section that is too
large for that is merged entry by entry: an *entry* is a sort key and its record. Exact copies lie
next to each other, and are left out on request (`CopyFilter`).
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import heapq
import itertools
import math
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

import numpy as np

from beam_tfrecord import native
from beam_tfrecord.errors import DataError
from beam_tfrecord.exchange.merge_plan import (
    MOST_SECTION_BYTES,
    SECTION_BYTES,
    RunTask,
    Section,
    sections_held,
)
from beam_tfrecord.exchange.output_writers import ShardWriter
from beam_tfrecord.exchange.spill import Buffer, SortedRecords, by_size, sort_entries, write_run
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.layout import Layout, cut_bins
from beam_tfrecord.format.sort_keys import SHUFFLED_BIN_SHIFT
from beam_tfrecord.format.tally import Tally
from beam_tfrecord.job_state.checkpoints import FinishedShard
from beam_tfrecord.job_state.progress_files import WRITING, ProgressLog
from beam_tfrecord.job_state.run_files import SORT_KEY_BYTES, RunIndex, SpillRun, read_index
from beam_tfrecord.native.kernel_types import Int64Array, UInt8Array, UInt64Array
from beam_tfrecord.records.decoding import Decoder
from beam_tfrecord.records.encoding import Arena, Encoder
from beam_tfrecord.records.examples import discovered_in
from beam_tfrecord.records.tfrecord import FRAME_BYTES
from beam_tfrecord.rows.batch import Batch
from beam_tfrecord.storage import read_into

# Disks and object stores have a higher throughput if several reads run at once.
READERS = 3
# A merge entry by entry reads and yields about this much at a time.
STEP_BYTES = 2**20
# The sort key of an entry and the length of its payload, both as le64.
_ENTRY_HEAD_BYTES = SORT_KEY_BYTES + 8
_PAYLOAD_BEGIN = SORT_KEY_BYTES + FRAME_BYTES - 4


@dataclasses.dataclass(frozen=True)
class Slice:
    """The contiguous bytes of a run that hold all its entries in a range of sort keys."""

    path: str
    start: int
    stop: int


@dataclasses.dataclass(frozen=True)
class JoinedSections:
    """Neighbouring sections of one split that are merged together."""

    sections: Sequence[Section]
    slices: list[Slice] = dataclasses.field(default_factory=list)

    @property
    def bytes(self) -> int:
        """Size of all entries."""
        return sum(piece.stop - piece.start for piece in self.slices)

    @property
    def records(self) -> int | None:
        """Number of records; None if unknown."""
        counts = [section.records for section in self.sections if section.records is not None]
        return sum(counts) if len(counts) == len(self.sections) else None


def join_sections(
    sections: Sequence[Section],
    runs: Sequence[str],
    max_bytes: int,
    index_of: Callable[[str], RunIndex] = read_index,
) -> list[JoinedSections]:
    """Join neighbouring sections of one split, and find the slices of all runs for them."""
    merges = [JoinedSections(own) for own in _neighbours(sections, max_bytes)]
    for path in runs:
        index = index_of(path)
        for joined in merges:
            first, last = joined.sections[0], joined.sections[-1]
            start, stop = index.slice(first.split, first.first_key, last.last_key)
            if stop > start:
                joined.slices.append(Slice(path, start, stop))
    return merges


def _neighbours(sections: Sequence[Section], max_bytes: int) -> Iterator[list[Section]]:
    joined: list[Section] = []
    size = 0
    for section in sections:
        if joined and (section.split != joined[0].split or size + section.bytes > max_bytes):
            yield joined
            joined, size = [], 0
        joined.append(section)
        size += section.bytes
    if joined:
        yield joined


class Merger:
    """Merges runs into shards section by section, in buffers that it reuses."""

    def __init__(
        self,
        layout: Layout,
        directory: str,
        progress: ProgressLog | None = None,
        tally: Tally | None = None,
    ) -> None:
        self._layout = layout
        self._copies = CopyFilter(tally) if layout.dedup and tally is not None else None
        self._directory = directory
        self._reader = SliceReader()
        self._progress = progress or ProgressLog(None, WRITING)
        self.buffer = Buffer()

    def merge(
        self,
        sections: Sequence[Section],
        runs: Sequence[str],
        *,
        section_bytes: int | None = None,
        index_of: Callable[[str], RunIndex] = read_index,
    ) -> Iterator[FinishedShard]:
        """Write the shards of one task, and yield each."""
        self._progress.add()
        section_bytes = SECTION_BYTES if section_bytes is None else section_bytes
        merges = join_sections(sections, runs, section_bytes, index_of)
        by_shard = itertools.groupby(
            self._by_section(merges, section_bytes), lambda one: (one[0].split, one[0].shard)
        )
        for (split, shard), records in by_shard:
            writer = ShardWriter(self._directory, split, (shard,), self._layout.compression)
            try:
                for _, data, sizes in records:
                    writer.write(data, np.cumsum(sizes) - sizes)
                    self._progress.add(len(sizes))
                finished = writer.close()
            except BaseException:
                writer.abort()
                raise
            if self._copies is not None:
                finished = dataclasses.replace(finished, copies=self._copies.take())
                self._progress.add(finished.copies.records)
            yield finished
        self._progress.flush()

    def _by_section(
        self, merges: Sequence[JoinedSections], section_bytes: int
    ) -> Iterator[tuple[Section, UInt8Array, Int64Array]]:
        """Yield framed records in order: their section, their bytes, and the size of each."""
        may_spread = self._layout.spreads_copies
        for joined, records in self.sorted(merges, section_bytes):
            sort_keys = records.sorted_keys
            for section in joined.sections:
                first = int(np.searchsorted(sort_keys, np.uint64(section.first_key)))
                end = int(np.searchsorted(sort_keys, np.uint64(section.last_key), side="right"))
                inside = records.where(slice(first, end))
                if self._copies is not None:
                    inside = self._copies.firsts(inside, section)
                keys = inside.sorted_keys
                if may_spread and is_small(section) and (keys[1:] == keys[:-1]).any():
                    inside = inside.where(spread_copies(keys, section))
                for data, sizes in inside.pieces(self.buffer, 0, len(keys), is_run=False):
                    yield section, data, sizes

    def sorted(
        self, merges: Sequence[JoinedSections], section_bytes: int
    ) -> Iterator[tuple[JoinedSections, SortedRecords]]:
        """Yield each merge with its sorted records: all at once, or in steps if it is large."""
        are_small = [joined.bytes <= 2 * section_bytes or joined.records == 1 for joined in merges]
        wanted = (joined.slices for joined, small in zip(merges, are_small, strict=True) if small)
        by_bytes = self._layout.shuffle
        read = self._reader.read(wanted, held=sections_held(section_bytes))
        with contextlib.closing(read):
            for joined, small in zip(merges, are_small, strict=True):
                found, split = 0, joined.sections[0].split
                # What is read ahead comes in the order of the small merges.
                steps = [next(read)] if small else merged_entries(joined.slices, by_bytes=by_bytes)
                for data in steps:
                    try:
                        records = sort_entries(data, by_bytes=by_bytes)
                    except ValueError as error:
                        raise DataError(f"a run of split {split!r} is damaged: {error}") from error
                    found += len(records.order)
                    yield joined, records
                if joined.records is not None and found != joined.records:
                    raise DataError(
                        f"runs of split {split!r} hold {found} records, but {joined.records} were "
                        "written"
                    )


def is_small(section: Section) -> bool:
    """Return whether every merge sorts a section at once, and so can spread copies over it."""
    # An entry is at most half as large again as its framed record; see `Merger.sorted`.
    return 3 * section.bytes <= 4 * SECTION_BYTES


def spread_copies(sort_keys: UInt64Array, section: Section) -> Int64Array:
    """Return the order that spreads records of equal sort key evenly over their section.

    The first of them keeps its sort key. Each other is sorted by a hash of the sort key and its
    number.
    """
    firsts = np.flatnonzero(np.diff(sort_keys, prepend=~sort_keys[:1]))
    numbers = np.arange(len(sort_keys)) - np.repeat(firsts, np.diff(firsts, append=len(sort_keys)))
    hashes = native.hash_origins(0, sort_keys.view(np.int64), numbers, 0)
    first, last = np.uint64(section.first_key), np.uint64(section.last_key)
    moved = np.where(numbers, first + hashes % (last - first), sort_keys)
    return np.argsort(moved, kind="stable")


class SliceReader:
    """Reads slices of runs with several threads, into two buffers that it reuses."""

    def __init__(self) -> None:
        self._buffers = [np.empty(0, np.uint8), np.empty(0, np.uint8)]

    def read(self, wanted: Iterable[Sequence[Slice]], *, held: int) -> Generator[UInt8Array]:
        """Yield the concatenated slices of each merge; each array is valid until the next one."""
        begun: collections.deque[Callable[[], UInt8Array]] = collections.deque()
        with concurrent.futures.ThreadPoolExecutor(READERS, "read-runs") as pool:
            for number, slices in enumerate(wanted):
                begun.append(self._begin(pool, slices, number % held))
                if len(begun) == held:
                    yield begun.popleft()()
            for wait in begun:
                yield wait()

    def _begin(
        self, pool: concurrent.futures.Executor, slices: Sequence[Slice], buffer: int
    ) -> Callable[[], UInt8Array]:
        """Start to read slices; return a function that waits for their bytes and returns them."""
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

        def wait() -> UInt8Array:
            for read in reads:
                read.result()
            return data

        return wait


def merged_entries(slices: Sequence[Slice], *, by_bytes: bool) -> Iterator[UInt8Array]:
    """Merge sorted slices; yield all their entries in order, about `STEP_BYTES` at a time.

    For each slice, only `STEP_BYTES`, or one larger record, is in memory.
    """
    merged = heapq.merge(
        *map(_entries, slices), key=_sort_key_and_payload if by_bytes else _sort_key
    )
    return map(_joined, by_size(merged, STEP_BYTES))


def _joined(entries: list[bytes]) -> UInt8Array:
    return np.frombuffer(b"".join(entries), np.uint8)


def _entries(piece: Slice) -> Iterator[bytes]:
    """Yield the entries of a slice."""
    held, at = b"", piece.start
    while at < piece.stop:
        # Reads grow with the unfinished record: fixed steps would copy a large one again and again.
        buffer = bytearray(min(max(STEP_BYTES, len(held)), piece.stop - at))
        read_into(piece.path, at, memoryview(buffer))
        at += len(buffer)
        held += buffer
        begin = 0
        while (end := _entry_end(held, begin)) <= len(held):
            yield held[begin:end]
            begin = end
        held = held[begin:]
    if held:
        raise DataError(f"run {piece.path!r} is damaged: it ends too early")


def _entry_end(data: bytes, begin: int) -> int:
    """Return the end of the entry that begins at `begin`; it may lie beyond the end of `data`."""
    head = data[begin + SORT_KEY_BYTES : begin + _ENTRY_HEAD_BYTES]
    return begin + _ENTRY_HEAD_BYTES + FRAME_BYTES - 8 + int.from_bytes(head, "little")


def _sort_key(entry: bytes) -> int:
    return int.from_bytes(entry[:SORT_KEY_BYTES], "little")


def _sort_key_and_payload(entry: bytes) -> tuple[int, bytes]:
    return _sort_key(entry), entry[_PAYLOAD_BEGIN:-4]


def merge_runs(
    task: RunTask, paths: Sequence[str], layout: Layout, directory: str
) -> SpillRun | None:
    """Merge what several runs have in the range of a task into a new run."""
    offsets = np.stack([_offsets(read_index(path), task) for path in paths])
    sizes = np.diff(offsets, axis=1).sum(axis=0)
    if not sizes.any():
        return None
    numbers = np.arange(len(sizes), dtype=np.uint64)
    merges = []
    for cut in cut_bins(
        numbers, np.zeros_like(sizes), sizes, math.ceil(int(sizes.sum()) / MOST_SECTION_BYTES)
    ):
        section = Section(task.split, 0, task.first_key, task.last_key, cut.bytes, None)
        slices = [
            Slice(path, int(ends[cut.first]), int(ends[cut.last + 1]))
            for path, ends in zip(paths, offsets, strict=True)
            if ends[cut.last + 1] > ends[cut.first]
        ]
        merges.append(JoinedSections([section], slices))
    merger = Merger(layout, directory)
    parts = (records for _, records in merger.sorted(merges, MOST_SECTION_BYTES))
    path = os.path.join(directory, f"run-{task.key(paths)}")
    run = write_run(path, parts, (task.split,), SHUFFLED_BIN_SHIFT, merger.buffer)
    return dataclasses.replace(run, counts={})


def _offsets(index: RunIndex, task: RunTask) -> Int64Array:
    """Return the position in a run of each bin of a task's range, and the end of the last bin."""
    shift = SHUFFLED_BIN_SHIFT
    first, last = task.first_key >> shift, task.last_key >> shift
    bins, offsets = index.splits.get(task.split, (np.zeros(0, "<u8"), np.zeros(1, "<i8")))
    edges = np.arange(first, last + 2, dtype=np.uint64)
    return np.asarray(offsets[np.searchsorted(bins, edges)], np.int64)


class CopyFilter:
    """Separates the first of equal records from its copies, and counts what the copies held.

    Args:
        tally: The tally of all records, which says how to read them.
    """

    def __init__(self, tally: Tally) -> None:
        self._has_examples = bool(tally.discovered)
        self._schema = tally.schema or Schema(())
        self._decoder, self._encoder = Decoder(self._schema), Encoder(self._schema)
        self._last: tuple[Section, bytes] | None = None
        self._buffer = Buffer()
        self._copies = Tally()

    def take(self) -> Tally:
        """Return the sums over the copies since the last call."""
        found, self._copies = self._copies, Tally()
        return found

    def firsts(self, records: SortedRecords, section: Section) -> SortedRecords:
        """Return some records of a section without copies, also of those of the previous call."""
        keys, sizes = records.sorted_keys, records.sizes
        if not len(keys):
            return records
        is_copy = np.zeros(len(keys), bool)
        alike = (keys[1:] == keys[:-1]) & (sizes[1:] == sizes[:-1])
        for at in (np.flatnonzero(alike) + 1).tolist():
            is_copy[at] = np.array_equal(records.framed(at), records.framed(at - 1))
        is_copy[0] = (section, records.framed(0).tobytes()) == self._last
        self._last = section, records.framed(-1).tobytes()
        if not is_copy.any():
            return records
        self._count(records.where(is_copy))
        return records.where(~is_copy)

    def _count(self, copies: SortedRecords) -> None:
        for data, sizes in copies.pieces(self._buffer, 0, len(copies.order), is_run=False):
            starts = np.cumsum(sizes) - sizes
            found = Tally(records=len(sizes))
            if self._has_examples:
                found = dataclasses.replace(found, discovered=discovered_in(data, starts))
            elif self._schema.features:
                rows = Batch(self._decoder.decode(data, starts))
                observed = self._encoder.encode(rows, Arena()).observed
                found = dataclasses.replace(found, observed=observed)
            self._copies = self._copies.merge(found)
