"""Runs a job: locks its output, resumes earlier attempts, returns the result or a short error.

The lease is a lock file that keeps other jobs out of the output directory. A job can also be left
to a remote runner, written as a template, or only described.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from beam_tfrecord import storage
from beam_tfrecord.base.progress import Progress
from beam_tfrecord.base.text import counted, format_size
from beam_tfrecord.errors import (
    BeamTFRecordError,
    DataError,
    InputChanged,
    LeaseLost,
    RejectedRows,
    StorageError,
    TargetExists,
    UsageError,
)
from beam_tfrecord.format.hashes import data_hash
from beam_tfrecord.format.job_file import (
    ARGUMENTS,
    JOB_NAME,
    SETTINGS,
    WITHOUT_FUNCTIONS,
    add_to_job,
)
from beam_tfrecord.format.manifest import Manifest
from beam_tfrecord.format.rejects import SAVED_FILE
from beam_tfrecord.job_state.job import Identity, check_free
from beam_tfrecord.job_state.progress_files import watch
from beam_tfrecord.job_state.worker_errors import forget_faults, machine_error, recorded_fault, stop
from beam_tfrecord.jobs.existing_output import same_output
from beam_tfrecord.jobs.fingerprint import State, begin, input_info, progress_of, remove_unmarked
from beam_tfrecord.jobs.plan import Plan, plan_of
from beam_tfrecord.jobs.preflight import modules_of, preflight
from beam_tfrecord.jobs.settings import JobSettings, M, Settings
from beam_tfrecord.publish.assemble import warn_of
from beam_tfrecord.publish.transaction import APPENDS, abandon, clear_leftovers, give_up
from beam_tfrecord.runners import start, traits_of
from beam_tfrecord.runners.launch_settings import Launch, RemoteJob, launching
from beam_tfrecord.sources.base import InputFile, Source
from beam_tfrecord.sources.choose import skipped_counts
from beam_tfrecord.sources.csv.source import Csv
from beam_tfrecord.sources.files import Listing, list_input
from beam_tfrecord.sources.json import Json
from beam_tfrecord.sources.tfrecord import check_apart

_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class _LiveJob:
    """A job of this process that has not ended."""

    settings: JobSettings[Any]
    identity: Identity
    directory: str

    @property
    def is_resumable(self) -> bool:
        """Whether a repeated call finds the temporary directory of this job, by its fingerprint."""
        return bool(self.identity.fingerprint)


# Read only by `what_is_kept`, which the handler of an interrupt calls.
_live_jobs: list[_LiveJob] = []


def run_job(settings: JobSettings[M], progress: Progress | None) -> M:
    """Run a job, unless its output already exists."""
    preflight(settings)
    listing = list_input(settings.source)
    _LOGGER.debug(
        "the input has %s, %s, of kind %s",
        counted(len(listing.outlines), "file"),
        format_size(listing.bytes),
        settings.source.kind,
    )
    _check_not_empty(settings.source, listing)
    paths = getattr(settings.source, "paths", None) or ()
    if any(settings.target.directory.startswith(os.path.abspath(path) + os.sep) for path in paths):
        _LOGGER.warning("the output is inside the input, and the next job would list it: move it")
    check_apart(settings.source, listing.outlines, settings.target.directory)
    identity = settings.identity(listing.outlines)
    target = settings.target
    present = same_output(settings, identity, listing.outlines)
    # Hidden files belong to killed jobs, which have to be cleaned up, or to running jobs.
    is_tidy = not any(name.startswith(".") for name in storage.list_names(target.directory))
    if present is not None and is_tidy:
        return present
    storage.make_directory(target.directory)
    with contextlib.ExitStack() as stack:
        try:
            held = stack.enter_context(storage.lease(target.directory))
        except TargetExists:
            if present is not None:
                return present
            raise
        # Another job may have published here before this one got the lease.
        present, is_replaced = same_output(settings, identity, listing.outlines), False
        if present is None and not settings.overwrite and storage.exists(target.manifest):
            # Not refused: only another function may have written it.
            settings, is_replaced = dataclasses.replace(settings, overwrite=True), True
        token = identity.fingerprint or os.urandom(8).hex()
        job = _LiveJob(settings, identity, target.temporary(token[:12]))
        goes_on = present is None and job.is_resumable
        clear_leftovers(target, keep=job.directory if goes_on else None)
        if present is not None:
            return present
        _attempt(job, listing, held, progress)
        clear_leftovers(target)
        output = settings.load_output()
        # The line of the caller of `write` or `extract`, which `takes` wraps.
        warn_of(target, output, settings.layout, settings.source.notes(listing.outlines))
        if is_replaced:
            (progress or Progress(stream=sys.stdout)).say(
                f"replaced the dataset in {target.directory!r}, because the function was edited"
            )
        return output


def _check_not_empty(source: Source, listing: Listing) -> None:
    if isinstance(source, Csv | Json) and listing.outlines and not listing.bytes:
        path = listing.outlines[0].path
        raise DataError(f"{path!r} is empty: check the program that writes it")


def run_beside(settings: Settings, listing: Listing, progress: Progress | None) -> Manifest:
    """Run a job that appends rows to the dataset at its target, or goes on with that job.

    Others may read the dataset, and append to it, at the same time: the lease is held at the end
    only, by the last step. A lease of its own keeps the same job out.
    """
    preflight(settings)
    _check_not_empty(settings.source, listing)
    identity = settings.identity(listing.outlines)
    decisive = f"{settings.appends_to} {identity.fingerprint or os.urandom(8).hex()}"
    token = data_hash(decisive.encode())[:12]
    target = settings.target
    job = _LiveJob(settings, identity, target.temporary(token))
    with storage.lease(target.directory, f"{APPENDS}{token}"):
        _attempt(job, listing, None, progress)
        storage.remove_tree(job.directory)
    output, notes = settings.load_output(), settings.source.notes(listing.outlines)
    # Others may have appended since.
    mine = [one for one in output.appended if one.fingerprint == identity.fingerprint]
    if mine:
        # The line of the caller of `append`, which `takes` wraps.
        warn_of(target, output, settings.layout, notes, appended=mine[-1])
    return output


def warn_of_output(settings: JobSettings[Any]) -> None:
    """Log what a job would find at its target: the same output, or one in the way.

    Targets on an object store are not looked at, because that may ask for credentials.
    """
    if storage.is_remote(settings.target.directory) or not storage.exists(settings.target.manifest):
        return
    listing = list_input(settings.source)
    try:
        present = same_output(settings, settings.identity(listing.outlines), listing.outlines)
    except TargetExists as error:
        _LOGGER.warning("%s", error)
        return
    if present is not None:
        where = settings.target.directory
        _LOGGER.warning("%r already holds this dataset: there is nothing to do", where)


def _attempt(
    job: _LiveJob, listing: Listing, held: storage.Lease | None, progress: Progress | None
) -> None:
    """Run the pipelines of a job, and turn what ends them into an error for the user."""
    _live_jobs.append(job)
    try:
        _run(job, listing, held, progress)
    except BaseException as error:
        raised = _short_error(job, error, listing.outlines)
        _end_attempt(job, raised)
        if raised is error:
            raise
        _LOGGER.debug("the job failed", exc_info=error)
        raise raised from None
    finally:
        _live_jobs.remove(job)
        job.settings.source.release()


def _run(
    job: _LiveJob, listing: Listing, held: storage.Lease | None, progress: Progress | None
) -> None:
    settings, directory = job.settings, job.directory
    started = now_text()
    number = _begin(job, listing, progress) if job.is_resumable else 1
    storage.make_directory(directory)
    info: dict[str, Any] = {
        "started": started,
        "attempts": number,
        SETTINGS: settings.asked,
        ARGUMENTS: settings.arguments,
        **input_info(listing.outlines),
    }
    if skipped := skipped_counts(settings.source, listing.outlines):
        info["skipped_files"] = skipped
    if job.identity.without_functions:
        info[WITHOUT_FUNCTIONS] = job.identity.without_functions
    _LOGGER.debug("attempt %d works in %s", number, directory)
    launch = Launch(modules=modules_of(settings), directory=directory, progress=progress)
    with watch(directory, listing.bytes, progress), launching(launch):
        # Lazy, because both modules import Beam.
        from beam_tfrecord.jobs.compose import run_pipelines
        from beam_tfrecord.runners.pipelines import silenced

        with silenced("apache_beam"):
            run_pipelines(settings, job.identity, directory, listing, info, held)
    if (fault := recorded_fault(directory)) is not None:
        raise fault
    if launch.facts and not settings.appends_to:
        add_to_job(settings.target.path(JOB_NAME), launch.facts)


def _begin(job: _LiveJob, listing: Listing, progress: Progress | None) -> int:
    """Prepare the temporary directory of a job for another attempt, and return its number."""
    number = begin(
        job.directory,
        job.identity.fingerprint,
        listing.outlines,
        source=job.settings.source,
        of_all_rows=(job.settings.map is not None or job.settings.layout.splits.needs_counts),
    )
    remove_unmarked(job.directory)
    state = progress_of(job.directory)
    if state.tasks is not None:
        say = _LOGGER.info if progress is None else progress.say
        say(f"continues an earlier attempt: {_parts(state)} of the input done")
    return number


def now_text() -> str:
    """Return the time as ISO 8601 text, in UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat()


