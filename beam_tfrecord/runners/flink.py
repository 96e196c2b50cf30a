"""Runs jobs on an Apache Flink cluster: default options, submission, waiting, and cancelling.

Jobs are submitted through Beam's job server. A cluster has hosts with TaskManagers, each with slots
for tasks. Workers are processes, not containers: the program `boot` starts as many as there are
slots, with this package and the user's modules as wheels. Jobs use no checkpoints of Flink; a job
is resumed from the files that it has written itself.
"""

from __future__ import annotations

import collections
import contextlib
import json
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.metrics.metric import MetricsFilter
from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    GoogleCloudOptions,
    JobServerOptions,
    PipelineOptions,
    PortableOptions,
)
from apache_beam.runners.runner import PipelineResult, PipelineState

from beam_tfrecord.errors import JobFailed, StorageError, UsageError
from beam_tfrecord.runners import boot, flink_cluster, new_job_name
from beam_tfrecord.runners.failures import error_of, start_fault
from beam_tfrecord.runners.launch_settings import Launch, RemoteJob, current_launch, say_start
from beam_tfrecord.runners.pipelines import RemoteResult
from beam_tfrecord.runners.wheels import stage_wheels
from beam_tfrecord.storage import exists, is_remote, put, read_bytes, remove

# File in the temporary directory of a job: the Flink cluster and the name of the job there.
_NOTE = "flink-job"
_LOOK_S = 0.5
_FAULTS_LOOK_S = 2.0
# The job server may submit a job to Flink up to this many seconds after it was asked to.
_MAY_COME_S = 20.0
# How long a worker without work stays alive. A start takes seconds, and steps wait for each other's
# workers. But if Flink restarts a job before that time is over, it gets workers that have died: so
# it is less than the delay of restarts that `docs/flink.md` asks for.
_CACHE_MS = 10_000
_LOGGER = logging.getLogger(__name__)


class FlinkOptions(PipelineOptions):
    """The pipeline option ``--worker_command`` of Flink jobs, which Beam does not have."""

    @classmethod
    def _add_argparse_args(cls, parser: Any) -> None:
        parser.add_argument(
            "--worker_command", help="Path of beam-tfrecord-boot on the hosts of TaskManagers."
        )


def presets(options: Sequence[str], *, is_small: bool) -> list[str]:
    """Return the default options for a job on the user's cluster.

    If an earlier attempt at the same job still runs, this function ends it first, to free its
    slots.
    """
    given = PipelineOptions(list(options)).view_as(FlinkRunnerOptions)
    _end_former(current_launch().directory)
    capacity = flink_cluster.wait_for_capacity(flink_cluster.cluster_of(given.flink_master))
    return [
        # Else Beam would ask pip for all installed packages, to log them.
        "--experiments=disable_logging_submission_environment",
        f"--environment_cache_millis={_CACHE_MS}",
        f"--sdk_worker_parallelism={1 if is_small else capacity.slots_each}",
        # A step that needs more slots than there are would wait for ever.
        f"--parallelism={1 if is_small else capacity.free_slots}",
        f"--job_name={new_job_name()}",
    ]


def check(options: Sequence[str], leftovers: Sequence[str]) -> None:
    """Check that a job can be submitted, before anything is read or written."""
    parsed = PipelineOptions(list(options))
    flink, portable = parsed.view_as(FlinkRunnerOptions), parsed.view_as(PortableOptions)
    cluster = flink_cluster.cluster_of(flink.flink_master)
    # An earlier attempt that still runs may have all slots; `presets` ends it later.
    is_running = any(exists(os.path.join(directory, _NOTE)) for directory in leftovers)
    capacity = flink_cluster.wait_for_capacity(cluster, needs_slot=not is_running)
    flink_cluster.check_job_server(
        portable.job_endpoint, flink.flink_job_server_jar, capacity.version
    )
    if _uses_boot(portable):
        flink_cluster.boot_command(parsed.view_as(FlinkOptions).worker_command)


def _uses_boot(portable: Any) -> bool:
    """Return whether the program `boot` starts workers, since the user sets no environment."""
    return portable.environment_type in (None, "PROCESS") and not portable.environment_config


