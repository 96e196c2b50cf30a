"""Builds the Beam steps that write batches to shards which are not yet published.

Workers first write records to *runs*, sorted spill files, and then merge the runs into shards. The
elements of the PCollections are small: names of runs and shards, counts, sums. With the exchange
``files``, records travel only in runs. With the exchange ``runner``, blocks of records first go
through the runner's GroupByKey, so that every run covers a narrow range of *sort keys* (positions
in the order of the dataset). A merge task gets the names of runs and ranges of sort keys, and reads
the records itself. Single-pass jobs write their shards, or the Parquet files of a stage, without
runs.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam

from beam_tfrecord.errors import DataError
from beam_tfrecord.exchange.merge import Merger, merge_runs
from beam_tfrecord.exchange.merge_plan import (
    RunName,
    RunSet,
    RunTask,
    Section,
    after_round,
    gather_runs,
    may_need_round,
    names_in_order,
    plan_merges,
    plan_round,
    range_bits_for,
    request_bytes,
    run_bytes_of,
    section_bytes_for,
    task_bytes_of,
    work_key,
)
from beam_tfrecord.exchange.output_writers import DirectWriter, StageWriter
from beam_tfrecord.exchange.spill import BlockCutter, BlockWriter, Spiller, sort_range
from beam_tfrecord.exchange.split_limits import HashFile, HashWriter, find_strata
from beam_tfrecord.format.rejects import SAVED_FILE, join_rejects, rejected, rejected_rows
from beam_tfrecord.format.tally import Tally, merge_tallies
from beam_tfrecord.job_state.checkpoints import (
    Done,
    FinishedShard,
    TaskCheckpoint,
    find_merged,
    save_merged,
)
from beam_tfrecord.job_state.job import Job
from beam_tfrecord.job_state.progress_files import MERGING, READING, WRITING, ProgressLog
from beam_tfrecord.job_state.run_files import RunIndex, SpillRun, read_index
from beam_tfrecord.job_state.stored_state import STRATA, save
from beam_tfrecord.job_state.worker_errors import Guarded, machine_faults
from beam_tfrecord.rows.batch import Batch
from beam_tfrecord.rows.beam import count, in_global_window
from beam_tfrecord.storage import make_directory, remove

TALLIES = "tallies"
EXCHANGES = ("files", "runner")


@dataclasses.dataclass(frozen=True)
class Written:
    """The PCollections that result from writing rows: files and counts."""

    files: Any
    tally: Any


def write_files(
    batches: Sequence[beam.PCollection[Batch]], job: Job, done: beam.PCollection[Done] | None
) -> Written:
    """Write batches to unpublished shards, or to the Parquet files of a stage."""
    parts = [_write_tasks(one, job, str(number)) for number, one in enumerate(batches)]
    if done is not None:
        done_files = done | "DoneFiles" >> beam.FlatMap(lambda one: (*one.runs, *one.shards))
        parts.append((done_files, done | "DoneSummaries" >> beam.Map(lambda one: one.tally)))
    files, tallies = parts[0]
    if len(parts) > 1:
        files = [part[0] for part in parts] | "AllFiles" >> beam.Flatten()
        tallies = [part[1] for part in parts] | "AllSummaries" >> beam.Flatten()
    tally = (
        tallies
        | "MergeSummaries" >> beam.CombineGlobally(MergeTallies(job.directory))
        | "CheckRejects" >> beam.FlatMap(functools.partial(_check_rejects, job))
    )
    if job.is_one_pass:
        return Written(files, tally)
    return Written(_merge(files, tally, job), tally)


def _step(function: Callable[..., Iterable[Any]], job: Job) -> Callable[..., Iterator[Any]]:
    """Return a function for `FlatMap`; if it finds bad data, the job fails without any retry."""
    guarded = Guarded(lambda values: function(job, *values), job.directory)

    def outputs(element: Any, side: Any = None) -> Iterator[Any]:
        yield from guarded((element, side))

    return outputs


def _write_tasks(
    batches: beam.PCollection[Batch], job: Job, label: str
) -> tuple[beam.PCollection[SpillRun | FinishedShard], beam.PCollection[Tally]]:
    """Write the records of each task to files of its own."""
    name = "WriteShards" if job.is_one_pass else "CutBlocks" if _is_shuffled(job) else "Spill"
    outputs = batches | f"{name}{label}" >> beam.ParDo(_WriteTasks(job)).with_outputs(
        TALLIES, main="files"
    )
    files = outputs.files
    if name == "CutBlocks":
        files = (
            files  # ((split, range of sort keys), run entries)
            | f"Shuffle{label}" >> beam.GroupByKey()
            | f"SortRange{label}" >> beam.FlatMap(_step(_sort_range, job))  # SpillRun
        )
    return files, outputs[TALLIES]


def _is_shuffled(job: Job) -> bool:
    """Return whether records travel through a shuffle of the runner."""
    return not job.is_one_pass and job.exchange == "runner" and job.layout.shuffle


def _writer_of(job: Job) -> BlockWriter[Any] | StageWriter:
    if job.output == "stage":
        return StageWriter(job)
    if job.layout.splits.needs_counts:
        return HashWriter(job)
    if job.is_one_pass:
        return DirectWriter(job)
    if _is_shuffled(job):
        return BlockCutter(job, range_bits=range_bits_for(job.total_bytes))
    return Spiller(job, run_bytes=run_bytes_of(job))


class _WriteTasks(beam.DoFn):
    """Writes the records of each task to files, and its checkpoint if the job is resumable."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._writer: BlockWriter[Any] | StageWriter | None = None
        self._checkpoint = TaskCheckpoint(job.directory)
        self._add = Guarded(self._add_batch, job.directory)

    def start_bundle(self) -> None:
        with machine_faults(self._job.directory):
            make_directory(self._job.directory)
            self._writer = _writer_of(self._job)
        self._checkpoint = TaskCheckpoint(self._job.directory)

    def process(self, batch: Batch) -> Iterator[Any]:
        yield from self._add(batch)

    def _add_batch(self, batch: Batch) -> Iterator[Any]:
        assert self._writer is not None
        position = batch.position
        if position is not None and position.number == 0:
            # A checkpoint describes one task: finish the files of earlier batches first.
            yield from self._end_task(is_complete=False)
        self._checkpoint.follow(position)
        yield from map(self._noted, self._writer.add(batch))
        if position is not None and position.is_last:
            yield from self._end_task(is_complete=True)

    def _end_task(self, *, is_complete: bool) -> Iterator[Any]:
        assert self._writer is not None
        yield from map(self._noted, self._writer.end_task())
        tally = self._writer.take_tally()
        count(type(self), "reject-rows", tally.rejects)
        if tally.rejects:
            ProgressLog(self._job.directory, READING).add(rejects=tally.rejects)
        yield beam.pvalue.TaggedOutput(TALLIES, tally)
        if is_complete:
            self._checkpoint.save(tally)

    def _noted(self, output: Any) -> Any:
        if isinstance(output, SpillRun | FinishedShard):
            self._checkpoint.add(output)
            kind = "write-runs" if isinstance(output, SpillRun) else "write-shards"
            count(type(self), kind, 1)
        return output

    def finish_bundle(self) -> Iterator[Any]:
        assert self._writer is not None
        if self._add.is_stopped():
            self._writer.abort()
        else:
            with machine_faults(self._job.directory):
                yield from map(in_global_window, self._end_task(is_complete=False))
        self._writer = None

    def teardown(self) -> None:
        # After an error: until its files are closed they keep their room on a full disk.
        if self._writer is not None:
            self._writer.abort()


