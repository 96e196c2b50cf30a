"""The pipeline that `beam_tfrecord.pipeline` gives: a `beam.Pipeline` that knows its runner."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import apache_beam as beam
from apache_beam.options.pipeline_options import (
    DebugOptions,
    DirectOptions,
    PipelineOptions,
    PortableOptions,
)
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_job_api_pb2
from apache_beam.runners.direct.direct_runner import SwitchingDirectRunner
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.portability.local_job_service import BeamJob, LocalJobServicer
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.runner import PipelineResult, PipelineRunner, PipelineState
from apache_beam.transforms.environments import EmbeddedPythonEnvironment

from beam_tfrecord.errors import UsageError
from beam_tfrecord.runners.launch import current_launch


class Way(Protocol):
    """How pipelines are started on one runner, where Beam's own way does not do."""

    def start(self, pipeline: beam.Pipeline, run: Callable[[], PipelineResult]) -> PipelineResult:
        """Start a pipeline and return at once.

        Args:
            pipeline: What to start; it may be changed before.
            run: Beam's own way.
        """


class LaunchedPipeline(beam.Pipeline):
    """A pipeline that is run as the `Launch` around it says, and loses no elements on its way.

    Args:
        options: Beam's.
        way: How its runner starts it; None: as Beam does.

    Raises:
        UsageError: Beam refuses the options.
    """

    def __init__(self, options: PipelineOptions, way: Way | None = None) -> None:
        try:
            super().__init__(options=options)
        except ValueError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise UsageError(f"Beam refuses its options: {' '.join(lines)}") from error
        self.runner: PipelineRunner = lossless_runner(self.runner)
        self._way = way

    def run(self, *args: Any, **kwargs: Any) -> PipelineResult:
        """Start the pipeline, or only keep it where it is not to be run.

        Raises:
            UsageError: Its options make Beam lose elements.
        """
        launch = current_launch()
        if not launch.runs:
            launch.built.append(self)
            return Finished()
        check_lossless(self)

        def run() -> PipelineResult:
            return super(LaunchedPipeline, self).run(*args, **kwargs)

        return run() if self._way is None else self._way.start(self, run)


class Finished(PipelineResult):
    """The result of a pipeline that there is nothing to wait for."""

    def __init__(self) -> None:
        super().__init__(PipelineState.DONE)

    def wait_until_finish(self, duration: int | None = None) -> str:
        """Return at once."""
        return str(PipelineState.DONE)


V = TypeVar("V", bound=PipelineOptions)


class Options(PipelineOptions):
    """Options that parse the command line once for each kind of view.

    Beam asks for a view several times a step, and parses all words for each: a quarter of the time
    that a small pipeline takes to start. All views share their values, so one of each will do.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Beam's own way to set an attribute takes it for an option.
        object.__setattr__(self, "_views", {})

    def view_as(self, cls: type[V]) -> V:
        """Return the view of a kind, always the same one."""
        views: dict[type[PipelineOptions], Any] = self._views
        if cls not in views:
            views[cls] = super().view_as(cls)
        view: V = views[cls]
        return view


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


def graph_of(pipeline: beam.Pipeline) -> dict[str, list[str]]:
    """Return the steps of a pipeline in order: by each outer step the names of those inside it."""
    steps = _Steps()
    pipeline.visit(steps)
    return steps.found


class _Steps(PipelineVisitor):
    """Collects the two outer levels of names."""

    def __init__(self) -> None:
        self.found: dict[str, list[str]] = {}

    def visit_transform(self, transform_node: AppliedPTransform) -> None:
        outer, _, inner = transform_node.full_label.partition("/")
        # A step without others inside is told by what it is, such as a GroupByKey.
        name = inner.partition("/")[0] or type(transform_node.transform).__name__
        inside = self.found.setdefault(outer, [])
        if name not in inside:
            inside.append(name)
