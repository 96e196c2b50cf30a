"""Beam's runner in this process, and its job service here, without their way to lose elements.

In Beam 2.77 a stream to or from a worker that is flushed by time, too, loses what is written to it
during such a flush (docs/upstream.md). Both ends of its local gRPC connections do that after one
second: the worker's in the running mode ``multi_threading``, the runner's in every mode but
``in_memory``. Streams that are flushed by size alone lose nothing.
"""

from __future__ import annotations

import json
import re
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import (
    DebugOptions,
    DirectOptions,
    PipelineOptions,
    PortableOptions,
)
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_job_api_pb2
from apache_beam.runners.direct.direct_runner import SwitchingDirectRunner
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.portability.local_job_service import BeamJob, LocalJobServicer
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.runner import PipelineRunner
from apache_beam.transforms.environments import EmbeddedPythonEnvironment

from beam_tfrecord.errors import UsageError

_LIMIT = "data_buffer_time_limit_ms"
_EMBEDDED = "embed"


class LocalRunner(FnApiRunner):
    """Beam's runner in this process; its workers' streams are flushed by size alone."""

    def create_stages(self, pipeline_proto: Any) -> Any:
        """Return what Beam makes of a pipeline, once its environments are known."""
        for environment in pipeline_proto.components.environments.values():
            if environment.urn == python_urns.EMBEDDED_PYTHON_GRPC:
                # Beam takes 0 for its default of one second.
                config = {**json.loads(environment.payload or b"{}"), _LIMIT: -1}
                environment.payload = json.dumps(config).encode()
        return super().create_stages(pipeline_proto)

    def _get_bundle_manager(self, bundle_context_manager: Any) -> Any:
        for handler in bundle_context_manager.worker_handlers:
            # The runner's end of the connection: Beam has no option for it.
            handler.data_conn._data_buffer_time_limit_ms = 0
        return super()._get_bundle_manager(bundle_context_manager)


class LocalJobRunner(PortableRunner):
    """Beam's runner behind a job service; one in this process runs jobs by a `LocalRunner`."""

    def create_job_service(self, options: PipelineOptions) -> Any:
        """Start or find the job service, and return a handle of it."""
        if options.view_as(PortableOptions).job_endpoint != _EMBEDDED:
            return super().create_job_service(options)
        return self.create_job_service_handle(LocalJobServicer(beam_job_type=_LocalJob), options)


class _LocalJob(BeamJob):
    def _invoke_runner(self) -> Any:
        self.set_state(beam_job_api_pb2.JobState.RUNNING)
        runner = LocalRunner(provision_info=self._provision_info)
        return runner.run_via_runner_api(self._pipeline_proto, self.pipeline_options())


_LOSSLESS = {FnApiRunner: LocalRunner, PortableRunner: LocalJobRunner}


def lossless_runner(runner: PipelineRunner) -> PipelineRunner:
    """Return a runner that loses no elements in place of one of Beam's that may; others as given.

    Args:
        runner: As Beam makes it of its name.
    """
    kind = _LOSSLESS.get(type(runner))
    return runner if kind is None else kind()


def check_lossless(pipeline: beam.Pipeline) -> None:
    """Refuse a pipeline whose runner may lose elements.

    Raises:
        UsageError: It may.
    """
    experiments = pipeline.options.view_as(DebugOptions).experiments or ()
    if any(re.match(rf"{_LIMIT}=0*[1-9]", experiment) for experiment in experiments):
        raise UsageError(
            f"Beam's workers lose elements under the experiment {_LIMIT}: leave it out"
        )
    reason = _reason_to_refuse(pipeline)
    if reason:
        raise UsageError(
            f"Beam's own local runner loses elements with {reason}: make the pipeline by "
            "beam_tfrecord.pipeline(), with the same options, instead of beam.Pipeline()"
        )


def _reason_to_refuse(pipeline: beam.Pipeline) -> str:
    # Beam's runner for notebooks has another one inside.
    runner = getattr(pipeline.runner, "_underlying_runner", pipeline.runner)
    if isinstance(runner, LocalRunner | LocalJobRunner):
        return ""
    if isinstance(runner, FnApiRunner | SwitchingDirectRunner):
        mode = pipeline.options.view_as(DirectOptions).direct_running_mode
        if mode != "in_memory":
            return f"--direct_running_mode={mode}"
        environment = getattr(runner, "_default_environment", None)
        if not isinstance(environment, EmbeddedPythonEnvironment | None):
            return f"workers in the environment {type(environment).__name__}"
    endpoint = pipeline.options.view_as(PortableOptions).job_endpoint
    if isinstance(runner, PortableRunner) and endpoint == _EMBEDDED:
        return f"--job_endpoint={_EMBEDDED}"
    return ""
