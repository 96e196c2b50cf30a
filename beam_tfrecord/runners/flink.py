"""Flink: jobs are handed to Beam's job server with presets that work, and watched until their end.

No container, no checkpoints: workers are processes that `boot` starts, as many as there are slots,
with this package and the user's modules as wheels; what is done is kept by the job's own files.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import os
import re
import secrets
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import apache_beam as beam
from apache_beam.metrics.metric import MetricsFilter
from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    GoogleCloudOptions,
    JobServerOptions,
    PipelineOptions,
    PortableOptions,
    SetupOptions,
)
from apache_beam.runners.runner import PipelineResult, PipelineState

from beam_tfrecord.errors import BeamTFRecordError, JobFailed, StorageError, UsageError
from beam_tfrecord.jobs.faults import recorded_fault
from beam_tfrecord.runners import boot, flink_cluster
from beam_tfrecord.runners.boot_worker import UNLOADABLE, unloadable_line
from beam_tfrecord.runners.failures import error_of, start_fault
from beam_tfrecord.runners.flink_cluster import ENDED, Cluster, NoAnswer, Room, job_server
from beam_tfrecord.runners.launch import Launch, RemoteJob, cancelled_with_us, current_launch
from beam_tfrecord.runners.portable import has_option
from beam_tfrecord.runners.wheels import staged_wheels
from beam_tfrecord.storage import exists, is_remote, put, read_bytes

if TYPE_CHECKING:
    from beam_tfrecord.jobs.job_kind import JobSettings

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
    room = flink_cluster.room_of(flink_cluster.cluster_of(given.flink_master))
    words = [
        # Beam would ask pip for all that is installed here, to be logged.
        "--experiments=disable_logging_submission_environment",
        f"--environment_cache_millis={cache_ms(room)}",
        f"--sdk_worker_parallelism={1 if is_small else room.slots_each}",
    ]
    # A step waits for slots in vain if it wants more than there are.
    if not has_option(options, "--parallelism"):
        words.append(f"--parallelism={1 if is_small else room.free_slots}")
    if not has_option(options, "--job_name"):
        now = datetime.datetime.now(datetime.timezone.utc)
        words.append(f"--job_name=beam-tfrecord-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}")
    return words


def check(settings: JobSettings) -> None:
    """Make sure that a job can be handed over, before anything is read or written.

    Raises:
        UsageError: It cannot.
    """
    options = PipelineOptions(list(settings.pipeline_options))
    flink = options.view_as(FlinkRunnerOptions)
    portable = options.view_as(PortableOptions)
    cluster = flink_cluster.cluster_of(flink.flink_master)
    # A former attempt that still runs has its slots until this one ends it, under the lease.
    is_taken = any(exists(os.path.join(at, _NOTE)) for at in settings.target.leftovers())
    room = flink_cluster.room_of(cluster, needs_slot=not is_taken)
    warn_of_tries(settings.pipeline_options, room)
    flink_cluster.check_job_server(portable.job_endpoint, flink.flink_job_server_jar, room.version)
    if portable.environment_type in (None, "PROCESS") and not portable.environment_config:
        command = flink_cluster.boot_command(options.view_as(FlinkOptions).worker_command)
        flink_cluster.check_boot(command, cluster, boot.expectation(None))


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
    cluster = flink_cluster.cluster_of(flink.flink_master)
    flink.flink_master = cluster.address
    expected = boot.expectation(_write_probe(launch.directory), launch.directory)
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
    command = flink_cluster.boot_command(options.view_as(FlinkOptions).worker_command)
    told = {"command": command, "env": {boot.EXPECT: json.dumps(expected)}}
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


_CACHE = "--environment_cache_millis"
# Within this after a fault all tasks of a job have ended, on all hosts.
_CLOSING_MS = 2_000
_LEAST_CACHE_MS, _USUAL_CACHE_MS, _MOST_CACHE_MS = 3_000, 10_000, 60_000
_LOGGER = logging.getLogger(__name__)


def cache_ms(room: Room) -> int:
    """Return for how many milliseconds a worker without work is kept.

    Where it is let go, and there is work for it in a later step, its start takes seconds; hosts
    that wait for it let go of theirs meanwhile, and so on to the end of the job. But a try that
    comes while workers are kept is given those that have died, and fails like the one before.

    Args:
        room: What the cluster says.
    """
    if not room.restarts:
        return _MOST_CACHE_MS
    if room.restart_delay_ms is None:
        return _USUAL_CACHE_MS
    return min(max(room.restart_delay_ms - _CLOSING_MS, _LEAST_CACHE_MS), _MOST_CACHE_MS)


def warn_of_tries(options: Sequence[str], room: Room) -> None:
    """Tell of a cluster where a worker that is killed ends the job.

    Args:
        options: The user's own.
        room: What the cluster says.

    Raises:
        UsageError: The time for which workers are kept is no number.
    """
    if not room.restarts:
        _LOGGER.warning(
            "the cluster has no restart strategy: the first worker that is lost ends the job, and "
            "the same command goes on from there; set restart-strategy.type to fixed-delay"
        )
        return
    kept_ms = _number_of(options, _CACHE, cache_ms(room))
    if room.restart_delay_ms is not None and room.restart_delay_ms <= kept_ms:
        _LOGGER.warning(
            "the cluster tries a job again after %g s, and workers are kept for %g s: one that is "
            "killed may end the job; set restart-strategy.fixed-delay.delay to 12 s",
            room.restart_delay_ms / 1000,
            kept_ms / 1000,
        )


def _number_of(options: Sequence[str], flag: str, otherwise: int) -> int:
    """Return the number after a flag, as one word with it or the next; the last one counts."""
    number = str(otherwise)
    for word, following in zip(options, [*options[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        if name == flag:
            number = value if equals else following
    if not number.isdecimal():
        raise UsageError(f"{flag} takes a number of milliseconds, not {number!r}")
    return int(number)


_LOOK_S = 0.5
_FAULTS_LOOK_S = 2.0
# The job server may hand a job to Flink so long after it was asked to.
_MAY_COME_S = 20.0
# Where Beam's workers load what they are to do; and errors there that may not come again.
_LOADING = "pickler.loads("
_PASSING = re.compile(
    r"(OS|IO|BlockingIO|FileNotFound|Permission|Timeout|Memory|EOF|Conn\w+)Error\b"
)


def cancel(cluster: Cluster, name: str, result: Any) -> None:
    """End a job, also one that Flink does not know yet, and wait until it has ended.

    Raises:
        NoAnswer: Flink cannot be asked.
        TimeoutError: It has not ended.
    """
    with contextlib.suppress(Exception):
        result.cancel()
    if not wait_for_end(cluster, name, asks=True):
        raise TimeoutError("it has not ended yet")


def wait_for_end(cluster: Cluster, name: str, *, asks: bool = False) -> bool:
    """Wait for the end of a job that was cancelled; tell whether it came.

    Args:
        cluster: Where the job is.
        name: Of the job; Flink may not know it yet.
        asks: Cancel it, whenever it is known.

    Raises:
        NoAnswer: Flink cannot be asked.
    """
    until_s = time.monotonic() + _MAY_COME_S
    while time.monotonic() < until_s:
        job = cluster.find_job(name)
        if job is not None and job.state in ENDED:
            return True
        if asks and job is not None and job.state != "CANCELLING":
            cluster.cancel_job(job.id)
        time.sleep(_LOOK_S)
    return job is None


class WatchedJob(PipelineResult):
    """A job on Flink; everything but waiting is Beam's.

    Args:
        result: Beam's.
        job: How it is called and cancelled.
        launch: Whether it is waited for.
        cluster: Where it runs.
        expected: What is expected of its workers.
        resources: Closed when nobody waits any more.
    """

    def __init__(
        self,
        result: Any,
        job: RemoteJob,
        launch: Launch,
        cluster: Cluster,
        expected: Mapping[str, str],
        resources: contextlib.ExitStack,
    ) -> None:
        super().__init__(PipelineState.UNKNOWN)
        self._result = result
        self._job = job
        self._launch = launch
        self._cluster = cluster
        self._expected = expected
        self._resources = resources

    @property
    def state(self) -> Any:
        """State of the job, asked for anew."""
        return self._result.state

    def metrics(self) -> Any:
        """Return Beam's metrics of the job."""
        return self._result.metrics()

    def cancel(self) -> Any:
        """End the job."""
        self._job.cancel()

    def wait_until_finish(self, duration: int | None = None) -> Any:
        """Wait for the end of the job, and cancel it where an interrupt ends the wait.

        Args:
            duration: Milliseconds after which the wait, not the job, is given up.

        Raises:
            JobFailed: The job ended otherwise than well.
            UsageError: Its workers do not start.
        """
        with self._resources, _quiet():
            if not self._launch.waits:
                self._await_submission()
                return self.state
            with cancelled_with_us(self._job):
                try:
                    return self._wait(None if duration is None else duration / 1000)
                except BeamTFRecordError:
                    raise
                except Exception as error:
                    raise JobFailed(
                        f"lost sight of {self._job} ({error_of(str(error))}), which may go on: see "
                        f"{self._job.page}"
                    ) from error

    def _wait(self, duration_s: float | None) -> Any:
        began_s = looked_s = time.monotonic()
        while True:
            state = self._result.state
            if state == PipelineState.DONE:
                self._tell()
                return state
            if PipelineState.is_terminal(state):
                raise self._failure(state)
            now_s = time.monotonic()
            if duration_s is not None and now_s - began_s >= duration_s:
                return state
            if now_s - looked_s >= _FAULTS_LOOK_S:
                looked_s = now_s
                self._check_workers()
            time.sleep(_LOOK_S)

    def _check_workers(self) -> None:
        """End a job whose workers do not start, or cannot load it: Flink would try for minutes."""
        directory = self._launch.directory
        with contextlib.suppress(StorageError):
            if directory and exists(os.path.join(directory, UNLOADABLE)):
                self._end_with(recorded_fault(directory))
        with contextlib.suppress(NoAnswer):
            job = self._cluster.find_job(self._job.name)
            if job is None:
                return
            traces = self._cluster.job_faults(job.id)
            fault = start_fault(traces, self._expected) or load_fault(traces)
            self._end_with(None if fault is None else UsageError(fault))

    def _end_with(self, fault: BeamTFRecordError | None) -> None:
        if fault is not None:
            with contextlib.suppress(TimeoutError, NoAnswer):
                self._job.cancel()
            raise fault

    def _failure(self, state: str) -> JobFailed | UsageError:
        if state == PipelineState.CANCELLED:
            return JobFailed(f"{self._job} was cancelled")
        try:
            self._result.wait_until_finish()
            text = ""
        except Exception as error:
            text = str(error)
        traces = []
        with contextlib.suppress(NoAnswer):
            job = self._cluster.find_job(self._job.name)
            traces = [] if job is None else self._cluster.job_faults(job.id)
            if job is not None and job.state == "CANCELED":
                return JobFailed(f"{self._job} was cancelled")
        if fault := start_fault([*traces, text], self._expected) or load_fault([*traces, text]):
            return UsageError(fault)
        told = text.partition("failed in state FAILED:")[2] or text
        return JobFailed(f"{self._job} failed: {error_of(told or ''.join(traces[:1]))}")

    def _tell(self) -> None:
        """Note for ``job.json`` how the job went."""
        told = self._launch.told.setdefault("flink", {})
        with contextlib.suppress(NoAnswer):
            job = self._cluster.find_job(self._job.name)
            if job is not None:
                # It has ended well, so it went on after each. The metric of the same name lags ten
                # seconds behind, and is gone with the job.
                restarts = len(self._cluster.job_faults(job.id))
                told |= {"id": job.id, "seconds": job.duration_s, "restarts": restarts}
        with contextlib.suppress(Exception):
            self._launch.told["metrics"] = counters(self._result)

    def _await_submission(self) -> None:
        """Wait until Flink has the job: before that, it needs the job server."""
        until_s = time.monotonic() + 3 * _MAY_COME_S
        while time.monotonic() < until_s:
            if PipelineState.is_terminal(self._result.state):
                raise self._failure(self._result.state)
            with contextlib.suppress(NoAnswer):
                if self._cluster.find_job(self._job.name) is not None:
                    return
            time.sleep(_LOOK_S)


def load_fault(traces: Sequence[str]) -> str | None:
    """Return why workers cannot load a job's code, in one line; None where they can.

    Args:
        traces: What failed in a job.
    """
    for trace in traces:
        if _LOADING in trace and not _PASSING.match(said := error_of(trace)):
            return unloadable_line(said)
    return None


def counters(result: Any) -> dict[str, int]:
    """Return our counters of a job by name."""
    found: dict[str, int] = {}
    for one in result.metrics().query(MetricsFilter())["counters"]:
        if one.key.metric.namespace.startswith("beam_tfrecord"):
            amount = one.committed if one.committed is not None else one.attempted
            found[one.key.metric.name] = found.get(one.key.metric.name, 0) + int(amount or 0)
    return dict(sorted(found.items()))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Let Beam not print what reaches the user as an error, in one line."""
    # It prints a job's failure by the root logger.
    logger = logging.getLogger()
    if logger.isEnabledFor(logging.INFO):
        yield
        return
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
