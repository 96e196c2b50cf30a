"""Running a job: under a lease, from where an earlier attempt ended, to a dataset or one error."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic

from beam_tfrecord import rules
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
from beam_tfrecord.jobs import fingerprint
from beam_tfrecord.jobs.cleanup import clear_leftovers, give_up, remove_leftovers
from beam_tfrecord.jobs.faults import forget_faults, machine_error, machine_fault, recorded_fault
from beam_tfrecord.jobs.job_file import (
    INPUT,
    INPUT_STATE,
    INPUT_XXH64,
    JOB_NAME,
    add_to_job,
    load_job,
)
from beam_tfrecord.jobs.job_kind import Kind, M, S
from beam_tfrecord.jobs.listing import Listing, list_input
from beam_tfrecord.jobs.resume import begin, progress_of, remove_all_but, remove_unmarked
from beam_tfrecord.jobs.target import check_free
from beam_tfrecord.jobs.watching import watch
from beam_tfrecord.manifest import Manifest
from beam_tfrecord.rejects import SAVED_FILE
from beam_tfrecord.runners import preflight
from beam_tfrecord.runners.user_modules import modules_of
from beam_tfrecord.runners.waiting import Launch, launching
from beam_tfrecord.sources.base import InputFile, Source
from beam_tfrecord.storage import (
    Lease,
    exists,
    lease,
    list_names,
    make_directory,
    read_small,
)

if TYPE_CHECKING:
    from beam_tfrecord.jobs.progress import Progress
    from beam_tfrecord.jobs.settings import Settings


@dataclasses.dataclass(frozen=True)
class Running(Generic[S, M]):
    """A job that is under way in this process.

    Attributes:
        kind: Of the job.
        settings: Of the job.
        identity: What its dataset is made from.
        directory: Its temporary directory.
    """

    kind: Kind[S, M]
    settings: S
    identity: fingerprint.Identity
    directory: str

    @property
    def is_resumable(self) -> bool:
        """True where the same command finds this job's directory again."""
        return bool(self.identity.fingerprint)


_under_way: list[Running[Any, Any]] = []


def run(settings: Settings, progress: Progress | None) -> Manifest:
    """Write a dataset, unless it is there.

    Raises:
        BeamTFRecordError: It cannot be done; nothing was published.
    """
    return run_job(_WRITING, settings, progress)


def _write(
    settings: Settings,
    identity: fingerprint.Identity,
    directory: str,
    listing: Listing,
    job: Mapping[str, Any],
    held: Lease | None,
) -> None:
    import beam_tfrecord.jobs.composing as composing

    composing.run_write(settings, identity, directory, listing=listing, job=job, lease=held)


def _warn(settings: Settings, notes: Sequence[str]) -> None:
    import beam_tfrecord.jobs.composing as composing

    composing.warn_of_result(settings, notes)


_WRITING: Kind[Settings, Manifest] = Kind(Manifest.load, fingerprint.identity, _write, _warn)


def run_job(kind: Kind[S, M], settings: S, progress: Progress | None) -> M:
    """Make the output of a job, unless it is there.

    Raises:
        BeamTFRecordError: It cannot be done; nothing was published.
    """
    preflight(settings)
    listing = list_input(settings.source)
    files = listing.outlines
    identity = kind.identity(settings, files)
    target = settings.target
    present = _same_output(kind, settings, identity, listing)
    # A job that was killed leaves hidden files; another one that is at work has some too.
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
        # Another job may have published here since the first look.
        present = _same_output(kind, settings, identity, listing)
        token = identity.fingerprint or os.urandom(8).hex()
        job = Running(kind, settings, identity, target.temporary(token[:12]))
        is_going_on = present is None and job.is_resumable
        clear_leftovers(target, keep=job.directory if is_going_on else None)
        if present is not None:
            return present
        with _noticed(job):
            manifest = _attempt(job, listing, held, progress)
        remove_leftovers(target)
        return manifest


def _same_output(
    kind: Kind[S, M], settings: S, identity: fingerprint.Identity, listing: Listing
) -> M | None:
    """Return the manifest at the target where it is that of this very job.

    Raises:
        TargetExists: Another dataset is there, and it is not to be overwritten.
    """
    target, known = settings.target, identity.fingerprint
    present = None
    if exists(target.manifest):
        with contextlib.suppress(BeamTFRecordError):
            present = kind.load(target.manifest)
    if present is not None and known and present.fingerprint == known:
        if not _is_edited(target.path(JOB_NAME), settings.source, listing):
            return present
        if not settings.overwrite:
            raise TargetExists(
                f"the input was edited since the dataset in {target.directory!r} was written: "
                "pass --overwrite to write it anew"
            )
    if present is not None and present.fingerprint in identity.older and not settings.overwrite:
        changes = rules.RULES[identity.older.index(present.fingerprint) :]
        raise TargetExists(
            f"the dataset in {target.directory!r} was written by older rules. Changed since then: "
            f"{'; '.join(changes)}. Pass --overwrite to write it anew"
        )
    check_free(target, overwrite=settings.overwrite)
    return None


