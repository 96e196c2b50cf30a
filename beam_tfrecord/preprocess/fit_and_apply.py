"""Preprocesses batches in a pipeline: `Preprocess` fits a function with TFT, then applies it.

Fitting computes statistics from the rows of one split with tensorflow-transform (TFT). The fitted
function, which has these statistics in it, then transforms all rows.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.utils import shared

from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.manifest import FITTED
from beam_tfrecord.job_state.worker_errors import Guarded
from beam_tfrecord.preprocess.fitted import (
    Description,
    Fitted,
    load_description,
    save_categories,
    save_fitted,
)
from beam_tfrecord.preprocess.request import (
    TRAIN,
    Request,
    TFTFunction,
    Transform,
    make_plan,
    make_request,
)
from beam_tfrecord.preprocess.tft_conversion import adapter_config, tft_batch, without_missing
from beam_tfrecord.records.row_types import returned_schema
from beam_tfrecord.rows.batch import Batch
from beam_tfrecord.rows.beam import in_one_window
from beam_tfrecord.transforms.map_and_split import AssignSplits, MapRows
from beam_tfrecord.transforms.read_batches import ReadBatches
from beam_tfrecord.transforms.rows import as_arrow_schema
from beam_tfrecord.transforms.steps import Rereading, apply_step, reader_of

_COUNTS = "counts"


class Preprocess(beam.PTransform):
    """Transforms batches with tensorflow-transform (TFT).

    Statistics are computed from the rows of one split, so apply `AssignSplits` before. Rows keep
    their split and their position in the dataset. `WriteToTFRecord` writes the fitted function (the
    function with its statistics) beside the data. The input is read twice if the pipeline can read
    it again. Otherwise the runner stores it during the first pass.

    Args:
        transform: Steps (dicts, or the path of a JSON file of them; see
            `beam_tfrecord.preprocess.steps`), or a preprocessing function for TFT, from tensors by
            name to tensors by name. The function gets floats and decimals as float64, integers,
            booleans and times as int64, and columns that may be missing as sparse tensors; float64
            outputs are written as float32.
        fit: Name of the split that statistics are computed from. If the rows have no splits,
            statistics are computed from all rows.
        raw_too: Keep the raw values of changed columns, too, as columns named ``…_raw``.
        transform_fn: Path of a dataset, or of other output of TFT, whose fitted function to apply
            in place of `transform`.
        schema: Schema of the rows that come to this step, which TFT needs when the pipeline is
            built. None means the schema of the source; data is read to find it if the source does
            not declare it. Required after Beam code of your own, and after a `MapRows` without
            types.
        directory: Directory for files of this job that all workers share; None means a local one,
            which is removed when this process ends.
        faults: Directory in which workers record a data error for the launcher; None raises
            the error in the worker.

    Raises:
        UsageError: A step or function does not fit the columns.

    Example:
        >>> scale = bt.Preprocess([{"op": "zscore", "columns": ["fare"]}])  # rows | scale | a sink
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
            raise UsageError("Preprocess needs steps, a function or --transform-fn")
        self._request = request
        self._schema = schema
        self._directory = directory
        self.faults = faults
        self.needed: tuple[str, ...] = ()

    def expand(self, batches: beam.PCollection[Batch]) -> beam.PCollection[Batch]:
        """Return the transformed batches; fit a function before if none is fitted already."""
        description, function = make_plan(self._request, self._raw_schema(batches))
        description.check_unchanged(self.needed)
        directory = self._directory or _temporary_directory()
        finished = _finished(directory)
        if function is not None:
            fitted = self._fit(batches, description, function, directory)
        else:
            fitted = (
                batches.pipeline
                | "FittedBefore" >> beam.Create([self._request.fitted])
                | "CopyFitted" >> beam.Map(_copy_fitted, finished)
            )
        transform = _Transform(description, self._request.raw_too)
        side = beam.pvalue.AsSingleton(fitted)
        transformed = apply_step(self, batches, "Transform", transform, side)
        transformed.beam_tfrecord_fitted = finished
        return transformed

    def _raw_schema(self, batches: beam.PCollection[Batch]) -> pa.Schema:
        schema = as_arrow_schema(self._schema)
        if schema is None:
            schema = _read_schema(reader_of(batches))
        if schema is None:
            raise UsageError(
                "Preprocess cannot tell the columns of what comes before it, and TFT needs them "
                "when the pipeline is built: pass schema= to Preprocess, a pyarrow.Schema or "
                "beam_tfrecord.Schema with the types of the rows that come to it"
            )
        return schema

    def _fit(
        self,
        batches: beam.PCollection[Batch],
        description: Description,
        function: TFTFunction,
        directory: str,
    ) -> beam.PCollection[str]:
        """Return the path of the fitted function, as an element that appears once it is written."""
        import tensorflow_transform.beam as tft_beam

        reader = reader_of(batches)
        # Statistics need all rows before the first row is transformed, so they get a pass of their
        # own over the input if it can be read again: see `reader_of`.
        rows = (
            in_one_window(batches) if reader is None else batches.pipeline | "ReadToFit" >> reader
        )
        select = functools.partial(_fit_rows, description, self._request.fit)
        selected = rows | "SelectFitRows" >> beam.FlatMap(
            Guarded(select, self.faults)
        ).with_outputs(_COUNTS, main="batches")
        counts = selected[_COUNTS] | "CountFitRows" >> beam.CombineGlobally(
            beam.combiners.TupleCombineFn(sum, sum)
        )
        temporary = os.path.join(directory, "tft")
        analysed = selected.batches | "AsRecordBatches" >> beam.Map(
            lambda one: one
        ).with_output_types(pa.RecordBatch)
        with tft_beam.Context(temp_dir=temporary, use_deep_copy_optimization=reader is not None):
            transform_fn = (analysed, adapter_config(description.inputs)) | "Fit" >> (
                tft_beam.AnalyzeDataset(function)
            )
            written = transform_fn | "WriteFitted" >> tft_beam.WriteTransformFn(_output(directory))
        finish = functools.partial(_finish, description, self._request.fit, directory)
        guarded = Guarded(finish, self.faults, instead=[""])
        return written | "FinishFitted" >> beam.FlatMap(
            lambda _, sums: guarded(sums), beam.pvalue.AsSingleton(counts)
        ).with_output_types(str)


