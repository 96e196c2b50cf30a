"""`Preprocess`: statistics of the train split by TFT, then all rows through the fitted function."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.utils import shared

from beam_tfrecord.batch import Batch
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.hints import returned_schema
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.jobs.faults import recorded
from beam_tfrecord.preprocess.fitted import (
    FITTED,
    TRANSFORM_FN,
    TRANSFORMED_METADATA,
    Fitted,
    Notes,
    check_unchanged,
    copy_repeatable,
    save_notes,
    save_raw_schema,
)
from beam_tfrecord.preprocess.request import (
    TRAIN,
    Plan,
    Request,
    Transform,
    make_plan,
    make_request,
)
from beam_tfrecord.preprocess.tensor_columns import adapter_config, analysis_batch, without_missing
from beam_tfrecord.transforms import display
from beam_tfrecord.transforms.map_rows import Chain, MapRows, as_arrow_schema, remember_reader
from beam_tfrecord.transforms.reading import ReadBatches, Together, reader_of
from beam_tfrecord.transforms.step import Step, map_each
from beam_tfrecord.transforms.transforms import AssignSplits
from beam_tfrecord.transforms.ways import Noting, mark_step, step_label
from beam_tfrecord.transforms.windows import in_one_window

_COUNTS = "counts"


class Preprocess(beam.PTransform):
    """Transform batches with tensorflow-transform.

    Statistics are made of the rows of one split, so `AssignSplits` goes before; rows keep their
    split and their place. `WriteToTFRecord` publishes the fitted function beside the data. The
    input is read twice where it can be read anew, and else the runner keeps it meanwhile.

    Args:
        transform: A preprocessing function for TFT, from tensors by name to tensors by name, or
            steps (dicts, or the path of their JSON); see `beam_tfrecord.preprocess.steps`. The
            function is given numbers with a fraction as float64, all whole numbers and times as
            int64, and columns that may be missing as sparse tensors; what it gives as float64 is
            written as float32.
        fit: The split that statistics are made of; where splits were not assigned, all rows are.
        raw_too: Keep the raw values of changed columns, named ``…_raw``.
        transform_fn: A dataset, or other output of TFT, whose fitted function to use instead.
        schema: Of the rows that come to this step, which TFT needs when the pipeline is built;
            None: that of the source, which is read for it if its files do not tell. Behind Beam
            code of your own, and behind a `MapRows` without types, it has to be given.
        directory: Where workers share files of this job; by default one here, that lasts as long
            as this process.
        faults: Directory where an error of the data is recorded for the launcher.

    Raises:
        UsageError: A step or function does not fit the columns.
    """

    def __init__(
        self,
        transform: Transform | Request | None = None,
        *,
        fit: str = TRAIN,
        raw_too: bool = False,
        transform_fn: str | os.PathLike[str] | None = None,
        schema: Schema | pa.Schema | None = None,
        directory: str | None = None,
        faults: str | None = None,
    ) -> None:
        super().__init__()
        request = (
            transform
            if isinstance(transform, Request)
            else make_request(transform, transform_fn=transform_fn, fit=fit, raw_too=raw_too)
        )
        if request is None:
            raise UsageError("Preprocess needs steps, a function or transform_fn=")
        self._request = request
        self._schema = schema
        self._directory = directory
        self._faults = faults
        self.needed: tuple[str, ...] = ()

    def display_data(self) -> dict[str, Any]:
        """Return what a runner's page shows."""
        return display.of_request(self._request)

    def expand(self, batches: beam.PCollection[Batch]) -> beam.PCollection[Batch]:
        """Build both passes."""
        schema = self._raw_schema(batches)
        plan = make_plan(self._request, schema)
        directory = self._directory or _temporary_directory()
        fitted = (
            self._reuse(batches.pipeline, plan, directory)
            if plan.fitted is not None
            else self._fit(batches, plan, directory)
        )
        check_unchanged(plan.finished_notes(), self.needed)
        step = step_label(batches.pipeline)
        transformed = batches | "Transform" >> beam.ParDo(
            _Transform(plan, self._faults, step), beam.pvalue.AsSingleton(fitted)
        ).with_output_types(Batch)
        transformed.beam_tfrecord_fitted = fitted_directory(directory)
        mark_step(transformed, step)
        remember_reader(batches, transformed, self)
        return transformed

    def _raw_schema(self, batches: beam.PCollection[Batch]) -> pa.Schema:
        given = as_arrow_schema(self._schema)
        if given is not None:
            return given
        found = read_schema(reader_of(batches))
        if found is None:
            raise UsageError(
                "Preprocess cannot tell the columns of what comes before it, and TFT needs them "
                "when the pipeline is built: pass schema= to Preprocess, a pyarrow.Schema or "
                "beam_tfrecord.Schema with the types of the rows that come to it"
            )
        return found

    def _fit(
        self, batches: beam.PCollection[Batch], plan: Plan, directory: str
    ) -> beam.PCollection[str]:
        import tensorflow_transform.beam as tft_beam

        reader = reader_of(batches)
        # What statistics must know of all rows comes from a pass of its own: see `reader_of`.
        rows = (
            in_one_window(batches) if reader is None else batches.pipeline | "ReadToFit" >> reader
        )
        selected = rows | "SelectFitRows" >> beam.ParDo(
            _SelectFitRows(plan, self._faults)
        ).with_outputs(_COUNTS, main="batches")
        counts = selected[_COUNTS] | "CountFitRows" >> beam.CombineGlobally(_sums)
        temporary = os.path.join(directory, "tft")
        analysed = selected.batches | "AsRecordBatches" >> map_each(
            lambda one: one
        ).with_output_types(pa.RecordBatch)
        with tft_beam.Context(temp_dir=temporary, use_deep_copy_optimization=reader is not None):
            transform_fn = (analysed, adapter_config(plan.notes.ports)) | "Fit" >> (
                tft_beam.AnalyzeDataset(plan.function)
            )
            written = transform_fn | "WriteFitted" >> tft_beam.WriteTransformFn(
                os.path.join(temporary, "output")
            )
        notes = plan.finished_notes()
        finish = _Finish(plan.fit, os.path.join(temporary, "output"), directory, notes)
        return written | "FinishFitted" >> beam.ParDo(
            _WithFaults(finish, self._faults), beam.pvalue.AsSingleton(counts)
        )

    def _reuse(self, pipeline: beam.Pipeline, plan: Plan, directory: str) -> beam.PCollection[str]:
        return (
            pipeline
            | "FittedBefore" >> beam.Create([plan.fitted])
            | "CopyFitted" >> map_each(_copy_fitted, fitted_directory(directory))
        )