def _short_error(job: _LiveJob, error: BaseException, files: Sequence[InputFile]) -> BaseException:
    """Return an error with a short message for the user, or `error` itself if it is unknown."""
    if isinstance(error, KeyboardInterrupt):
        return KeyboardInterrupt(f"interrupted: {what_is_kept()}")
    if not isinstance(error, Exception):
        return error
    if job.settings.appends_to and not storage.is_directory(job.directory):
        return StorageError(
            f"another job has written {job.settings.target.output!r} anew meanwhile: nothing was "
            "appended: run the same command again"
        )
    found = recorded_fault(job.directory) or _machine_error(job, error)
    is_of_input = isinstance(found, DataError | StorageError) and not isinstance(found, LeaseLost)
    return (_changed(files) if is_of_input else None) or found or error


def _machine_error(job: _LiveJob, error: Exception) -> BeamTFRecordError | None:
    """Return the error of this package for one of the machine, such as of a full disk."""
    found = machine_error(error, job.settings.target.directory)
    if found is None or isinstance(found, DataError | UsageError | LeaseLost):
        return found
    return type(found)(f"{found.message}; {_state(job)}")


def _changed(files: Sequence[InputFile]) -> InputChanged | None:
    """Return the error for the first file that changed since it was listed; None if none did."""
    try:
        for file in files:
            file.check()
    except InputChanged as error:
        return error
    return None


