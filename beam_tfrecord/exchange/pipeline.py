"""The first half of the exchange as a part of a Beam pipeline: batches in, runs out.

Only small things cross the runner's edges: runs and shards by name, counts, tallies. In the
``files`` way records travel through run files; in the ``runner`` way blocks of them go through
the runner's GroupByKey once, so that every run covers a narrow range of places.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam

from beam_tfrecord.batch import Batch
from beam_tfrecord.errors import DataError
from beam_tfrecord.exchange.checkpoints import (
    Done,
    GroupMarks,
    find_run,
    find_shard,
    mark_run,
    mark_shard,
    shard_key,
)
from beam_tfrecord.exchange.merge import Merger, merge_runs, slices_of
from beam_tfrecord.exchange.plan import (
    ONE_ROUND_BYTES,
    RunName,
    RunSet,
    RunTask,
    Window,
    after_round,
    name_of,
    names_in_order,
    plan_merges,
    plan_round,
    range_bits_for,
    request_bytes,
    round_key,
    run_bytes_for,
    task_bytes_of,
    window_bytes_for,
    window_bytes_of,
)
from beam_tfrecord.exchange.shard_writers import DirectWriter, GroupWriter, Piece
from beam_tfrecord.exchange.spill import BlockCutter, RangeSorter, Spiller
from beam_tfrecord.exchange.spill_files import Run, RunIndex, read_index
from beam_tfrecord.exchange.write_summary import Tally, merge_tallies
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.layout import Layout
from beam_tfrecord.places import ONE_INPUT, Inputs
from beam_tfrecord.rejects import SAVED_FILE, RejectBudget, join_rejects, rejected
from beam_tfrecord.shards import DEFAULT_SHARD_BYTES
from beam_tfrecord.storage import make_directory
from beam_tfrecord.transforms.flow import Combine, Spread
from beam_tfrecord.transforms.metrics import count
from beam_tfrecord.transforms.step import Step, flat_map, map_each
from beam_tfrecord.transforms.windows import in_global_window
from beam_tfrecord.workdir.faults import is_stopped, noted, recorded

TALLIES = "tallies"
EXCHANGES = ("files", "runner")


@dataclasses.dataclass(frozen=True)
class Spilled:
    """Where a job stands once all rows are encoded.

    Attributes:
        runs: PCollection of `Run`.
        tally: PCollection of the one `Tally` of the job.
    """

    runs: Any
    tally: Any


@dataclasses.dataclass(frozen=True)
class Exchange:
    """What all steps of an exchange share.

    Attributes:
        layout: Where records go.
        directory: The job's temporary directory.
        schema: Given schema; None: that of the batches.
        kind: ``files`` or ``runner``.
        is_resumable: What is done is marked as such for another attempt at the same job.
        total_bytes: Estimate of all records together; None: not known.
        inputs: Where rows come from.
    """

    layout: Layout
    directory: str
    schema: Schema | None = None
    kind: str = "files"
    is_resumable: bool = False
    total_bytes: int | None = None
    inputs: Inputs = ONE_INPUT

    @property
    def request_bytes(self) -> int:
        """Least bytes of a read of a run."""
        return request_bytes(self.directory)

    @property
    def may_need_rounds(self) -> bool:
        """Whether there may be more runs than can be merged at once."""
        if self.kind == "runner" or not self.layout.shuffle:
            return False
        return self.total_bytes is None or self.total_bytes >= ONE_ROUND_BYTES


def spill(batches: beam.PCollection[Batch], exchange: Exchange, label: str) -> Spilled:
    """Encode batches and leave their records in runs."""
    if exchange.kind == "files":
        written = batches | f"Spill{label}" >> beam.ParDo(_Spill(exchange)).with_outputs(
            TALLIES, main="runs"
        )
        return Spilled(written.runs, written[TALLIES])
    cut = batches | f"CutBlocks{label}" >> beam.ParDo(_CutBlocks(exchange)).with_outputs(
        TALLIES, main="blocks"
    )
    runs = (
        cut.blocks  # ((split, range of places), run entries)
        | f"Shuffle{label}" >> beam.GroupByKey()
        | f"SortRange{label}" >> beam.ParDo(_SortRange(exchange))  # Run
    )
    return Spilled(runs, cut[TALLIES])


class _Spill(Step):
    """Encode batches into sorted runs.

    Where the work may be resumed, each holds records of one group of units.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._spiller: Spiller | None = None
        self._marks = GroupMarks(exchange.directory)

    def start_bundle(self) -> None:
        exchange = self._exchange
        with noted(exchange.directory):
            make_directory(exchange.directory)
            self._spiller = Spiller(
                exchange.layout,
                exchange.directory,
                schema=exchange.schema,
                run_bytes=run_bytes_for(exchange.total_bytes, exchange.request_bytes),
                inputs=exchange.inputs,
            )
        self._marks = GroupMarks(exchange.directory)

    def process(self, batch: Batch) -> Iterator[Any]:
        yield from recorded(self._add, self._exchange.directory)(batch)

    def _add(self, batch: Batch) -> Iterator[Any]:
        assert self._spiller is not None
        part = batch.part
        if part is not None and part.number == 0:
            # What is marked is of this group alone.
            yield from self._outputs([self._spiller.flush()])
        self._marks.follow(part)
        yield from self._outputs(self._spiller.add(batch))
        if part is not None and part.is_last:
            yield from self._outputs([self._spiller.flush()])
            self._marks.end()

    def _outputs(self, written: Iterable[tuple[Run | None, Tally]]) -> Iterator[Any]:
        for run, tally in written:
            self._marks.add(Done(tally, () if run is None else (run,)))
            if run is not None:
                count(type(self), "write-runs", 1)
                yield run
            count(type(self), "reject-rows", tally.rejects)
            yield beam.pvalue.TaggedOutput(TALLIES, tally)

    def finish_bundle(self) -> Iterator[Any]:
        assert self._spiller is not None
        spiller, self._spiller = self._spiller, None
        if is_stopped(self._exchange.directory):
            return
        with noted(self._exchange.directory):
            for output in self._outputs([spiller.flush()]):
                yield in_global_window(output)


