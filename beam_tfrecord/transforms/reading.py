"""Reading inside a pipeline."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import SetupOptions

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS, Batch, Part, Way
from beam_tfrecord.exchange.marks import Done, find_group
from beam_tfrecord.hashes import sum_hashes
from beam_tfrecord.jobs.faults import is_stopped, recorded
from beam_tfrecord.jobs.resume import count_done, group_key
from beam_tfrecord.runner_traits import check_lossless
from beam_tfrecord.sources.base import InputFile, Source
from beam_tfrecord.transforms import display
from beam_tfrecord.transforms.flow import Spread
from beam_tfrecord.transforms.grouping import GROUP_BYTES, Group
from beam_tfrecord.transforms.metrics import count
from beam_tfrecord.transforms.reading_plan import NO_SCHEMA, plan_reading
from beam_tfrecord.transforms.step import Step
from beam_tfrecord.transforms.ways import inputs_of, mark_step, step_label

DONE = "done"
# Of such a batch only what is beside the rows counts.
NOTHING = pa.RecordBatch.from_arrays([], schema=NO_SCHEMA)


@dataclasses.dataclass(eq=False)
class ReadBatches(beam.PTransform):
    """Read a source as batches.

    Everything but the listing runs on workers, and every step is a plain DoFn behind a fusion
    break: runners such as Flink run splittable sources on a single subtask.

    Attributes:
        source: What to read.
        schema: Arrow schema of the rows; None: inferred in a pass of its own.
        files: What the source consists of, where it was listed before; None: a worker lists it.
        batch_rows: Rows of a batch; has no influence on the dataset.
        group_bytes: Encoded bytes of a group of units.
        most_group_bytes: Where there are many groups, they grow up to this; None: they do not.
        limit: Read the first rows only, on one worker.
        faults: Directory where an error of the data is recorded for the launcher.
        resume: Directory of a job that may be resumed: what it has of the plan is taken from
            there, the rest is kept there, and groups that are done are not read.
        reads_all: Read those too, for another purpose.
        makes_stubs: Work is resumed only where it is of stubs, made from files of the same paths;
            else only where it is not.
        plans_here: Look at the files, which are listed, where the pipeline is built: some steps
            less to wait for, where a look takes no time.
        hashes: Hash the bytes that are read, where the job may be resumed.
    """

    source: Source
    schema: pa.Schema | None = None
    files: Sequence[InputFile] | None = None
    batch_rows: int = DEFAULT_BATCH_ROWS
    group_bytes: int = GROUP_BYTES
    most_group_bytes: int | None = None
    limit: int | None = None
    faults: str | None = None
    resume: str | None = None
    reads_all: bool = False
    makes_stubs: bool = False
    plans_here: bool = False
    hashes: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    def display_data(self) -> dict[str, Any]:
        """Return what a runner's page shows."""
        return display.of_source(self.source) | display.shown(limit=self.limit)

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[Batch]:
        """Build the chain."""
        check_lossless(begin.pipeline)
        self.source, files = self.source.to_send()
        if files:
            # Where Beam starts workers elsewhere, it copies these there first.
            setup = begin.pipeline.options.view_as(SetupOptions)
            setup.files_to_stage = list(dict.fromkeys([*(setup.files_to_stage or ()), *files]))
        groups, schema = plan_reading(begin.pipeline, self)
        step = step_label(begin.pipeline)
        marks = None if self.reads_all else self.resume
        # A second output costs: what follows can then not be summed up where it is made.
        may_skip = marks is not None and count_done(marks) > 0
        read = beam.ParDo(
            _ReadGroup(
                self.source,
                self.batch_rows,
                self.limit,
                self.faults,
                marks,
                may_skip,
                self.makes_stubs,
                step,
                self.hashes,
            ),
            schema,
        ).with_output_types(Batch)
        spread = groups | "SpreadGroups" >> Spread()
        if may_skip:
            outputs = spread | "ReadGroup" >> read.with_outputs(DONE, main="batches")
            batches = outputs.batches
            batches.beam_tfrecord_done = outputs[DONE]
        else:
            batches = spread | "ReadGroup" >> read
        mark_step(batches, step)
        # Types are found in all rows, whatever is done.
        batches.beam_tfrecord_reader = anew = copy.copy(self)
        anew.reads_all = True
        return batches


def done_of(batches: beam.PCollection) -> beam.PCollection[Done] | None:
    """Return what groups became that a resumed reader does not read; None if it is no such."""
    return getattr(batches, "beam_tfrecord_done", None)


