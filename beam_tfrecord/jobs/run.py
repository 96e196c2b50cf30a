"""Runs a job from this process: locks its output, resumes earlier attempts, returns the result.

The lease is a lock file that keeps other jobs out of the output directory. All errors of a job
become one exception with a short message.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import logging
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from beam_tfrecord.base.progress import Progress
from beam_tfrecord.base.text import cell, counted, format_size, listed
from beam_tfrecord.errors import (
    BeamTFRecordError,
    DataError,
    InputChanged,
    LeaseLost,
    OutputWarning,
    RejectedRows,
    StorageError,
    TargetExists,
    UsageError,
    for_caller,
)
from beam_tfrecord.format import manifest
from beam_tfrecord.format.job_file import (
    INPUT,
    INPUT_STATE,
    JOB_NAME,
    SETTINGS,
    WITHOUT_FUNCTIONS,
    add_to_job,
    read_job,
)
from beam_tfrecord.format.rejects import SAVED_FILE
from beam_tfrecord.format.tally import duplicate_lines
from beam_tfrecord.images import refused_warning
from beam_tfrecord.jobs.identity import (
    State,
    begin,
    input_sha256,
    progress_of,
    remove_all_but,
    remove_unmarked,
    state_sha256,
)
from beam_tfrecord.jobs.remote import modules_of, preflight
from beam_tfrecord.jobs.settings import JobSettings, M
from beam_tfrecord.publish.transaction import clear_leftovers, give_up, remove_leftovers
from beam_tfrecord.runners.launch import Launch, launching
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.choose import skipped_counts
from beam_tfrecord.sources.csv.source import Csv
from beam_tfrecord.sources.files import Listing, list_input
from beam_tfrecord.sources.json import Json
from beam_tfrecord.sources.tfrecord import check_apart
from beam_tfrecord.storage import (
    Lease,
    exists,
    is_remote,
    lease,
    list_names,
    make_directory,
    read_small,
)
from beam_tfrecord.work.faults import forget_faults, machine_error, recorded_fault, stop
from beam_tfrecord.work.job import Identity, check_free
from beam_tfrecord.work.progress_files import watch

_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class _Running:
    """A job that this process is running."""

    settings: JobSettings[Any]
    identity: Identity
    directory: str

    @property
    def is_resumable(self) -> bool:
        """Whether a repeated call finds the temporary directory of this job, by its fingerprint."""
        return bool(self.identity.fingerprint)


# Read only by `what_is_kept`, which the handler of an interrupt calls.
_under_way: list[_Running] = []


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
    if isinstance(settings.source, Csv | Json) and listing.outlines and not listing.bytes:
        path = listing.outlines[0].path
        raise DataError(f"{path!r} is empty: check the program that writes it")
    paths = getattr(settings.source, "paths", None) or ()
    if any(settings.target.directory.startswith(os.path.abspath(path) + os.sep) for path in paths):
        _LOGGER.warning("the output is inside the input, and the next job would list it: move it")
    check_apart(settings.source, listing.outlines, settings.target.directory)
    identity = settings.identity(listing.outlines)
    target = settings.target
    present = _same_output(settings, identity, listing)
    # Hidden files belong to killed jobs, which have to be cleaned up, or to running jobs.
    is_tidy = not any(name.startswith(".") for name in list_names(target.directory))
    if present is not None and is_tidy:
        return present
    make_directory(target.directory)
    with contextlib.ExitStack() as stack:
        try:
            held = stack.enter_context(lease(target.directory))
        except TargetExists:
            if present is not None:
                return present
            raise
        # Another job may have published here before this one got the lease.
        present, is_replaced = _same_output(settings, identity, listing), False
        if present is None and not settings.overwrite and exists(target.manifest):
            # Not refused: only another function may have written it.
            settings, is_replaced = dataclasses.replace(settings, overwrite=True), True
        token = identity.fingerprint or os.urandom(8).hex()
        job = _Running(settings, identity, target.temporary(token[:12]))
        goes_on = present is None and job.is_resumable
        clear_leftovers(target, keep=job.directory if goes_on else None)
        if present is not None:
            return present
        _under_way.append(job)
        try:
            _attempt(job, listing, held, progress)
        finally:
            _under_way.remove(job)
        remove_leftovers(target)
        output = settings.load_output()
        for line in _remarks(settings, output, listing):
            # The line of the caller of `write` or `extract`, which `takes` wraps.
            warnings.warn(for_caller(line), OutputWarning, stacklevel=4)
        if is_replaced:
            (progress or Progress(stream=sys.stdout)).say(
                f"replaced the dataset in {target.directory!r}, because the function was edited"
            )
        return output


def warn_of_output(settings: JobSettings[Any]) -> None:
    """Log what a job would find at its target: the same output, or one in the way.

    Targets on an object store are not looked at, because that may ask for credentials.
    """
    if is_remote(settings.target.directory) or not exists(settings.target.manifest):
        return
    listing = list_input(settings.source)
    try:
        present = _same_output(settings, settings.identity(listing.outlines), listing)
    except TargetExists as error:
        _LOGGER.warning("%s", error)
        return
    if present is not None:
        where = settings.target.directory
        _LOGGER.warning("%r already holds this dataset: there is nothing to do", where)


def _same_output(settings: JobSettings[M], identity: Identity, listing: Listing) -> M | None:
    """Return the manifest at the target if this job would make the same output, else None."""
    target, known = settings.target, identity.fingerprint
    present: M | None = None
    if exists(target.manifest):
        with contextlib.suppress(BeamTFRecordError):
            present = settings.load_output()
    if present is not None and known and present.fingerprint == known:
        if not _is_edited(read_job(target.path(JOB_NAME)), listing.outlines):
            return present
        if not settings.overwrite:
            raise TargetExists(
                f"the input was edited since the dataset in {target.directory!r} was written: "
                "pass --overwrite to write it again"
            )
    may_replace = settings.overwrite
    if present is not None and identity.without_functions and not may_replace:
        before = read_job(target.path(JOB_NAME))
        is_alike = before.get(WITHOUT_FUNCTIONS) == identity.without_functions
        may_replace = is_alike and not _is_edited(before, listing.outlines)
    differences = "" if present is None else _differences(settings, identity, present)
    check_free(target, overwrite=may_replace, differences=differences)
    return None


def _differences(settings: JobSettings[M], identity: Identity, present: M) -> str:
    """Return which settings and input files differ from those of the dataset at the target."""
    if not settings.source.is_stable:
        return "the input may have changed: a database or a table of images does not show it"
    now: Mapping[str, str] = settings.asked
    # Older releases noted no settings.
    there: Mapping[str, str] = read_job(settings.target.path(JOB_NAME)).get(SETTINGS, now)
    found = [
        f"{flag}: {cell(there.get(flag, 'unset'))} there, {cell(now.get(flag, 'unset'))} now"
        for flag in dict.fromkeys([*there, *now])
        if there.get(flag) != now.get(flag)
    ]
    if isinstance(present, manifest.Manifest) and present.rules != manifest.RULES:
        found.append(
            f"writing rules: {present.rules or 'none'} there, {manifest.RULES} now (see the "
            "changelog)"
        )
    files: Mapping[str, Any] = _files_of(present.source)
    files_now: Mapping[str, Any] = _files_of(identity.source)
    names = dict.fromkeys([*files, *files_now])
    changes: dict[str, list[str]] = {}
    for name in names:
        if files.get(name) != files_now.get(name):
            both = name in files and name in files_now
            change = "edited" if both else "added" if name in files_now else "removed"
            inside = max(of.get(name, {}).get("files", 1) for of in (files, files_now))
            shown = f"some of the files from {name} on" if inside > 1 else name
            changes.setdefault(f"input {change}", []).append(shown)
    found += [f"{change}: {listed(others)}" for change, others in changes.items()]
    return f"different: {'; '.join(found)}" if found else ""


def _files_of(source: Mapping[str, Any] | None) -> dict[str, Any]:
    return {str(file.get("path")): file for file in (source or {}).get("files", ())}


def _is_edited(before: Mapping[str, Any], files: Sequence[InputFile]) -> bool:
    """Return whether the input was edited since a dataset was made, given equal names and sizes."""
    # The manifest has no times of files, because it must be equal for copies of the same files.
    if before.get(INPUT, now := input_sha256(files)) != now:
        return True
    state = before.get(INPUT_STATE)
    return state is not None and state != state_sha256(files)


def _attempt(job: _Running, listing: Listing, held: Lease, progress: Progress | None) -> None:
    settings, directory, files = job.settings, job.directory, listing.outlines
    started = now_text()
    number = 1
    try:
        if job.is_resumable:
            number = begin(
                directory,
                job.identity.fingerprint,
                files,
                source=settings.source,
                is_mapped=settings.map is not None,
            )
            remove_unmarked(directory)
            state = progress_of(directory)
            if state.groups is not None:
                say = _LOGGER.info if progress is None else progress.say
                say(f"continues an earlier attempt: {_parts(state)} of the input done")
        make_directory(directory)
        info: dict[str, Any] = {"started": started, "attempts": number, **input_info(files)}
        info[SETTINGS] = settings.asked
        if skipped := skipped_counts(settings.source, files):
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
        if launch.facts:
            add_to_job(settings.target.path(JOB_NAME), launch.facts)
    except BaseException as error:
        raised = _as_short_error(job, error)
        if isinstance(raised, DataError | StorageError) and not isinstance(raised, LeaseLost):
            raised = _changed(files) or raised
        is_interrupted = not isinstance(error, Exception)
        if is_interrupted:
            # Threads of the pipeline go on in a notebook, until they see this.
            with contextlib.suppress(StorageError, OSError):
                stop(directory)
        _keep_or_remove(job, raised)
        if not is_interrupted:
            forget_faults(directory)
        if raised is error:
            raise
        _LOGGER.debug("the job failed", exc_info=error)
        raise raised from None
    finally:
        settings.source.release()


def now_text() -> str:
    """Return the time as ISO 8601 text, in UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat()


