"""The pipeline of `write`, built from the same transforms that users chain by hand."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from beam_tfrecord.publish import Identity
from beam_tfrecord.reading import ReadBatches
from beam_tfrecord.runners import pipeline
from beam_tfrecord.sources.csv import Csv
from beam_tfrecord.target import Target
from beam_tfrecord.transforms import MapBatches, MapRows
from beam_tfrecord.writing import WriteJob, write_batches

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
) -> None:
    """Run the whole job, and wait for its end.

    Args:
        settings: The job.
        identity: What the dataset is made from.
        directory: The job's temporary directory; errors of the data are recorded there.
        input_bytes: Size of the input.
        job: What ``job.json`` tells besides.
    """
    # A fault of the data is told in one line; Beam would print its traces of it before.
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
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
    )
    is_small = input_bytes < SMALL_BYTES
    with pipeline(settings.runner, options=settings.pipeline_options, is_small=is_small) as root:
        batches = root | "Read" >> _reader(settings, directory)
        if settings.map is not None:
            batches = batches | "Map" >> _mapping(settings, directory)
        write_batches((batches,), write_job)
    _warn_of_left_out(settings.target)


def _reader(settings: Settings, directory: str) -> ReadBatches:
    # Text has no types of its own: under a given schema there is nothing to infer.
    given = settings.schema
    is_typed = given is not None and settings.map is None and isinstance(settings.source, Csv)
    return ReadBatches(
        settings.source,
        schema=given.to_arrow() if given is not None and is_typed else None,
        limit=settings.limit,
        faults=directory,
    )


def _mapping(settings: Settings, directory: str) -> MapRows | MapBatches:
    function = settings.map
    assert function is not None
    if function.takes_batches:
        return MapBatches(function, keeps_rows=False, faults=directory)
    return MapRows(function, schema=settings.schema, faults=directory)


def _warn_of_left_out(target: Target) -> None:
    with open(target.path("job.json"), encoding="utf-8") as file:
        left_out = json.load(file)["left_out_columns"]
    for name in left_out:
        _LOGGER.warning(
            "column %r is left out: it has no value in any row, or is not in the schema", name
        )
