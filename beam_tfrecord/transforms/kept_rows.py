"""Keeps rows in files until the types of all rows are known.

Types that nothing declares follow from all rows. So one step writes the rows of each batch to a
file, and infers their types. Another step, which waits for the types of all batches, loads the
files, and makes typed batches of them. Runners carry only the paths of the files, and a function
runs once for each row.
"""

from __future__ import annotations

import functools
import os
import pickle
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.internal.cloudpickle import cloudpickle
from apache_beam.runners.direct.direct_runner import SwitchingDirectRunner
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from beam_tfrecord.base.scratch import remove_with
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.job_state import stored_state
from beam_tfrecord.job_state.progress_files import ENCODING, ProgressLog
from beam_tfrecord.job_state.stored_state import KEPT_ROWS, TYPES
from beam_tfrecord.job_state.worker_errors import Guarded
from beam_tfrecord.records.mapped_rows import Mapped
from beam_tfrecord.records.row_types import RowTypes
from beam_tfrecord.rows.batch import Batch
from beam_tfrecord.rows.beam import BatchCoder
from beam_tfrecord.storage import WholeFile, make_directory, read_bytes
from beam_tfrecord.transforms.steps import upstream

FILES, FOUND = "files", "types"
# The types of the rows of some batches, and the schema of these before.
Found = tuple[RowTypes, pa.Schema]
Typed = Callable[[Batch, Mapped | None, pa.Schema], Batch]
# Batches that belong to no task are loaded in parts of so many.
_FILES_AT_ONCE = 16


class RowKeeper:
    """Writes rows to files; a part of a DoFn, as its attribute `keeper`.

    The files are in the directory of the sink that comes after the step. A sink removes its
    directory when it publishes, and another one may read later. So if there are several sinks, or
    none, they are in a directory of this machine, which has to be the one that the workers run on.

    Args:
        pipeline: The pipeline of the step.
        faults: The directory of the job, if there is one that also publishes.
    """

    def __init__(self, pipeline: beam.Pipeline, faults: str | None = None) -> None:
        self._sinks = set() if faults is None else {faults}
        self._local = _local_directory(pipeline) if faults is None else None
        self._progress = ProgressLog(faults, ENCODING)

    def use(self, directory: str) -> None:
        """Keep the rows in the directory of a sink, if that is the only one."""
        self._sinks.add(directory)
        self._directory()

    def _directory(self) -> str:
        directory = next(iter(self._sinks)) if len(self._sinks) == 1 else self._local
        if directory is None:
            raise UsageError(
                "rows of unknown types wait in the directory of one sink of beam_tfrecord on this "
                f"runner, and {len(self._sinks)} come after them: pass a schema, or give the row "
                "function a return hint"
            )
        return directory

    def start(self) -> None:
        """Begin a bundle."""
        self._in = self._directory()
        make_directory(self._in)
        self._task: Any = None
        self._paths: list[str] = []
        self._rows = 0
        self._found: Found | None = None

    def add(self, batch: Batch, mapped: Mapped | None, found: Found) -> Iterator[Any]:
        """Keep the rows that were made of a batch, or a batch without any; yield their types."""
        if found != self._found:
            yield beam.pvalue.TaggedOutput(FOUND, found)
            self._found = found
        position = batch.position
        task = None if batch.task is None else (batch.task, position and position.key)
        if task != self._task or (task is None and len(self._paths) == _FILES_AT_ONCE):
            yield from self.flush()
        self._task = task
        path = os.path.join(self._in, f"{KEPT_ROWS}{uuid.uuid4().hex}")
        with WholeFile(path, outlasts=False) as file:
            file.write(_packed(batch, mapped))
        self._paths.append(path)
        self._rows += batch.rows_counted
        # The batches of a task stay together, or the task would have no checkpoint.
        if position is not None and position.is_last:
            yield from self.flush()

    def flush(self) -> Iterator[Any]:
        """Yield the paths of the files of a task, in order, as one element."""
        if self._paths:
            yield beam.pvalue.TaggedOutput(FILES, tuple(self._paths))
            self._paths = []
        if self._rows:
            self._progress.add(total=self._rows)
            self._progress.flush()
            self._rows = 0