def _sort_range(
    job: Job, blocks: tuple[tuple[str, int], Iterable[bytes]], _: None
) -> Iterator[SpillRun]:
    """Sort the blocks of one range of sort keys into runs."""
    key, entries = blocks
    return sort_range(entries, job.directory, key[0])


def _merge(
    runs: beam.PCollection[SpillRun], tally: beam.PCollection[Tally], job: Job
) -> beam.PCollection[FinishedShard]:
    """Merge runs into shards."""
    gathered = runs | "GatherRuns" >> beam.CombineGlobally(gather_runs)  # RunSet
    names = gathered | "RunNames" >> beam.Map(lambda runs: names_in_order(runs.names))
    # The tally is a side input so that nothing is merged for a job over its budget.
    checked = beam.pvalue.AsSingleton(tally)
    if may_need_round(job):
        merged = (
            gathered
            | "PlanRound" >> beam.FlatMap(_step(_plan_round, job), checked)
            | "SpreadRound" >> beam.Reshuffle()  # RunTask
            | "MergeRuns" >> beam.FlatMap(_step(_merge_runs, job), beam.pvalue.AsSingleton(names))
        )  # RunName
        names = names | "AfterRound" >> beam.Map(after_round, beam.pvalue.AsList(merged))
    return (
        gathered
        | "PlanMerges" >> beam.FlatMap(_step(_plan_merges, job), checked)
        | "SpreadMerges" >> beam.Reshuffle()  # the sections of a task
        | "MergeShards"
        >> beam.ParDo(_Merge(job), beam.pvalue.AsSingleton(names), checked)  # FinishedShard
    )


def _plan_round(job: Job, runs: RunSet, _: Tally) -> Iterator[RunTask]:
    """Yield the tasks of a round, which merges runs into fewer ones; none if it is not needed."""
    tasks = list(plan_round(runs, job.layout, request_bytes(job.directory)))
    if tasks:
        ProgressLog(job.directory, MERGING).add(total=len(tasks))
    yield from tasks


def _plan_merges(job: Job, runs: RunSet, tally: Tally) -> list[tuple[Section, ...]]:
    """Return the sections of every task."""
    if runs.records != tally.records:
        raise DataError(
            f"runs hold {runs.records:,} records, but {tally.records:,} were encoded: "
            "run the job again"
        )
    ProgressLog(job.directory, WRITING).add(total=runs.records)
    return plan_merges(
        runs.counts,
        job.layout,
        task_bytes=task_bytes_of(runs, job.layout, request_bytes(job.directory)),
    )