def start(pipeline: beam.Pipeline, run: Callable[[], PipelineResult]) -> PipelineResult:
    """Submit a pipeline to the user's job server, or to a new one."""
    say_start("submitting the job to flink")
    launch, options = current_launch(), pipeline.options
    flink, portable = options.view_as(FlinkRunnerOptions), options.view_as(PortableOptions)
    cluster = flink_cluster.cluster_of(flink.flink_master)
    flink.flink_master = cluster.address
    version = str(cluster.overview()["flink-version"])
    expected = boot.expectation(_write_probe(launch.directory), launch.directory)
    if _uses_boot(portable):
        command = flink_cluster.boot_command(options.view_as(FlinkOptions).worker_command)
        environment = {"command": command, "env": {boot.EXPECT: json.dumps(expected)}}
        portable.environment_type = "PROCESS"
        portable.environment_config = json.dumps(environment)
    stage_wheels(options, launch.modules)
    with contextlib.ExitStack() as stack:
        if not portable.job_endpoint:
            jar = flink.flink_job_server_jar
            flink_cluster.check_job_server(None, jar, version)
            artifacts = options.view_as(JobServerOptions).artifacts_dir
            if artifacts is None and launch.directory and not is_remote(launch.directory):
                artifacts = os.path.join(launch.directory, "artifacts")
            portable.job_endpoint = stack.enter_context(
                flink_cluster.job_server(str(jar), cluster, artifacts)
            )
        name = str(options.view_as(GoogleCloudOptions).job_name)
        result = _submit(run, name)
        job = RemoteJob("flink", name, cluster.page, lambda: cancel(cluster, name, result))
        launch.job = job
        facts = {"version": version, "master": cluster.address, "job": name}
        launch.facts.setdefault("flink", {}).update(facts)
        if launch.directory:
            note = {"master": cluster.address, "job": name}
            put(os.path.join(launch.directory, _NOTE), json.dumps(note).encode())
        return FlinkResult(result, job, launch, stack.pop_all(), cluster, expected)


def _write_probe(directory: str) -> str | None:
    """Write a file that all workers must see, and return its path.

    Also remove the report of an earlier attempt about code that workers could not load.
    """
    if not directory:
        return None
    with contextlib.suppress(FileNotFoundError):
        remove(os.path.join(directory, boot.UNLOADABLE))
    if is_remote(directory):
        return None
    path = os.path.join(directory, f"probe-{uuid.uuid4().hex}")
    put(path, b"")
    return path


def _submit(run: Callable[[], PipelineResult], name: str) -> PipelineResult:
    import grpc

    try:
        return run()
    except (grpc.RpcError, grpc.FutureTimeoutError) as error:
        reason = str(error.details()) if hasattr(error, "details") else "no answer"
        raise UsageError(
            f"the job server did not take job {name!r} ({reason.splitlines()[0]}): see its log"
        ) from error


def _end_former(directory: str) -> None:
    """End the job of an earlier launcher that was killed, since it would write the same files."""
    path = os.path.join(directory, _NOTE)
    if not directory or not exists(path):
        return
    note = json.loads(read_bytes(path))
    former = flink_cluster.Cluster(note["master"])
    with contextlib.suppress(flink_cluster.NoAnswer):
        job = former.find_job(note["job"])
        if job is None or job["state"] in flink_cluster.ENDED:
            return
        if not _end_job(former, note["job"]):
            raise UsageError(
                f"an earlier attempt goes on as flink job {job['jid']}, and cannot be cancelled: "
                f"end it on {former.page}"
            )


def cancel(cluster: flink_cluster.Cluster, name: str, result: Any) -> None:
    """End a job, even if Flink does not know the job yet, and wait until it has ended."""
    # The job server may be slow to answer, and Flink ends the job without it.
    threading.Thread(target=_cancel_in_server, args=(result,), daemon=True).start()
    if not _end_job(cluster, name):
        raise TimeoutError("it has not ended yet")


def _cancel_in_server(result: Any) -> None:
    with contextlib.suppress(Exception):
        result.cancel()


def _end_job(cluster: flink_cluster.Cluster, name: str) -> bool:
    """Cancel a job as soon as Flink knows it; return True if it has ended or never appeared."""
    until_s = time.monotonic() + _MAY_COME_S
    while True:
        is_last = time.monotonic() >= until_s
        try:
            job = cluster.find_job(name)
            if job is not None and job["state"] in flink_cluster.ENDED:
                return True
            if job is not None and job["state"] != "CANCELLING":
                cluster.cancel_job(job["jid"])
        except flink_cluster.NoAnswer:
            # A busy cluster may miss a request.
            if is_last:
                raise
        else:
            if is_last:
                return job is None
        time.sleep(_LOOK_S)