def keep_rows_in(rows: beam.PCollection, directory: str) -> None:
    """Let all steps before a sink that keep rows keep them in the directory of the sink."""
    for one in upstream(rows, with_sides=True):
        keeper = getattr(getattr(getattr(one.producer, "transform", None), "fn", None), "keeper", 0)
        if isinstance(keeper, RowKeeper):
            keeper.use(directory)


def typed_batches(
    kept: Any, typed: Typed, *, faults: str | None = None, resume: str | None = None
) -> beam.PCollection[Batch]:
    """Return what `typed` makes of all kept rows and their schema, once all types are known."""
    load = Guarded(_Load(typed, resume, ProgressLog(faults, ENCODING)), faults)
    step = beam.FlatMap(lambda paths, found: load((paths, found)), beam.pvalue.AsList(kept[FOUND]))
    step.runs_python = True
    return kept[FILES] | "TypeRows" >> step.with_output_types(Batch)


def merge_types(found: Iterable[Found]) -> pa.Schema:
    """Return the schema for all rows.

    Raises:
        SchemaConflict: A column has values of two types.
    """
    pairs = list(found)
    types = functools.reduce(RowTypes.merge, (types for types, _ in pairs), RowTypes())
    return types.to_arrow(_in_common({schema for _, schema in pairs}))


def _in_common(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Return a schema of the columns that have one type in all schemas that contain them."""
    found: dict[str, list[pa.Field]] = {}
    for schema in sorted(schemas, key=str):
        for field in schema:
            found.setdefault(field.name, []).append(field)
    same = (fields for fields in found.values() if len({field.type for field in fields}) == 1)
    return pa.schema([fields[0] for fields in same])


class _Load:
    """Loads files of rows, and makes typed batches of them."""

    def __init__(self, typed: Typed, resume: str | None, progress: ProgressLog) -> None:
        self._typed = typed
        self._resume = resume
        self._progress = progress
        self._merged: tuple[Sequence[Found], pa.Schema] | None = None

    def __call__(self, task: tuple[tuple[str, ...], Sequence[Found]]) -> Iterator[Batch]:
        """Yield the typed batches of some files."""
        paths, found = task
        self._progress.add()
        schema = self._schema(found)
        for path in paths:
            packed, mapped = pickle.loads(read_bytes(path))
            batch = BatchCoder().decode(packed)
            yield self._typed(batch, mapped, schema)
            # By now, the steps that are fused with this one are done with the batch.
            self._progress.add(batch.rows_counted)
        self._progress.flush()

    def _schema(self, found: Sequence[Found]) -> pa.Schema:
        # Runners give one list to all calls in a bundle.
        if self._merged is None or self._merged[0] is not found:
            schema = merge_types(found)
            if self._resume is not None:
                # All workers store the same.
                stored_state.save(os.path.join(self._resume, TYPES), [schema])
            self._merged = found, schema
        return self._merged[1]


def _packed(batch: Batch, mapped: Mapped | None) -> bytes:
    """Return what typed batches need of rows and of the batch that they come from."""
    if mapped is not None:
        numbers = batch.numbers
        names = [] if numbers is None else numbers.schema.names
        batch = batch.replace(data=batch.data.select(names), numbers=numbers)
    try:
        packed: bytes = cloudpickle.dumps((BatchCoder().encode(batch), mapped))
    except (TypeError, pickle.PicklingError) as error:
        raise DataError(
            f"the types of these rows are unknown, and they cannot be stored ({error}): pass a "
            "schema, or give the row function a return hint"
        ) from error
    return packed


def _local_directory(pipeline: beam.Pipeline) -> str | None:
    """Return a directory for files of a pipeline; None if it may run on other machines."""
    runner = getattr(pipeline.runner, "_underlying_runner", pipeline.runner)
    if not isinstance(runner, FnApiRunner | SwitchingDirectRunner):
        return None
    directory = tempfile.mkdtemp(prefix="beam-tfrecord-")
    remove_with(pipeline, directory)
    return directory
