"""Dataflow: jobs are described here, handed over, and watched until their end.

Beam's own client does the talking. What is ours: the machines and packages that a job needs, its
end in seconds instead of polls of five, and every failure in one line.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions
from apache_beam.runners.runner import PipelineResult, PipelineState

from beam_tfrecord.errors import BeamTFRecordError, JobFailed, UsageError
from beam_tfrecord.runners import dataflow_options
from beam_tfrecord.runners.dataflow_errors import failure, refusal
from beam_tfrecord.runners.pipelines import Finished
from beam_tfrecord.runners.waiting import Launch, RemoteJob, cancelled_with_us, current_launch

FIRST_POLL_SECONDS = 0.5
LONGEST_POLL_SECONDS = 10.0
# The service tells why a job failed up to half a minute after it tells that it failed.
REASON_SECONDS = 50.0
_REASON_POLL_SECONDS = 1.0

_CONSOLE = "https://console.cloud.google.com/dataflow/jobs/{region}/{id}?project={project}"


def start(pipeline: beam.Pipeline, run: Callable[[], PipelineResult]) -> PipelineResult:
    """Hand a pipeline over to the service, or write it as a template.

    Args:
        pipeline: What to run.
        run: Beam's own way.

    Raises:
        UsageError: The service, or Beam, refuses the job.
        JobFailed: The service cannot be reached.
    """
    launch, options = current_launch(), pipeline.options
    dataflow_options.fit_workers(pipeline, options)
    dataflow_options.stage_package(options, launch.modules)
    with _quiet():
        try:
            result = run()
        except BeamTFRecordError:
            raise
        except Exception as error:
            raise refusal(error) from error
    if not result.has_job:
        return Finished()
    job = _job(result, options)
    launch.job = job
    launch.told["job"] = {"id": job.id, "name": job.name}
    return WatchedJob(result, job, launch)


def _job(result: Any, options: PipelineOptions) -> RemoteJob:
    cloud = options.view_as(GoogleCloudOptions)
    id_ = result.job_id()

    def cancel() -> None:
        with _quiet():
            result._runner.dataflow_client.modify_job_state(id_, "JOB_STATE_CANCELLED")

    page = _CONSOLE.format(region=cloud.region, id=id_, project=cloud.project)
    return RemoteJob("dataflow", id_, cloud.job_name, page, cancel)


class WatchedJob(PipelineResult):
    """A job of the service; everything but waiting is Beam's.

    Args:
        result: Beam's.
        job: How the job is called and cancelled.
        launch: Whether it is waited for.
    """

    def __init__(self, result: Any, job: RemoteJob, launch: Launch) -> None:
        super().__init__(PipelineState.UNKNOWN)
        self._result = result
        self._remote = job
        self._launch = launch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._result, name)

    @property
    def state(self) -> Any:
        """State of the job, asked for anew."""
        return self._result.state

    def metrics(self) -> Any:
        """Return Beam's metrics of the job."""
        return self._result.metrics()

    def cancel(self) -> Any:
        """End the job."""
        return self._result.cancel()

    def wait_until_finish(self, duration: int | None = None) -> Any:
        """Wait for the end of the job, and cancel it where an interrupt ends the wait.

        Args:
            duration: Milliseconds after which the wait, not the job, is given up.

        Raises:
            JobFailed: The job ended otherwise than well.
        """
        if not self._launch.waits:
            return self.state
        client = self._result._runner.dataflow_client
        with cancelled_with_us(self._remote), _quiet():
            try:
                return _wait(client, self._remote, None if duration is None else duration / 1000)
            except BeamTFRecordError:
                raise
            except Exception as error:
                raise JobFailed(
                    f"lost sight of {self._remote} ({refusal(error)}), which goes on: see "
                    f"{self._remote.page}"
                ) from error


def _wait(client: Any, job: RemoteJob, duration_s: float | None) -> str:
    """Return the state of a job that ended well, or has not ended within `duration_s`."""
    began_s = time.monotonic()
    interval_s = FIRST_POLL_SECONDS
    while True:
        state = _state(client, job)
        if state == PipelineState.DONE:
            return state
        if PipelineState.is_terminal(state):
            reasons = _reasons(client, job) if state == PipelineState.FAILED else []
            raise failure(job, state, reasons)
        if duration_s is not None and time.monotonic() - began_s >= duration_s:
            return state
        time.sleep(interval_s)
        interval_s = min(LONGEST_POLL_SECONDS, interval_s * 1.5)


def _state(client: Any, job: RemoteJob) -> str:
    from apache_beam.runners.dataflow.dataflow_runner import DataflowPipelineResult

    current = client.get_job(job.id).current_state
    return str(DataflowPipelineResult.api_jobstate_to_pipeline_state(current))


def _reasons(client: Any, job: RemoteJob) -> list[str]:
    """Return the messages of errors of a job that failed, waiting for the first."""
    from google.cloud import dataflow

    least = dataflow.JobMessageImportance.JOB_MESSAGE_ERROR
    end_s = time.monotonic() + REASON_SECONDS
    while True:
        texts: list[str] = []
        token = None
        while True:
            messages, token = client.list_messages(
                job.id, page_token=token, minimum_importance="JOB_MESSAGE_ERROR"
            )
            texts += [one.message_text for one in messages if one.message_importance == least]
            if not token:
                break
        if texts or time.monotonic() > end_s:
            return texts
        time.sleep(_REASON_POLL_SECONDS)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Let Beam's client not print what reaches the user as an error, in one line."""
    logger = logging.getLogger("apache_beam.runners.dataflow")
    before = logger.level
    if not logger.isEnabledFor(logging.INFO):
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


def check(options: Sequence[str], *, waits: bool = True) -> None:
    """Make sure that a job can be described at all.

    Args:
        options: The user's own.
        waits: The end of the job is waited for.

    Raises:
        UsageError: The client is not installed, or an option is missing or wrong.
    """
    try:
        import apache_beam.runners.dataflow.internal.apiclient  # noqa: F401
    except ImportError as error:
        raise UsageError("runner dataflow needs pip install 'beam-tfrecord[gcp]'") from error
    dataflow_options.check_options(options)
    given = PipelineOptions(list(options)).view_as(GoogleCloudOptions)
    if waits and given.template_location:
        raise UsageError(
            "a template is written and not run: pass --template-location before '--', or --detach"
        )
