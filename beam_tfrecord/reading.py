"""Reading inside a pipeline: list, scan, cut and group, infer, read."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa

import beam_tfrecord.coders  # noqa: F401 - registers the coder of Batch
from beam_tfrecord.batch import DEFAULT_BATCH_ROWS, Batch
from beam_tfrecord.faults import recorded
from beam_tfrecord.grouping import GROUP_BYTES, Group, group_units, one_group
from beam_tfrecord.metrics import count
from beam_tfrecord.sources.base import Scan, Source


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
        limit: Read the first rows only, on one worker.
        faults: Directory where an error of the data is recorded for the launcher.
    """

    source: Source
    schema: pa.Schema | None = None
    batch_rows: int = DEFAULT_BATCH_ROWS
    group_bytes: int = GROUP_BYTES
    limit: int | None = None
    faults: str | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[Batch]:
        """Build the chain."""
        groups, schema = _plan(begin.pipeline, self)
        batches = (
            groups
            | "SpreadGroups" >> beam.Reshuffle()
            | "ReadGroup"
            >> beam.ParDo(
                _ReadGroup(self.source, self.batch_rows, self.limit, self.faults), schema
            ).with_output_types(Batch)
        )
        batches.beam_tfrecord_reader = self
        return batches


def reader_of(batches: beam.PCollection) -> beam.PTransform | None:
    """Return the transform that gives the elements of `batches` anew, where it is known.

    What must be known of all rows before the first is encoded is found in a pass of its own:
    a side input made from the very data it feeds would make a runner hold all of it.
    """
    return getattr(batches, "beam_tfrecord_reader", None)


def _plan(pipeline: beam.Pipeline, reader: ReadBatches) -> tuple[Any, Any]:
    """Return the groups to read, and the schema of the rows as a side input."""
    source, faults = reader.source, reader.faults
    scans = (
        pipeline
        | "Source" >> beam.Create([source])
        | "ListFiles" >> beam.ParDo(recorded(_list_files, faults))  # InputFile
        | "CutFiles" >> beam.ParDo(recorded(source.chunks, faults))  # Chunk
        | "SpreadChunks" >> beam.Reshuffle()
        | "ScanChunks" >> beam.ParDo(recorded(_one(source.scan), faults))  # Scan
    )
    all_scans = scans | "GatherScans" >> beam.combiners.ToList()  # list[Scan]
    plan = _GroupPlan(source, reader.group_bytes, reader.limit)
    groups = all_scans | "GroupUnits" >> beam.ParDo(recorded(plan, faults))  # Group
    if reader.schema is not None:
        return groups, reader.schema
    if source.infers_from_scans:
        inferred = scans | "InferScans" >> beam.ParDo(recorded(_one(source.infer), faults))
    else:
        inferred = (
            groups
            | "SpreadInference" >> beam.Reshuffle()
            | "InferUnits" >> beam.ParDo(recorded(_InferGroup(source), faults))
        )
    merged = (
        inferred
        | "GatherTypes" >> beam.combiners.ToList()
        | "MergeTypes" >> beam.ParDo(recorded(_one(source.merge), faults))  # pa.Schema
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
    limit: int | None

    def __call__(self, scans: Sequence[Scan]) -> Iterator[Group]:
        units = self.source.all_units(scans)
        groups = one_group(units) if self.limit else group_units(units, self.group_bytes)
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
        self, source: Source, batch_rows: int, limit: int | None, faults: str | None
    ) -> None:
        self._source = source
        self._batch_rows = batch_rows
        self._limit = limit
        self._read = recorded(self._batches, faults)

    def process(self, group: Group, schema: pa.Schema) -> Iterator[Batch]:
        yield from self._read((group, schema))

    def _batches(self, task: tuple[Group, pa.Schema]) -> Iterator[Batch]:
        group, schema = task
        batches = read_group(self._source, group, schema, batch_rows=self._batch_rows)
        for batch in first_rows(batches, self._limit):
            count(type(self), "read-rows", batch.num_rows)
            yield batch


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