class FlinkResult(RemoteResult):
    """The result of a job on Flink, which ends the job early if its workers cannot start."""

    logger = ""
    longest_look_s = 0.5

    def __init__(
        self,
        result: Any,
        job: RemoteJob,
        launch: Launch,
        resources: contextlib.ExitStack,
        cluster: flink_cluster.Cluster,
        expected: Mapping[str, str],
    ) -> None:
        super().__init__(result, job, launch, resources)
        self._cluster = cluster
        self._expected = expected
        self._checked_s = time.monotonic()

    def _check_workers(self) -> None:
        """End the job, and raise, if its workers cannot start or cannot load its code.

        Flink would try again for minutes.
        """
        if time.monotonic() - self._checked_s < _FAULTS_LOOK_S:
            return
        self._checked_s = time.monotonic()
        fault = self._reported_fault()
        with contextlib.suppress(flink_cluster.NoAnswer):
            fault = fault or start_fault(self._traces(), self._expected)
        if fault is not None:
            with contextlib.suppress(TimeoutError, flink_cluster.NoAnswer):
                self._remote.cancel()
            raise UsageError(fault)

    def _reported_fault(self) -> str | None:
        """Return a worker's report of code that it cannot load (see `boot_worker`), or None."""
        path = os.path.join(self._launch.directory, boot.UNLOADABLE)
        with contextlib.suppress(StorageError):
            if self._launch.directory and exists(path):
                return read_bytes(path).decode()
        return None

    def _traces(self) -> list[str]:
        job = self._cluster.find_job(self._remote.id)
        return [] if job is None else self._cluster.job_faults(job["jid"])

    def _failure(self, state: str) -> JobFailed | UsageError:
        if state == PipelineState.CANCELLED:
            return JobFailed(f"{self._remote} was cancelled")
        try:
            self._result.wait_until_finish()
            text = ""
        except Exception as error:
            text = str(error)
        traces: list[str] = []
        with contextlib.suppress(flink_cluster.NoAnswer):
            job = self._cluster.find_job(self._remote.id)
            if job is not None and job["state"] == "CANCELED":
                return JobFailed(f"{self._remote} was cancelled")
            traces = self._traces()
        if fault := self._reported_fault() or start_fault([*traces, text], self._expected):
            return UsageError(fault)
        reason = text.partition("failed in state FAILED:")[2] or text or "".join(traces[:1])
        return JobFailed(f"{self._remote} failed: {error_of(reason) or 'it does not say why'}")

    def _note_facts(self) -> None:
        """Add id, seconds, restarts and counters of the job to `Launch.facts`, for ``job.json``."""
        facts = self._launch.facts.setdefault("flink", {})
        with contextlib.suppress(flink_cluster.NoAnswer):
            job = self._cluster.find_job(self._remote.id)
            if job is not None:
                # A job that has succeeded was restarted after each failure. Flink's own metric of
                # restarts is ten seconds late, and is gone after the job.
                restarts = len(self._cluster.job_faults(job["jid"]))
                # Types may have been found by a job before.
                restarts += facts.get("restarts", 0)
                facts |= {"id": job["jid"], "seconds": job["duration"] / 1000, "restarts": restarts}
        with contextlib.suppress(Exception):
            self._launch.facts["metrics"] = counters(self._result)

    def _await_submission(self) -> None:
        """Wait until Flink has the job, which before needs the job server of this process."""
        until_s = time.monotonic() + 3 * _MAY_COME_S
        while time.monotonic() < until_s:
            if PipelineState.is_terminal(self._result.state):
                raise self._failure(self._result.state)
            with contextlib.suppress(flink_cluster.NoAnswer):
                if self._cluster.find_job(self._remote.id) is not None:
                    return
            time.sleep(_LOOK_S)


def counters(result: Any) -> dict[str, int]:
    """Return the values of this package's counters in a job, by name."""
    found: collections.Counter[str] = collections.Counter()
    for one in result.metrics().query(MetricsFilter())["counters"]:
        if one.key.metric.namespace.startswith("beam_tfrecord"):
            found[one.key.metric.name] += int(one.result or 0)
    return dict(sorted(found.items()))
