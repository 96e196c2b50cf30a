"""Dataflow: jobs are described here, handed over, and watched until their end.

Beam's own client does the talking. What is ours: the machines and packages that a job needs, its
end in seconds instead of polls of five, and every failure in one line.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import logging
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import (
    DebugOptions,
    GoogleCloudOptions,
    PipelineOptions,
    SetupOptions,
    WorkerOptions,
)
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor
from apache_beam.portability.common_urns import resource_hints
from apache_beam.runners.runner import PipelineResult, PipelineState

from beam_tfrecord.errors import BeamTFRecordError, JobFailed, UsageError
from beam_tfrecord.runners.failures import failure, refusal
from beam_tfrecord.runners.launch import Launch, RemoteJob, cancelled_with_us, current_launch
from beam_tfrecord.runners.pipelines import Finished
from beam_tfrecord.runners.wheels import staged_wheels

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
    fit_workers(pipeline, options)
    stage_package(options, launch.modules)
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
    check_options(options)
    given = PipelineOptions(list(options)).view_as(GoogleCloudOptions)
    if waits and given.template_location:
        raise UsageError(
            "a template is written and not run: pass --template-location before '--', or --detach"
        )


# One process a core runs as many bundles at once as it has threads, each with buffers of its own.
# Two of them read and write while the other computes.
THREADS = 2

# A process with Beam and Arrow loaded, and no bundle.
PROCESS_BYTES = 300 * 10**6

# The most that one bundle of a step holds: a full block or window, its sorted copy, and what is on
# its way to a file. By the step's name; see the constants in `beam_tfrecord.exchange`.
STAGE_BYTES: Mapping[str, int] = {
    "CutBlocks": 300 * 10**6,
    "Spill": 300 * 10**6,
    "SortRange": 300 * 10**6,
    "MergeRuns": 500 * 10**6,
    "MergeShards": 500 * 10**6,
}

# Part of a machine's memory that its operating system and the runner's own process leave.
_USABLE = 0.8


@dataclasses.dataclass(frozen=True)
class Machine:
    """A machine type.

    Attributes:
        name: By which the service knows it.
        cores: Number of virtual cores.
        ram_bytes: Memory.
    """

    name: str
    cores: int
    ram_bytes: int

    @property
    def process_bytes(self) -> int:
        """Memory that is left for each process, of which there is one a core."""
        return int(self.ram_bytes * _USABLE) // self.cores


# From the least memory to the most; sizes are those of Google's list of machine types.
MACHINES = (
    Machine("n2-standard-4", 4, 16 * 2**30),
    Machine("n2-highmem-4", 4, 32 * 2**30),
    Machine("n2-highmem-8", 8, 64 * 2**30),
    Machine("n2-highmem-16", 16, 128 * 2**30),
    Machine("n2-highmem-32", 32, 256 * 2**30),
)


def presets(options: Sequence[str]) -> list[str]:
    """Return Beam's options for a job, but for those that its graph decides.

    Args:
        options: The user's own.
    """
    given = PipelineOptions(list(options)).view_as(GoogleCloudOptions)
    words = [
        "--experiments=use_runner_v2",
        # A list of all packages here would be staged, with the URLs that some were installed from.
        "--experiments=disable_logging_submission_environment",
        f"--number_of_worker_harness_threads={THREADS}",
    ]
    if given.job_name is None:
        words.append(f"--job_name={new_job_name()}")
    if given.staging_location is None and given.temp_location is not None:
        words.append(f"--staging_location={given.temp_location.rstrip('/')}/staging")
    return words


def new_job_name() -> str:
    """Return a name that no other job has."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return f"beam-tfrecord-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def check_options(options: Sequence[str]) -> None:
    """Make sure that Dataflow is told where a job is to run.

    Raises:
        UsageError: Something is missing or of another form.
    """
    parsed = PipelineOptions(list(options)).view_as(GoogleCloudOptions)
    missing = [
        flag
        for flag, value in (
            ("--project", parsed.project),
            ("--region", parsed.region),
            ("--temp-location", parsed.temp_location),
        )
        if not value
    ]
    if missing:
        raise UsageError(f"runner dataflow needs {' and '.join(missing)}")
    for flag in ("temp_location", "staging_location", "template_location"):
        value = getattr(parsed, flag)
        if value and not re.fullmatch(r"gs://[^/]+/.+|gs://[^/]+", value):
            raise UsageError(
                f"--{flag.replace('_', '-')} {value!r} is not on Google Cloud Storage: "
                "give gs://BUCKET/DIRECTORY"
            )