def _is_edited(job_path: str, source: Source, listing: Listing) -> bool:
    """Tell whether files of the same names and sizes are not those a dataset was made from."""
    # The manifest cannot tell: it is the same wherever the same files lie.
    try:
        before = load_job(read_small(job_path).decode())
    except (FileNotFoundError, DataError, UnicodeDecodeError):
        return False
    files = listing.outlines
    if before.get(INPUT, now := fingerprint.input_sha256(files)) != now:
        return True
    state = before.get(INPUT_STATE)
    if state is None or state == fingerprint.state_sha256(files):
        return False
    noted = before.get(INPUT_XXH64)
    if noted is None:
        return True
    # A copy or a chmod changes the state of a file too: its bytes tell them from an edit.
    try:
        return bool(noted != fingerprint.content_xxh64(source, listing.bytes))
    except (DataError, OSError, EOFError):
        return True


@contextlib.contextmanager
def _noticed(job: Running[S, M]) -> Iterator[None]:
    _under_way.append(job)
    try:
        yield
    finally:
        _under_way.remove(job)


def _attempt(job: Running[S, M], listing: Listing, held: Lease, progress: Progress | None) -> M:
    settings, directory, files = job.settings, job.directory, listing.outlines
    started = datetime.datetime.now(datetime.timezone.utc).isoformat()
    number = 1
    try:
        if job.is_resumable:
            known, is_mapped = job.identity.fingerprint, settings.is_mapped
            number = begin(directory, known, files, source=settings.source, is_mapped=is_mapped)
            remove_unmarked(directory)
        make_directory(directory)
        told = {
            "started": started,
            "attempts": number,
            INPUT: fingerprint.input_sha256(files),
            INPUT_STATE: fingerprint.state_sha256(files),
        }
        # A fault is told in one line; Beam would print its traces of it before.
        logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
        launch = Launch(modules=modules_of(settings), directory=directory)
        with watch(directory, listing.bytes, progress), launching(launch):
            job.kind.compose(settings, job.identity, directory, listing, told, held)
        if (fault := recorded_fault(directory)) is not None:
            raise fault
        if launch.told:
            add_to_job(settings.target.path(JOB_NAME), launch.told)
    except BaseException as error:
        raised = _as_one_line(job, error)
        if isinstance(raised, DataError | StorageError) and not isinstance(raised, LeaseLost):
            raised = _changed(files) or raised
        _keep_or_remove(job, raised)
        if raised is error:
            raise
        raise raised from error
    finally:
        settings.source.release()
        forget_faults(directory)
    job.kind.warn(settings, settings.source.notes(files))
    return job.kind.load(settings.target.manifest)


def _as_one_line(job: Running[S, M], error: BaseException) -> BaseException:
    """Return what a user is told of an error; itself where nobody meant it."""
    output = job.settings.target.directory
    if not isinstance(error, Exception):
        return error
    if (fault := recorded_fault(job.directory)) is not None:
        return fault
    machine = machine_fault(job.directory, output) or machine_error(error, output)
    if machine is None or isinstance(machine, DataError | UsageError | LeaseLost):
        return machine or error
    return type(machine)(f"{machine}; {_kept(job)}")


def _changed(files: Sequence[InputFile]) -> InputChanged | None:
    """Return the error for a file that is no longer what was listed: it may look damaged."""
    try:
        for file in files:
            file.check()
    except InputChanged as error:
        return error
    return None


def _keep_or_remove(job: Running[S, M], error: BaseException) -> None:
    """Keep what another attempt can use; a fault of data or call would only come again."""
    if isinstance(error, LeaseLost):
        return  # The directory may be that of the job that goes on.
    # What is done of files that were not changed is of use to another attempt.
    is_changed = isinstance(error, InputChanged)
    is_over_budget = isinstance(error, RejectedRows)
    if is_over_budget and not job.is_resumable:
        remove_all_but(job.directory, SAVED_FILE)
    elif not job.is_resumable or (
        isinstance(error, DataError | UsageError) and not (is_over_budget or is_changed)
    ):
        # What it had begun to publish goes by its note, which stays where that is not possible.
        with contextlib.suppress(StorageError, OSError):
            give_up(job.settings.target, job.directory)


def _kept(job: Running[S, M]) -> str:
    if not job.is_resumable:
        return "nothing was published and nothing is kept"
    state = progress_of(job.directory)
    if not state.done:
        return "nothing was published, and no part of the input was done yet"
    of_all = "" if state.groups is None else f" of {state.groups:,}"
    return (
        f"nothing was published; {state.done:,}{of_all} parts of the input are done and kept: "
        "the same command goes on from there"
    )


def what_is_kept() -> str | None:
    """Return what a job that is under way in this process leaves if it ends now, in one line.

    Returns:
        None where there is no such job.
    """
    if not _under_way:
        return None
    job = _under_way[-1]
    with contextlib.suppress(BeamTFRecordError, OSError):
        manifest = job.kind.load(job.settings.target.manifest)
        if job.is_resumable and manifest.fingerprint == job.identity.fingerprint:
            return "the output is complete"
    return _kept(job)
