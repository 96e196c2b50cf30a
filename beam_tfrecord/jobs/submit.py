"""Starts jobs without waiting for them, writes them as templates, and describes dry runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from beam_tfrecord import runners
from beam_tfrecord.errors import UsageError
from beam_tfrecord.jobs.remote import modules_of, preflight
from beam_tfrecord.jobs.run import input_info, now_text, warn_of_output
from beam_tfrecord.jobs.settings import Settings
from beam_tfrecord.publish.transaction import clear_leftovers
from beam_tfrecord.runners import traits_of
from beam_tfrecord.runners.launch import Launch, RemoteJob, launching
from beam_tfrecord.sources.files import Listing, list_input
from beam_tfrecord.storage import lease, make_directory
from beam_tfrecord.work.job import Identity, check_free


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
    make_directory(target.directory)
    with lease(target.directory):
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


def describe(settings: Settings) -> dict[str, Any]:
    """Return the plan of a job, and how its runner would run it, as JSON values.

    Nothing is started or written.
    """
    from beam_tfrecord.jobs.plan import plan_of

    preflight(settings, waits=False)
    warn_of_output(settings)
    if settings.transform is not None:
        # The graph cannot be built here: it depends on types that a separate pipeline infers.
        return plan_of(settings)
    launch = Launch(runs=False, modules=modules_of(settings))
    with launching(launch):
        _compose(settings, Identity(), Listing(), {})
    planned = plan_of(settings)
    return {**planned, **runners.describe(settings.runner, launch, groups=planned["groups"])}


def _check_runner(settings: Settings) -> None:
    if not traits_of(settings.runner).is_remote:
        raise UsageError(
            f"runner {settings.runner!r} ends with this process, so that a job cannot be left to it"
        )
    if settings.transform is not None:
        raise UsageError("a job with preprocessing runs in steps, and has to be waited for")


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
