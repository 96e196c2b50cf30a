"""`LaunchedPipeline`, the pipeline that `beam_tfrecord.pipeline` returns, and its local runners.

Beam 2.77 loses elements on local gRPC connections: a stream to or from a worker that is flushed by
time loses what is written to it during such a flush (docs/upstream.md). Both ends of a connection
do that after one second: the worker's in the mode ``multi_threading``, the runner's in every mode
but ``in_memory``. Streams that are flushed by size alone lose nothing, so these runners do that.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_job_api_pb2
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.portability.local_job_service import BeamJob, LocalJobServicer
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.runner import PipelineResult, PipelineRunner, PipelineState

from beam_tfrecord.errors import BeamTFRecordError, JobFailed, UsageError
from beam_tfrecord.runner_traits import BUFFER_TIME_LIMIT, EMBEDDED_JOB_SERVICE, check_lossless
from beam_tfrecord.runners.failures import error_of
from beam_tfrecord.runners.launch import Launch, RemoteJob, cancelled_with_us, current_launch

V = TypeVar("V", bound=PipelineOptions)
Run = Callable[[], PipelineResult]


class Options(PipelineOptions):
    """Pipeline options that parse the command line once for each class of options.

    Beam asks for a view several times a step, and parses all words for each: a quarter of the time
    that a small pipeline takes to start. All views share their values, so one of each is enough.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Beam treats an attribute that is set in the usual way as an option.
        object.__setattr__(self, "_views", {})

    def view_as(self, cls: type[V]) -> V:
        """Return the view as a class of options, always the same object."""
        views: dict[type[PipelineOptions], Any] = self._views
        if cls not in views:
            views[cls] = super().view_as(cls)
        view: V = views[cls]
        return view


class LocalRunner(FnApiRunner):
    """Beam's runner in this process, with streams that are flushed by size alone."""

    is_lossless = True

    def create_stages(self, pipeline_proto: Any) -> Any:
        """Return Beam's stages of a pipeline, after the workers' time limit is turned off."""
        for environment in pipeline_proto.components.environments.values():
            if environment.urn == python_urns.EMBEDDED_PYTHON_GRPC:
                # Beam takes 0 for its default of one second.
                config = {**json.loads(environment.payload or b"{}"), BUFFER_TIME_LIMIT: -1}
                environment.payload = json.dumps(config).encode()
        return super().create_stages(pipeline_proto)

    def _get_bundle_manager(self, bundle_context_manager: Any) -> Any:
        for handler in bundle_context_manager.worker_handlers:
            # The runner's end of the connection: Beam has no option for it.
            handler.data_conn._data_buffer_time_limit_ms = 0
        return super()._get_bundle_manager(bundle_context_manager)


class LocalJobRunner(PortableRunner):
    """Beam's runner behind a job service; the embedded service runs jobs by a `LocalRunner`."""

    is_lossless = True

    def create_job_service(self, options: PipelineOptions) -> Any:
        """Start or find the job service, and return a handle of it."""
        if options.view_as(PortableOptions).job_endpoint != EMBEDDED_JOB_SERVICE:
            return super().create_job_service(options)
        return self.create_job_service_handle(LocalJobServicer(beam_job_type=_LocalJob), options)


class _LocalJob(BeamJob):
    def _invoke_runner(self) -> Any:
        self.set_state(beam_job_api_pb2.JobState.RUNNING)
        runner = LocalRunner(provision_info=self._provision_info)
        return runner.run_via_runner_api(self._pipeline_proto, self.pipeline_options())


_LOSSLESS = {FnApiRunner: LocalRunner, PortableRunner: LocalJobRunner}


