"""From batches to a published dataset: the steps behind `WriteToTFRecord` and `write`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import apache_beam as beam

from beam_tfrecord.batch import Batch
from beam_tfrecord.copies import copies_told
from beam_tfrecord.exchange.direct_pipeline import write_directly
from beam_tfrecord.exchange.marks import Done
from beam_tfrecord.exchange.merge import Piece
from beam_tfrecord.exchange.merge_pipeline import merge
from beam_tfrecord.exchange.pipeline import Exchange, Spilled, spill
from beam_tfrecord.exchange.sizes import request_bytes, run_bytes_for
from beam_tfrecord.exchange.tally import Tally
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.images import refused_as_json
from beam_tfrecord.jobs.finishing import Publisher, finish
from beam_tfrecord.jobs.publish import Identity, publish
from beam_tfrecord.jobs.resume import load_remarks
from beam_tfrecord.jobs.target import Target
from beam_tfrecord.layout import Layout
from beam_tfrecord.places import ONE_INPUT, Inputs
from beam_tfrecord.rejects import RejectBudget
from beam_tfrecord.storage import Lease
from beam_tfrecord.transforms.step import flat_map, map_each


@dataclasses.dataclass(frozen=True)
class WriteJob:
    """A write as values: what `WriteToTFRecord` and `beam_tfrecord.write` have in common.

    Attributes:
        target: Where to.
        layout: How.
        directory: Temporary directory, made by the first step.
        schema: Given schema; None: that of the data.
        budget: Rows that may be rejected.
        identity: What the dataset is made from.
        overwrite: Replace a dataset at the target.
        exchange: ``files`` or ``runner``.
        direct: Write shards in one pass, in source order, each from a group of units.
        job: What ``job.json`` tells besides.
        lease: Held by whoever started the job, and checked before anything is published; None:
            the last step holds one of its own.
        is_resumable: What is done is kept for another attempt at the same job.
        raises: Faults of the data are raised at the end of the pipeline; else whoever started it
            finds them in the temporary directory.
        total_bytes: Estimate of all records together; None: not known.
        keeps_files: Files of the input that records hold are read again for the shards, rather
            than written to runs in between.
        fitted: Directory of the fitted function that the rows went through, to be published.
        inputs: Where rows come from.
    """

    target: Target
    layout: Layout
    directory: str
    schema: Schema | None = None
    budget: RejectBudget = RejectBudget()
    identity: Identity = Identity()
    overwrite: bool = False
    exchange: str = "files"
    direct: bool = False
    job: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    lease: Lease | None = None
    is_resumable: bool = False
    raises: bool = True
    total_bytes: int | None = None
    keeps_files: bool = False
    fitted: str | None = None
    inputs: Inputs = ONE_INPUT

    @property
    def run_bytes(self) -> int:
        """Size of runs, and so of the groups of units that are spilled together."""
        return run_bytes_for(self.total_bytes, request_bytes(self.directory))


def write_batches(
    batches: Sequence[beam.PCollection[Batch]],
    job: WriteJob,
    done: beam.PCollection[Done] | None = None,
) -> beam.PCollection[str]:
    """Write batches as one dataset; give the names of its shards.

    Args:
        batches: The rows.
        job: How to write them.
        done: What groups of rows became that an earlier attempt has finished.
    """
    kind = job.exchange if job.layout.shuffle else "files"
    exchange = Exchange(
        job.layout,
        job.directory,
        job.schema,
        kind,
        job.is_resumable,
        job.total_bytes,
        job.keeps_files,
        job.inputs,
    )
    if job.direct:
        pieces, tally = write_directly(batches[0], exchange, job.budget, done)
    else:
        spilled = [spill(one, exchange, str(i)) for i, one in enumerate(batches)]
        if done is not None:
            spilled.append(
                Spilled(
                    done | "DoneRuns" >> flat_map(lambda of_group: of_group.runs),
                    done | "DoneTallies" >> map_each(lambda of_group: of_group.tally),
                )
            )
        together = spilled[0] if len(spilled) == 1 else _flatten(spilled)
        pieces, tally = merge(together, exchange, job.budget)
    return finish(batches[0].pipeline, job, pieces, tally, _DATASET)


def _flatten(spilled: Sequence[Spilled]) -> Spilled:
    return Spilled(
        [one.runs for one in spilled] | "AllRuns" >> beam.Flatten(),
        [one.tally for one in spilled] | "AllTallies" >> beam.Flatten(),
    )


def _publish(
    job: WriteJob,
    tally: Tally,
    pieces: Sequence[Piece],
    held: Lease,
    told: Mapping[str, Any],
) -> list[str]:
    manifest = publish(
        job.target,
        job.layout,
        job.identity,
        tally,
        pieces,
        directory=job.directory,
        fitted=job.fitted,
        lease=held,
        job={
            **told,
            "left_out_columns": sorted(tally.left_out),
            "remarks": load_remarks(job.directory),
            "copies": copies_told(tally.copies),
            "refused_pictures": refused_as_json(tally.refused),
        },
    )
    return [shard.path for shard in manifest.shards]


_DATASET = Publisher(_publish, ("shards", "records", "encoded"))
