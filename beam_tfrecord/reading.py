"""Reading inside a pipeline: list, scan, cut and group, infer, read."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import SetupOptions

import beam_tfrecord.coders  # noqa: F401 - registers the coder of Batch
from beam_tfrecord.batch import DEFAULT_BATCH_ROWS, Batch, Part
from beam_tfrecord.exchange.marks import Done, find_group
from beam_tfrecord.faults import is_stopped, recorded
from beam_tfrecord.grouping import GROUP_BYTES, Group, group_units, grown, one_group
from beam_tfrecord.metrics import count
from beam_tfrecord.resume import (
    GROUPS,
    SCHEMA,
    Keep,
    group_key,
    kept,
    kept_schema,
    load_groups,
    progress_of,
)
from beam_tfrecord.sources.base import Scan, Source

DONE = "done"
# What steps get that wait for a schema that a fault has kept from being found.
NO_SCHEMA = pa.schema([])
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
        batch_rows: Rows of a batch; has no influence on the dataset.
        group_bytes: Encoded bytes of a group of units.
        most_group_bytes: Where there are many groups, they grow up to this; None: they do not.
        limit: Read the first rows only, on one worker.
        faults: Directory where an error of the data is recorded for the launcher.
        resume: Directory of a job that may be resumed: what it has of the plan is taken from
            there, the rest is kept there, and groups that are done are not read.
        reads_all: Read those too, for another purpose.
    """

    source: Source
    schema: pa.Schema | None = None
    batch_rows: int = DEFAULT_BATCH_ROWS
    group_bytes: int = GROUP_BYTES
    most_group_bytes: int | None = None
    limit: int | None = None
    faults: str | None = None
    resume: str | None = None
    reads_all: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[Batch]:
        """Build the chain."""
        self.source, files = self.source.to_send()
        if files:
            # Where Beam starts workers elsewhere, it copies these there first.
            setup = begin.pipeline.options.view_as(SetupOptions)
            setup.files_to_stage = list(dict.fromkeys([*(setup.files_to_stage or ()), *files]))
        groups, schema = _plan(begin.pipeline, self)
        marks = None if self.reads_all else self.resume
        # A second output costs: what follows can then not be summed up where it is made.
        may_skip = marks is not None and progress_of(marks).done > 0
        read = beam.ParDo(
            _ReadGroup(self.source, self.batch_rows, self.limit, self.faults, marks, may_skip),
            schema,
        ).with_output_types(Batch)
        spread = groups | "SpreadGroups" >> beam.Reshuffle()
        if may_skip:
            outputs = spread | "ReadGroup" >> read.with_outputs(DONE, main="batches")
            batches = outputs.batches
            batches.beam_tfrecord_done = outputs[DONE]
        else:
            batches = spread | "ReadGroup" >> read
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
    return getattr(batches, "beam_tfrecord_reader", None)


def schema_of(pipeline: beam.Pipeline, reader: ReadBatches) -> Any:
    """Return the schema of what a reader would give, or a side input that will have it."""
    return _plan(pipeline, reader)[1]


def _plan(pipeline: beam.Pipeline, reader: ReadBatches) -> tuple[Any, Any]:
    """Return the groups to read, and the schema of the rows as a side input."""
    source, faults, resume = reader.source, reader.faults, reader.resume
    known = kept_schema(resume, SCHEMA) if reader.schema is None else reader.schema
    is_planned = kept(resume, GROUPS) is not None
    if not is_planned or (known is None and source.infers_from_scans):
        scans = (
            pipeline
            | "Source" >> beam.Create([source])
            | "ListFiles" >> beam.ParDo(recorded(_list_files, faults))  # InputFile
            | "CutFiles" >> beam.ParDo(recorded(source.chunks, faults))  # Chunk
            | "SpreadChunks" >> beam.Reshuffle()
            | "ScanChunks" >> beam.ParDo(recorded(_one(source.scan), faults))  # Scan
        )
    if is_planned:
        groups = (
            pipeline
            | "Kept" >> beam.Create([resume])
            | "Load" >> beam.ParDo(recorded(load_groups, faults))
        )
    else:
        all_scans = scans | "GatherScans" >> beam.combiners.ToList()  # list[Scan]
        plan = Keep(
            _GroupPlan(source, reader.group_bytes, reader.most_group_bytes, reader.limit),
            resume,
            GROUPS,
        )
        groups = all_scans | "GroupUnits" >> beam.ParDo(recorded(plan, faults))  # Group
    if known is not None:
        return groups, known
    if source.infers_from_scans:
        inferred = scans | "InferScans" >> beam.ParDo(recorded(_one(source.infer), faults))
    else:
        inferred = (
            groups
            | "SpreadInference" >> beam.Reshuffle()
            | "InferUnits" >> beam.ParDo(recorded(_InferGroup(source), faults))
        )
    merge = Keep(_one(source.merge), resume, SCHEMA)
    merged = (
        inferred
        | "GatherTypes" >> beam.combiners.ToList()
        | "MergeTypes" >> beam.ParDo(recorded(merge, faults, instead=[NO_SCHEMA]))  # pa.Schema
    )
    return groups, beam.pvalue.AsSingleton(merged)


