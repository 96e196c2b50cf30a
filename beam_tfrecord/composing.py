"""The pipeline of `write`, built from the same transforms that users chain by hand."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from beam_tfrecord.preprocess.write import write_transformed
from beam_tfrecord.publish import Identity
from beam_tfrecord.reading import ReadBatches, done_of
from beam_tfrecord.runners import pipeline
from beam_tfrecord.sources.base import Source
from beam_tfrecord.sources.csv import Csv
from beam_tfrecord.sources.parquet import settled_by
from beam_tfrecord.storage import Lease, read_bytes
from beam_tfrecord.target import Target
from beam_tfrecord.transforms import MapBatches, MapRows
from beam_tfrecord.write_job import WriteJob, write_batches

if TYPE_CHECKING:
    from beam_tfrecord.job import Settings

_LOGGER = logging.getLogger(__name__)

# About one group of units: a second worker would have nothing to do.
SMALL_BYTES = 16 * 2**20


def run_write(
    settings: Settings,
    identity: Identity,
    directory: str,
    *,
    input_bytes: int,
    job: Mapping[str, Any],
    lease: Lease,
) -> None:
    """Run the whole job, and wait for its end.

    Args:
        settings: The job.
        identity: What the dataset is made from.
        directory: The job's temporary directory; errors of the data are recorded there.
        input_bytes: Size of the input.
        job: What ``job.json`` tells besides.
        lease: The right to write to the target.
    """
    write_job = WriteJob(
        target=settings.target,
        layout=settings.layout,
        directory=directory,
        schema=settings.schema,
        budget=settings.budget,
        identity=identity,
        overwrite=settings.overwrite,
        exchange="runner" if settings.runner == "dataflow" else "files",
        direct=settings.is_direct,
        job={**job, "runner": settings.runner},
        lease=lease,
        is_resumable=bool(identity.fingerprint) and settings.transform is None,
        raises=False,
    )
    resume = directory if write_job.is_resumable and write_job.exchange == "files" else None
    small = is_small(settings.source, input_bytes)
    if settings.transform is not None:
        write_transformed(settings, write_job, is_small=small)
        return
    with pipeline(settings.runner, options=settings.pipeline_options, is_small=small) as root:
        batches = root | "Read" >> _reader(settings, directory, resume)
        done = done_of(batches)
        if settings.map is not None:
            batches = batches | "Map" >> _mapping(settings, directory, resume)
        write_batches((batches,), write_job, done)


def is_small(source: Source, input_bytes: int) -> bool:
    """Tell whether input is known to be too little for several workers."""
    # A server tells no size of its database.
    has_size = source.is_stable or input_bytes > 0
    return has_size and input_bytes < SMALL_BYTES


def warn_of_result(settings: Settings, notes: Iterable[str]) -> None:
    """Tell what a user should know of a dataset that was written, and of its input."""
    _warn_of_rows(settings.target)
    for note in notes:
        _LOGGER.warning(note)


def _reader(settings: Settings, directory: str, resume: str | None) -> ReadBatches:
    # Text has no types of its own: under a given schema there is nothing to infer.
    given = settings.schema
    is_typed = given is not None and settings.map is None and isinstance(settings.source, Csv)
    return ReadBatches(
        settled_by(settings.source, None if given is None or settings.map else given.to_arrow()),
        schema=given.to_arrow() if given is not None and is_typed else None,
        limit=settings.limit,
        faults=directory,
        resume=resume,
    )


def _mapping(settings: Settings, directory: str, resume: str | None) -> MapRows | MapBatches:
    function = settings.map
    assert function is not None
    if function.takes_batches:
        return MapBatches(function, keeps_rows=False, faults=directory)
    return MapRows(function, schema=settings.schema, faults=directory, resume=resume)


def _warn_of_rows(target: Target) -> None:
    told = json.loads(read_bytes(target.path("job.json")))
    for name in told["left_out_columns"]:
        _LOGGER.warning(
            "column %r is left out: it has no value in any row, or is not in the schema", name
        )
    if (copies := told["copies"]) and copies["rows"]:
        about = "" if copies["exact"] else "about "
        _LOGGER.warning("%s%s rows are copies of others by content", about, f"{copies['rows']:,}")
