"""Before rows are read inside a pipeline: list, scan, cut and group, infer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import apache_beam as beam
import pyarrow as pa

from beam_tfrecord.jobs.resume import (
    GROUPS,
    SCHEMA,
    Keep,
    kept,
    kept_schema,
    load_groups,
    save_remarks,
)
from beam_tfrecord.sources.base import InputFile, Scan, Source
from beam_tfrecord.sources.groups import Group, group_units, grown, one_group
from beam_tfrecord.transforms.flow import Gather, Spread, Start
from beam_tfrecord.transforms.step import flat_map
from beam_tfrecord.workdir.faults import recorded

if TYPE_CHECKING:
    from beam_tfrecord.transforms.reading import ReadBatches

# What steps get that wait for a schema that a fault has kept from being found.
NO_SCHEMA = pa.schema([])


def plan_reading(pipeline: beam.Pipeline, reader: ReadBatches) -> tuple[Any, Any]:
    """Return the groups to read, and the schema of the rows, or a side input that will have it."""
    source, faults, resume = reader.source, reader.faults, reader.resume
    given = kept(resume, GROUPS)
    known = kept_schema(resume, SCHEMA) if reader.schema is None else reader.schema
    if reader.plans_here and reader.files is not None:
        given, known = _plan_here(reader, reader.files, given, known)
    if given is None or (known is None and source.infers_from_scans):
        scans = (
            pipeline
            | "ListFiles" >> Start(_Listing(source, reader.files, faults))  # InputFile
            | "CutFiles" >> flat_map(recorded(source.chunks, faults))  # Chunk
            | "SpreadChunks" >> Spread()
            | "ScanChunks" >> flat_map(recorded(_One(source.scan), faults))  # Scan
        )
    if given is None:
        groups = scans | "GroupUnits" >> Gather(recorded(_group_plan(reader), faults))  # Group
    else:
        # What is kept need not travel with the pipeline.
        begin = _Given(given) if resume is None else _Loading(resume, faults)
        groups = pipeline | "LoadGroups" >> Start(begin)
    if known is not None:
        return groups, known
    if source.infers_from_scans:
        inferred = scans | "InferScans" >> flat_map(recorded(_One(source.infer), faults))
    else:
        inferred = (
            groups
            | "SpreadInference" >> Spread()
            | "InferUnits" >> flat_map(recorded(_InferGroup(source), faults))
        )
    merge = _schema_merge(reader)
    merged = inferred | "MergeTypes" >> Gather(recorded(merge, faults, instead=[NO_SCHEMA]))
    return groups, beam.pvalue.AsSingleton(merged)


def _plan_here(
    reader: ReadBatches,
    files: Sequence[InputFile],
    groups: list[Group] | None,
    schema: pa.Schema | None,
) -> tuple[list[Group], pa.Schema | None]:
    """Do at once what is not given: the groups, and the schema where scans tell it."""
    source = reader.source
    infers = schema is None and source.infers_from_scans
    if groups is not None and not infers:
        return groups, schema
    scans = [source.scan(chunk) for file in files for chunk in source.chunks(file)]
    if groups is None:
        groups = list(_group_plan(reader)(scans))
    if infers:
        (schema,) = _schema_merge(reader)([source.infer(scan) for scan in scans])
    return groups, schema


def _group_plan(reader: ReadBatches) -> Keep:
    plan = _GroupPlan(reader.source, reader.group_bytes, reader.most_group_bytes, reader.limit)
    return Keep(plan, reader.resume, GROUPS)


def _schema_merge(reader: ReadBatches) -> Keep:
    return Keep(_Merge(reader.source, reader.faults), reader.resume, SCHEMA)


@dataclasses.dataclass(frozen=True)
class _Listing:
    """Yield the files of a source."""

    source: Source
    files: Sequence[InputFile] | None
    faults: str | None

    def __call__(self) -> Iterator[Any]:
        if self.files is not None:
            yield from self.files
        else:
            yield from recorded(_list_files, self.faults)(self.source)


def _list_files(source: Source) -> Iterator[Any]:
    yield from source.files()


@dataclasses.dataclass(frozen=True)
class _Loading:
    """Yield the groups that an earlier attempt has planned."""

    directory: str | None
    faults: str | None

    def __call__(self) -> Iterator[Group]:
        yield from recorded(load_groups, self.faults)(self.directory)


@dataclasses.dataclass(frozen=True)
class _Given:
    """Yield the groups that were planned before."""

    groups: Sequence[Group]

    def __call__(self) -> Iterator[Group]:
        yield from self.groups


@dataclasses.dataclass(frozen=True)
class _One:
    """Yield the one result of a function."""

    function: Any

    def __call__(self, value: Any) -> Iterator[Any]:
        yield self.function(value)


@dataclasses.dataclass(frozen=True)
class _Merge:
    """Yield the schema that digests make, and write down what there is to remark on it."""

    source: Source
    directory: str | None

    def __call__(self, inferences: Iterable[Any]) -> Iterator[pa.Schema]:
        found = list(inferences)
        schema = self.source.merge(found)
        if self.directory is not None and (remarks := self.source.remarks(found, schema)):
            save_remarks(self.directory, remarks)
        yield schema


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
