"""Builds and runs the Beam pipelines of `write` and `extract` from the public transforms."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, Literal

import apache_beam as beam
import pyarrow as pa

from beam_tfrecord.base.extras import import_tensorflow
from beam_tfrecord.errors import UsageError
from beam_tfrecord.exchange.merge_plan import run_bytes_of
from beam_tfrecord.exchange.output_writers import FILE_BYTES
from beam_tfrecord.exchange.write_steps import store_strata
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.layout import Strata
from beam_tfrecord.format.sort_keys import Lineage
from beam_tfrecord.job_state.checkpoints import Done
from beam_tfrecord.job_state.job import Identity, Job
from beam_tfrecord.job_state.progress_files import FIRST_PASS, READING
from beam_tfrecord.job_state.stored_state import RAW_SCHEMA, STRATA, load, load_schema, save
from beam_tfrecord.jobs.settings import ExtractSettings, JobSettings, Settings
from beam_tfrecord.preprocess.fit_and_apply import Preprocess
from beam_tfrecord.records.row_types import returned_schema
from beam_tfrecord.rows.batch import EXAMPLES_SCHEMA, Batch
from beam_tfrecord.runners import IS_OF_JOB, traits_of
from beam_tfrecord.runners.launch_settings import say_start
from beam_tfrecord.runners.start import pipeline
from beam_tfrecord.sources.base import Source
from beam_tfrecord.sources.csv.source import Csv, with_texts
from beam_tfrecord.sources.files import Listing
from beam_tfrecord.sources.json import Json
from beam_tfrecord.sources.read_tasks import READ_TASK_BYTES
from beam_tfrecord.sources.tfrecord import Known, copies_records, known_of
from beam_tfrecord.sources.typed_files import settled_by
from beam_tfrecord.storage import Lease, is_remote
from beam_tfrecord.transforms.map_and_split import AssignSplits, MapBatches, MapRows
from beam_tfrecord.transforms.read_batches import ReadBatches, done_of
from beam_tfrecord.transforms.write import stage_job, write_batches

# A rough estimate for use before anything is read: records are larger than compressed tables, and
# smaller than text.
RECORD_BYTES_FOR_INPUT = 2
# So little input makes one task, and a second worker would be idle.
SMALL_BYTES = 16 * 2**20
# Read in less time than the steps of a pipeline take to start.
QUICK_BYTES = 2**20


def run_pipelines(
    settings: JobSettings[Any],
    identity: Identity,
    directory: str,
    listing: Listing,
    info: Mapping[str, Any],
    lease: Lease | None,
) -> None:
    """Run the pipelines of a job, and wait for their end unless the launcher does not wait."""
    shared: dict[str, Any] = {
        "budget": settings.budget,
        "identity": identity,
        "overwrite": settings.overwrite,
        "info": {**info, "runner": settings.runner},
        "lease": lease,
    }
    if isinstance(settings, ExtractSettings):
        _extract(settings, stage_job(settings.target, directory, **shared), listing)
        return
    assert isinstance(settings, Settings)
    source = settings.source.sized(listing.bytes)
    if settings.schema is not None:
        source = with_texts(source, settings.schema.to_arrow())
    settings = dataclasses.replace(settings, source=source)
    known = known_of(source, listing.outlines)
    copies = copies_records(source)
    job = Job(
        target=settings.target,
        directory=directory,
        layout=settings.layout,
        schema=_enforced(settings, known),
        exchange=traits_of(settings.runner).exchange,
        is_one_pass=settings.is_one_pass,
        appends_to=settings.appends_to,
        compacts=settings.compacts,
        is_resumable=bool(identity.fingerprint and (lease or settings.appends_to))
        and settings.transform is None,
        total_bytes=listing.bytes * RECORD_BYTES_FOR_INPUT or None,
        inputs=Lineage(
            have_splits=bool(settings.kept_splits), examples=_what_is_known(copies, known)
        ),
        known=known.schema if copies and known is not None else None,
        known_examples=0 if known is None else known.examples,
        **shared,
    )
    if job.layout.splits.needs_counts:
        strata = _strata(settings, job, listing)
        if strata is None:
            return
        splits = dataclasses.replace(job.layout.splits, strata=strata)
        layout = dataclasses.replace(job.layout, splits=splits)
        settings = dataclasses.replace(settings, layout=layout)
        job = dataclasses.replace(job, layout=layout)
    if settings.transform is None:
        _write(settings, job, listing)
    else:
        _write_preprocessed(settings, job, listing)


def is_small(source: Source, input_bytes: int) -> bool:
    """Return whether the input is known to be too small for several workers."""
    # The size of a database on a server is unknown, and counts as 0 bytes.
    has_size = source.is_stable or input_bytes > 0
    return has_size and input_bytes < SMALL_BYTES


def _pipeline(settings: JobSettings[Any], listing: Listing) -> beam.Pipeline:
    small = is_small(settings.source, listing.bytes)
    made = pipeline(settings.runner, options=settings.pipeline_options, is_small=small)
    vars(made)[IS_OF_JOB] = True
    return made


def _extract(settings: ExtractSettings, job: Job, listing: Listing) -> None:
    with _pipeline(settings, listing) as root:
        batches = root | "Read" >> ReadBatches(
            settings.source,
            files=listing.sent,
            max_task_bytes=FILE_BYTES,
            keeps_tasks=True,
            limit=settings.limit,
            faults=job.directory,
            resume=job.directory if job.identity.fingerprint else None,
        )
        write_batches((batches,), job, done_of(batches))


def _strata(settings: Settings, job: Job, listing: Listing) -> Strata | None:
    """Return the limits of the splits, by a pass of its own over the input, or as it stored them.

    They are None if a worker recorded an error.
    """
    path = os.path.join(job.directory, STRATA)
    if (stored := load(path, Strata)) is not None:
        return stored
    with _pipeline(settings, listing) as root:
        store_strata(_rows(root, settings, job, listing, FIRST_PASS)[0], job)
    return load(path, Strata)


def _write(settings: Settings, job: Job, listing: Listing) -> None:
    with _pipeline(settings, listing) as root:
        batches, done = _rows(root, settings, job, listing, READING)
        write_batches((batches,), job, done)


def _rows(
    root: beam.Pipeline, settings: Settings, job: Job, listing: Listing, phase: str
) -> tuple[beam.PCollection[Batch], beam.PCollection[Done] | None]:
    """Return the rows to write, and the results of groups that an earlier attempt has done."""
    resume = job.directory if job.is_resumable and job.exchange == "files" else None
    reader = _reader(settings, job, resume, listing)
    reader.phase = phase
    batches = root | "Read" >> reader
    done = done_of(batches)
    if settings.map is not None:
        batches = batches | "Map" >> _mapping(settings, job.directory, settings.schema, resume)
    return batches, done


def _reader(settings: Settings, job: Job, resume: str | None, listing: Listing) -> ReadBatches:
    schema = None if settings.schema is None else settings.schema.to_arrow()
    unmapped = None if settings.map else schema
    return ReadBatches(
        settled_by(settings.source, unmapped),
        schema=_schema_before_reading(settings.source, unmapped),
        files=listing.sent,
        # In one pass every task is written to its own shards, so it has to fill at least one.
        keeps_tasks=job.is_one_pass,
        task_bytes=READ_TASK_BYTES if job.is_one_pass else settings.source.task_bytes,
        max_task_bytes=None if job.is_one_pass else run_bytes_of(job),
        limit=settings.limit,
        faults=job.directory,
        resume=resume,
        plans_in_launcher=traits_of(settings.runner).runs_here
        and _is_quickly_scanned(settings.source, listing)
        # Worker processes need more tasks, and the pipeline has not chosen them yet.
        and not (settings.map is not None and settings.source.is_large(listing.sent or ())),
    )


def _schema_before_reading(source: Source, schema: pa.Schema | None) -> pa.Schema | None:
    if copies_records(source):
        return EXAMPLES_SCHEMA
    # CSV and JSON have no types of their own, so with a schema there is nothing to infer.
    return schema if isinstance(source, Csv | Json) else None


def _what_is_known(copies: bool, known: Known | None) -> Literal["own", "found", "known"]:
    if not copies:
        return "own"
    return "found" if known is None else "known"


def _enforced(settings: Settings, known: Known | None) -> Schema | None:
    """Return the schema that rows are encoded by: of rows of a dataset, by default the same one."""
    if settings.schema is not None or known is None or copies_records(settings.source):
        return settings.schema
    if settings.map is not None or settings.transform is not None:
        return None
    schema = known.schema.without_observed()
    names = getattr(settings.source, "columns", None)
    return schema if names is None else schema.select(names)


def _is_quickly_scanned(source: Source, listing: Listing) -> bool:
    files = listing.sent
    if files is None or len(files) > source.quick_scans:
        return False
    # Types that do not follow from scans follow from all bytes.
    if not source.infers_from_scans and listing.bytes > QUICK_BYTES:
        return False
    return not any(is_remote(file.path) for file in files)


def _mapping(
    settings: Settings, directory: str, schema: Any = None, resume: str | None = None
) -> MapRows | MapBatches:
    function = settings.map
    assert function is not None
    if function.takes_batches:
        return MapBatches(function, keeps_rows=False, faults=directory)
    return MapRows(function, schema=schema, faults=directory, resume=resume)


def _write_preprocessed(settings: Settings, job: Job, listing: Listing) -> None:
    """Infer the types, fit the preprocessing on one split, then transform and write the rows.

    tensorflow-transform has to know the columns when the pipeline is built. So if types can only be
    inferred from rows, a separate pipeline infers them first. Another attempt at the job starts
    from the beginning, because the results of an earlier attempt may come from a function with
    other statistics.
    """
    request = settings.transform
    assert request is not None
    say_start("loading TensorFlow")
    import_tensorflow()
    if is_remote(job.directory):
        raise UsageError(
            "preprocessing writes to a local disk, or one that all workers share: "
            "write there, and copy the dataset"
        )
    _check_fit(settings)
    raw = _raw_schema(settings, job.directory, listing)
    if raw is None:
        return
    with _pipeline(settings, listing) as root:
        rows = root | "Read" >> _plain_reader(
            settings, job.directory, listing, raw if settings.map is None else None
        )
        if settings.map is not None:
            rows = rows | "Map" >> _mapping(settings, job.directory, raw)
        elif settings.source.selection is not None:
            raw = settings.source.selection.returned(raw)
        inputs = job.inputs
        if not settings.layout.splits.is_single:
            # Before preprocessing, so that a row is in the same split with and without it.
            assign = AssignSplits.of_layout(
                settings.layout, schema=settings.schema, faults=job.directory
            )
            rows = rows | "Split" >> assign
            inputs = Lineage(have_splits=True)
        step = Preprocess(request, schema=raw, directory=job.directory, faults=job.directory)
        step.needed = settings.layout.key
        transformed = rows | "Preprocess" >> step
        fitted = transformed.beam_tfrecord_fitted
        job = dataclasses.replace(
            job, schema=None, is_resumable=False, fitted=fitted, inputs=inputs
        )
        write_batches((transformed,), job)


def _check_fit(settings: Settings) -> None:
    """Check that the splits include the one to fit on, if their names are known."""
    splits, request = settings.layout.splits, settings.transform
    if request is None or request.fitted is not None or splits.is_single:
        return
    if splits.names and request.fit not in splits.names:
        raise UsageError(
            f"statistics are made of split {request.fit!r}, but the splits are "
            f"{', '.join(splits.names)}: pass --fit"
        )


def _plain_reader(
    settings: Settings, directory: str, listing: Listing, schema: pa.Schema | None = None
) -> ReadBatches:
    return ReadBatches(
        settings.source, schema, files=listing.sent, limit=settings.limit, faults=directory
    )


def _raw_schema(settings: Settings, directory: str, listing: Listing) -> pa.Schema | None:
    """Return the schema of the rows before preprocessing; None if a worker recorded an error."""
    function = settings.map
    if settings.schema is not None:
        return settings.schema.to_arrow()
    if function is None and settings.source.infers_from_scans:
        return settings.source.schema()
    if function is not None and (hinted := returned_schema(function.function)) is not None:
        return hinted
    if (stored := load_schema(directory, RAW_SCHEMA)) is not None:
        return stored
    with _pipeline(settings, listing) as root:
        types = _inferred(root, settings, directory, listing)
        _ = types | "StoreSchema" >> beam.Map(_store_schema, os.path.join(directory, RAW_SCHEMA))
    return load_schema(directory, RAW_SCHEMA)


def _inferred(
    root: beam.Pipeline, settings: Settings, directory: str, listing: Listing
) -> beam.PCollection[pa.Schema]:
    reader = _plain_reader(settings, directory, listing)
    reader.phase = FIRST_PASS
    if settings.map is None:
        return reader.steps(root)[1].pvalue
    mapped = root | "Read" >> reader | "Map" >> _mapping(settings, directory)
    return mapped | "Schemas" >> beam.Map(lambda batch: batch.data.schema)


def _store_schema(schema: pa.Schema, path: str) -> None:
    if len(schema):
        save(path, [schema])
