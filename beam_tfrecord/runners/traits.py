"""The properties of each supported Beam runner, and the check for runners that lose elements.

Importing this module does not import Beam, because the command line and the program that starts
workers use it and have to start fast.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from beam_tfrecord.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    import apache_beam as beam

BUFFER_TIME_LIMIT = "data_buffer_time_limit_ms"
EMBEDDED_JOB_SERVICE = "embed"


class RunnerTraits(NamedTuple):
    """The properties of one runner."""

    beam_name: str
    runs_here: bool = False
    is_remote: bool = False
    exchange: str = "files"
    infers_apart: bool = False


_TRAITS = {
    # Beam's name DirectRunner first tries to download another runner, without a timeout (2.77).
    "direct": RunnerTraits("FnApiRunner", runs_here=True),
    "flink": RunnerTraits("FlinkRunner", is_remote=True, infers_apart=True),
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


def check_lossless(pipeline: beam.Pipeline) -> None:
    """Refuse a pipeline whose runner may lose elements, or call no step (docs/upstream.md)."""
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
