"""`ReadBatches`: a transform that reads a source (files or a database) as batches.

Its steps list the files, scan them for split points, and split them into *units*: the smallest
ranges of bytes or rows that are read at once. They pack units into tasks, infer the types of the
rows, and read each task.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import SetupOptions

from beam_tfrecord.errors import DataError
from beam_tfrecord.job_state import progress_files, stored_state
from beam_tfrecord.job_state.checkpoints import Done, find_task
from beam_tfrecord.job_state.progress_files import ProgressLog
from beam_tfrecord.job_state.stored_state import SCHEMA, TASKS, Stored
from beam_tfrecord.job_state.worker_errors import Guarded
from beam_tfrecord.rows.batch import DEFAULT_BATCH_ROWS, Batch, BatchPosition, StepPath
from beam_tfrecord.rows.beam import count
from beam_tfrecord.runners import READERS, Workers, check_lossless, note_rows
from beam_tfrecord.sources.base import Chunk, InputFile, Scan, Source, Unit
from beam_tfrecord.sources.read_tasks import (
    READ_TASK_BYTES,
    ReadTask,
    grown_bytes,
    one_task,
    pack_units,
    tasks_for_workers,
)
from beam_tfrecord.transforms.steps import step_label

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
        task_bytes: Estimated size of the records of one task.
        max_task_bytes: Upper limit of the task size, which grows with the size of the input;
            None means that it does not grow.
        limit: Number of selected rows to read, on one worker; None means all.
        faults: Directory where a data error is recorded for the launcher; None means that the
            worker raises it.
        resume: Directory of a job that may be resumed. Parts of the plan are stored there, and
            stored ones are used; tasks with a checkpoint are not read. None if the job cannot be
            resumed.
        phase: The phase of the job in which the rows are read.
        plans_in_launcher: Scan the listed files in the launcher, while the pipeline is built, which
            avoids a few pipeline steps. Meant for small inputs.
        batch_rows: Maximum number of rows per batch.
        keeps_tasks: The number of workers does not change the tasks, since they decide the files.
    """

    source: Source
    schema: pa.Schema | None = None
    _: dataclasses.KW_ONLY
    files: Sequence[InputFile] | None = None
    task_bytes: int = READ_TASK_BYTES
    max_task_bytes: int | None = None
    limit: int | None = None
    faults: str | None = None
    resume: str | None = None
    phase: str = progress_files.READING
    plans_in_launcher: bool = False
    batch_rows: int = DEFAULT_BATCH_ROWS
    keeps_tasks: bool = False

    def __post_init__(self) -> None:
        super().__init__()
        self._workers = Workers()

    @property
    def runs_python(self) -> bool:
        """Whether the source runs Python code for each row."""
        return self.source.runs_python

    def is_large(self) -> bool:
        """Return whether Python on each row takes longer than worker processes need to start."""
        return self.source.is_large(self.source.files() if self.files is None else self.files)

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[Batch]:
        """Add the steps that plan and read to the pipeline."""
        check_lossless(begin.pipeline)
        vars(begin.pipeline).setdefault(READERS, []).append(self)
        source, files = self.source.to_send()
        if files:
            # Beam copies files to remote workers only if the options list them.
            setup = begin.pipeline.options.view_as(SetupOptions)
            setup.files_to_stage = list(dict.fromkeys([*(setup.files_to_stage or ()), *files]))
        reader = dataclasses.replace(self, source=source)
        reader._workers = getattr(begin.pipeline, "workers", reader._workers)
        return reader._batches(begin.pipeline)

    def _batches(self, pipeline: beam.Pipeline) -> beam.PCollection[Batch]:
        tasks, schema = self.steps(pipeline)
        step = step_label(pipeline)
        # A second output prevents combiner lifting in the next steps, so add it only if needed.
        may_skip = self.resume is not None and stored_state.count_done(self.resume) > 0
        reading = _TaskReader(self, step, may_skip)
        read = beam.ParDo(reading, schema).with_output_types(Batch)
        spread = tasks | "SpreadTasks" >> beam.Reshuffle()
        if may_skip:
            outputs = spread | "ReadTask" >> read.with_outputs(DONE, main="batches")
            batches = outputs.batches
            batches.beam_tfrecord_done = outputs[DONE]
        else:
            batches = spread | "ReadTask" >> read
        batches.beam_tfrecord_step = step
        batches.beam_tfrecord_reader = dataclasses.replace(self, phase=progress_files.FIRST_PASS)
        return batches

    def steps(self, pipeline: beam.Pipeline) -> tuple[beam.PCollection[ReadTask], Any]:
        """Return the tasks to read, and the schema of the rows or a side input that yields it."""
        tasks, schema = self._known_plan()
        by_scans = self.source.infers_from_scans
        needs_scans = tasks is None or (schema is None and by_scans)
        scans = self._scans(pipeline) if needs_scans else None
        infers_rows = schema is None and not by_scans
        if tasks is None:
            planned = _gathered(scans, "PackUnits", self._announced(self._task_plan, infers_rows))
        else:
            # The worker loads stored tasks, to keep them out of the pipeline's description.
            known = functools.partial(_known, self.source, self.resume or tasks)
            planned = _start(pipeline, "LoadTasks", self._announced(known, infers_rows))
        if schema is None:
            schema = self._inferred_schema(scans if by_scans else planned)
        return planned, schema

    def _known_plan(self) -> tuple[list[ReadTask] | None, pa.Schema | None]:
        """Return tasks and schema if they are stored, given, or found in this process."""
        tasks, schema = stored_state.load_tasks(self.resume, self.source), self.schema
        if schema is None:
            schema = stored_state.load_schema(self.resume, SCHEMA)
        is_known = tasks is not None and schema is not None
        if is_known or not self.plans_in_launcher or self.files is None:
            return tasks, schema
        source = self.source
        scans = [source.scan(chunk) for file in self.files for chunk in source.chunks(file)]
        if tasks is None:
            tasks = list(self._task_plan(scans))
        if schema is None:
            seen = scans if source.infers_from_scans else _units_of(tasks)
            (schema,) = self._schema_merge([source.infer(one) for one in seen])
        return tasks, schema

    def _scans(self, pipeline: beam.Pipeline) -> beam.PCollection[Scan]:
        """Return the scans of all files, by steps that cut and scan them."""
        source, faults = self.source, self.faults
        scanned = ProgressLog(faults, progress_files.SCANNING)
        cut = functools.partial(_cut, source, self.files, scanned)
        scan = functools.partial(_scan, source, scanned)
        return (
            _start(pipeline, "CutFiles", Guarded(cut, faults))
            | "SpreadChunks" >> beam.Reshuffle()
            | "ScanChunks" >> beam.FlatMap(Guarded(scan, faults))
        )

    def _inferred_schema(self, parts: beam.PCollection) -> beam.pvalue.AsSingleton:
        """Return a side input with the schema, inferred from scans or from the rows of tasks."""
        if self.source.infers_from_scans:
            infer: Any = functools.partial(_infer_scan, self.source)
        else:
            parts = parts | "SpreadInference" >> beam.Reshuffle()
            typed = ProgressLog(self.faults, progress_files.TYPES)
            infer = functools.partial(_infer_task, self.source, typed)
        inferred = parts | "InferTypes" >> beam.FlatMap(Guarded(infer, self.faults))
        merge = Guarded(self._schema_merge, self.faults, instead=[NO_SCHEMA])
        return beam.pvalue.AsSingleton(_gathered(inferred, "MergeTypes", merge))

    def _announced(self, plan: Callable[[Any], Iterable[ReadTask]], infers_rows: bool) -> Guarded:
        """Return a function that makes a plan, and logs how much there is to read."""
        announce = functools.partial(
            _announced,
            plan,
            # A limit ends the reading before the end of the input.
            rows=ProgressLog(None if self.limit else self.faults, self.phase),
            types=ProgressLog(self.faults if infers_rows else None, progress_files.TYPES),
        )
        return Guarded(announce, self.faults)

    @property
    def _task_plan(self) -> Stored:
        return Stored(functools.partial(_packed, self, self._workers), self.resume, TASKS)

    @property
    def _schema_merge(self) -> Stored:
        merge = functools.partial(_merged, self.source, self.faults)
        return Stored(merge, self.resume, SCHEMA)


