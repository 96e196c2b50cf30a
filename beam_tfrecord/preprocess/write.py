"""The pipeline of `write` with preprocessing: types first, then statistics, then the rows."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import apache_beam as beam
import pyarrow as pa

from beam_tfrecord.batch import Batch
from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.hints import returned_schema
from beam_tfrecord.jobs.listing import Listing
from beam_tfrecord.jobs.write_job import WriteJob, write_batches
from beam_tfrecord.places import ONE_INPUT, Inputs
from beam_tfrecord.preprocess.transform import Preprocess
from beam_tfrecord.runners import pipeline
from beam_tfrecord.storage import exists, is_remote, put, read_bytes
from beam_tfrecord.transforms.map_rows import MapBatches, MapRows
from beam_tfrecord.transforms.reading import ReadBatches, schema_of
from beam_tfrecord.transforms.step import map_each
from beam_tfrecord.transforms.transforms import AssignSplits

if TYPE_CHECKING:
    from beam_tfrecord.jobs.settings import Settings

_SCHEMA_NAME = "raw-schema"


def write_transformed(
    settings: Settings, job: WriteJob, listing: Listing, *, is_small: bool
) -> None:
    """Run a job with preprocessing, and wait for its end.

    TFT has to know the columns when the pipeline is built, so where only the rows tell their
    types, a pipeline of its own finds them first. The job begins anew if it is tried again: what
    an earlier attempt has written may come from another fitted function.

    Args:
        settings: The job.
        job: The same as its last step needs it.
        listing: Of the input.
        is_small: There is too little to do for several workers.

    Raises:
        UsageError: A step does not fit the columns, or the output is not on a disk.
    """
    request = settings.transform
    assert request is not None
    if is_remote(job.directory):
        raise UsageError(
            "preprocessing writes to a local disk, or one that all workers share: "
            "write there, and copy the dataset"
        )
    _check_fit(settings)

    def run(build: Callable[[beam.Pipeline], Any]) -> None:
        options = settings.pipeline_options
        with pipeline(settings.runner, options=options, is_small=is_small) as root:
            build(root)

    raw = _raw_schema(settings, job.directory, listing, run)
    if raw is None:
        return
    job = dataclasses.replace(job, schema=None, is_resumable=False)

    def build(root: beam.Pipeline) -> None:
        rows, inputs = _rows(root, settings, raw, job.directory, listing), ONE_INPUT
        if not settings.layout.splits.is_single:
            # By the raw row: a row is in the same split with and without preprocessing.
            assign = AssignSplits.of_layout(
                settings.layout, schema=settings.schema, faults=job.directory
            )
            rows = rows | "Split" >> assign
            inputs = Inputs(have_splits=True)
        step = Preprocess(request, schema=raw, directory=job.directory, faults=job.directory)
        step.needed = settings.layout.key
        transformed = rows | "Preprocess" >> step
        fitted = transformed.beam_tfrecord_fitted
        write_batches((transformed,), dataclasses.replace(job, fitted=fitted, inputs=inputs))

    run(build)


def _check_fit(settings: Settings) -> None:
    """Refuse a split to fit on that there cannot be.

    Raises:
        UsageError: There are splits, but not that one.
    """
    splits, request = settings.layout.splits, settings.transform
    if request is None or request.fitted is not None or splits.is_single:
        return
    if splits.names and request.fit not in splits.names:
        raise UsageError(
            f"statistics are made of split {request.fit!r}, but the splits are "
            f"{', '.join(splits.names)}: pass --fit"
        )


def _rows(
    root: beam.Pipeline, settings: Settings, raw: pa.Schema, directory: str, listing: Listing
) -> beam.PCollection[Batch]:
    function = settings.map
    schema = raw if function is None else None
    reader = ReadBatches(
        settings.source, schema, files=listing.sent, limit=settings.limit, faults=directory
    )
    rows = root | "Read" >> reader
    if function is None:
        return rows
    if function.takes_batches:
        return rows | "Map" >> MapBatches(function, keeps_rows=False, faults=directory)
    return rows | "Map" >> MapRows(function, schema=raw, faults=directory)


def _raw_schema(
    settings: Settings,
    directory: str,
    listing: Listing,
    run: Callable[[Callable[[beam.Pipeline], Any]], None],
) -> pa.Schema | None:
    """Return the schema of the rows before preprocessing; None where a fault was recorded."""
    given, function = settings.schema, settings.map
    if given is not None:
        return given.to_arrow()
    if function is None and settings.source.infers_from_scans:
        return settings.source.schema()
    if function is not None and (hinted := returned_schema(function.function)) is not None:
        return hinted
    path = os.path.join(directory, _SCHEMA_NAME)

    def build(root: beam.Pipeline) -> None:
        reader = ReadBatches(
            settings.source, files=listing.sent, limit=settings.limit, faults=directory
        )
        if function is None:
            types = schema_of(root, reader).pvalue
        elif function.takes_batches:
            rows = root | "Read" >> reader
            mapped = rows | "Map" >> MapBatches(function, keeps_rows=False, faults=directory)
            # A batch function tells its types by what it returns.
            types = mapped | "Schemas" >> map_each(lambda batch: batch.data.schema)
        else:
            rows = root | "Read" >> reader
            types = MapRows(function, faults=directory).types(rows).pvalue
        _ = types | "KeepSchema" >> map_each(_keep_schema, path)

    run(build)
    return pa.ipc.read_schema(pa.py_buffer(read_bytes(path))) if exists(path) else None


def _keep_schema(schema: pa.Schema, path: str) -> None:
    if len(schema):
        put(path, schema.serialize().to_pybytes())
