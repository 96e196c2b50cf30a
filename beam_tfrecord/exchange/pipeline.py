"""The exchange as a part of a Beam pipeline: batches in, unpublished shards out.

Only small values cross the runner's edges: runs and shards by name, counts, sums. In the ``files``
exchange, records travel through spill files; in the ``runner`` exchange, blocks of them go through
the runner's GroupByKey once, so that every spill file covers a narrow range of places. Then every
merge task gets the names of runs and what to merge, and reads the records itself.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam

from beam_tfrecord.batch import Batch
from beam_tfrecord.beam_steps import count, in_global_window
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
    RunName,
    RunSet,
    RunTask,
    Window,
    after_round,
    may_need_round,
    name_of,
    names_in_order,
    plan_merges,
    plan_round,
    range_bits_for,
    request_bytes,
    round_key,
    run_bytes_of,
    task_bytes_of,
    window_bytes_for,
    window_bytes_of,
)
from beam_tfrecord.exchange.shard_writers import DirectWriter, GroupWriter, Piece
from beam_tfrecord.exchange.spill import BlockCutter, RangeSorter, Spiller
from beam_tfrecord.exchange.spill_files import Run, RunIndex, read_index
from beam_tfrecord.exchange.stage_writer import StageWriter
from beam_tfrecord.exchange.write_summary import Tally, merge_tallies
from beam_tfrecord.job_batch import as_job_batch
from beam_tfrecord.rejects import SAVED_FILE, RejectBudget, join_rejects, rejected
from beam_tfrecord.storage import make_directory
from beam_tfrecord.workdir.faults import Guarded, machine_faults
from beam_tfrecord.workdir.job import Job

SUMMARIES = "summaries"
EXCHANGES = ("files", "runner")


@dataclasses.dataclass(frozen=True)
class Written:
    """What some rows became in a pipeline.

    Attributes:
        files: PCollection of `Run` before the merge, of `Piece` after it.
        summary: PCollection of `Tally`; after the merge only one, that of the whole job.
    """

    files: Any
    summary: Any


def write_files(
    batches: Sequence[beam.PCollection[Batch]], job: Job, done: beam.PCollection[Done] | None
) -> Written:
    """Write batches to unpublished shards, or to the Parquet files of a stage.

    Args:
        batches: The rows.
        job: How to write them.
        done: Results of groups that an earlier attempt finished; None if there was no such attempt.

    Returns:
        PCollections of `Piece` and of the one `Tally` of the job.
    """
    write = functools.partial(_spill, job=job)
    if job.is_one_pass:
        write = functools.partial(_write_groups, job=job, name="WriteShards")
    parts = [write(one, label=str(number)) for number, one in enumerate(batches)]
    if done is not None:
        files = done | "DoneFiles" >> beam.FlatMap(lambda group: (*group.runs, *group.pieces))
        parts.append(Written(files, done | "DoneSummaries" >> beam.Map(lambda group: group.tally)))
    written = parts[0]
    if len(parts) > 1:
        written = Written(
            [part.files for part in parts] | "AllFiles" >> beam.Flatten(),
            [part.summary for part in parts] | "AllSummaries" >> beam.Flatten(),
        )
    summary = (
        written.summary
        | "MergeSummaries" >> beam.CombineGlobally(MergeSummaries(job.directory))
        | "CheckRejects" >> beam.FlatMap(CheckRejects(job.budget, job.directory))
    )
    if job.is_one_pass:
        return Written(written.files, summary)
    return Written(_merge(written.files, summary, job), summary)


def _spill(batches: beam.PCollection[Batch], job: Job, label: str) -> Written:
    """Encode batches and leave their records in runs."""
    if job.exchange == "files" or not job.layout.shuffle:
        return _write_groups(batches, job, label, name="Spill")
    cut = batches | f"CutBlocks{label}" >> beam.ParDo(_CutBlocks(job)).with_outputs(
        SUMMARIES, main="blocks"
    )
    runs = (
        cut.blocks  # ((split, range of places), run entries)
        | f"Shuffle{label}" >> beam.GroupByKey()
        | f"SortRange{label}" >> beam.ParDo(_SortRange(job))  # Run
    )
    return Written(runs, cut[SUMMARIES])


def _write_groups(batches: beam.PCollection[Batch], job: Job, label: str, name: str) -> Written:
    """Write each group of units to files of its own: runs, shards, or Parquet files."""
    outputs = batches | f"{name}{label}" >> beam.ParDo(_WriteGroups(job)).with_outputs(
        SUMMARIES, main="files"
    )
    return Written(outputs.files, outputs[SUMMARIES])


def _writer_of(job: Job) -> GroupWriter[Run | Piece]:
    if job.output == "stage":
        return StageWriter(job)
    return DirectWriter(job) if job.is_one_pass else Spiller(job, run_bytes=run_bytes_of(job))


class _WriteGroups(beam.DoFn):
    """Write each group of units to files, and a checkpoint of it if the job is resumable."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._writer: GroupWriter[Run | Piece] | None = None
        self._marks = GroupMarks(job.directory)
        self._add = Guarded(self._add_batch, job.directory)

    def start_bundle(self) -> None:
        with machine_faults(self._job.directory):
            make_directory(self._job.directory)
            self._writer = _writer_of(self._job)
        self._marks = GroupMarks(self._job.directory)

    def process(self, batch: Batch) -> Iterator[Any]:
        yield from self._add(batch)

    def _add_batch(self, batch: Batch) -> Iterator[Any]:
        assert self._writer is not None
        part = as_job_batch(batch).part
        if part is not None and part.number == 0:
            # A checkpoint is of one group alone.
            yield from self._end_group()
        self._marks.follow(part)
        for file in self._writer.add(batch):
            yield self._noted(file)
        if part is not None and part.is_last:
            yield from self._end_group()
            self._marks.end()

    def _end_group(self) -> Iterator[Any]:
        assert self._writer is not None
        for file in self._writer.end_group():
            yield self._noted(file)
        summary = self._writer.take_summary()
        self._marks.add(Done(summary))
        count(type(self), "reject-rows", summary.rejects)
        yield beam.pvalue.TaggedOutput(SUMMARIES, summary)

    def _noted(self, file: Run | Piece) -> Run | Piece:
        if isinstance(file, Run):
            self._marks.add(Done(Tally(), runs=(file,)))
            count(type(self), "write-runs", 1)
        else:
            self._marks.add(Done(Tally(), pieces=(file,)))
            count(type(self), "write-shards", 1)
        return file

    def finish_bundle(self) -> Iterator[Any]:
        assert self._writer is not None
        if self._add.is_stopped():
            self._writer.abort()
        else:
            with machine_faults(self._job.directory):
                for output in self._end_group():
                    yield in_global_window(output)
        self._writer = None


