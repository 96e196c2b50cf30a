"""Presets for Dataflow: what a job is told besides what its user says."""

from __future__ import annotations

import dataclasses
import datetime
import re
import secrets
from collections.abc import Mapping, Sequence

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

from beam_tfrecord.errors import UsageError
from beam_tfrecord.runners.wheels import staged_wheels

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
