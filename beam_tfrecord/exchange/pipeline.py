"""The exchange as a part of a Beam pipeline: batches in, unpublished shards out.

Only small things cross the runner's edges: runs and shards by name, counts, tallies. In the
``files`` way records travel through run files; in the ``runner`` way blocks of them go through
the runner's GroupByKey once, so that every run covers a narrow range of places.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam

from beam_tfrecord.batch import Batch
from beam_tfrecord.errors import DataError
from beam_tfrecord.exchange.gather import CheckRejects, GatherRuns, MergeTallies
from beam_tfrecord.exchange.marks import Done, GroupMarks, find_shard, mark_shard, shard_key
from beam_tfrecord.exchange.merge import Merger, Piece, slices_of
from beam_tfrecord.exchange.plan import RunSet, Window, plan_merges
from beam_tfrecord.exchange.range_blocks import BlockCutter, RangeSorter
from beam_tfrecord.exchange.runs import Run, RunIndex, read_index
from beam_tfrecord.exchange.spill import Spiller
from beam_tfrecord.exchange.tally import Tally
from beam_tfrecord.faults import is_stopped, noted, recorded
from beam_tfrecord.layout import Layout
from beam_tfrecord.metrics import count
from beam_tfrecord.rejects import RejectBudget
from beam_tfrecord.schema import Schema
from beam_tfrecord.storage import make_directory
from beam_tfrecord.windows import in_global_window

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
    """

    layout: Layout
    directory: str
    schema: Schema | None = None
    kind: str = "files"
    is_resumable: bool = False


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


def merge(spilled: Spilled, exchange: Exchange, budget: RejectBudget) -> tuple[Any, Any]:
    """Merge runs into shards.

    Returns:
        PCollections of the `Piece`s, and of the job's one `Tally`.
    """
    tally = (
        spilled.tally
        | "GatherTallies" >> beam.CombineGlobally(MergeTallies(exchange.directory))
        | "CheckRejects" >> beam.ParDo(CheckRejects(budget, exchange.directory))
    )
    runs = spilled.runs | "GatherRuns" >> beam.CombineGlobally(GatherRuns())  # RunSet
    paths = runs | "RunPaths" >> beam.Map(lambda gathered: tuple(sorted(gathered.paths)))
    pieces = (
        runs
        | "PlanMerges"
        # The tally is asked for so that nothing is merged for a job over its budget.
        >> beam.ParDo(_PlanMerges(exchange), beam.pvalue.AsSingleton(tally))
        | "SpreadMerges" >> beam.Reshuffle()  # the windows of a task
        | "MergeShards" >> beam.ParDo(_Merge(exchange), beam.pvalue.AsSingleton(paths))  # Piece
    )
    return pieces, tally


class _Spill(beam.DoFn):
    """Encode batches into sorted runs; each holds records of one group of units."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._group: int | None = None
        self._spiller: Spiller | None = None
        self._marks = GroupMarks(exchange.directory)

    def start_bundle(self) -> None:
        exchange = self._exchange
        make_directory(exchange.directory)
        self._spiller = Spiller(exchange.layout, exchange.directory, schema=exchange.schema)
        self._marks = GroupMarks(exchange.directory)
        self._group = None

    def process(self, batch: Batch) -> Iterator[Any]:
        yield from recorded(self._add, self._exchange.directory)(batch)

    def _add(self, batch: Batch) -> Iterator[Any]:
        assert self._spiller is not None
        if batch.group != self._group:
            yield from self._outputs([self._spiller.flush()])
            self._group = batch.group
        self._marks.follow(batch.part)
        yield from self._outputs(self._spiller.add(batch))
        if batch.part is not None and batch.part.is_last:
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


class _CutBlocks(beam.DoFn):
    """Encode batches and cut the sorted records into ranges of places."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._cutter: BlockCutter | None = None

    def start_bundle(self) -> None:
        exchange = self._exchange
        make_directory(exchange.directory)
        self._cutter = BlockCutter(exchange.layout, exchange.directory, schema=exchange.schema)

    def process(self, batch: Batch) -> Iterator[Any]:
        yield from recorded(self._add, self._exchange.directory)(batch)

    def _add(self, batch: Batch) -> Iterator[Any]:
        assert self._cutter is not None
        for output in self._cutter.add(batch):
            yield _tagged_tally(output)

    def finish_bundle(self) -> Iterator[Any]:
        assert self._cutter is not None
        cutter, self._cutter = self._cutter, None
        with noted(self._exchange.directory):
            for output in cutter.flush():
                yield in_global_window(_tagged_tally(output))


def _tagged_tally(output: Any) -> Any:
    return beam.pvalue.TaggedOutput(TALLIES, output) if isinstance(output, Tally) else output


class _SortRange(beam.DoFn):
    """Sort the blocks of one range of places into runs."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def process(self, blocks: tuple[tuple[str, int], Iterable[bytes]]) -> Iterator[Run]:
        yield from recorded(self._runs, self._exchange.directory)(blocks)

    def _runs(self, blocks: tuple[tuple[str, int], Iterable[bytes]]) -> Iterator[Run]:
        (split, _), entries = blocks
        sorter = RangeSorter(self._exchange.layout, self._exchange.directory, split)
        yield from sorter.runs(entries)


class _PlanMerges(beam.DoFn):
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
        yield from plan_merges(runs.counts, self._exchange.layout).tasks


class _Merge(beam.DoFn):
    """Merge what all runs hold of the windows of a task into shards."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._merger: Merger | None = None
        # A footer is checked once, however many tasks look into it. The footers themselves are
        # not kept: there may be hundreds, and a task needs little of each.
        self._checked: set[str] = set()

    def start_bundle(self) -> None:
        self._merger = Merger(self._exchange.layout, self._exchange.directory)

    def process(self, windows: tuple[Window, ...], runs: Sequence[str]) -> Iterator[Piece]:
        yield from recorded(self._pieces, self._exchange.directory)((windows, runs))

    def _pieces(self, task: tuple[tuple[Window, ...], Sequence[str]]) -> Iterator[Piece]:
        assert self._merger is not None
        windows, runs = task
        directory = self._exchange.directory
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
        slices = [slices_of(path, self._index(path), to_do) for path in runs]
        for key, piece in zip(keys, self._merger.merge(to_do, slices), strict=True):
            if key:
                mark_shard(directory, key, piece)
            count(type(self), "write-shards", 1)
            count(type(self), "write-bytes", piece.bytes)
            yield piece

    def _index(self, path: str) -> RunIndex:
        index = read_index(path, is_checked=path in self._checked)
        self._checked.add(path)
        return index

    def finish_bundle(self) -> None:
        # Buffers of the size of a shard are given back as soon as they are of no use.
        self._merger = None
