"""`ReadBatches`: a transform that reads a source (files or a database) as batches.

Its steps list the files, scan them for split points, split them into *units* (byte ranges or row
ranges, the smallest pieces that are read), pack the units into groups, infer the types of the rows,
and read each group as one task.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import SetupOptions

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS, Batch
from beam_tfrecord.beam_steps import count
from beam_tfrecord.errors import DataError
from beam_tfrecord.exchange.checkpoints import Done, find_group
from beam_tfrecord.job_batch import JobBatch, Part, StepPath, as_job_batch
from beam_tfrecord.runner_traits import check_lossless
from beam_tfrecord.sources.base import InputFile, Scan, Source
from beam_tfrecord.sources.groups import GROUP_BYTES, Group, group_units, grown_bytes, one_group
from beam_tfrecord.transforms import display, plan_steps
from beam_tfrecord.transforms.graph import inputs_of, mark_step, step_label
from beam_tfrecord.transforms.plan_steps import AnnouncedGroups, ListedFiles, ScannedChunk
from beam_tfrecord.workdir import progress_files, stored_plan
from beam_tfrecord.workdir.faults import Guarded
from beam_tfrecord.workdir.progress_files import ProgressLog
from beam_tfrecord.workdir.stored_plan import GROUPS, SCHEMA, Stored

DONE = "done"


# Yielded if a data error ends the inference, since other steps wait for a schema.
NO_SCHEMA = pa.schema([])
# Data of a batch that carries only rejects and counts.
NOTHING = pa.RecordBatch.from_arrays([], schema=NO_SCHEMA)


@dataclasses.dataclass(eq=False)
class ReadBatches(beam.PTransform):
    """Read a source as batches.

    All steps run on workers, apart from those that `files` and `plans_in_launcher` replace. They
    are plain DoFns with a Reshuffle before scans and before reads, because runners such as Flink
    run splittable sources on a single subtask.

    Attributes:
        source: The source to read.
        schema: Arrow schema of the rows; None means that it is inferred from the source.
        files: Files of the source, if they were listed before; None means that a worker lists them.
        batch_rows: Maximum number of rows per batch; does not affect the dataset.
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
    files: Sequence[InputFile] | None = None
    batch_rows: int = DEFAULT_BATCH_ROWS
    group_bytes: int = GROUP_BYTES
    max_group_bytes: int | None = None
    limit: int | None = None
    faults: str | None = None
    resume: str | None = None
    reads_all: bool = False
    plans_in_launcher: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    def display_data(self) -> dict[str, Any]:
        """Return the settings that a runner's page shows for this step."""
        selected = {} if self.source.selection is None else self.source.selection.identity()
        return display.of_source(self.source) | display.shown(**selected, limit=self.limit)

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[Batch]:
        """Add the steps that plan and read to the pipeline."""
        check_lossless(begin.pipeline)
        reader = copy.copy(self)
        reader.source, files = self.source.to_send()
        if files:
            # Beam copies files to remote workers only if the options list them.
            setup = begin.pipeline.options.view_as(SetupOptions)
            setup.files_to_stage = list(dict.fromkeys([*(setup.files_to_stage or ()), *files]))
        return reader._batches(begin.pipeline)

    def _batches(self, pipeline: beam.Pipeline) -> beam.PCollection[Batch]:
        groups, schema = plan_reading(pipeline, self)
        step = step_label(pipeline)
        stored = None if self.reads_all else self.resume
        # A second output prevents combiner lifting in the next steps, so add it only if needed.
        may_skip = stored is not None and stored_plan.count_done(stored) > 0
        reading = _ReadGroup(self, step, stored, may_skip)
        read = beam.ParDo(reading, schema).with_output_types(Batch)
        spread = groups | "SpreadGroups" >> beam.Reshuffle()
        if may_skip:
            outputs = spread | "ReadGroup" >> read.with_outputs(DONE, main="batches")
            batches = outputs.batches
            batches.beam_tfrecord_done = outputs[DONE]
        else:
            batches = spread | "ReadGroup" >> read
        mark_step(batches, step, is_reader=True)
        # Types are inferred from all rows, also from those of groups with a checkpoint.
        batches.beam_tfrecord_reader = rereader = copy.copy(self)
        rereader.reads_all = True
        return batches


def done_of(batches: beam.PCollection) -> beam.PCollection[Done] | None:
    """Return the results of the groups that a resumed reader skips; None if it skips none."""
    return getattr(batches, "beam_tfrecord_done", None)


