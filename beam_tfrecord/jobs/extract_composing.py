"""The pipeline of `extract`, built from the same transforms that users chain by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from beam_tfrecord.exchange.stage_writer import FILE_BYTES
from beam_tfrecord.jobs.composing import hashes_input, is_small
from beam_tfrecord.publish.dataset import Identity
from beam_tfrecord.runners import pipeline
from beam_tfrecord.sources.listing import Listing
from beam_tfrecord.storage import Lease
from beam_tfrecord.transforms.extract import StageJob, extract_batches
from beam_tfrecord.transforms.reading import ReadBatches, done_of

if TYPE_CHECKING:
    from beam_tfrecord.jobs.extract_settings import ExtractSettings


def run_extract(
    settings: ExtractSettings,
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
        identity: What the stage is made from.
        directory: The job's temporary directory; errors of the data are recorded there.
        listing: Of the input.
        job: What ``job.json`` tells besides.
        lease: The right to write to the target; None where nobody waits for the end of the job.
    """
    stage_job = StageJob(
        target=settings.target,
        directory=directory,
        budget=settings.budget,
        identity=identity,
        overwrite=settings.overwrite,
        job={**job, "runner": settings.runner},
        lease=lease,
        raises=lease is None,
    )
    small = is_small(settings.source, listing.bytes)
    with pipeline(settings.runner, options=settings.pipeline_options, is_small=small) as root:
        batches = root | "Read" >> ReadBatches(
            settings.source,
            files=listing.sent,
            most_group_bytes=FILE_BYTES,
            limit=settings.limit,
            faults=directory,
            resume=directory if identity.fingerprint else None,
            hashes=hashes_input(settings.source, listing, settings.limit),
        )
        extract_batches(batches, stage_job, done_of(batches))