def fit_workers(pipeline: beam.Pipeline, options: PipelineOptions) -> None:
    """Choose machines by what the steps of a pipeline need, unless the user has.

    Dataflow Prime takes the needs step by step, as resource hints (``min_ram``, of a whole worker).
    Elsewhere Dataflow ignores hints of memory, so that the largest decides the type of all
    machines.

    Raises:
        UsageError: There is no machine with so much memory.
    """
    is_prime = "enable_prime" in (
        *(options.view_as(GoogleCloudOptions).dataflow_service_options or ()),
        *(options.view_as(DebugOptions).experiments or ()),
    )
    threads = options.view_as(DebugOptions).number_of_worker_harness_threads or THREADS
    needs = _Needs(threads, sets_hints=is_prime)
    pipeline.visit(needs)
    workers = options.view_as(WorkerOptions)
    if not is_prime and not workers.machine_type:
        workers.machine_type = machine_for(needs.process_bytes, needs.worker_bytes).name


def machine_for(process_bytes: int, worker_bytes: int = 0) -> Machine:
    """Return the machine with the least memory that is enough.

    Args:
        process_bytes: What each process needs.
        worker_bytes: What a whole worker needs.

    Raises:
        UsageError: There is none.
    """
    for machine in MACHINES:
        if machine.process_bytes >= process_bytes and machine.ram_bytes >= worker_bytes:
            return machine
    raise UsageError(
        f"a step needs {max(process_bytes, worker_bytes) / 10**9:.1f} GB, more than "
        f"{MACHINES[-1].name} has: pass --machine-type, or fewer threads "
        "(-- --number_of_worker_harness_threads=1)"
    )


def stage_package(options: PipelineOptions, modules: Sequence[str]) -> None:
    """Give the workers this package and the user's modules.

    Args:
        options: To which the wheels are added.
        modules: Names of the user's modules.
    """
    setup = options.view_as(SetupOptions)
    # An empty list would be staged as one.
    setup.extra_packages = [
        *(setup.extra_packages or ()),
        *staged_wheels(options, modules),
    ] or None


class _Needs(PipelineVisitor):
    """Finds the most memory that steps need, and may write ours down as hints.

    Attributes:
        process_bytes: The most that one of our steps needs in a process.
        worker_bytes: The most that a hint of the user asks of a whole worker.
    """

    def __init__(self, threads: int, *, sets_hints: bool) -> None:
        self._threads = threads
        self._sets_hints = sets_hints
        self.process_bytes = 0
        self.worker_bytes = 0

    def enter_composite_transform(self, transform_node: AppliedPTransform) -> None:
        self.visit_transform(transform_node)

    def visit_transform(self, transform_node: AppliedPTransform) -> None:
        hints, urn = transform_node.resource_hints, resource_hints.MIN_RAM_BYTES.urn
        self.worker_bytes = max(self.worker_bytes, int(hints.get(urn, 0)))
        need = stage_process_bytes(transform_node.full_label, self._threads)
        self.process_bytes = max(self.process_bytes, need)
        if self._sets_hints and need:
            of_worker = need * MACHINES[0].cores
            hints[urn] = str(max(of_worker, int(hints.get(urn, 0)))).encode()


def stage_process_bytes(label: str, threads: int) -> int:
    """Return what a process needs for a step of ours; 0 for any other.

    Args:
        label: Full name of the step.
        threads: Bundles that a process works on at once.
    """
    step = label.rpartition("/")[2]
    for name, nbytes in STAGE_BYTES.items():
        if re.fullmatch(rf"{name}\d*", step):
            return PROCESS_BYTES + threads * nbytes
    return 0