def _end_attempt(job: _LiveJob, error: BaseException) -> None:
    """Stop the steps of a failed job that still run, and remove the results that are of no use."""
    is_interrupt = not isinstance(error, Exception)
    # A failure here must not hide the error that ended the job.
    if is_interrupt:
        # Threads of the pipeline go on in a notebook, until they see this.
        with contextlib.suppress(StorageError, OSError):
            stop(job.directory)
    with contextlib.suppress(StorageError, OSError):
        kept = _kept_results(job, error)
        if kept == "rejects":
            abandon(job.directory, keep=SAVED_FILE)
        elif kept == "none":
            # If this fails, the next job removes what the note of published files names.
            give_up(job.settings.target, job.directory)
    if not is_interrupt:
        forget_faults(job.directory)


def _kept_results(job: _LiveJob, error: BaseException) -> Literal["all", "rejects", "none"]:
    """Return which results of a failed job another attempt, or the user, can use."""
    if isinstance(error, LeaseLost):
        return "all"  # Another job may use this directory now.
    if isinstance(error, RejectedRows):
        return "all" if job.is_resumable else "rejects"
    # Results of files that stayed the same can be used after an edit of others. After other errors
    # of the data or the arguments, another attempt would fail in the same way.
    is_final = isinstance(error, DataError | UsageError) and not isinstance(error, InputChanged)
    return "all" if job.is_resumable and not is_final else "none"


