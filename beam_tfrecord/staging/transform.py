"""`ExtractToParquet`: batches to a published stage, inside a pipeline."""

from __future__ import annotations

import dataclasses
import os
import shlex
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa

from beam_tfrecord.batch import Batch
from beam_tfrecord.errors import UsageError
from beam_tfrecord.exchange.direct import GroupWriter
from beam_tfrecord.exchange.direct_pipeline import write_directly
from beam_tfrecord.exchange.marks import Done
from beam_tfrecord.exchange.merge import Piece
from beam_tfrecord.exchange.pipeline import Exchange
from beam_tfrecord.exchange.tally import Tally
from beam_tfrecord.jobs.finishing import Publisher, finish
from beam_tfrecord.jobs.publish import Identity
from beam_tfrecord.jobs.target import Target, check_free, claim, directory_target
from beam_tfrecord.layout import Layout
from beam_tfrecord.places import ONE_INPUT, Inputs
from beam_tfrecord.rejects import RejectBudget, parse_budget
from beam_tfrecord.runner_traits import check_lossless
from beam_tfrecord.staging.publish import publish_stage, schema_of
from beam_tfrecord.staging.writer import StageWriter
from beam_tfrecord.storage import Lease
from beam_tfrecord.transforms import display
from beam_tfrecord.transforms.elements import batches_of
from beam_tfrecord.transforms.ways import ways_to
from beam_tfrecord.transforms.windows import in_one_window


@dataclasses.dataclass(frozen=True)
class StageJob:
    """An extraction as values: what `ExtractToParquet` and `extract` have in common.

    Attributes:
        target: Where to.
        directory: Temporary directory, made by the first step.
        budget: Rows that may be rejected.
        identity: What the stage is made from.
        overwrite: Replace what is at the target.
        job: What ``job.json`` tells besides.
        lease: Held by whoever started the job; None: the last step holds one of its own.
        raises: Faults of the data are raised at the end of the pipeline; else whoever started it
            finds them in the temporary directory.
        inputs: Where rows come from.
    """

    target: Target
    directory: str
    budget: RejectBudget = RejectBudget()
    identity: Identity = Identity()
    overwrite: bool = False
    job: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    lease: Lease | None = None
    raises: bool = True
    inputs: Inputs = ONE_INPUT


class ExtractToParquet(beam.PTransform):
    """Write rows as a stage, and give the names of its files.

    A stage is a Parquet dataset with the types of the rows, which `ReadFromParquet`, `load` and
    `write` read by its manifest. Takes a bounded PCollection of `Batch`, or of dict, NamedTuple
    or `beam.Row`.

    Args:
        output: Directory of the stage.
        max_rejects: Rows that may be rejected: a number, ``"1%"`` or ``"any"``.
        overwrite: Replace what is in the output.

    Raises:
        UsageError: The arguments do not fit together, or the elements cannot be staged.
    """

    def __init__(
        self,
        output: str | os.PathLike[str],
        *,
        max_rejects: int | str = 0,
        overwrite: bool = False,
    ) -> None:
        super().__init__()
        target = directory_target(output)
        self._job = StageJob(
            target,
            target.temporary(uuid.uuid4().hex[:12]),
            parse_budget(max_rejects),
            overwrite=overwrite,
            job={"runner": "beam"},
        )

    def display_data(self) -> dict[str, Any]:
        """Return what a runner's page shows."""
        return display.shown(
            output=display.place(self._job.target.directory), overwrite=self._job.overwrite
        )

    def expand(self, elements: beam.PCollection) -> beam.PCollection[str]:
        """Build the chain."""
        check_lossless(elements.pipeline)
        check_free(self._job.target, overwrite=self._job.overwrite)
        claim(self._job.target, elements.pipeline)
        if not elements.is_bounded:
            raise UsageError("ExtractToParquet needs a bounded PCollection: a stage has an end")
        found = batches_of(in_one_window(elements), None, None)
        batches = found[0] if len(found) == 1 else found | "AllBatches" >> beam.Flatten()
        job = dataclasses.replace(self._job, inputs=Inputs(ways_to(elements)))
        return extract_batches(batches, job)


def extract_batches(
    batches: beam.PCollection[Batch],
    job: StageJob,
    done: beam.PCollection[Done] | None = None,
) -> beam.PCollection[str]:
    """Write batches as one stage; give the names of its files.

    Args:
        batches: The rows.
        job: How to write them.
        done: What groups of rows became that an earlier attempt has finished.
    """
    exchange = Exchange(Layout(shuffle=False), job.directory, inputs=job.inputs)
    pieces, tally = write_directly(batches, exchange, job.budget, done, _stage_writer)
    return finish(batches.pipeline, job, pieces, tally, _STAGE)


def _stage_writer(exchange: Exchange) -> GroupWriter:
    return StageWriter(exchange.directory, inputs=exchange.inputs)


def _publish(
    job: StageJob,
    tally: Tally,
    pieces: Sequence[Piece],
    held: Lease,
    told: Mapping[str, Any],
) -> list[str]:
    manifest = publish_stage(
        job.target,
        job.identity,
        tally,
        pieces,
        directory=job.directory,
        lease=held,
        job={**told, "remarks": _remarks(tally)},
    )
    return [file.path for file in manifest.files]


def _remarks(tally: Tally) -> list[str]:
    """Return a line for each column that a stage holds with fewer digits than the input has."""
    return [
        f"numbers of {name!r} have more digits than {_type_of(name, tally)} holds (relative error "
        f"at most {seen.max_relative_error:.1e}): --types {shlex.quote(name)}=string keeps them"
        for name, seen in sorted(tally.observed.items())
    ]


def _type_of(name: str, tally: Tally) -> pa.DataType:
    return schema_of(tally).field(name).type


_STAGE = Publisher(_publish, ("files", "rows", "read"))