def done_of(batches: beam.PCollection) -> beam.PCollection[Done] | None:
    """Return the results of the tasks that a resumed reader skips; None if it skips none."""
    return getattr(batches, "beam_tfrecord_done", None)


class _TaskReader(beam.DoFn):
    """Reads the units of a task in order, or yields the stored results of a finished task."""

    def __init__(self, reader: ReadBatches, step: str, may_skip: bool) -> None:
        self._source = reader.source
        self._batch_rows = reader.batch_rows
        self._limit = reader.limit
        self._resume = reader.resume
        self._may_skip = may_skip
        self._step_path = (step,)
        self._read = Guarded(self._outputs, reader.faults)
        self._progress = ProgressLog(reader.faults, reader.phase)

    def process(self, task: ReadTask, schema: pa.Schema) -> Iterator[Any]:
        yield from self._read((task, schema))

    def _outputs(self, typed: tuple[ReadTask, pa.Schema]) -> Iterator[Any]:
        task, schema = typed
        key = ""
        self._progress.add()
        if self._resume is not None:
            key = stored_state.task_key(task, schema)
            if self._may_skip and (done := find_task(self._resume, key)) is not None:
                self._progress.add(done.tally.rows, rejects=done.tally.rejects)
                yield beam.pvalue.TaggedOutput(DONE, done)
                return
        batches = read_task(self._source, task, schema, self._batch_rows, self._step_path)
        for batch in numbered_batches(first_rows(batches, self._limit), key):
            if self._read.is_stopped():
                return
            count(type(self), "read-rows", batch.num_rows)
            if (origin := batch.origin) is not None and batch.num_rows:
                numbers = origin.row_numbers(batch.num_rows)
                note_rows(*(origin.address_of(int(numbers[at])) for at in (0, -1)))
            yield batch
            # By now, the steps that are fused with this one are done with the batch.
            self._progress.add(batch.rows_counted)
        self._progress.flush()


