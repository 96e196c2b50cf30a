"""The first half of the exchange as a part of a Beam pipeline: batches in, runs out.

Only small things cross the runner's edges: runs and shards by name, counts, tallies. In the
``files`` way records travel through run files; in the ``runner`` way blocks of them go through
the runner's GroupByKey once, so that every run covers a narrow range of places.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam

from beam_tfrecord.batch import Batch
from beam_tfrecord.exchange.marks import Done, GroupMarks
from beam_tfrecord.exchange.range_blocks import BlockCutter, RangeSorter
from beam_tfrecord.exchange.runs import Run
from beam_tfrecord.exchange.sizes import (
    ONE_ROUND_BYTES,
    range_bits_for,
    request_bytes,
    run_bytes_for,
)
from beam_tfrecord.exchange.spill import Spiller
from beam_tfrecord.exchange.tally import Tally
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.job_batch import as_job_batch
from beam_tfrecord.jobs.faults import is_stopped, noted, recorded
from beam_tfrecord.layout import Layout
from beam_tfrecord.places import ONE_INPUT, Inputs
from beam_tfrecord.storage import make_directory
from beam_tfrecord.transforms.metrics import count
from beam_tfrecord.transforms.step import Step
from beam_tfrecord.transforms.windows import in_global_window

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
        keeps_files: Runs hold stubs (see `stubs`).
        inputs: Where rows come from.
    """

    layout: Layout
    directory: str
    schema: Schema | None = None
    kind: str = "files"
    is_resumable: bool = False
    total_bytes: int | None = None
    keeps_files: bool = False
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
                keeps_files=exchange.keeps_files,
                inputs=exchange.inputs,
            )
        self._marks = GroupMarks(exchange.directory)

    def process(self, batch: Batch) -> Iterator[Any]:
        yield from recorded(self._add, self._exchange.directory)(batch)

    def _add(self, batch: Batch) -> Iterator[Any]:
        assert self._spiller is not None
        part = as_job_batch(batch).part
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
