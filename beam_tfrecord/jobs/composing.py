"""The pipeline of `write`, built from the same transforms that users chain by hand."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from beam_tfrecord.copies import copies_lines
from beam_tfrecord.images import refused_warning
from beam_tfrecord.jobs.keeping import keeps_files
from beam_tfrecord.jobs.listing import Listing
from beam_tfrecord.jobs.publish import Identity
from beam_tfrecord.jobs.target import Target
from beam_tfrecord.jobs.write_job import WriteJob, write_batches
from beam_tfrecord.preprocess.write import write_transformed
from beam_tfrecord.runners import exchange_of, pipeline, runs_here
from beam_tfrecord.sources.base import Source
from beam_tfrecord.sources.csv.source import Csv, with_texts
from beam_tfrecord.sources.parquet.source import settled_by
from beam_tfrecord.storage import Lease, is_remote, read_small
from beam_tfrecord.transforms.grouping import GROUP_BYTES
from beam_tfrecord.transforms.reading import ReadBatches, done_of
from beam_tfrecord.transforms.transforms import MapBatches, MapRows

if TYPE_CHECKING:
    from beam_tfrecord.jobs.settings import Settings

_LOGGER = logging.getLogger(__name__)

# Guessed before anything is read, for sizes that need not be right: a packed table grows, text
# shrinks.
RECORD_BYTES_FOR_INPUT = 2
# About one group of units: a second worker would have nothing to do.
SMALL_BYTES = 16 * 2**20


def run_write(
    settings: Settings,
    identity: Identity,
    directory: str,
    *,
    listing: Listing,
    job: Mapping[str, Any],
    lease: Lease | None,
) -> None:
    """Run the whole job, and wait for its end.

    Args:
        settings: The job.
        identity: What the dataset is made from.
        directory: The job's temporary directory; errors of the data are recorded there.
        listing: Of the input.
        job: What ``job.json`` tells besides.
        lease: The right to write to the target; None where nobody waits for the end of the job.
    """
    source = settings.source.sized(listing.bytes)
    if settings.schema is not None:
        source = with_texts(source, settings.schema.to_arrow())
    settings = dataclasses.replace(settings, source=source)
    is_resumable = bool(identity.fingerprint and lease) and settings.transform is None
    write_job = WriteJob(
        target=settings.target,
        layout=settings.layout,
        directory=directory,
        schema=settings.schema,
        budget=settings.budget,
        identity=identity,
        overwrite=settings.overwrite,
        exchange=exchange_of(settings.runner),
        direct=settings.is_direct,
        job={**job, "runner": settings.runner},
        lease=lease,
        is_resumable=is_resumable,
        raises=lease is None,
        total_bytes=listing.bytes * RECORD_BYTES_FOR_INPUT or None,
        keeps_files=keeps_files(
            settings,
            directory,
            listing,
            attempt=job.get("attempts", 1),
            is_resumable=is_resumable,
        ),
    )
    resume = directory if write_job.is_resumable and write_job.exchange == "files" else None
    small = is_small(settings.source, listing.bytes)
    if runs_here(settings.runner):
        # Beam, too, takes its time until it asks for the first row.
        settings.source.prepare()
    if settings.transform is not None:
        write_transformed(settings, write_job, listing, is_small=small)
        return
    with pipeline(settings.runner, options=settings.pipeline_options, is_small=small) as root:
        batches = root | "Read" >> _reader(settings, write_job, resume, listing)
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


def _reader(settings: Settings, job: WriteJob, resume: str | None, listing: Listing) -> ReadBatches:
    # Text has no types of its own: under a given schema there is nothing to infer.
    given = settings.schema
    is_typed = given is not None and settings.map is None and isinstance(settings.source, Csv)
    return ReadBatches(
        settled_by(settings.source, None if given is None or settings.map else given.to_arrow()),
        schema=given.to_arrow() if given is not None and is_typed else None,
        files=listing.sent,
        # In one pass every group becomes shards of its own, so it has to hold enough for one.
        group_bytes=GROUP_BYTES if job.direct else settings.source.group_bytes,
        most_group_bytes=None if job.direct else job.run_bytes,
        limit=settings.limit,
        faults=job.directory,
        resume=resume,
        makes_stubs=job.keeps_files,
        hashes=hashes_input(settings.source, listing, settings.limit),
        plans_here=runs_here(settings.runner) and _is_quickly_seen(settings.source, listing),
    )


def hashes_input(source: Source, listing: Listing, limit: int | None) -> bool:
    """Tell whether a job reads all of some local files, whose bytes can be hashed."""
    # A template lists its input when it runs.
    are_local = bool(listing.outlines) and all(file.state for file in listing.outlines)
    return source.has_ranges and are_local and limit is None


def _is_quickly_seen(source: Source, listing: Listing) -> bool:
    files = listing.sent
    if files is None or len(files) > source.quick_scans:
        return False
    return not any(is_remote(file.path) for file in files)


def _mapping(settings: Settings, directory: str, resume: str | None) -> MapRows | MapBatches:
    function = settings.map
    assert function is not None
    if function.takes_batches:
        return MapBatches(function, keeps_rows=False, faults=directory)
    return MapRows(function, schema=settings.schema, faults=directory, resume=resume)


def _warn_of_rows(target: Target) -> None:
    job = json.loads(read_small(target.path("job.json")))
    for name in job["left_out_columns"]:
        _LOGGER.warning(
            "column %r is left out: it has no value in any row, or is not in the schema", name
        )
    for remark in job["remarks"]:
        _LOGGER.warning("%s", remark)
    for line in copies_lines(job["copies"]) if job["copies"] else ():
        _LOGGER.warning("%s", line)
    if refused := job["refused_pictures"]:
        _LOGGER.warning("%s", refused_warning(refused))
