"""`extract`: any input as a stage, on the command line's terms."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from beam_tfrecord.errors import UsageError
from beam_tfrecord.inputs import make_source
from beam_tfrecord.jobs.extract_settings import ExtractSettings
from beam_tfrecord.jobs.fingerprint import fingerprints_of, options_of, source_of
from beam_tfrecord.jobs.job_kind import Kind
from beam_tfrecord.jobs.running import run_job
from beam_tfrecord.jobs.settings import Inputs
from beam_tfrecord.publish.dataset import Identity
from beam_tfrecord.rejects import parse_budget
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.listing import Listing
from beam_tfrecord.stage_manifest import STAGE_FORMAT, StageManifest
from beam_tfrecord.storage import Lease, read_small
from beam_tfrecord.workdir.target import directory_target

if TYPE_CHECKING:
    from beam_tfrecord.progress import Progress

_LOGGER = logging.getLogger(__name__)


def extract(
    inputs: Inputs,
    output: str | os.PathLike[str],
    *,
    from_: str | None = None,
    limit: int | None = None,
    columns: Sequence[str] | None = None,
    max_rejects: int | str = 0,
    overwrite: bool = False,
    runner: str = "direct",
    pipeline_options: Sequence[str] = (),
    progress: Progress | None = None,
    source_options: Mapping[str, Any] | None = None,
) -> StageManifest:
    """Extract input to a stage: Parquet files with the types of the source, under a manifest.

    ``write``, ``load`` and `ReadFromParquet` read a stage in place of the input, which they never
    touch again. Where the output already holds this stage, made from the same input with the same
    settings, nothing is done; a call that was stopped goes on when it is made again. Neither holds
    for databases, of which nothing tells whether they are still the same.

    Args:
        inputs: Files, globs, directories, or the URL of a database.
        output: Directory of the stage.
        from_: Kind of the input, where its name does not tell: ``csv``, ``parquet``.
        limit: Read only the first rows.
        columns: Columns to read.
        max_rejects: Rows that may be rejected: a number, ``"1%"`` or ``"any"``.
        overwrite: Replace another stage, or a dataset, in the output.
        runner: ``direct``, or the name of any Beam runner.
        pipeline_options: Further Beam options, as on a command line.
        progress: Where to show how far the job is.
        source_options: Options of the source, such as ``{"table": "trips"}``.

    Returns:
        The manifest of the stage.

    Raises:
        UsageError: The call cannot be carried out.
        DataError: The data cannot become a stage; nothing was published.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"limit {limit} is not a number of rows")
    source = make_source(inputs, from_=from_, columns=columns, options=source_options)
    settings = ExtractSettings(
        source=source,
        target=directory_target(output),
        limit=limit,
        budget=parse_budget(max_rejects),
        overwrite=overwrite,
        runner=runner,
        pipeline_options=tuple(pipeline_options),
    )
    return run_job(_EXTRACTING, settings, progress)


def _identity(settings: ExtractSettings, files: Sequence[InputFile]) -> Identity:
    source = source_of(settings.source, files)
    if not settings.source.is_stable:
        return Identity(source=source)
    described = {
        "format": STAGE_FORMAT,
        "source": source,
        "options": options_of(settings.source),
        "limit": settings.limit,
    }
    return Identity(*fingerprints_of(described), source=source)


def _run(
    settings: ExtractSettings,
    identity: Identity,
    directory: str,
    listing: Listing,
    job: Mapping[str, Any],
    held: Lease | None,
) -> None:
    from beam_tfrecord.jobs.extract_composing import run_extract

    run_extract(settings, identity, directory, listing=listing, job=job, lease=held)


def _warn(settings: ExtractSettings, notes: Sequence[str]) -> None:
    job = json.loads(read_small(settings.target.path("job.json")))
    for line in (*job["remarks"], *notes):
        _LOGGER.warning("%s", line)


_EXTRACTING: Kind[ExtractSettings, StageManifest] = Kind(StageManifest.load, _identity, _run, _warn)
