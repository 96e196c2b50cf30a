"""The last step of a pipeline that makes files: what was written is checked and published, once."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import json
import os
import platform
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import apache_beam as beam

from beam_tfrecord._version import __version__
from beam_tfrecord.errors import DataError, StorageError, TargetExists
from beam_tfrecord.exchange.merge import Piece
from beam_tfrecord.exchange.tally import Tally
from beam_tfrecord.jobs.cleanup import clear_published
from beam_tfrecord.jobs.faults import recorded, recorded_fault
from beam_tfrecord.jobs.fingerprint import xxh64_text
from beam_tfrecord.jobs.job_file import INPUT_XXH64, PUBLICATION
from beam_tfrecord.jobs.publishing import finish_publishing, published_names
from beam_tfrecord.jobs.target import Target, check_free
from beam_tfrecord.ptransforms.step import flat_map
from beam_tfrecord.storage import Lease, exists, lease, make_directory, remove_tree

# To publish takes seconds; whoever holds the output for longer is no other last step.
LEASE_WAIT_S = 60.0
_LOOK_EVERY_S = 0.2


class FileJob(Protocol):
    """What the end of a job needs to know of it; see `WriteJob` and `StageJob`."""

    @property
    def target(self) -> Target:
        """Where to."""

    @property
    def directory(self) -> str:
        """Temporary directory."""

    @property
    def overwrite(self) -> bool:
        """Replace what is at the target."""

    @property
    def job(self) -> Mapping[str, Any]:
        """What ``job.json`` tells besides."""

    @property
    def lease(self) -> Lease | None:
        """Held by whoever started the job; None: the last step holds one of its own."""

    @property
    def raises(self) -> bool:
        """Faults of the data are raised at the end of the pipeline."""


@dataclasses.dataclass(frozen=True)
class Publisher:
    """How the files of a kind of job are published.

    Attributes:
        publish: Publishes pieces under a lease, given the job, its tally and what ``job.json``
            tells; returns the names of the files.
        counted: The words for files, for what they hold, and for what became of that before.
    """

    publish: Callable[[Any, Tally, Sequence[Piece], Lease, Mapping[str, Any]], Iterable[str]]
    counted: tuple[str, str, str]


def finish(
    root: beam.Pipeline, job: FileJob, pieces: Any, tally: Any, publisher: Publisher
) -> beam.PCollection[str]:
    """Publish what a pipeline has written.

    Args:
        root: The pipeline.
        job: What was to be done.
        pieces: PCollection of the files.
        tally: PCollection of the one tally.
        publisher: How to publish them.

    Returns:
        PCollection of the paths of the files.
    """
    return (
        root
        | "Once" >> beam.Impulse()
        | "Publish"
        >> flat_map(
            _publish, job, publisher, beam.pvalue.AsSingleton(tally), beam.pvalue.AsList(pieces)
        ).with_output_types(str)
    )


def _publish(
    _: bytes, job: FileJob, publisher: Publisher, tally: Tally, pieces: Sequence[Piece]
) -> Iterator[str]:
    yield from recorded(_published, job.directory)((job, publisher, tally, pieces))
    if job.raises and (fault := recorded_fault(job.directory)) is not None:
        raise fault


def _published(task: tuple[FileJob, Publisher, Tally, Sequence[Piece]]) -> Iterator[str]:
    job, publisher, tally, pieces = task
    if recorded_fault(job.directory) is not None:
        # Other processes are looked at about once a second: a step here may have gone on after a
        # fault there. Whatever comes before this one has told its faults by now.
        return
    written = sum(piece.examples for piece in pieces)
    if written != tally.records:
        files, contents, done = publisher.counted
        raise DataError(
            f"{files} hold {written:,} {contents} where {tally.records:,} were {done}: "
            "run the job again"
        )
    target, publication = job.target, _publication(job, tally, pieces)
    make_directory(target.directory)
    with contextlib.nullcontext(job.lease) if job.lease else _lease_of(target) as held:
        if job.lease is None:
            # Else whoever waits for the job has done so before it began.
            clear_published(target, job.directory, held.check)
        names: Iterable[str] | None = published_names(target, publication)
        if names is not None and _is_another_run(job, pieces):
            names, publication = None, f"{publication} {uuid.uuid4().hex}"
        if names is not None:
            # A runner tries a step again whose worker died, be it after all that it had to do.
            finish_publishing(target, job.directory, held.check)
        else:
            check_free(target, overwrite=job.overwrite)
            told = {**_told(job, tally), PUBLICATION: publication}
            names = publisher.publish(job, tally, pieces, held, told)
        if job.lease is None:
            # Else whoever waits does so, once the job is over: to its end a runner may begin it
            # anew, where it has lost what came before this step.
            remove_tree(job.directory)
    for name in names:
        yield os.path.join(target.directory, name)


@contextlib.contextmanager
def _lease_of(target: Target) -> Iterator[Lease]:
    """Hold the target once others that publish in its directory are done.

    Raises:
        StorageError: They are not for long; another try may find it free.
    """
    until_s = time.monotonic() + LEASE_WAIT_S
    with contextlib.ExitStack() as stack:
        while True:
            try:
                held = stack.enter_context(lease(target.directory))
                break
            except TargetExists as error:
                if time.monotonic() >= until_s:
                    raise StorageError(str(error)) from error
            time.sleep(_LOOK_EVERY_S)
        yield held


def _is_another_run(job: FileJob, pieces: Sequence[Piece]) -> bool:
    """Tell whether the same files at the target are of a run of the same template before.

    They are to be written over then; once they are there, those of this run are no longer here.
    """
    may_be = job.lease is None and job.overwrite and bool(pieces)
    return may_be and all(exists(piece.path) for piece in pieces)


def _publication(job: FileJob, tally: Tally, pieces: Sequence[Piece]) -> str:
    """Return what tells these files of this run of a job from all others, however often tried.

    The files count, too: all runs of a template are one to it.
    """
    files = sorted((piece.split, piece.order, piece.bytes, piece.xxh64) for piece in pieces)
    run = [job.directory, dict(job.job), tally.rows, tally.rejects, files]
    return hashlib.sha256(json.dumps(run).encode()).hexdigest()[:32]


def _told(job: FileJob, tally: Tally) -> dict[str, Any]:
    hashed = {} if tally.input_hash is None else {INPUT_XXH64: xxh64_text(tally.input_hash)}
    return {
        **job.job,
        **hashed,
        "finished": datetime.datetime.now(datetime.timezone.utc).isoformat(),
        "rows_read": tally.rows,
        "beam_tfrecord": __version__,
        "beam": beam.version.__version__,
        "python": platform.python_version(),
    }