class _CutBlocks(Step):
    """Encode batches and cut the sorted records into ranges of places."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._cutter: BlockCutter | None = None

    def start_bundle(self) -> None:
        exchange = self._exchange
        make_directory(exchange.directory)
        self._cutter = BlockCutter(
            exchange.layout,
            exchange.directory,
            schema=exchange.schema,
            range_bits=range_bits_for(exchange.total_bytes),
            inputs=exchange.inputs,
        )

    def process(self, batch: Batch) -> Iterator[Any]:
        yield from recorded(self._add, self._exchange.directory)(batch)

    def _add(self, batch: Batch) -> Iterator[Any]:
        assert self._cutter is not None
        for output in self._cutter.add(batch):
            yield _tagged_tally(output)

    def finish_bundle(self) -> Iterator[Any]:
        assert self._cutter is not None
        cutter, self._cutter = self._cutter, None
        if is_stopped(self._exchange.directory):
            # A fault of the data may have left a batch half done.
            return
        with noted(self._exchange.directory):
            for output in cutter.flush():
                yield in_global_window(_tagged_tally(output))


def _tagged_tally(output: Any) -> Any:
    return beam.pvalue.TaggedOutput(TALLIES, output) if isinstance(output, Tally) else output


class _SortRange(Step):
    """Sort the blocks of one range of places into runs."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def process(self, blocks: tuple[tuple[str, int], Iterable[bytes]]) -> Iterator[Run]:
        yield from recorded(self._runs, self._exchange.directory)(blocks)

    def _runs(self, blocks: tuple[tuple[str, int], Iterable[bytes]]) -> Iterator[Run]:
        (split, _), entries = blocks
        sorter = RangeSorter(self._exchange.layout, self._exchange.directory, split)
        yield from sorter.runs(entries)


