"""The steps that plan the reading of a source: list, scan and group its input, and infer types.

Their functions log their progress.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa

from beam_tfrecord.errors import DataError
from beam_tfrecord.sources.base import (
    GROUP_BYTES,
    Chunk,
    Group,
    InputFile,
    Scan,
    Source,
    Unit,
    group_units,
    grown_bytes,
    one_group,
)
from beam_tfrecord.work import progress_files, stored_state
from beam_tfrecord.work.faults import Guarded
from beam_tfrecord.work.progress_files import ProgressLog
from beam_tfrecord.work.stored_state import GROUPS, SCHEMA, Stored

# Yielded if a data error ends the inference, since other steps wait for a schema.
NO_SCHEMA = pa.schema([])


@dataclasses.dataclass(eq=False)
class ReadPlan:
    """How the reading of a source is planned.

    Attributes:
        source: The source to read.
        schema: Arrow schema of the rows; None means that it is inferred from the source.
        files: Files of the source, if they were listed before; None means that a worker lists them.
        group_bytes: Estimated size of the records of one group of units.
        max_group_bytes: Upper limit of the group size, which grows with the size of the input;
            None means that it does not grow.
        limit: Number of selected rows to read, on one worker; None means all.
        faults: Directory where a data error is recorded for the launcher; None means that the
            worker raises it.
        resume: Directory of a job that may be resumed. Parts of the plan are stored there, and
            stored ones are used; groups with a checkpoint are not read. None if the job cannot be
            resumed.
        reads_all: Read groups with a checkpoint too, to infer types from them.
        plans_in_launcher: Scan the listed files in the launcher, while the pipeline is built, which
            avoids a few pipeline steps. Meant for small inputs.
    """

    source: Source
    schema: pa.Schema | None = None
    _: dataclasses.KW_ONLY
    files: Sequence[InputFile] | None = None
    group_bytes: int = GROUP_BYTES
    max_group_bytes: int | None = None
    limit: int | None = None
    faults: str | None = None
    resume: str | None = None
    reads_all: bool = False
    plans_in_launcher: bool = False

    @property
    def phase(self) -> str:
        """The phase of the job in which the rows are read."""
        return progress_files.FIRST_PASS if self.reads_all else progress_files.READING

    def steps(self, pipeline: beam.Pipeline) -> tuple[Any, Any]:
        """Return a PCollection of groups to read, and the schema or a side input that yields it."""
        source, faults = self.source, self.faults
        groups = stored_state.load_groups(self.resume, source)
        schema = self.schema
        if schema is None:
            schema = stored_state.load_schema(self.resume, SCHEMA)
        if self.plans_in_launcher and self.files is not None:
            groups, schema = self._planned_here(self.files, groups, schema)
        needs_types = schema is None and not source.infers_from_scans
        announce = functools.partial(
            _announced,
            # A limit ends the reading before the end of the input.
            rows=ProgressLog(None if self.limit else faults, self.phase),
            types=ProgressLog(faults if needs_types else None, progress_files.TYPES),
        )
        if groups is None or (schema is None and source.infers_from_scans):
            scans = self._scans(pipeline)
        if groups is None:
            group = Guarded(functools.partial(announce, self._group_plan), faults)
            planned = _gathered(scans, "GroupUnits", group)
        else:
            # The worker loads stored groups, to keep them out of the pipeline's description.
            known = functools.partial(_known, source, self.resume or groups)
            load = Guarded(functools.partial(announce, known), faults)
            planned = _start(pipeline, "LoadGroups", load)
        if schema is not None:
            return planned, schema
        if needs_types:
            typed = ProgressLog(faults, progress_files.TYPES)
            parts = planned | "SpreadInference" >> beam.Reshuffle()
            infer = functools.partial(_infer_group, source, typed)
        else:
            parts, infer = scans, functools.partial(_infer_scan, source)
        inferred = parts | "InferTypes" >> beam.FlatMap(Guarded(infer, faults))
        merge = Guarded(self._schema_merge, faults, instead=[NO_SCHEMA])
        return planned, beam.pvalue.AsSingleton(_gathered(inferred, "MergeTypes", merge))

    def _scans(self, pipeline: beam.Pipeline) -> beam.PCollection[Scan]:
        """Return the scans of all files, by steps that list, cut and scan them."""
        source, faults = self.source, self.faults
        scanned = ProgressLog(faults, progress_files.SCANNING)
        listed = functools.partial(_listed, source, self.files, scanned)
        scan = functools.partial(_scan, source, scanned)
        return (
            _start(pipeline, "ListFiles", Guarded(listed, faults))
            | "CutFiles" >> beam.FlatMap(Guarded(source.chunks, faults))
            | "SpreadChunks" >> beam.Reshuffle()
            | "ScanChunks" >> beam.FlatMap(Guarded(scan, faults))
        )

    def _planned_here(
        self, files: Sequence[InputFile], groups: list[Group] | None, schema: pa.Schema | None
    ) -> tuple[list[Group], pa.Schema]:
        """Scan the files in this process, unless the plan is known; return groups and schema."""
        if groups is not None and schema is not None:
            return groups, schema
        source = self.source
        scans = [source.scan(chunk) for file in files for chunk in source.chunks(file)]
        if groups is None:
            groups = list(self._group_plan(scans))
        if schema is None:
            seen = scans if source.infers_from_scans else _units_of(groups)
            (schema,) = self._schema_merge([source.infer(one) for one in seen])
        return groups, schema

    @property
    def _group_plan(self) -> Stored:
        most = self.max_group_bytes or self.group_bytes
        plan = functools.partial(_grouped, self.source, self.group_bytes, most, self.limit)
        return Stored(plan, self.resume, GROUPS)

    @property
    def _schema_merge(self) -> Stored:
        merge = functools.partial(_merged, self.source, self.faults)
        return Stored(merge, self.resume, SCHEMA)


def _start(pipeline: beam.Pipeline, label: str, function: Callable[[Any], Iterable[Any]]) -> Any:
    """Return the PCollection of outputs of a function that one worker calls once."""
    return pipeline | f"Begin{label}" >> beam.Impulse() | label >> beam.FlatMap(function)


def _gathered(elements: Any, label: str, function: Callable[[Any], Iterable[Any]]) -> Any:
    """Return the outputs of a function that takes the list of all elements, in no order.

    The list is a side input of one step: `beam.combiners.ToList` would add eight, which every
    small job has to wait for.
    """
    once = elements.pipeline | f"Begin{label}" >> beam.Impulse()

    def call(_: bytes, found: list[Any]) -> Iterable[Any]:
        return function(found)

    return once | label >> beam.FlatMap(call, beam.pvalue.AsList(elements))


def _listed(
    source: Source, files: Sequence[InputFile] | None, progress: ProgressLog, _: bytes
) -> Iterator[InputFile]:
    """Yield the files of a source; list them if that was not done before."""
    for file in source.files() if files is None else files:
        progress.add(total=file.bytes)
        yield file
    progress.flush()


def _scan(source: Source, progress: ProgressLog, chunk: Chunk) -> Iterator[Scan]:
    progress.add()
    yield source.scan(chunk)
    progress.add(chunk.stop - chunk.start)


def _announced(
    plan: Callable[[Any], Iterable[Group]], element: Any, *, rows: ProgressLog, types: ProgressLog
) -> Iterator[Group]:
    """Yield the groups of a plan, after it is logged how much there is to read."""
    groups = list(plan(element))
    units = _units_of(groups)
    total = sum(unit.rows or 0 for unit in units)
    if total and all(unit.rows is not None for unit in units):
        rows.add(total=total)
    types.add(total=sum(unit.input_bytes for unit in units))
    yield from groups


def _known(source: Source, groups: Sequence[Group] | str, _: bytes) -> Iterable[Group]:
    """Return groups, or those that a directory stores."""
    known = stored_state.load_groups(groups, source) if isinstance(groups, str) else groups
    if known is None:
        raise DataError(f"the plan in {groups!r} is gone: run the job again")
    return known


def _units_of(groups: Iterable[Group]) -> list[Unit]:
    return [unit for group in groups for unit in group.units]


def _infer_group(source: Source, progress: ProgressLog, group: Group) -> Iterator[Any]:
    """Yield the source's inference of types for every unit of a group."""
    for unit in group.units:
        progress.add()
        yield source.infer(unit)
        progress.add(unit.input_bytes)
        progress.flush()


def _infer_scan(source: Source, scan: Scan) -> Iterator[Any]:
    yield source.infer(scan)


def _merged(
    source: Source, directory: str | None, inferences: Iterable[Any]
) -> Iterator[pa.Schema]:
    """Merge the inferences of all parts into a schema, and store the remarks on it."""
    found = list(inferences)
    schema = source.merge(found)
    if directory is not None and (remarks := source.remarks(found, schema)):
        stored_state.save_remarks(directory, remarks)
    yield schema


def _grouped(
    source: Source, least: int, most: int, limit: int | None, scans: Sequence[Scan]
) -> Iterator[Group]:
    """Split all scanned files into units, and pack the units into groups."""
    units = source.all_units(scans)
    group_bytes = grown_bytes(sum(unit.encoded_bytes for unit in units), most, least)
    groups = one_group(units) if limit else group_units(units, group_bytes)
    # The largest first, so that all workers end at nearly the same time.
    yield from sorted(groups, key=lambda group: -group.encoded_bytes)
