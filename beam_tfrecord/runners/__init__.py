"""Facts about runners: their traits, how many workers they have and at which rows, losses of rows.

`start` makes pipelines. Importing this package does not import Beam, because the command line and
the program that starts workers (`boot`) use it, and have to start fast.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import itertools
import os
import re
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from beam_tfrecord.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    import apache_beam as beam

BUFFER_TIME_LIMIT = "data_buffer_time_limit_ms"
EMBEDDED_JOB_SERVICE = "embed"
# Attributes of a pipeline that have the readers and the sinks of this package in it.
READERS, SINKS = "beam_tfrecord_readers", "beam_tfrecord_sinks"
# Attribute of a pipeline all of whose steps are of this package.
IS_OF_JOB = "beam_tfrecord_is_of_job"

# What a worker process may need at most, by a rule of thumb: its buffers, and the user's objects.
_WORKER_BYTES = 2**30
_LIMIT_FILES = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclasses.dataclass
class Workers:
    """The number of worker processes of a pipeline, which its steps know once it runs."""

    number: int = 1


# Set in a worker process. The launcher names the rows in the message about a worker that died.
report_rows: Callable[[str], None] | None = None


def note_rows(first: str, last: str) -> None:
    """Report the addresses of the first and the last row of the next batch, in a worker process."""
    if report_rows is not None:
        report_rows(f"{first} to {last}")


class RunnerTraits(NamedTuple):
    """The properties of one runner."""

    beam_name: str
    runs_here: bool = False
    is_remote: bool = False
    exchange: str = "files"


_TRAITS = {
    # Beam's name DirectRunner first tries to download another runner, without a timeout (2.77).
    "direct": RunnerTraits("FnApiRunner", runs_here=True),
    "flink": RunnerTraits("FlinkRunner", is_remote=True),
    # The shuffle of Dataflow is a separate service, made for more data than file systems hold.
    "dataflow": RunnerTraits("DataflowRunner", is_remote=True, exchange="runner"),
    "portable": RunnerTraits("PortableRunner"),
    "prism": RunnerTraits("PrismRunner"),
}
_BY_BEAM_NAME = {traits.beam_name: traits for traits in _TRAITS.values()}


def traits_of(runner: str) -> RunnerTraits:
    """Return the traits of a runner, given the name that this package or Beam has for it."""
    return _TRAITS.get(runner.lower()) or _BY_BEAM_NAME.get(runner) or RunnerTraits(runner)


def check_runner_name(runner: str) -> None:
    """Refuse a name that is none of this package, and cannot be that of a class in Beam."""
    name = runner.lower()
    if name in _TRAITS or "runner" in name or "." in name:
        return
    hint = did_you_mean(name, _TRAITS)
    raise UsageError(
        f"there is no runner {runner!r}: {hint and f'{hint} '}"
        f"the runners are {', '.join(_TRAITS)}, and those of Beam by their names, such as "
        "SparkRunner"
    )


def new_job_name() -> str:
    """Return a name that no other job has."""
    now = datetime.datetime.now(datetime.UTC)
    return f"beam-tfrecord-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def asked_workers(words: Sequence[str], **options: object) -> int:
    """Return the number of worker processes that Beam's options ask for; 0 if that is left open."""
    asked = 0
    for word, after in itertools.pairwise(
        [*words, *(f"--{k}={v}" for k, v in options.items()), ""]
    ):
        name, sign, value = word.partition("=")
        if name == "--direct_num_workers":
            asked = int(value if sign else after)
        elif name == "--direct_running_mode":
            # Those who name one of Beam's modes get it.
            return 1
    return asked


def choose_workers(asked: int, has_python: bool, is_large: Callable[[], bool]) -> tuple[int, str]:
    """Return the number of worker processes of a local job, and why; 1 means none.

    Args:
        asked: The number that the user asked for; 0 leaves it to the other arguments.
        has_python: Whether steps of the job run Python code for each row.
        is_large: Returns whether that takes longer than the start of processes.
    """
    if not has_python:
        return 1, "no Python code runs for each row"
    if asked:
        return asked, "as you asked"
    if not is_large():
        return 1, "the input is small"
    return default_workers(), "Python code runs for each row of a large input"


def default_workers() -> int:
    """Return the number of cores of this process, but at most one for each GiB of memory."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _LIMIT_FILES:
        with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as file:
            memory = min(memory, int(file.read()))
    return max(1, min(cores or 1, memory // _WORKER_BYTES))


def check_lossless(pipeline: beam.Pipeline) -> None:
    """Refuse a pipeline whose runner may lose elements, or call no step (see `pipelines`)."""
    # Lazy: a caller that has a pipeline has already loaded Beam.
    from apache_beam.options.pipeline_options import DebugOptions, TypeOptions

    if pipeline.options.view_as(TypeOptions).runtime_type_check:
        # It takes every callable object for a function.
        raise UsageError("--runtime_type_check of Beam fails on callable objects: leave it out")
    experiments = pipeline.options.view_as(DebugOptions).experiments or ()
    if any(re.match(rf"{BUFFER_TIME_LIMIT}=0*[1-9]", experiment) for experiment in experiments):
        raise UsageError(
            f"Beam's workers lose elements under the experiment {BUFFER_TIME_LIMIT}: leave it out"
        )
    if reason := _reason_to_refuse(pipeline):
        raise UsageError(
            f"Beam's own local runner loses elements with {reason}: make the pipeline by "
            "beam_tfrecord.pipeline(), with the same options, instead of beam.Pipeline()"
        )


def _reason_to_refuse(pipeline: beam.Pipeline) -> str:
    from apache_beam.options.pipeline_options import DirectOptions, PortableOptions
    from apache_beam.runners.direct.direct_runner import SwitchingDirectRunner
    from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
    from apache_beam.runners.portability.portable_runner import PortableRunner
    from apache_beam.transforms.environments import EmbeddedPythonEnvironment

    # Beam's runner for notebooks wraps the runner that executes the pipeline.
    runner = getattr(pipeline.runner, "_underlying_runner", pipeline.runner)
    if getattr(runner, "is_lossless", False):
        return ""
    if isinstance(runner, FnApiRunner | SwitchingDirectRunner):
        mode = pipeline.options.view_as(DirectOptions).direct_running_mode
        if mode != "in_memory":
            return f"--direct_running_mode={mode}"
        environment = getattr(runner, "_default_environment", None)
        if not isinstance(environment, EmbeddedPythonEnvironment | None):
            return f"workers in the environment {type(environment).__name__}"
    endpoint = pipeline.options.view_as(PortableOptions).job_endpoint
    if isinstance(runner, PortableRunner) and endpoint == EMBEDDED_JOB_SERVICE:
        return f"--job_endpoint={EMBEDDED_JOB_SERVICE}"
    return ""