class MergeTallies(beam.CombineFn):
    """Join tallies; where they do not go together, that is a fault of the data.

    Args:
        directory: Where it is recorded.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def create_accumulator(self) -> Tally:
        """Return the tally of nothing."""
        return Tally()

    def add_input(self, total: Tally, tally: Tally) -> Tally:
        """Join one tally."""
        return self.merge_accumulators((total, tally))

    def merge_accumulators(self, tallies: Iterable[Tally]) -> Tally:
        """Join any number of tallies."""
        merge = recorded(_merged, self._directory, instead=[Tally()])
        total: Tally = next(merge(tallies))
        return total

    def extract_output(self, total: Tally) -> Tally:
        """Return the sum."""
        return total


def _merged(tallies: Iterable[Tally]) -> Iterator[Tally]:
    yield merge_tallies(tallies)


class GatherRuns(beam.CombineFn):
    """Join runs to one set."""

    def create_accumulator(self) -> RunSet:
        """Return the set of none."""
        return RunSet()

    def add_input(self, total: RunSet, run: Run) -> RunSet:
        """Join one run."""
        return total.merge(RunSet((name_of(run),), run.counts))

    def merge_accumulators(self, totals: Iterable[RunSet]) -> RunSet:
        """Join any number of sets."""
        merged = RunSet()
        for total in totals:
            merged = merged.merge(total)
        return merged

    def extract_output(self, total: RunSet) -> RunSet:
        """Return the set."""
        return total


@dataclasses.dataclass(frozen=True)
class CheckRejects:
    """Let a tally pass; where its rejects are over the budget, that is a fault of the data.

    Attributes:
        budget: Rejects that are allowed.
        directory: The job's temporary directory, where the fault is recorded and all are listed.
    """

    budget: RejectBudget
    directory: str

    def __call__(self, tally: Tally) -> Iterator[Tally]:
        """Yield the tally."""
        yield from recorded(self._check, self.directory)(tally)
        # Who waits for it always gets it: an end without reason is worse than a fault.
        yield tally

    def _check(self, tally: Tally) -> Iterator[Tally]:
        if not self.budget.allows(tally.rejects, tally.rows):
            path = os.path.join(self.directory, SAVED_FILE)
            join_rejects(tally.reject_files, path)
            raise rejected(self.budget, tally.rejects, tally.rows, tally.sample, path)
        yield from ()


def write_directly(
    batches: beam.PCollection[Batch],
    exchange: Exchange,
    budget: RejectBudget,
    done: beam.PCollection[Done] | None,
    make_writer: Callable[[Exchange], GroupWriter] | None = None,
) -> tuple[Any, Any]:
    """Write each group of units to shards of its own.

    Args:
        batches: The rows.
        exchange: Where they go.
        budget: Rows that may be rejected.
        done: What groups became that an earlier attempt has finished; None: there is none.
        make_writer: Makes what writes them; None: a `DirectWriter`.

    Returns:
        PCollections of the `Piece`s, and of the job's one `Tally`.
    """
    written = batches | "WriteShards" >> beam.ParDo(
        _WriteShards(exchange, make_writer or _direct_writer)
    ).with_outputs(TALLIES, main="pieces")
    pieces, tallies = written.pieces, written[TALLIES]
    if done is not None:
        before = done | "DonePieces" >> flat_map(lambda of_group: of_group.pieces)
        told = done | "DoneTallies" >> map_each(lambda of_group: of_group.tally)
        pieces = [pieces, before] | "AllPieces" >> beam.Flatten()
        tallies = [tallies, told] | "AllTallies" >> beam.Flatten()
    tally = (
        tallies
        | "GatherTallies" >> Combine(MergeTallies(exchange.directory))
        | "CheckRejects" >> flat_map(CheckRejects(budget, exchange.directory))
    )
    return pieces, tally


def _direct_writer(exchange: Exchange) -> GroupWriter:
    return DirectWriter(
        exchange.layout,
        exchange.directory,
        shard_bytes=exchange.layout.shards.shard_bytes or DEFAULT_SHARD_BYTES,
        schema=exchange.schema,
    )


class _WriteShards(Step):
    """Write each group of units straight to shards of its own."""

    def __init__(self, exchange: Exchange, make_writer: Callable[[Exchange], GroupWriter]) -> None:
        self._exchange = exchange
        self._make_writer = make_writer
        self._writer: GroupWriter | None = None
        self._marks = GroupMarks(exchange.directory)

    def start_bundle(self) -> None:
        exchange = self._exchange
        make_directory(exchange.directory)
        self._marks = GroupMarks(exchange.directory)
        self._writer = self._make_writer(exchange)

    def process(self, batch: Batch) -> Iterator[Any]:
        yield from recorded(self._add, self._exchange.directory)(batch)

    def _add(self, batch: Batch) -> Iterator[Any]:
        assert self._writer is not None
        part = batch.part
        if part is not None and part.number == 0:
            # What is marked is of this group alone.
            yield from self._end()
        self._marks.follow(part)
        for piece in self._writer.add(batch):
            self._marks.add(Done(Tally(), pieces=(piece,)))
            yield piece
        if part is not None and part.is_last:
            yield from self._end()
            self._marks.end()

    def _end(self) -> Iterator[Any]:
        assert self._writer is not None
        pieces = tuple(self._writer.end_group())
        tally = self._writer.take_tally()
        self._marks.add(Done(tally, pieces=pieces))
        yield from pieces
        yield beam.pvalue.TaggedOutput(TALLIES, tally)

    def finish_bundle(self) -> Iterator[Any]:
        assert self._writer is not None
        if is_stopped(self._exchange.directory):
            self._writer.abort()
        else:
            with noted(self._exchange.directory):
                for output in self._end():
                    yield in_global_window(output)
        self._writer = None


def merge(spilled: Spilled, exchange: Exchange, budget: RejectBudget) -> tuple[Any, Any]:
    """Merge runs into shards.

    Returns:
        PCollections of the `Piece`s, and of the job's one `Tally`.
    """
    tally = (
        spilled.tally
        | "GatherTallies" >> Combine(MergeTallies(exchange.directory))
        | "CheckRejects" >> flat_map(CheckRejects(budget, exchange.directory))
    )
    runs = spilled.runs | "GatherRuns" >> Combine(GatherRuns())  # RunSet
    names = runs | "RunNames" >> map_each(lambda gathered: names_in_order(gathered.names))
    if exchange.may_need_rounds:
        merged = (
            runs
            | "PlanRound" >> beam.ParDo(_PlanRound(exchange), beam.pvalue.AsSingleton(tally))
            | "SpreadRound" >> Spread()  # RunTask
            | "MergeRuns" >> beam.ParDo(_MergeRuns(exchange), beam.pvalue.AsSingleton(names))
        )  # RunName
        names = names | "AfterRound" >> map_each(
            _after_round, beam.pvalue.AsList(merged)
        ).with_output_types(Any)
    pieces = (
        runs
        | "PlanMerges"
        # The tally is asked for so that nothing is merged for a job over its budget.
        >> beam.ParDo(_PlanMerges(exchange), beam.pvalue.AsSingleton(tally))
        | "SpreadMerges" >> Spread()  # the windows of a task
        | "MergeShards" >> beam.ParDo(_Merge(exchange), beam.pvalue.AsSingleton(names))  # Piece
    )
    return pieces, tally


def _after_round(names: tuple[RunName, ...], merged: Sequence[RunName]) -> tuple[RunName, ...]:
    return after_round(names, merged)


class _PlanRound(Step):
    """Give the tasks of a round before the last one, where one is needed."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def process(self, runs: RunSet, tally: Tally) -> Iterator[RunTask]:
        exchange = self._exchange
        plan = recorded(
            lambda gathered: plan_round(gathered, exchange.layout, exchange.request_bytes),
            exchange.directory,
        )
        yield from plan(runs)


