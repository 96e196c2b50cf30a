"""The second half of the exchange as a part of a Beam pipeline: runs in, unpublished shards out.

Every step gets the names of runs and what windows to merge, and reads the records itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam

from beam_tfrecord.errors import DataError
from beam_tfrecord.exchange.checkpoints import find_run, find_shard, mark_run, mark_shard, shard_key
from beam_tfrecord.exchange.gather import CheckRejects, GatherRuns, MergeTallies
from beam_tfrecord.exchange.merge import Merger, Piece, slices_of
from beam_tfrecord.exchange.pipeline import Exchange, Spilled
from beam_tfrecord.exchange.plan import RunName, RunSet, Window, plan_merges
from beam_tfrecord.exchange.rounds import (
    RunTask,
    after_round,
    merge_runs,
    names_in_order,
    plan_round,
    round_key,
    task_bytes_of,
    window_bytes_of,
)
from beam_tfrecord.exchange.runs import RunIndex, read_index
from beam_tfrecord.exchange.sizes import window_bytes_for
from beam_tfrecord.exchange.tally import Tally
from beam_tfrecord.rejects import RejectBudget
from beam_tfrecord.transforms.flow import Combine, Spread
from beam_tfrecord.transforms.metrics import count
from beam_tfrecord.transforms.step import Step, flat_map, map_each
from beam_tfrecord.workdir.faults import recorded


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
