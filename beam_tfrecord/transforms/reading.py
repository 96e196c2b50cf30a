"""`ReadBatches`: a transform that reads a source (files or a database) as batches.

Its steps list the files, scan them for split points, split them into *units* (byte ranges or row
ranges, the smallest pieces that are read), pack the units into groups, infer the types of the rows,
and read each group as one task.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import SetupOptions

from beam_tfrecord.rows.batch import DEFAULT_BATCH_ROWS, Batch, Part, StepPath
from beam_tfrecord.rows.beam import count
from beam_tfrecord.runners.traits import check_lossless
from beam_tfrecord.sources.base import Group, Source
from beam_tfrecord.transforms.graph import step_label
from beam_tfrecord.transforms.planning import NO_SCHEMA, ReadPlan
from beam_tfrecord.work import stored_state
from beam_tfrecord.work.checkpoints import Done, find_group
from beam_tfrecord.work.faults import Guarded
from beam_tfrecord.work.progress_files import ProgressLog

DONE = "done"
# Data of a batch that carries only rejects and counts.
NOTHING = pa.RecordBatch.from_arrays([], schema=NO_SCHEMA)


@dataclasses.dataclass(eq=False)
class ReadBatches(ReadPlan, beam.PTransform):
    """Read a source as batches of at most `batch_rows` rows, by a plan whose fields are arguments.

    All steps run on workers, apart from those that `files` and `plans_in_launcher` replace. They
    are plain DoFns with a Reshuffle before scans and before reads, because runners such as Flink
    run splittable sources on a single subtask.
    """

    batch_rows: int = dataclasses.field(default=DEFAULT_BATCH_ROWS, kw_only=True)

    def __post_init__(self) -> None:
        beam.PTransform.__init__(self)

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[Batch]:
        """Add the steps that plan and read to the pipeline."""
        check_lossless(begin.pipeline)
        source, files = self.source.to_send()
        if files:
            # Beam copies files to remote workers only if the options list them.
            setup = begin.pipeline.options.view_as(SetupOptions)
            setup.files_to_stage = list(dict.fromkeys([*(setup.files_to_stage or ()), *files]))
        return dataclasses.replace(self, source=source)._batches(begin.pipeline)

    def _batches(self, pipeline: beam.Pipeline) -> beam.PCollection[Batch]:
        groups, schema = self.steps(pipeline)
        step = step_label(pipeline)
        stored = None if self.reads_all else self.resume
        # A second output prevents combiner lifting in the next steps, so add it only if needed.
        may_skip = stored is not None and stored_state.count_done(stored) > 0
        reading = _ReadGroup(self, step, stored, may_skip)
        read = beam.ParDo(reading, schema).with_output_types(Batch)
        spread = groups | "SpreadGroups" >> beam.Reshuffle()
        if may_skip:
            outputs = spread | "ReadGroup" >> read.with_outputs(DONE, main="batches")
            batches = outputs.batches
            batches.beam_tfrecord_done = outputs[DONE]
        else:
            batches = spread | "ReadGroup" >> read
        batches.beam_tfrecord_step = step
        # Types are inferred from all rows, also from those of groups with a checkpoint.
        batches.beam_tfrecord_reader = dataclasses.replace(self, reads_all=True)
        return batches


def done_of(batches: beam.PCollection) -> beam.PCollection[Done] | None:
    """Return the results of the groups that a resumed reader skips; None if it skips none."""
    return getattr(batches, "beam_tfrecord_done", None)


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
        self._progress = ProgressLog(reader.faults, reader.phase)

    def process(self, group: Group, schema: pa.Schema) -> Iterator[Any]:
        yield from self._read((group, schema))

    def _outputs(self, task: tuple[Group, pa.Schema]) -> Iterator[Any]:
        group, schema = task
        key = ""
        self._progress.add()
        if self._resume is not None:
            key = stored_state.group_key(group, schema)
            if self._may_skip and (done := find_group(self._resume, key)) is not None:
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


def numbered_batches(batches: Iterator[Batch], key: str) -> Iterator[Batch]:
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
        yield Batch(NOTHING, group=batch.group, rows_read=0, part=end)


def read_group(
    source: Source, group: Group, schema: pa.Schema, batch_rows: int, step_path: StepPath
) -> Iterator[Batch]:
    """Yield the batches of a group in order, each with the position of its unit in source order."""
    for index, unit in enumerate(group.units, start=group.first_unit):
        # Rows that a filter excludes unread count as read rows, with the first batch of the unit.
        pruned = unit.pruned_rows
        for batch in source.read_unchanged(unit, schema, batch_rows=batch_rows):
            origin = batch.origin
            if origin is not None and origin.index != index:
                origin = dataclasses.replace(origin, index=index)
            if pruned:
                batch = batch.replace(rows_read=batch.rows_counted + pruned)
                pruned = 0
            yield batch.replace(origin=origin, group=group.number, step_path=step_path)


def first_rows(batches: Iterator[Batch], limit: int | None) -> Iterator[Batch]:
    """Yield batches until they have `limit` rows in total; None means all."""
    left = math.inf if limit is None else limit
    for batch in batches:
        yield batch if batch.num_rows <= left else batch.slice(0, int(left))
        left -= batch.num_rows
        if left <= 0:
            return