class _MergeRuns(Step):
    """Merge what some runs hold of a range of places into a new run."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def process(self, task: RunTask, names: Sequence[RunName]) -> Iterator[RunName]:
        yield from recorded(self._merged, self._exchange.directory)((task, names))

    def _merged(self, work: tuple[RunTask, Sequence[RunName]]) -> Iterator[RunName]:
        task, names = work
        exchange = self._exchange
        paths = [name.path for name in names[task.first_run : task.end_run]]
        key = round_key(task, paths)
        run = find_run(exchange.directory, key) if exchange.is_resumable else None
        if run is None:
            run = merge_runs(task, paths, exchange.layout, exchange.directory)
            if run is None:
                return
            count(type(self), "write-runs", 1)
            if exchange.is_resumable:
                mark_run(exchange.directory, key, run)
        yield RunName(run.path, (task.first_place, task.last_place))


class _PlanMerges(Step):
    """Give the windows of every task."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def process(self, runs: RunSet, tally: Tally) -> Iterator[tuple[Window, ...]]:
        yield from recorded(self._tasks, self._exchange.directory)((runs, tally))

    def _tasks(self, gathered: tuple[RunSet, Tally]) -> Iterator[tuple[Window, ...]]:
        runs, tally = gathered
        if runs.records != tally.records:
            raise DataError(
                f"runs hold {runs.records:,} records where {tally.records:,} were encoded: "
                "run the job again"
            )
        layout, request = self._exchange.layout, self._exchange.request_bytes
        window_bytes = window_bytes_of(runs, layout, request)
        task_bytes = task_bytes_of(runs, layout, request)
        planned = plan_merges(runs.counts, layout, window_bytes=window_bytes, task_bytes=task_bytes)
        yield from planned.tasks


