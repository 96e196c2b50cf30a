"""Source order in one pass, as a part of a Beam pipeline: batches in, unpublished shards out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam

from beam_tfrecord.batch import Batch
from beam_tfrecord.exchange.direct import DirectWriter, GroupWriter
from beam_tfrecord.exchange.gather import CheckRejects, MergeTallies
from beam_tfrecord.exchange.marks import Done, GroupMarks
from beam_tfrecord.exchange.pipeline import TALLIES, Exchange
from beam_tfrecord.exchange.tally import Tally
from beam_tfrecord.job_batch import as_job_batch
from beam_tfrecord.jobs.faults import is_stopped, noted, recorded
from beam_tfrecord.layout import DEFAULT_SHARD_BYTES
from beam_tfrecord.rejects import RejectBudget
from beam_tfrecord.storage import make_directory
from beam_tfrecord.transforms.flow import Combine
from beam_tfrecord.transforms.step import Step, flat_map, map_each
from beam_tfrecord.transforms.windows import in_global_window


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
        part = as_job_batch(batch).part
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
