"""A job on Flink while it runs: waited for, watched for workers that do not start, cancelled."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from apache_beam.metrics.metric import MetricsFilter
from apache_beam.runners.runner import PipelineResult, PipelineState

from beam_tfrecord.errors import BeamTFRecordError, JobFailed, StorageError, UsageError
from beam_tfrecord.runners.boot_loading import UNLOADABLE, unloadable_line
from beam_tfrecord.runners.failures import error_of, start_fault
from beam_tfrecord.runners.flink_rest import ENDED, Cluster, NoAnswer
from beam_tfrecord.runners.waiting import Launch, RemoteJob, cancelled_with_us
from beam_tfrecord.storage import exists
from beam_tfrecord.workdir.faults import recorded_fault

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