class _Merge(Step):
    """Merge what all runs hold of the windows of a task into shards."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._merger: Merger | None = None
        # A footer is checked once, however many tasks look into it. The footers themselves are
        # not kept: there may be hundreds, and a task needs little of each.
        self._checked: set[str] = set()

    def process(self, windows: tuple[Window, ...], names: Sequence[RunName]) -> Iterator[Piece]:
        yield from recorded(self._pieces, self._exchange.directory)((windows, names))

    def _pieces(self, task: tuple[tuple[Window, ...], Sequence[RunName]]) -> Iterator[Piece]:
        windows, names = task
        directory = self._exchange.directory
        runs = [name.path for name in names if name.may_hold(windows)]
        to_do: list[Window] = []
        keys: list[str] = []
        for _, of_shard in itertools.groupby(windows, key=lambda w: (w.split, w.shard)):
            shard = tuple(of_shard)
            key = shard_key(shard, runs) if self._exchange.is_resumable else ""
            if key and (piece := find_shard(directory, key)):
                yield piece
            else:
                to_do.extend(shard)
                keys.append(key)
        # Ties in source order are kept by run, so runs come in the order they were written.
        slices = [slices_of(path, self._index(path), to_do) for path in sorted(runs)]
        merger = self._merger_of(len(runs))
        for key, piece in zip(keys, merger.merge(to_do, slices), strict=True):
            if key:
                mark_shard(directory, key, piece)
            count(type(self), "write-shards", 1)
            count(type(self), "write-bytes", piece.bytes)
            yield piece

    def _merger_of(self, runs: int) -> Merger:
        window_bytes = window_bytes_for(runs, self._exchange.request_bytes)
        if self._merger is None or self._merger.window_bytes < window_bytes:
            exchange = self._exchange
            self._merger = Merger(
                exchange.layout,
                exchange.directory,
                window_bytes=window_bytes,
            )
        return self._merger

    def _index(self, path: str) -> RunIndex:
        index = read_index(path, is_checked=path in self._checked)
        self._checked.add(path)
        return index

    def finish_bundle(self) -> None:
        # Buffers of the size of a shard are given back as soon as they are of no use.
        self._merger = None