class _CutBlocks(beam.DoFn):
    """Encode batches and cut the sorted records into ranges of places."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._cutter: BlockCutter | None = None
        self._add = Guarded(self._add_batch, job.directory)

    def start_bundle(self) -> None:
        make_directory(self._job.directory)
        self._cutter = BlockCutter(self._job, range_bits=range_bits_for(self._job.total_bytes))

    def process(self, batch: Batch) -> Iterator[Any]:
        yield from self._add(batch)

    def _add_batch(self, batch: Batch) -> Iterator[Any]:
        assert self._cutter is not None
        yield from map(_tagged_summary, self._cutter.add(batch))

    def finish_bundle(self) -> Iterator[Any]:
        assert self._cutter is not None
        cutter, self._cutter = self._cutter, None
        if self._add.is_stopped():
            # A fault of the data may have left a batch half done.
            return
        with machine_faults(self._job.directory):
            for output in cutter.flush():
                yield in_global_window(_tagged_summary(output))


def _tagged_summary(output: Any) -> Any:
    return beam.pvalue.TaggedOutput(SUMMARIES, output) if isinstance(output, Tally) else output


class _SortRange(beam.DoFn):
    """Sort the blocks of one range of places into runs."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._sort = Guarded(self._runs, job.directory)

    def process(self, blocks: tuple[tuple[str, int], Iterable[bytes]]) -> Iterator[Run]:
        yield from self._sort(blocks)

    def _runs(self, blocks: tuple[tuple[str, int], Iterable[bytes]]) -> Iterator[Run]:
        (split, _), entries = blocks
        sorter = RangeSorter(self._job.layout, self._job.directory, split)
        yield from sorter.runs(entries)


