"""Flink: jobs are handed to Beam's job server with presets that work, and watched until their end.

No container, no checkpoints: workers are processes that `boot` starts, as many as there are slots,
with this package and the user's modules as wheels; what is done is kept by the job's own files.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import secrets
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import apache_beam as beam
from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    GoogleCloudOptions,
    JobServerOptions,
    PipelineOptions,
    PortableOptions,
    SetupOptions,
)
from apache_beam.runners.runner import PipelineResult

from beam_tfrecord.errors import UsageError
from beam_tfrecord.runners import boot_checks, flink_checks, flink_tries
from beam_tfrecord.runners.flink_job import WatchedJob, cancel, wait_for_end
from beam_tfrecord.runners.flink_rest import ENDED, Cluster, NoAnswer
from beam_tfrecord.runners.job_server import job_server
from beam_tfrecord.runners.portable import has_option
from beam_tfrecord.runners.waiting import RemoteJob, current_launch
from beam_tfrecord.runners.wheels import staged_wheels
from beam_tfrecord.storage import exists, is_remote, put, read_bytes

if TYPE_CHECKING:
    from beam_tfrecord.jobs.settings import JobSettings

# In the temporary directory of a job: which job of Flink is at work there.
_NOTE = "flink-job"


class FlinkOptions(PipelineOptions):
    """What Beam has no option for."""

    @classmethod
    def _add_argparse_args(cls, parser: Any) -> None:
        parser.add_argument(
            "--worker_command",
            help="Path of beam-tfrecord-boot on the hosts of TaskManagers.",
        )


def presets(options: Sequence[str], *, is_small: bool) -> list[str]:
    """Return Beam's options for a job.

    Args:
        options: The user's own.
        is_small: There is too little to do to be worth the start of several workers.

    Raises:
        UsageError: The cluster cannot be asked, or has no room.
    """
    given = PipelineOptions(list(options)).view_as(FlinkRunnerOptions)
    _end_former(current_launch().directory)
    room = flink_checks.room_of(flink_checks.cluster_of(given.flink_master))
    words = [
        # Beam would ask pip for all that is installed here, to be logged.
        "--experiments=disable_logging_submission_environment",
        f"--environment_cache_millis={flink_tries.cache_ms(room)}",
        f"--sdk_worker_parallelism={1 if is_small else room.slots_each}",
    ]
    # A step waits for slots in vain if it wants more than there are.
    if not has_option(options, "--parallelism"):
        words.append(f"--parallelism={1 if is_small else room.free_slots}")
    if not has_option(options, "--job_name"):
        now = datetime.datetime.now(datetime.timezone.utc)
        words.append(f"--job_name=beam-tfrecord-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}")
    return words


def check(settings: JobSettings[Any]) -> None:
    """Make sure that a job can be handed over, before anything is read or written.

    Raises:
        UsageError: It cannot.
    """
    options = PipelineOptions(list(settings.pipeline_options))
    flink = options.view_as(FlinkRunnerOptions)
    portable = options.view_as(PortableOptions)
    cluster = flink_checks.cluster_of(flink.flink_master)
    # A former attempt that still runs has its slots until this one ends it, under the lease.
    is_taken = any(exists(os.path.join(at, _NOTE)) for at in settings.target.leftovers())
    room = flink_checks.room_of(cluster, needs_slot=not is_taken)
    flink_tries.warn_of_tries(settings.pipeline_options, room)
    flink_checks.check_job_server(portable.job_endpoint, flink.flink_job_server_jar, room.version)
    if portable.environment_type in (None, "PROCESS") and not portable.environment_config:
        command = flink_checks.boot_command(options.view_as(FlinkOptions).worker_command)
        flink_checks.check_boot(command, cluster, boot_checks.expectation(None))


def start(pipeline: beam.Pipeline, run: Callable[[], PipelineResult]) -> PipelineResult:
    """Hand a pipeline over to the job server.

    Args:
        pipeline: What to run.
        run: Beam's own way.

    Raises:
        UsageError: The job server does not start.
    """
    launch, options = current_launch(), pipeline.options
    flink = options.view_as(FlinkRunnerOptions)
    cluster = flink_checks.cluster_of(flink.flink_master)
    flink.flink_master = cluster.address
    expected = boot_checks.expectation(_write_probe(launch.directory), launch.directory)
    _set_environment(options, expected)
    _stage(options, launch.modules)
    with contextlib.ExitStack() as stack:
        portable = options.view_as(PortableOptions)
        if not portable.job_endpoint:
            artifacts = options.view_as(JobServerOptions).artifacts_dir
            if artifacts is None and launch.directory and not is_remote(launch.directory):
                artifacts = os.path.join(launch.directory, "artifacts")
            portable.job_endpoint = stack.enter_context(
                job_server(str(flink.flink_job_server_jar), cluster.address, artifacts)
            )
        name = str(options.view_as(GoogleCloudOptions).job_name)
        result = _submit(run, name)
        job = RemoteJob("flink", name, name, cluster.page, lambda: cancel(cluster, name, result))
        launch.job = job
        if launch.directory:
            note = {"master": cluster.address, "job": name}
            put(os.path.join(launch.directory, _NOTE), json.dumps(note).encode())
        launch.told["flink"] = {
            "version": cluster.overview()["flink-version"],
            "master": cluster.address,
            "job": name,
        }
        return WatchedJob(result, job, launch, cluster, expected, stack.pop_all())


def _end_former(directory: str) -> None:
    """End the job of a launcher that was killed: it would go on to write the same files."""
    path = os.path.join(directory, _NOTE)
    if not directory or not exists(path):
        return
    note = json.loads(read_bytes(path))
    former = Cluster(note["master"])
    with contextlib.suppress(NoAnswer):
        job = former.find_job(note["job"])
        if job is None or job.state in ENDED:
            return
        former.cancel_job(job.id)
        if not wait_for_end(former, note["job"]):
            raise UsageError(
                f"an earlier attempt goes on as flink job {job.id}, and cannot be cancelled: end "
                f"it on {former.page}"
            )


def _submit(run: Callable[[], PipelineResult], name: str) -> PipelineResult:
    import grpc

    try:
        return run()
    except (grpc.RpcError, grpc.FutureTimeoutError) as error:
        said = str(error.details()) if hasattr(error, "details") else "no answer"
        raise UsageError(
            f"the job server did not take job {name!r} ({said.splitlines()[0]}): see its log"
        ) from error


def _set_environment(options: PipelineOptions, expected: dict[str, str]) -> None:
    """Have workers started by our own program, unless the user has another way."""
    portable = options.view_as(PortableOptions)
    if portable.environment_type not in (None, "PROCESS") or portable.environment_config:
        return
    command = flink_checks.boot_command(options.view_as(FlinkOptions).worker_command)
    told = {"command": command, "env": {boot_checks.EXPECT: json.dumps(expected)}}
    portable.environment_type = "PROCESS"
    portable.environment_config = json.dumps(told)


def _stage(options: PipelineOptions, modules: Sequence[str]) -> None:
    setup = options.view_as(SetupOptions)
    wheels = [*(setup.extra_packages or ()), *staged_wheels(options, modules)]
    setup.extra_packages = list(dict.fromkeys(wheels))


def _write_probe(directory: str) -> str | None:
    """Leave a file that all workers must see; return its path, or None on an object store."""
    if not directory or is_remote(directory):
        return None
    path = os.path.join(directory, f"probe-{uuid.uuid4().hex}")
    put(path, b"")
    return path