def _state(job: _LiveJob) -> str:
    if not job.is_resumable:
        return "nothing was published: the same command starts again"
    state = progress_of(job.directory)
    if not state.done:
        return "nothing was published, and no part of the input was done yet"
    return (
        f"nothing was published; {_parts(state)} of the input done: run the same command to "
        f"continue, or delete {job.directory!r}"
    )


def _parts(state: State) -> str:
    if state.tasks is None:
        return counted(state.done, "part")
    return f"{state.done:,} of {counted(state.tasks, 'part')}"


def what_is_kept() -> str | None:
    """Return one line about the results that remain if the job in this process ends now."""
    if not _live_jobs:
        return None
    job = _live_jobs[-1]
    with contextlib.suppress(BeamTFRecordError, OSError):
        manifest = job.settings.load_output()
        if job.is_resumable and manifest.fingerprint == job.identity.fingerprint:
            return "the output is complete"
    return _state(job)


def submit(settings: Settings) -> RemoteJob | None:
    """Start a job on a remote runner, and return without waiting for its end.

    The last step of the pipeline takes the lease (lock file) of the output. A data error
    ends the job with a message that the runner shows.
    """
    _check_runner(settings)
    preflight(settings, waits=False)
    listing = list_input(settings.source)
    identity = settings.identity(listing.outlines)
    target = settings.target
    check_free(target, overwrite=settings.overwrite)
    storage.make_directory(target.directory)
    with storage.lease(target.directory):
        clear_leftovers(target)
    info = {"started": now_text(), "attempts": 1, **input_info(listing.outlines)}
    return _start(settings, identity, listing, info)


def make_template(settings: Settings) -> None:
    """Write a job as a classic template of Dataflow, which contains its graph and all settings.

    Each run of the template lists the input again, and its manifest names the files found then.
    """
    _check_runner(settings)
    preflight(settings, waits=False)
    _start(settings, Identity(), Listing(), {"started": now_text()})


def describe(settings: Settings) -> tuple[Plan, dict[str, Any]]:
    """Return the plan of a job, and as JSON values how its runner would run it.

    Nothing is started or written.
    """
    preflight(settings, waits=False)
    warn_of_output(settings)
    if settings.runs_in_steps:
        # The graph cannot be built here: it depends on what a separate pipeline finds out.
        return plan_of(settings), {}
    launch = Launch(runs=False, modules=modules_of(settings))
    with launching(launch):
        _compose(settings, Identity(), Listing(), {})
    planned = plan_of(settings)
    return planned, start.describe(settings.runner, launch, tasks=planned["tasks"])


def _check_runner(settings: Settings) -> None:
    if not traits_of(settings.runner).is_remote:
        raise UsageError(
            f"runner {settings.runner!r} stops with this process: use --runner flink or dataflow"
        )
    if settings.runs_in_steps:
        why = "--stratify or numbers of rows" if settings.transform is None else "preprocessing"
        raise UsageError(f"a job with {why} runs in steps, and has to be waited for")


def _start(
    settings: Settings, identity: Identity, listing: Listing, info: Mapping[str, Any]
) -> RemoteJob | None:
    from beam_tfrecord.runners.pipelines import silenced

    launch = Launch(waits=False, modules=modules_of(settings))
    with silenced("apache_beam"), launching(launch):
        _compose(settings, identity, listing, info)
    return launch.job


def _compose(
    settings: Settings, identity: Identity, listing: Listing, info: Mapping[str, Any]
) -> None:
    from beam_tfrecord.jobs.compose import run_pipelines

    # A random name, because another attempt at the job must not use the same directory.
    directory = settings.target.temporary(os.urandom(6).hex())
    run_pipelines(settings, identity, directory, listing, info, lease=None)
