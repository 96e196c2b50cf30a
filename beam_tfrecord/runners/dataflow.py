"""Dataflow: presets for jobs, handing them to the service, and watching them until their end.

Beam's own client talks to the service. Ours are the machines and packages that a job needs, its end
within a second instead of Beam's polls of five, and one line for every failure.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

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

from beam_tfrecord.errors import BeamTFRecordError, UsageError
from beam_tfrecord.runners.failures import failure, refusal
from beam_tfrecord.runners.launch import RemoteJob, current_launch
from beam_tfrecord.runners.pipelines import Finished, RemoteResult, silenced
from beam_tfrecord.runners.portable import new_job_name
from beam_tfrecord.runners.wheels import stage_wheels

# The service says why a job failed up to half a minute after it says that it failed.
REASON_SECONDS = 50.0
_REASON_POLL_SECONDS = 1.0

_CONSOLE = "https://console.cloud.google.com/dataflow/jobs/{region}/{id}?project={project}"
_MISSING = "runner dataflow needs pip install 'beam-tfrecord[gcp]'"

# One process a core runs as many bundles at once as it has threads, each with buffers of its own.
# Two of them read and write while the other computes.
THREADS = 2

# Memory of a process with Beam and Arrow loaded, and no bundle.
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


class Machine(NamedTuple):
    """A machine type of Google's list.

    Attributes:
        name: The service's name of the type.
        cores: Number of virtual cores.
        ram_bytes: Memory in bytes.
    """

    name: str
    cores: int
    ram_bytes: int

    @property
    def process_bytes(self) -> int:
        """Bytes of memory for each process, of which there is one a core."""
        return int(self.ram_bytes * _USABLE) // self.cores


# From the least memory to the most.
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
        options: The user's options.
    """
    given = PipelineOptions(list(options)).view_as(GoogleCloudOptions)
    words = [
        "--experiments=use_runner_v2",
        # A list of all packages here would be staged, with the URLs that some were installed from.
        "--experiments=disable_logging_submission_environment",
        f"--number_of_worker_harness_threads={THREADS}",
        f"--job_name={new_job_name()}",
    ]
    if given.staging_location is None and given.temp_location is not None:
        words.append(f"--staging_location={given.temp_location.rstrip('/')}/staging")
    return words


def check(options: Sequence[str], *, waits: bool = True) -> None:
    """Check that a job can be described at all.

    Args:
        options: The user's options.
        waits: True if this process waits for the end of the job.

    Raises:
        UsageError: The client is not installed, or an option is missing or wrong.
    """
    try:
        import apache_beam.runners.dataflow.internal.apiclient  # noqa: F401
    except ImportError as error:
        raise UsageError(_MISSING) from error
    check_options(options)
    if waits and PipelineOptions(list(options)).view_as(GoogleCloudOptions).template_location:
        raise UsageError(
            "a template is written and not run: pass --template-location before '--', or --detach"
        )


def check_options(options: Sequence[str]) -> None:
    """Check that the options say where a job is to run.

    Raises:
        UsageError: An option is missing, or is not a place on Google Cloud Storage.
    """
    given = PipelineOptions(list(options)).view_as(GoogleCloudOptions)
    needed = ("project", "region", "temp_location")
    missing = [_flag(name) for name in needed if not getattr(given, name)]
    if missing:
        raise UsageError(f"runner dataflow needs {' and '.join(missing)}")
    for name in ("temp_location", "staging_location", "template_location"):
        value = getattr(given, name)
        if value and not re.fullmatch(r"gs://[^/]+(/.+)?", value):
            raise UsageError(
                f"{_flag(name)} {value!r} is not on Google Cloud Storage: "
                "give gs://BUCKET/DIRECTORY"
            )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def start(pipeline: beam.Pipeline, run: Callable[[], PipelineResult]) -> PipelineResult:
    """Hand a pipeline over to the service, or write it as a template.

    Args:
        pipeline: The pipeline.
        run: Beam's own way to run it.

    Raises:
        UsageError: The service, or Beam, refuses the job.
        JobFailed: The service cannot be reached.
    """
    launch, options = current_launch(), pipeline.options
    fit_workers(pipeline, options)
    stage_wheels(options, launch.modules)
    with silenced("apache_beam"):
        try:
            result: Any = run()
        except BeamTFRecordError:
            raise
        except Exception as error:
            raise refusal(error) from error
    if not result.has_job:
        return Finished()
    cloud, id_ = options.view_as(GoogleCloudOptions), result.job_id()

    def cancel() -> None:
        with silenced("apache_beam"):
            result._runner.dataflow_client.modify_job_state(id_, "JOB_STATE_CANCELLED")

    page = _CONSOLE.format(region=cloud.region, id=id_, project=cloud.project)
    launch.job = RemoteJob("dataflow", id_, page, cancel)
    launch.facts["job"] = {"id": id_, "name": cloud.job_name}
    return DataflowResult(result, launch.job, launch)