def _list_files(source: Source) -> Iterator[Any]:
    yield from source.files()


def _one(function: Any) -> Any:
    return _One(function)


@dataclasses.dataclass(frozen=True)
class _One:
    """Yield the one result of a function."""

    function: Any

    def __call__(self, value: Any) -> Iterator[Any]:
        yield self.function(value)


@dataclasses.dataclass(frozen=True)
class _GroupPlan:
    """Cut all files into units, and join the units to groups."""

    source: Source
    group_bytes: int
    most_group_bytes: int | None
    limit: int | None

    def __call__(self, scans: Sequence[Scan]) -> Iterator[Group]:
        units = self.source.all_units(scans)
        group_bytes = grown(units, self.group_bytes, self.most_group_bytes or self.group_bytes)
        groups = one_group(units) if self.limit else group_units(units, group_bytes)
        # The largest first: whoever deals them out, the workers end at nearly the same time.
        yield from sorted(groups, key=lambda group: -group.encoded_bytes)


@dataclasses.dataclass(frozen=True)
class _InferGroup:
    """Digest the types of every unit of a group."""

    source: Source

    def __call__(self, group: Group) -> Iterator[Any]:
        for unit in group.units:
            yield self.source.infer(unit)


class _ReadGroup(beam.DoFn):
    """Read the units of a group in order."""

    def __init__(
        self,
        source: Source,
        batch_rows: int,
        limit: int | None,
        faults: str | None,
        resume: str | None,
        may_skip: bool,
    ) -> None:
        self._source = source
        self._batch_rows = batch_rows
        self._limit = limit
        self._faults = faults
        self._resume = resume
        self._may_skip = may_skip
        self._read = recorded(self._outputs, faults)

    def process(self, group: Group, schema: pa.Schema) -> Iterator[Any]:
        yield from self._read((group, schema))

    def _outputs(self, task: tuple[Group, pa.Schema]) -> Iterator[Any]:
        group, schema = task
        key = ""
        if self._resume is not None:
            key = group_key(group, schema)
            if self._may_skip and (done := find_group(self._resume, key)) is not None:
                count(type(self), "resumed-groups", 1)
                yield beam.pvalue.TaggedOutput(DONE, done)
                return
        batches = read_group(self._source, group, schema, batch_rows=self._batch_rows)
        for batch in in_parts(first_rows(batches, self._limit), key):
            if self._faults is not None and is_stopped(self._faults):
                return
            count(type(self), "read-rows", batch.num_rows)
            yield batch


def in_parts(batches: Iterator[Batch], key: str) -> Iterator[Batch]:
    """Yield the batches of a group with the rows they were read from, and a mark of its end.

    Args:
        batches: All batches of the group.
        key: Of the group, where its parts are to be numbered; else empty.
    """
    number = 0
    for number, batch in enumerate(batches, start=1):
        part = Part(key, number - 1, is_last=False) if key else None
        yield batch.replace(rows_read=batch.rows_counted, part=part)
    if number and key:
        # To hold back a batch until the next one is there would cost more than one of nothing.
        yield Batch(NOTHING, group=batch.group, rows_read=0, part=Part(key, number, is_last=True))


def read_group(
    source: Source, group: Group, schema: pa.Schema, *, batch_rows: int = DEFAULT_BATCH_ROWS
) -> Iterator[Batch]:
    """Yield the batches of a group in order, with the position of their unit in source order."""
    for index, unit in enumerate(group.units, start=group.first_unit):
        for batch in source.read(unit, schema, batch_rows=batch_rows):
            origin = batch.origin
            if origin is not None and origin.index != index:
                origin = dataclasses.replace(origin, index=index)
            yield batch.replace(origin=origin, group=group.number)


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