def input_info(files: Sequence[InputFile]) -> dict[str, str | None]:
    """Return the entries of ``job.json`` that detect a changed input."""
    return {INPUT: input_sha256(files), INPUT_STATE: state_sha256(files)}


def _remarks(settings: JobSettings[M], output: M, listing: Listing) -> list[str]:
    """Return warnings about an output that was written, and about its input."""
    job = json.loads(read_small(settings.target.path(JOB_NAME)))
    lines: list[str] = list(job["remarks"])
    if names := job.get("left_out_columns"):
        columns = f"{counted(len(names), 'column')} left out"
        why = (
            "no value in any row, or not in the schema"
            if settings.has_schema
            else "no value in any row"
        )
        lines.insert(0, f"{columns} ({why}): {listed(names)}")
    if copies := job.get("copies"):
        lines += duplicate_lines(copies)
    if refused := job.get("refused_pictures"):
        lines.append(refused_warning(refused))
    return [*lines, *settings.source.notes(listing.outlines), *settings.remarks(output)]


def _as_short_error(job: _Running, error: BaseException) -> BaseException:
    """Return an error with a short message for the user, or `error` itself if unknown."""
    output = job.settings.target.directory
    if isinstance(error, KeyboardInterrupt):
        return KeyboardInterrupt(f"interrupted: {what_is_kept()}")
    if not isinstance(error, Exception):
        return error
    if (fault := recorded_fault(job.directory)) is not None:
        return fault
    machine = machine_error(error, output)
    if machine is None or isinstance(machine, DataError | UsageError | LeaseLost):
        return machine or error
    return type(machine)(f"{machine.message}; {_state(job)}")