class DataflowResult(RemoteResult):
    """The result of a job of the service."""

    def _failure(self, state: str) -> BeamTFRecordError:
        """Return the error for a job; the service may say later than its end why it failed."""
        texts: list[str] = []
        end_s = time.monotonic() + (REASON_SECONDS if state == PipelineState.FAILED else 0)
        while time.monotonic() < end_s and not (texts := self._error_messages()):
            time.sleep(_REASON_POLL_SECONDS)
        return failure(self._remote, state, texts)

    def _error_messages(self) -> list[str]:
        from google.cloud import dataflow

        least = dataflow.JobMessageImportance.JOB_MESSAGE_ERROR
        client = self._result._runner.dataflow_client
        texts: list[str] = []
        token = None
        while True:
            messages, token = client.list_messages(
                self._remote.id, page_token=token, minimum_importance="JOB_MESSAGE_ERROR"
            )
            texts += [one.message_text for one in messages if one.message_importance == least]
            if not token:
                return texts


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
        process_bytes: Bytes that each process needs.
        worker_bytes: Bytes that a whole worker needs.

    Raises:
        UsageError: There is no such machine.
    """
    for machine in MACHINES:
        if machine.process_bytes >= process_bytes and machine.ram_bytes >= worker_bytes:
            return machine
    raise UsageError(
        f"a step needs {max(process_bytes, worker_bytes) / 10**9:.1f} GB, more than "
        f"{MACHINES[-1].name} has: pass --machine-type, or fewer threads "
        "(-- --number_of_worker_harness_threads=1)"
    )


class _Needs(PipelineVisitor):
    """Finds the most memory that steps need, and may write the needs of our steps as hints.

    Attributes:
        process_bytes: The most bytes that one of our steps needs in a process.
        worker_bytes: The most bytes that a hint of the user asks of a whole worker.
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
        hinted = int(hints.get(urn, 0))
        need = stage_process_bytes(transform_node.full_label, self._threads)
        self.worker_bytes = max(self.worker_bytes, hinted)
        self.process_bytes = max(self.process_bytes, need)
        if self._sets_hints and need:
            hints[urn] = str(max(need * MACHINES[0].cores, hinted)).encode()


def stage_process_bytes(label: str, threads: int) -> int:
    """Return the bytes that a process needs for a step of ours; 0 for any other step.

    Args:
        label: Full name of the step.
        threads: Number of bundles that a process works on at once.
    """
    step = re.sub(r"\d+$", "", label.rpartition("/")[2])
    return PROCESS_BYTES + threads * STAGE_BYTES[step] if step in STAGE_BYTES else 0


def describe(pipeline: beam.Pipeline, modules: Sequence[str], groups: int) -> dict[str, Any]:
    """Return how a job would be described to the service, without a request.

    Args:
        pipeline: The pipeline, which was built and not run.
        modules: Names of the modules of the user's functions.
        groups: Number of groups of the input.

    Raises:
        UsageError: No machine is large enough.
    """
    from apache_beam.runners.dataflow.internal.apiclient import get_container_image_from_options

    options = pipeline.options
    fit_workers(pipeline, options)
    stage_wheels(options, modules)
    cloud, workers = options.view_as(GoogleCloudOptions), options.view_as(WorkerOptions)
    debug, setup = options.view_as(DebugOptions), options.view_as(SetupOptions)
    # Types end in their number of cores.
    cores = re.search(r"-(\d+)$", workers.machine_type or "")
    return {
        "job": {
            "project": cloud.project,
            "region": cloud.region,
            "name": cloud.job_name,
            "temp_location": cloud.temp_location,
            "staging_location": cloud.staging_location,
            "image": get_container_image_from_options(options),
            "packages": [os.path.basename(path) for path in setup.extra_packages or ()],
            "experiments": list(debug.experiments or ()),
        },
        "workers": {
            "machine": workers.machine_type or "by the hints of the steps",
            "cores": int(cores[1]) if cores else None,
            "threads": debug.number_of_worker_harness_threads,
            # One core reads a group: further workers would find nothing to read.
            "most_useful": max(1, math.ceil(groups / int(cores[1]))) if cores else None,
            "most_allowed": workers.max_num_workers,
        },
    }