def reader_of(batches: beam.PCollection) -> beam.PTransform | None:
    """Return a transform that reads the elements of `batches` again; None if it is unknown.

    Used when all rows must be seen (for example to infer types) before any row is encoded. A side
    input computed from `batches` itself would make the runner store all of them.
    """
    known: beam.PTransform | None = getattr(batches, "beam_tfrecord_reader", None)
    if known is not None or batches.producer is None:
        return known
    if not isinstance(batches.producer.transform, beam.Flatten):
        return None
    readers = [reader_of(one) for one in inputs_of(batches)]
    found = tuple(reader for reader in readers if reader is not None)
    return FlattenedReaders(found) if found and len(found) == len(readers) else None


@dataclasses.dataclass(eq=False)
class FlattenedReaders(beam.PTransform):
    """Reads the elements of a Flatten again, by a Flatten of its readers."""

    readers: tuple[beam.PTransform, ...]

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[Batch]:
        """Read with all readers."""
        read = [begin | f"Read{number}" >> reader for number, reader in enumerate(self.readers)]
        return read | "FlattenReaders" >> beam.Flatten()


def schema_of(pipeline: beam.Pipeline, reader: ReadBatches) -> Any:
    """Return the schema of a reader's rows, or a side input that yields it once inferred."""
    return plan_reading(pipeline, reader, reads=False)[1]


class _ReadGroup(beam.DoFn):
    """Reads the units of a group in order, or yields the stored results of a finished group."""

    def __init__(self, reader: ReadBatches, step: str, resume: str | None, may_skip: bool) -> None:
        self._source = reader.source
        self._batch_rows = reader.batch_rows
        self._limit = reader.limit
        self._resume = resume
        self._may_skip = may_skip
        self._step_path = (step,)
        self._read = Guarded(self._outputs, reader.faults)
        self._progress = ProgressLog(reader.faults, _phase_of(reader))

    def process(self, group: Group, schema: pa.Schema) -> Iterator[Any]:
        yield from self._read((group, schema))

    def _outputs(self, task: tuple[Group, pa.Schema]) -> Iterator[Any]:
        group, schema = task
        key = ""
        self._progress.add()
        if self._resume is not None:
            key = stored_plan.group_key(group, schema)
            if self._may_skip and (done := find_group(self._resume, key)) is not None:
                count(type(self), "resumed-groups", 1)
                self._progress.add(done.tally.rows, rejects=done.tally.rejects)
                yield beam.pvalue.TaggedOutput(DONE, done)
                return
        batches = read_group(self._source, group, schema, self._batch_rows, self._step_path)
        for batch in numbered_batches(first_rows(batches, self._limit), key):
            if self._read.is_stopped():
                return
            count(type(self), "read-rows", batch.num_rows)
            yield batch
            # By now, the steps that are fused with this one are done with the batch.
            self._progress.add(batch.rows_counted)
        self._progress.flush()


def _phase_of(reader: ReadBatches) -> str:
    return progress_files.FIRST_PASS if reader.reads_all else progress_files.READING


def numbered_batches(batches: Iterator[JobBatch], key: str) -> Iterator[JobBatch]:
    """Yield the batches of a group with their counts of rows read.

    With a key, each batch also gets its number within the group, and a batch without rows follows
    that marks the end of the group.
    """
    number = 0
    for number, batch in enumerate(batches, start=1):
        part = Part(key, number - 1, is_last=False) if key else None
        yield batch.replace(rows_read=batch.rows_counted, part=part)
    if number and key:
        # To mark the last batch itself, each would have to wait for the next one.
        end = Part(key, number, is_last=True)
        yield JobBatch(NOTHING, group=batch.group, rows_read=0, part=end)


def read_group(
    source: Source, group: Group, schema: pa.Schema, batch_rows: int, step_path: StepPath
) -> Iterator[JobBatch]:
    """Yield the batches of a group in order, each with the position of its unit in source order."""
    for index, unit in enumerate(group.units, start=group.first_unit):
        # Rows that a filter excludes unread count as read rows, with the first batch of the unit.
        pruned = unit.pruned_rows
        for batch in source.read_unchanged(unit, schema, batch_rows=batch_rows):
            origin = batch.origin
            if origin is not None and origin.index != index:
                origin = dataclasses.replace(origin, index=index)
            job_batch = as_job_batch(batch)
            if pruned:
                job_batch = job_batch.replace(rows_read=job_batch.rows_counted + pruned)
                pruned = 0
            yield job_batch.replace(origin=origin, group=group.number, step_path=step_path)


def first_rows(batches: Iterator[JobBatch], limit: int | None) -> Iterator[JobBatch]:
    """Yield batches until they have `limit` rows in total; None means all."""
    if limit is None:
        yield from batches
        return
    left = limit
    for batch in batches:
        yield batch if batch.num_rows <= left else batch.slice(0, left)
        left -= batch.num_rows
        if left <= 0:
            return