def numbered_batches(batches: Iterator[Batch], key: str) -> Iterator[Batch]:
    """Yield the batches of a task with their counts of rows read.

    With a key, each batch also gets its number within the task, and a batch without rows follows
    that marks the end of the task.
    """
    number = 0
    for number, batch in enumerate(batches, start=1):
        position = BatchPosition(key, number - 1, is_last=False) if key else None
        yield batch.replace(rows_read=batch.rows_counted, position=position)
    if number and key:
        # To mark the last batch itself, each would have to wait for the next one.
        end = BatchPosition(key, number, is_last=True)
        yield Batch(NOTHING, task=batch.task, rows_read=0, position=end)


def read_task(
    source: Source, task: ReadTask, schema: pa.Schema, batch_rows: int, step_path: StepPath
) -> Iterator[Batch]:
    """Yield the batches of a task in order, each with the position of its unit in source order."""
    first, step = task.share
    for index, unit in enumerate(task.units, start=task.first_unit):
        # Rows that a filter excludes unread count as read rows, with the first batch of the unit.
        pruned = 0 if first else unit.pruned_rows
        batches = source.read_unchanged(unit, schema, batch_rows=batch_rows)
        for batch in itertools.islice(batches, first, None, step):
            origin = batch.origin
            if origin is not None and origin.index != index:
                origin = dataclasses.replace(origin, index=index)
            if pruned:
                batch = batch.replace(rows_read=batch.rows_counted + pruned)
                pruned = 0
            yield batch.replace(origin=origin, task=task.number, step_path=step_path)


def first_rows(batches: Iterator[Batch], limit: int | None) -> Iterator[Batch]:
    """Yield batches until they have `limit` rows in total; None means all."""
    left = math.inf if limit is None else limit
    for batch in batches:
        yield batch if batch.num_rows <= left else batch.slice(0, int(left))
        left -= batch.num_rows
        if left <= 0:
            return


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


def _cut(
    source: Source, files: Sequence[InputFile] | None, progress: ProgressLog, _: bytes
) -> Iterator[Chunk]:
    """Yield the chunks of all files; list the files if that was not done before."""
    for file in source.files() if files is None else files:
        progress.add(total=file.bytes)
        yield from source.chunks(file)
    progress.flush()


def _scan(source: Source, progress: ProgressLog, chunk: Chunk) -> Iterator[Scan]:
    progress.add()
    yield source.scan(chunk)
    progress.add(chunk.stop - chunk.start)


def _announced(
    plan: Callable[..., Iterable[ReadTask]], element: Any, *, rows: ProgressLog, types: ProgressLog
) -> Iterator[ReadTask]:
    """Yield the tasks of a plan, after it is logged how much there is to read."""
    tasks = list(plan(element))
    units = _units_of(tasks)
    total = sum(unit.rows or 0 for unit in units)
    if total and all(unit.rows is not None for unit in units):
        rows.add(total=total)
    types.add(total=sum(unit.input_bytes for unit in units))
    yield from tasks


def _known(source: Source, tasks: Sequence[ReadTask] | str, _: bytes) -> Iterable[ReadTask]:
    """Return tasks, or those that a directory stores."""
    known = stored_state.load_tasks(tasks, source) if isinstance(tasks, str) else tasks
    if known is None:
        raise DataError(f"the plan in {tasks!r} is gone: run the job again")
    return known


def _units_of(tasks: Iterable[ReadTask]) -> list[Unit]:
    return [unit for task in tasks for unit in task.units]


def _infer_task(source: Source, progress: ProgressLog, task: ReadTask) -> Iterator[Any]:
    """Yield the source's inference of types for every unit of a task."""
    for unit in task.units:
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


def _packed(reader: ReadBatches, workers: Workers, scans: Sequence[Scan]) -> Iterator[ReadTask]:
    """Split all scanned files into units, and pack the units into tasks."""
    units, least = reader.source.all_units(scans), reader.task_bytes
    total = sum(unit.encoded_bytes for unit in units)
    task_bytes = grown_bytes(total, reader.max_task_bytes or least, least)
    if reader.limit:
        tasks = one_task(units)
    elif workers.number > 1 and not reader.keeps_tasks:
        tasks = tasks_for_workers(reader.source, units, workers.number, task_bytes)
    else:
        tasks = pack_units(units, task_bytes)
    # The largest first, so that all workers end at nearly the same time.
    yield from sorted(tasks, key=lambda task: -task.encoded_bytes)