def _temporary_directory() -> str:
    """Return a new directory that lasts as long as this process."""
    directory = tempfile.mkdtemp(prefix="beam-tfrecord-transform-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def fitted_directory(directory: str) -> str:
    """Return where the fitted function goes in the directory of a job."""
    return os.path.join(directory, "fitted")


class _SelectFitRows(Step):
    """Give the rows that statistics are made of as TFT takes them, and count them and all."""

    def __init__(self, plan: Plan, faults: str | None) -> None:
        self._plan = plan
        self._select = recorded(self._selected, faults)

    def process(self, batch: Batch) -> Iterator[Any]:
        yield from self._select(batch)

    def _selected(self, batch: Batch) -> Iterator[Any]:
        plan = self._plan
        is_fit = batch.split is None or batch.split == plan.fit
        yield beam.pvalue.TaggedOutput(_COUNTS, (batch.num_rows * is_fit, batch.num_rows))
        if is_fit and batch.num_rows:
            kept = without_missing(batch, plan.notes.drop)
            yield analysis_batch(kept.data, plan.notes.ports, plan.analysed)


def _sums(counts: Sequence[tuple[int, int]]) -> tuple[int, int]:
    pairs = list(counts)
    return sum(fit for fit, _ in pairs), sum(rows for _, rows in pairs)


class _WithFaults(Step):
    """Call a function on a side input once the element is there."""

    def __init__(self, function: Any, faults: str | None) -> None:
        self._call = recorded(function, faults, instead=[""])

    def process(self, element: Any, side: Any) -> Iterator[Any]:
        yield from self._call(side)


class _Finish:
    """Check the rows, and put the fitted function in its place."""

    def __init__(self, fit: str, source: str, directory: str, notes: Notes) -> None:
        self._fit = fit
        self._source = source
        self._directory = directory
        self._notes = notes

    def __call__(self, counts: tuple[int, int]) -> Iterator[str]:
        fit_rows, rows = counts
        if rows and not fit_rows:
            raise DataError(
                f"no row is in split {self._fit!r}, which statistics are made of: "
                "pass another one as fit"
            )
        finished = fitted_directory(self._directory)
        temporary = f"{finished}-{uuid.uuid4().hex}"
        copy_repeatable(
            os.path.join(self._source, TRANSFORM_FN), os.path.join(temporary, TRANSFORM_FN)
        )
        shutil.copytree(
            os.path.join(self._source, TRANSFORMED_METADATA),
            os.path.join(temporary, TRANSFORMED_METADATA),
        )
        save_raw_schema(temporary, self._notes)
        save_notes(temporary, self._notes)
        _put_in_place(temporary, finished)
        yield finished


def _copy_fitted(source: str, finished: str) -> str:
    temporary = f"{finished}-{uuid.uuid4().hex}"
    for name in FITTED:
        if os.path.isdir(os.path.join(source, name)):
            shutil.copytree(os.path.join(source, name), os.path.join(temporary, name))
    _put_in_place(temporary, finished)
    return finished


def _put_in_place(temporary: str, finished: str) -> None:
    """Rename a directory; where a second attempt at the same work was first, theirs stays."""
    try:
        os.rename(temporary, finished)
    except OSError:
        if not os.path.isdir(finished):
            raise
        shutil.rmtree(temporary)


class _Transform(Step):
    """Apply the fitted function to every batch."""

    def __init__(self, plan: Plan, faults: str | None, step: str) -> None:
        self._notes = plan.finished_notes()
        self._raw_too = plan.raw_too
        # One loaded function for all threads of a process.
        self._shared = shared.Shared()
        self._apply = recorded(Noting(self._transformed, step), faults)

    def process(self, batch: Batch, directory: str) -> Iterator[Batch]:
        yield from self._apply((batch, directory))

    def _transformed(self, task: tuple[Batch, str]) -> Iterator[Batch]:
        batch, directory = task
        if not batch.data.num_columns:
            # Only rejects are left of such a batch.
            yield batch
            return
        fitted = self._shared.acquire(lambda: self._load(directory), tag=directory)
        kept = without_missing(batch, self._notes.drop)
        data = fitted.apply(kept.data)
        yield kept.replace(data=data, numbers=kept.numbers_in(data))

    def _load(self, directory: str) -> Fitted:
        return Fitted(directory, self._notes, raw_too=self._raw_too)


def read_schema(reader: beam.PTransform | None) -> pa.Schema | None:
    """Return the schema of what a reader gives, where that is known before it runs."""
    if isinstance(reader, Together):
        schemas = [read_schema(one) for one in reader.readers]
        return schemas[0] if all(schema == schemas[0] for schema in schemas) else None
    if isinstance(reader, ReadBatches):
        return reader.schema if reader.schema is not None else reader.source.schema()
    if not isinstance(reader, Chain):
        return None
    if isinstance(reader.step, AssignSplits):
        return read_schema(reader.reader)
    if not isinstance(reader.step, MapRows):
        return None
    function = reader.step.function
    given = as_arrow_schema(reader.step.schema)
    return given if given is not None else returned_schema(getattr(function, "function", function))
