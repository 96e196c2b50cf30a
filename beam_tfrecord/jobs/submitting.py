"""Jobs that nobody waits for: left to their runner, written as a template, or only described."""

from __future__ import annotations

import datetime
import logging
import os
from typing import TYPE_CHECKING, Any

from beam_tfrecord.errors import UsageError
from beam_tfrecord.jobs import fingerprint
from beam_tfrecord.jobs.cleanup import clear_leftovers
from beam_tfrecord.jobs.job_file import INPUT, INPUT_STATE
from beam_tfrecord.jobs.listing import Listing, list_input
from beam_tfrecord.jobs.publish import Identity
from beam_tfrecord.jobs.target import check_free
from beam_tfrecord.runners import describe_job, is_remote_runner, preflight
from beam_tfrecord.runners.user_modules import modules_of
from beam_tfrecord.runners.waiting import Launch, RemoteJob, launching
from beam_tfrecord.storage import lease, make_directory

if TYPE_CHECKING:
    from beam_tfrecord.jobs.settings import Settings


def submit(settings: Settings) -> RemoteJob | None:
    """Start a job on its runner and leave it there.

    Its last step holds the lease of the output by itself, and a fault of the data ends the job
    with an error that its runner shows.

    Returns:
        The job; None where the runner was handed a description that it starts later.

    Raises:
        UsageError: The runner is none that goes on by itself, or a dataset is in the way.
        JobFailed: The job could not be handed over.
    """
    _check_runner(settings)
    preflight(settings, waits=False)
    listing = list_input(settings.source)
    identity = fingerprint.identity(settings, listing.outlines)
    target = settings.target
    check_free(target, overwrite=settings.overwrite)
    make_directory(target.directory)
    with lease(target.directory):
        clear_leftovers(target)
    told = {
        "attempts": 1,
        INPUT: fingerprint.input_sha256(listing.outlines),
        INPUT_STATE: fingerprint.state_sha256(listing.outlines),
    }
    return _start(settings, identity, listing, told)


def make_template(settings: Settings) -> None:
    """Write a job as a classic template, which holds its graph and all its settings.

    Each run of the template lists the input anew, so that nothing of what is there now goes into
    the dataset's manifest.

    Raises:
        UsageError: The runner has no templates, or refuses the job.
    """
    _check_runner(settings)
    preflight(settings, waits=False)
    _start(settings, Identity(), Listing(), {})


def describe(settings: Settings) -> dict[str, Any]:
    """Return what a job would do, and how its runner would run it, as JSON values; do nothing.

    Raises:
        UsageError: The runner would refuse the job.
    """
    from beam_tfrecord.jobs.planning import plan_of

    preflight(settings, waits=False)
    if settings.transform is not None:
        # Its graph depends on types that only a pipeline of its own finds.
        return plan_of(settings)
    launch = Launch(runs=False, modules=modules_of(settings))
    with launching(launch):
        _compose(settings, Identity(), Listing(), {})
    return describe_job(settings, launch)


def _check_runner(settings: Settings) -> None:
    if not is_remote_runner(settings.runner):
        raise UsageError(
            f"runner {settings.runner!r} ends with this process, so that a job cannot be left to it"
        )
    if settings.transform is not None:
        raise UsageError("a job with preprocessing runs in steps, and has to be waited for")


def _start(
    settings: Settings, identity: Identity, listing: Listing, told: dict[str, Any]
) -> RemoteJob | None:
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    launch = Launch(waits=False, modules=modules_of(settings))
    started = datetime.datetime.now(datetime.timezone.utc).isoformat()
    with launching(launch):
        _compose(settings, identity, listing, {"started": started, **told})
    return launch.job


def _compose(
    settings: Settings, identity: Identity, listing: Listing, told: dict[str, Any]
) -> None:
    from beam_tfrecord.jobs.composing import run_write

    # Nobody comes back to this directory: a job that is tried again gets another.
    directory = settings.target.temporary(os.urandom(6).hex())
    run_write(settings, identity, directory, listing=listing, job=told, lease=None)