def plan_reading(
    pipeline: beam.Pipeline, reader: ReadBatches, *, reads: bool = True
) -> tuple[Any, Any]:
    """Return a PCollection of groups to read, and the schema or a side input that yields it."""
    source, faults, resume = reader.source, reader.faults, reader.resume
    groups = stored_plan.load_groups(resume, source)
    schema = stored_plan.load_schema(resume, SCHEMA) if reader.schema is None else reader.schema
    if reader.plans_in_launcher and reader.files is not None:
        groups, schema = _plan_here(reader, reader.files, groups, schema)
    typed = ProgressLog(faults, progress_files.TYPES)
    announced = functools.partial(
        AnnouncedGroups,
        # A selection reads more rows than the limit, but nobody knows how many.
        limit=reader.limit if source.selection is None else None,
        rows=ProgressLog(faults if reads else None, _phase_of(reader)),
        types=typed if schema is None and not source.infers_from_scans else None,
    )
    if groups is None or (schema is None and source.infers_from_scans):
        scanned = ProgressLog(faults, progress_files.SCANNING)
        listed = Guarded(ListedFiles(source, reader.files, scanned), faults)
        scans = (
            _start(pipeline, "ListFiles", listed)  # InputFile
            | "CutFiles" >> beam.FlatMap(Guarded(source.chunks, faults))  # Chunk
            | "SpreadChunks" >> beam.Reshuffle()
            | "ScanChunks" >> beam.FlatMap(Guarded(ScannedChunk(source, scanned), faults))  # Scan
        )
    if groups is None:
        planned = _gathered(scans, "GroupUnits", Guarded(announced(_group_plan(reader)), faults))
    else:
        # The worker loads stored groups, to keep them out of the pipeline's description.
        known = functools.partial(_known, source, groups if resume is None else resume)
        planned = _start(pipeline, "LoadGroups", Guarded(announced(known), faults))
    if schema is not None:
        return planned, schema
    if source.infers_from_scans:
        infer = Guarded(functools.partial(_inferred, source), faults)
        inferred = scans | "InferScans" >> beam.FlatMap(infer)
    else:
        infer = Guarded(functools.partial(plan_steps.infer_group, source, typed), faults)
        inferred = (
            planned | "SpreadInference" >> beam.Reshuffle() | "InferUnits" >> beam.FlatMap(infer)
        )
    merge = Guarded(_schema_merge(reader), faults, instead=[NO_SCHEMA])
    return planned, beam.pvalue.AsSingleton(_gathered(inferred, "MergeTypes", merge))


def _plan_here(
    reader: ReadBatches, files: Sequence[InputFile], groups: list[Group] | None, schema: Any
) -> tuple[list[Group], pa.Schema]:
    """Scan the files in this process; return the groups and the schema."""
    source = reader.source
    if groups is not None and schema is not None:
        return groups, schema
    scans = [source.scan(chunk) for file in files for chunk in source.chunks(file)]
    if groups is None:
        groups = list(_group_plan(reader)(scans))
    if schema is None:
        seen = scans if source.infers_from_scans else plan_steps.units_of(groups)
        (schema,) = _schema_merge(reader)([source.infer(one) for one in seen])
    return groups, schema


def _group_plan(reader: ReadBatches) -> Stored:
    sizes = (reader.group_bytes, reader.max_group_bytes or reader.group_bytes)
    plan = functools.partial(_grouped, reader.source, sizes, reader.limit)
    return Stored(plan, reader.resume, GROUPS)


def _schema_merge(reader: ReadBatches) -> Stored:
    merge = functools.partial(_merged, reader.source, reader.faults)
    return Stored(merge, reader.resume, SCHEMA)


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


def _known(source: Source, groups: Sequence[Group] | str, _: bytes) -> Iterator[Group]:
    """Yield groups, or those that a directory stores."""
    known = stored_plan.load_groups(groups, source) if isinstance(groups, str) else groups
    if known is None:
        raise DataError(f"the plan in {groups!r} is gone: run the job again")
    yield from known


def _inferred(source: Source, scan: Scan) -> Iterator[Any]:
    yield source.infer(scan)


def _merged(
    source: Source, directory: str | None, inferences: Iterable[Any]
) -> Iterator[pa.Schema]:
    """Merge the inferences of all parts into a schema, and store the remarks on it."""
    found = list(inferences)
    schema = source.merge(found)
    if directory is not None and (remarks := source.remarks(found, schema)):
        stored_plan.save_remarks(directory, remarks)
    yield schema


def _grouped(
    source: Source, sizes: tuple[int, int], limit: int | None, scans: Sequence[Scan]
) -> Iterator[Group]:
    """Split all scanned files into units, and pack the units into groups."""
    units = source.all_units(scans)
    least, most = sizes
    group_bytes = grown_bytes(sum(unit.encoded_bytes for unit in units), most, least)
    groups = one_group(units) if limit else group_units(units, group_bytes)
    # The largest first, so that all workers end at nearly the same time.
    yield from sorted(groups, key=lambda group: -group.encoded_bytes)