def _merge(
    runs: beam.PCollection[Run], summary: beam.PCollection[Tally], job: Job
) -> beam.PCollection[Piece]:
    """Merge runs into shards."""
    gathered = runs | "GatherRuns" >> beam.CombineGlobally(GatherRuns())  # RunSet
    names = gathered | "RunNames" >> beam.Map(lambda runs: names_in_order(runs.names))
    # The summary is asked for so that nothing is merged for a job over its budget.
    checked = beam.pvalue.AsSingleton(summary)
    if may_need_round(job):
        merged = (
            gathered
            | "PlanRound" >> beam.ParDo(_PlanRound(job), checked)
            | "SpreadRound" >> beam.Reshuffle()  # RunTask
            | "MergeRuns" >> beam.ParDo(_MergeRuns(job), beam.pvalue.AsSingleton(names))
        )  # RunName
        names = names | "AfterRound" >> beam.Map(after_round, beam.pvalue.AsList(merged))
    return (
        gathered
        | "PlanMerges" >> beam.ParDo(_PlanMerges(job), checked)
        | "SpreadMerges" >> beam.Reshuffle()  # the windows of a task
        | "MergeShards" >> beam.ParDo(_Merge(job), beam.pvalue.AsSingleton(names))  # Piece
    )


class _PlanRound(beam.DoFn):
    """Give the tasks of a round before the last one, if one is needed."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._plan = Guarded(self._tasks, job.directory)

    def process(self, runs: RunSet, _: Tally) -> Iterator[Any]:
        yield from self._plan(runs)

    def _tasks(self, runs: RunSet) -> Iterator[RunTask]:
        return plan_round(runs, self._job.layout, request_bytes(self._job.directory))


class _PlanMerges(beam.DoFn):
    """Give the windows of every task."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._plan = Guarded(self._tasks, job.directory)

    def process(self, runs: RunSet, summary: Tally) -> Iterator[Any]:
        yield from self._plan((runs, summary))

    def _tasks(self, gathered: tuple[RunSet, Tally]) -> Iterator[tuple[Window, ...]]:
        runs, summary = gathered
        if runs.records != summary.records:
            raise DataError(
                f"runs hold {runs.records:,} records where {summary.records:,} were encoded: "
                "run the job again"
            )
        layout, request = self._job.layout, request_bytes(self._job.directory)
        planned = plan_merges(
            runs.counts,
            layout,
            window_bytes=window_bytes_of(runs, layout, request),
            task_bytes=task_bytes_of(runs, layout, request),
        )
        yield from planned.tasks