def _merge_runs(job: Job, task: RunTask, names: Sequence[RunName]) -> Iterator[RunName]:
    """Merge what several runs have in one range of sort keys into a new run."""
    paths = [name.path for name in names[task.first_run : task.end_run]]
    key = task.key(paths)
    found = find_merged(job.directory, key) if job.is_resumable else None
    run = found if isinstance(found, SpillRun) else None
    progress = ProgressLog(job.directory, MERGING)
    progress.add()
    if run is None:
        run = merge_runs(task, paths, job.layout, job.directory)
        if run is None:
            return
        count(_WriteTasks, "write-runs", 1)
        if job.is_resumable:
            save_merged(job.directory, key, run)
    progress.add(1)
    progress.flush()
    yield RunName(run.path, (task.first_key, task.last_key))


class _Merge(beam.DoFn):
    """Merges the sections of a task from all runs into shards."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._merge = Guarded(self._shards, job.directory)
        self._merger: Merger | None = None
        # Runs whose footer was checked: once is enough for all tasks. Footers are not cached, since
        # there may be hundreds, and a task needs little of each.
        self._checked: set[str] = set()

    def process(
        self, sections: tuple[Section, ...], names: Sequence[RunName], tally: Tally
    ) -> Iterator[FinishedShard]:
        yield from self._merge((sections, names, tally))

    def _shards(
        self, task: tuple[tuple[Section, ...], Sequence[RunName], Tally]
    ) -> Iterator[FinishedShard]:
        sections, names, tally = task
        directory, is_resumable = self._job.directory, self._job.is_resumable
        runs = [name.path for name in names if name.may_hold(sections)]
        to_do: list[Section] = []
        keys: list[str] = []
        for _, same_shard in itertools.groupby(sections, key=lambda one: (one.split, one.shard)):
            of_shard = tuple(same_shard)
            key = work_key((of_shard,), runs) if is_resumable else ""
            done = find_merged(directory, key) if is_resumable else None
            if isinstance(done, FinishedShard):
                ProgressLog(directory, WRITING).add(done.examples)
                yield done
            else:
                to_do.extend(of_shard)
                keys.append(key)
        if self._merger is None:
            progress = ProgressLog(directory, WRITING)
            self._merger = Merger(self._job.layout, directory, progress, tally)
        merged = self._merger.merge(
            to_do,
            # In source order, the order of runs resolves ties, so sort the runs by name,
            # which is the order in which they were written.
            sorted(runs),
            section_bytes=section_bytes_for(len(runs), request_bytes(directory)),
            index_of=self._index,
        )
        for key, shard in zip(keys, merged, strict=True):
            if is_resumable:
                save_merged(directory, key, shard)
            count(type(self), "write-shards", 1)
            count(type(self), "write-bytes", shard.bytes)
            yield shard

    def _index(self, path: str) -> RunIndex:
        index = read_index(path, is_checked=path in self._checked)
        self._checked.add(path)
        return index

    def finish_bundle(self) -> None:
        # Release its buffers, which may be as large as a shard.
        self._merger = None


def store_strata(batches: beam.PCollection[Batch], job: Job) -> None:
    """Find the limits of the splits from all rows, and store them for another pipeline."""
    files = batches | "HashRows" >> beam.ParDo(_HashRows(job))
    once = batches.pipeline | "BeginStrata" >> beam.Impulse()
    _ = once | "StoreStrata" >> beam.FlatMap(_step(_store_strata, job), beam.pvalue.AsList(files))


class _HashRows(_WriteTasks):
    """Writes the hashes and classes of all rows to files; tasks have no checkpoints."""

    def _add_batch(self, batch: Batch) -> Iterator[Any]:
        assert self._writer is not None
        return self._writer.add(batch)

    def _end_task(self, *, is_complete: bool) -> Iterator[Any]:
        assert self._writer is not None
        return self._writer.end_task()


def _store_strata(job: Job, _: bytes, files: Sequence[HashFile]) -> Iterable[Any]:
    save(os.path.join(job.directory, STRATA), find_strata(job.layout, files))
    for file in files:
        remove(file.path)
    return ()


class MergeTallies:
    """Adds up tallies; records a data error if they are inconsistent."""

    def __init__(self, directory: str) -> None:
        self._merge = Guarded(
            lambda tallies: [merge_tallies(tallies)], directory, instead=[Tally()]
        )

    def __call__(self, tallies: Iterable[Tally]) -> Tally:
        """Return the sum of any number of tallies; an empty tally if there is a fault."""
        total: Tally = next(self._merge(tallies))
        return total


def _check_rejects(job: Job, tally: Tally) -> Iterator[Tally]:
    """Yield the tally; record a fault if it has more rejects than the budget allows."""

    def check(tally: Tally) -> Iterable[Tally]:
        if not job.budget.allows(tally.rejects, tally.rows):
            path = os.path.join(job.directory, SAVED_FILE)
            join_rejects(tally.reject_files, path)
            raise rejected(job.budget, tally.rows, rejected_rows(tally.reject_files), path)
        return [tally]

    # In any case: steps that wait for the tally would fail and hide the reason.
    yield from Guarded(check, job.directory, instead=[tally])(tally)