def reader_of(batches: beam.PCollection) -> beam.PTransform | None:
    """Return the transform that gives the elements of `batches` anew, where it is known.

    What must be known of all rows before the first is encoded is found in a pass of its own:
    a side input made from the very data it feeds would make a runner hold all of it.
    """
    known: beam.PTransform | None = getattr(batches, "beam_tfrecord_reader", None)
    if known is not None or batches.producer is None:
        return known
    if not isinstance(batches.producer.transform, beam.Flatten):
        return None
    readers = [reader_of(one) for one in inputs_of(batches)]
    found = tuple(reader for reader in readers if reader is not None)
    return Together(found) if found and len(found) == len(readers) else None


@dataclasses.dataclass(eq=False)
class Together(beam.PTransform):
    """Several readers: what gives the elements of a Flatten anew."""

    readers: tuple[beam.PTransform, ...]

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[Batch]:
        """Read all of them."""
        read = [begin | f"Read{number}" >> reader for number, reader in enumerate(self.readers)]
        return read | "Together" >> beam.Flatten()


def schema_of(pipeline: beam.Pipeline, reader: ReadBatches) -> Any:
    """Return the schema of what a reader would give, or a side input that will have it."""
    return plan_reading(pipeline, reader)[1]


class _ReadGroup(Step):
    """Read the units of a group in order."""

    def __init__(
        self,
        source: Source,
        batch_rows: int,
        limit: int | None,
        faults: str | None,
        resume: str | None,
        may_skip: bool,
        makes_stubs: bool,
        step: str,
        hashes: bool,
    ) -> None:
        self._source = source
        self._batch_rows = batch_rows
        self._limit = limit
        self._faults = faults
        self._resume = resume
        self._may_skip = may_skip
        self._makes_stubs = makes_stubs
        self._way = (step,)
        self._hashes = hashes
        self._read = recorded(self._outputs, faults)

    def process(self, group: Group, schema: pa.Schema) -> Iterator[Any]:
        yield from self._read((group, schema))

    def _outputs(self, task: tuple[Group, pa.Schema]) -> Iterator[Any]:
        group, schema = task
        key = ""
        if self._resume is not None:
            key = group_key(group, schema, makes_stubs=self._makes_stubs)
            if self._may_skip and (done := find_group(self._resume, key)) is not None:
                count(type(self), "resumed-groups", 1)
                yield beam.pvalue.TaggedOutput(DONE, done)
                return
        hashes: list[int] | None = [] if self._hashes else None
        batches = read_group(
            self._source,
            group,
            schema,
            batch_rows=self._batch_rows,
            way=self._way,
            hashes=hashes,
        )
        for batch in in_parts(first_rows(batches, self._limit), key, hashes):
            if self._faults is not None and is_stopped(self._faults):
                return
            count(type(self), "read-rows", batch.num_rows)
            yield batch


def in_parts(
    batches: Iterator[Batch], key: str, hashes: Sequence[int] | None = None
) -> Iterator[Batch]:
    """Yield the batches of a group with the rows they were read from, and a mark of its end.

    Args:
        batches: All batches of the group.
        key: Of the group, where its parts are to be numbered; else empty.
        hashes: Of its units, complete once all batches were taken; None: there are none.
    """
    number = 0
    for number, batch in enumerate(batches, start=1):
        part = Part(key, number - 1, is_last=False) if key else None
        yield batch.replace(rows_read=batch.rows_counted, part=part)
    if number and key:
        # To hold back a batch until the next one is there would cost more than one of nothing.
        yield Batch(
            NOTHING,
            group=batch.group,
            rows_read=0,
            part=Part(key, number, is_last=True),
            input_hash=None if hashes is None else sum_hashes(hashes),
        )


def read_group(
    source: Source,
    group: Group,
    schema: pa.Schema,
    *,
    batch_rows: int = DEFAULT_BATCH_ROWS,
    way: Way = (),
    hashes: list[int] | None = None,
) -> Iterator[Batch]:
    """Yield the batches of a group in order, with the position of their unit in source order.

    Args:
        source: What to read.
        group: Of units.
        schema: Types of the rows.
        batch_rows: Rows of a batch.
        way: The steps that the batches have passed.
        hashes: Gets the hash of the bytes of each unit; None: there are none to make.
    """
    for index, unit in enumerate(group.units, start=group.first_unit):
        for batch in source.read_unchanged(unit, schema, batch_rows=batch_rows, hashes=hashes):
            origin = batch.origin
            if origin is not None and origin.index != index:
                origin = dataclasses.replace(origin, index=index)
            yield batch.replace(origin=origin, group=group.number, way=way)


def first_rows(batches: Iterator[Batch], limit: int | None) -> Iterator[Batch]:
    """Yield batches up to `limit` rows; None: all."""
    if limit is None:
        yield from batches
        return
    left = limit
    for batch in batches:
        yield batch if batch.num_rows <= left else batch.slice(0, left)
        left -= batch.num_rows
        if left <= 0:
            return