class _MergeRuns(beam.DoFn):
    """Merge what some runs hold of a range of places into a new run."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._merge = Guarded(self._merged, job.directory)

    def process(self, task: RunTask, names: Sequence[RunName]) -> Iterator[RunName]:
        yield from self._merge((task, names))

    def _merged(self, work: tuple[RunTask, Sequence[RunName]]) -> Iterator[RunName]:
        task, names = work
        job = self._job
        paths = [name.path for name in names[task.first_run : task.end_run]]
        key = round_key(task, paths)
        run = find_run(job.directory, key) if job.is_resumable else None
        if run is None:
            run = merge_runs(task, paths, job.layout, job.directory)
            if run is None:
                return
            count(type(self), "write-runs", 1)
            if job.is_resumable:
                mark_run(job.directory, key, run)
        yield RunName(run.path, (task.first_place, task.last_place))


class _Merge(beam.DoFn):
    """Merge what all runs hold of the windows of a task into shards."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._merge = Guarded(self._pieces, job.directory)
        self._merger: Merger | None = None
        # A footer is checked once, however many tasks look into it. The footers themselves are
        # dropped: there may be hundreds, and a task needs little of each.
        self._checked: set[str] = set()

    def process(self, windows: tuple[Window, ...], names: Sequence[RunName]) -> Iterator[Piece]:
        yield from self._merge((windows, names))

    def _pieces(self, task: tuple[tuple[Window, ...], Sequence[RunName]]) -> Iterator[Piece]:
        windows, names = task
        directory = self._job.directory
        runs = [name.path for name in names if name.may_hold(windows)]
        to_do: list[Window] = []
        keys: list[str] = []
        for _, of_shard in itertools.groupby(windows, key=lambda w: (w.split, w.shard)):
            shard = tuple(of_shard)
            key = shard_key(shard, runs) if self._job.is_resumable else ""
            if key and (piece := find_shard(directory, key)):
                yield piece
            else:
                to_do.extend(shard)
                keys.append(key)
        # In source order, ties stay in the order of runs: that in which they were written.
        slices = [slices_of(path, self._index(path), to_do) for path in sorted(runs)]
        merger = self._merger_of(len(runs))
        for key, piece in zip(keys, merger.merge(to_do, slices), strict=True):
            if key:
                mark_shard(directory, key, piece)
            count(type(self), "write-shards", 1)
            count(type(self), "write-bytes", piece.bytes)
            yield piece

    def _merger_of(self, runs: int) -> Merger:
        window_bytes = window_bytes_for(runs, request_bytes(self._job.directory))
        if self._merger is None or self._merger.window_bytes < window_bytes:
            self._merger = Merger(self._job.layout, self._job.directory, window_bytes=window_bytes)
        return self._merger

    def _index(self, path: str) -> RunIndex:
        index = read_index(path, is_checked=path in self._checked)
        self._checked.add(path)
        return index

    def finish_bundle(self) -> None:
        # Buffers of the size of a shard are released as soon as they are of no use.
        self._merger = None


class MergeSummaries(beam.CombineFn):
    """Join summaries; those that contradict each other are a fault of the data.

    Args:
        directory: Temporary directory of the job, where the fault is recorded.
    """

    def __init__(self, directory: str) -> None:
        self._merge = Guarded(_merged, directory, instead=[Tally()])

    def create_accumulator(self) -> Tally:
        """Return the summary of nothing."""
        return Tally()

    def add_input(self, total: Tally, summary: Tally) -> Tally:
        """Join one summary."""
        return self.merge_accumulators((total, summary))

    def merge_accumulators(self, summaries: Iterable[Tally]) -> Tally:
        """Join any number of summaries."""
        total: Tally = next(self._merge(summaries))
        return total

    def extract_output(self, total: Tally) -> Tally:
        """Return the sum."""
        return total


def _merged(summaries: Iterable[Tally]) -> Iterator[Tally]:
    yield merge_tallies(summaries)


class GatherRuns(beam.CombineFn):
    """Join runs to one set."""

    def create_accumulator(self) -> RunSet:
        """Return the empty set."""
        return RunSet()

    def add_input(self, total: RunSet, run: Run) -> RunSet:
        """Join one run."""
        return total.merge(RunSet((name_of(run),), run.counts))

    def merge_accumulators(self, totals: Iterable[RunSet]) -> RunSet:
        """Join any number of sets."""
        return functools.reduce(RunSet.merge, totals, RunSet())

    def extract_output(self, total: RunSet) -> RunSet:
        """Return the set."""
        return total


class CheckRejects:
    """Let a summary pass; more rejects than the budget allows are a fault of the data.

    Args:
        budget: Rejects that are allowed.
        directory: Temporary directory of the job, where the fault is recorded and all are listed.
    """

    def __init__(self, budget: RejectBudget, directory: str) -> None:
        self._budget = budget
        self._directory = directory
        self._guarded = Guarded(self._check, directory)

    def __call__(self, summary: Tally) -> Iterator[Tally]:
        """Yield the summary."""
        yield from self._guarded(summary)
        # Whoever waits for it always gets it: an end without reason is worse than a fault.
        yield summary

    def _check(self, summary: Tally) -> Iterator[Tally]:
        if not self._budget.allows(summary.rejects, summary.rows):
            path = os.path.join(self._directory, SAVED_FILE)
            join_rejects(summary.reject_files, path)
            raise rejected(self._budget, summary.rejects, summary.rows, summary.sample, path)
        yield from ()