def _changed(files: Sequence[InputFile]) -> InputChanged | None:
    """Return the error for the first file that changed since it was listed; None if none did."""
    try:
        for file in files:
            file.check()
    except InputChanged as error:
        return error
    return None


def _keep_or_remove(job: _Running, error: BaseException) -> None:
    """Remove the temporary directory of a failed job unless another attempt can use its results.

    After errors in the data or the arguments, another attempt would fail in the same way.
    """
    if isinstance(error, LeaseLost):
        return  # Another job may use this directory now.
    # Another attempt can use the results of unchanged files.
    is_changed = isinstance(error, InputChanged)
    is_over_budget = isinstance(error, RejectedRows)
    if is_over_budget and not job.is_resumable:
        remove_all_but(job.directory, SAVED_FILE)
    elif not job.is_resumable or (
        isinstance(error, DataError | UsageError) and not (is_over_budget or is_changed)
    ):
        # If this fails, a note of the files that the job began to publish remains, and the next
        # job removes them.
        with contextlib.suppress(StorageError, OSError):
            give_up(job.settings.target, job.directory)


def _state(job: _Running) -> str:
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
    if state.groups is None:
        return counted(state.done, "part")
    return f"{state.done:,} of {counted(state.groups, 'part')}"


def what_is_kept() -> str | None:
    """Return one line about the results that remain if the job in this process ends now."""
    if not _under_way:
        return None
    job = _under_way[-1]
    with contextlib.suppress(BeamTFRecordError, OSError):
        manifest = job.settings.load_output()
        if job.is_resumable and manifest.fingerprint == job.identity.fingerprint:
            return "the output is complete"
    return _state(job)