class LaunchedPipeline(beam.Pipeline):
    """A pipeline that follows the `Launch` around it, and whose local runner loses no elements.

    Args:
        options: Beam's options.
        start: Starts the pipeline and returns at once, given the pipeline and Beam's own way to
            run it; None for Beam's own way.

    Raises:
        UsageError: Beam refuses the options.
    """

    def __init__(
        self,
        options: PipelineOptions,
        start: Callable[[beam.Pipeline, Run], PipelineResult] | None = None,
    ) -> None:
        try:
            super().__init__(options=options)
        except ValueError as error:
            raise UsageError(f"Beam refuses its options: {' '.join(str(error).split())}") from error
        lossless = _LOSSLESS.get(type(self.runner))
        self.runner: PipelineRunner = lossless() if lossless else self.runner
        self._start = start

    def run(self, *args: Any, **kwargs: Any) -> PipelineResult:
        """Start the pipeline, or only collect it if the launch says so.

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

        return run() if self._start is None else self._start(self, run)


class Finished(PipelineResult):
    """The result of a pipeline that nobody has to wait for."""

    def __init__(self) -> None:
        super().__init__(PipelineState.DONE)

    def wait_until_finish(self, duration: int | None = None) -> str:
        """Return at once."""
        return str(PipelineState.DONE)


class RemoteResult(PipelineResult):
    """The result of a remote job: Beam's own, with a wait that ends soon after the job.

    Args:
        result: Beam's result.
        job: How the job is named and cancelled.
        launch: Whether to wait for the job.
        resources: Closed when nobody waits any more.

    Attributes:
        first_look_s: Seconds until the state of the job is asked for again; they grow.
        longest_look_s: The most seconds between two looks.
        logger: Name of the logger that Beam reports the job by; empty for the root logger.
    """

    logger = "apache_beam"
    first_look_s = 0.5
    longest_look_s = 10.0

    def __init__(
        self,
        result: Any,
        job: RemoteJob,
        launch: Launch,
        resources: contextlib.AbstractContextManager[Any] | None = None,
    ) -> None:
        super().__init__(PipelineState.UNKNOWN)
        self._result = result
        self._remote = job
        self._launch = launch
        self._resources = resources or contextlib.nullcontext()

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
        self._remote.cancel()

    def wait_until_finish(self, duration: int | None = None) -> Any:
        """Wait for the end of the job; cancel the job if an interrupt ends the wait.

        Args:
            duration: Milliseconds after which the wait ends, and the job goes on.

        Raises:
            JobFailed: The job failed, was cancelled, or cannot be asked for its state.
            UsageError: Its workers cannot start.
        """
        with self._resources, silenced(self.logger):
            if not self._launch.waits:
                self._await_submission()
                return self.state
            with cancelled_with_us(self._remote):
                try:
                    return self._wait(math.inf if duration is None else duration / 1000)
                except BeamTFRecordError:
                    raise
                except Exception as error:
                    raise JobFailed(
                        f"lost sight of {self._remote} ({error_of(str(error))}), which may go on: "
                        f"see {self._remote.page}"
                    ) from error

    def _wait(self, duration_s: float) -> Any:
        end_s = time.monotonic() + duration_s
        look_s = self.first_look_s
        while (state := self.state) != PipelineState.DONE:
            if PipelineState.is_terminal(state):
                raise self._failure(state)
            if time.monotonic() >= end_s:
                return state
            self._check_workers()
            time.sleep(look_s)
            look_s = min(self.longest_look_s, 1.5 * look_s)
        self._note_facts()
        return state

    def _failure(self, state: str) -> BeamTFRecordError:
        """Return the error for a job that ended otherwise than well."""
        raise NotImplementedError

    def _check_workers(self) -> None:
        """End the job if it cannot go on though its runner tries."""

    def _note_facts(self) -> None:
        """Note for ``job.json`` how the job went."""

    def _await_submission(self) -> None:
        """Wait until the job goes on without this process."""


@contextlib.contextmanager
def silenced(name: str) -> Iterator[None]:
    """Keep a logger of Beam from logging what reaches the user as an error of one line.

    Args:
        name: Name of the logger; empty for the root logger.
    """
    logger = logging.getLogger(name)
    before = logger.level
    if not logger.isEnabledFor(logging.INFO):
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


def graph_of(pipeline: beam.Pipeline) -> dict[str, list[str]]:
    """Return the names of the steps of a pipeline, in order, with those of the steps inside."""
    (root,) = pipeline.transforms_stack
    # A step without others inside is shown by its kind, such as GroupByKey.
    return {
        outer.full_label: [part.full_label.rpartition("/")[2] for part in outer.parts]
        or [type(outer.transform).__name__]
        for outer in root.parts
    }