def _read_schema(reader: beam.PTransform | None) -> pa.Schema | None:
    """Return the schema of a reader's rows; None if it is not known before the reader runs."""
    if isinstance(reader, ReadBatches):
        return reader.schema if reader.schema is not None else reader.source.schema()
    if not isinstance(reader, Rereading):
        return None
    if isinstance(reader.step, AssignSplits | beam.Flatten):
        schemas = [_read_schema(one) for one in reader.readers]
        return schemas[0] if all(schema == schemas[0] for schema in schemas) else None
    if not isinstance(reader.step, MapRows):
        return None
    function = reader.step.function
    schema = as_arrow_schema(reader.step.schema)
    return (
        schema if schema is not None else returned_schema(getattr(function, "function", function))
    )


def _output(directory: str) -> str:
    """Return the directory of TFT's output, in the directory of a job's files."""
    return os.path.join(directory, "tft", "output")


def _finished(directory: str) -> str:
    """Return the directory of the fitted function, in the directory of a job's files."""
    return os.path.join(directory, "fitted")


def _temporary_directory() -> str:
    """Return a new directory that is removed when this process ends."""
    directory = tempfile.mkdtemp(prefix="beam-tfrecord-transform-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def _fit_rows(description: Description, fit: str, batch: Batch) -> Iterator[Any]:
    """Yield the rows of a batch that statistics need, as a record batch for TFT.

    The output `_COUNTS` gets the number of rows of the split `fit`, and the number of all rows.
    """
    is_fit = batch.split is None or batch.split == fit
    yield beam.pvalue.TaggedOutput(_COUNTS, (batch.num_rows * is_fit, batch.num_rows))
    if is_fit and batch.num_rows:
        data = without_missing(batch, description.drop).data
        yield tft_batch(data, description.inputs, description.used)


def _finish(
    description: Description, fit: str, directory: str, counts: tuple[int, int]
) -> Iterator[str]:
    """Write the fitted function as `save_fitted` does, and yield its directory."""
    fit_rows, rows = counts
    if rows and not fit_rows:
        raise DataError(
            f"no row is in split {fit!r}, which statistics are made of: pass another one as --fit"
        )
    finished = _finished(directory)
    with _renamed_to(finished) as temporary:
        save_fitted(_output(directory), temporary, description)
        _save_categories(temporary, description)
    yield finished


def _copy_fitted(source: str, finished: str) -> str:
    with _renamed_to(finished) as temporary:
        for name in FITTED:
            if os.path.isdir(os.path.join(source, name)):
                shutil.copytree(os.path.join(source, name), os.path.join(temporary, name))
        _save_categories(temporary, load_description(source))
    return finished


def _save_categories(directory: str, description: Description) -> None:
    columns = [column.name for column in description.inputs]
    save_categories(directory, columns, description.steps)


@contextlib.contextmanager
def _renamed_to(finished: str) -> Iterator[str]:
    """Yield a temporary path for a directory to make, and rename that to `finished` at the end.

    If another attempt at the same work has renamed its directory before, that one stays.
    """
    temporary = f"{finished}-{uuid.uuid4().hex}"
    yield temporary
    try:
        os.rename(temporary, finished)
    except OSError:
        if not os.path.isdir(finished):
            raise
        shutil.rmtree(temporary)


class _Transform:
    """Applies the fitted function to a batch."""

    def __init__(self, description: Description, raw_too: bool) -> None:
        self._description = description
        self._raw_too = raw_too
        # All threads of a process share one loaded function.
        self._shared = shared.Shared()

    def __call__(self, batch: Batch, directory: str) -> Iterator[Batch]:
        """Yield the transformed batch."""
        if not batch.data.num_columns:
            # A batch without columns has only rejected rows.
            yield batch
            return
        fitted = self._shared.acquire(
            lambda: Fitted(directory, self._description, raw_too=self._raw_too), tag=directory
        )
        rows = without_missing(batch, self._description.drop)
        data = fitted.apply(rows.data)
        yield rows.replace(data=data, numbers=rows.numbers_in(data))
