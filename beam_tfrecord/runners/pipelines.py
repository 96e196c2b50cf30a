"""Defines the pipeline that `beam_tfrecord.pipeline` returns, and local runners that lose no data.

Beam 2.77 loses elements on local gRPC connections: `tests/runners/slow_bundles.py`. If a stream to
or from a worker is flushed by time, elements that are written to it during the flush are lost. Both
ends of a connection flush after one second: the worker's end in the mode ``multi_threading``, the
runner's end in every mode except ``in_memory``. Streams that are only flushed by size lose nothing,
so these runners turn flushing by time off.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import json
import logging
import math
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import apache_beam as beam
from apache_beam.io.iobase import BoundedSource
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, PortableOptions
from apache_beam.pipeline import AppliedPTransform
from apache_beam.portability import common_urns, python_urns
from apache_beam.portability.api import beam_job_api_pb2, beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.portability.local_job_service import BeamJob, LocalJobServicer
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.runner import PipelineResult, PipelineRunner, PipelineState
from apache_beam.runners.worker import sdk_worker

from beam_tfrecord.base.scratch import remove_with
from beam_tfrecord.errors import BeamTFRecordError, JobFailed, UsageError
from beam_tfrecord.runners import (
    BUFFER_TIME_LIMIT,
    EMBEDDED_JOB_SERVICE,
    IS_OF_JOB,
    READERS,
    SINKS,
    Workers,
    check_lossless,
    choose_workers,
)
from beam_tfrecord.runners.failures import error_of, short_error
from beam_tfrecord.runners.launch_settings import (
    Launch,
    RemoteJob,
    cancelled_with_us,
    current_launch,
    say_start,
)
from beam_tfrecord.runners.worker_pool import PROCESSES, CannotLoad, WorkerPool

_LOGGER = logging.getLogger(__name__)

V = TypeVar("V", bound=PipelineOptions)
Run = Callable[[], PipelineResult]


class Options(PipelineOptions):
    """Pipeline options that parse the command line only once for each class of options.

    Beam makes a view of the options as a class several times for each step, and parses the command
    line each time. This takes a quarter of the time in which a small pipeline starts. All views
    share their values, so one view for each class is enough.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Beam treats an attribute that is set in the usual way as an option.
        object.__setattr__(self, "_views", {})

    def view_as(self, cls: type[V]) -> V:
        """Return the view of the options as a class, always the same object."""
        views: dict[type[PipelineOptions], Any] = self._views
        if cls not in views:
            views[cls] = super().view_as(cls)
        view: V = views[cls]
        return view


class LocalRunner(FnApiRunner):
    """Beam's runner on this machine, with streams that are only flushed by size.

    Stages with the steps `python_steps` run in worker processes, if there are any, since Python
    runs on one core in each process. All other stages run in threads of this process.
    """

    is_lossless = True
    python_steps: frozenset[str] = frozenset()
    _pool: WorkerPool | None = None

    def run_pipeline(self, pipeline: beam.Pipeline, options: PipelineOptions) -> Any:
        """Run a pipeline, and end its worker processes."""
        self._options = options
        try:
            return super().run_pipeline(pipeline, options)
        finally:
            if self._pool is not None:
                self._pool.close()
                self._pool = None

    def create_stages(self, pipeline_proto: Any) -> Any:
        """Turn off the workers' flushing by time, then return Beam's stages of a pipeline.

        The processes of workers start here, while the first stages run.
        """
        for environment in pipeline_proto.components.environments.values():
            if environment.urn == python_urns.EMBEDDED_PYTHON_GRPC:
                # -1 turns it off: Beam replaces 0 by its default of one second.
                config = {**json.loads(environment.payload or b"{}"), BUFFER_TIME_LIMIT: -1}
                environment.payload = json.dumps(config).encode()
        context, stages = super().create_stages(pipeline_proto)
        chosen = [
            stage
            for stage in stages
            if any(step.unique_name in self.python_steps for step in stage.transforms)
        ]
        if chosen:
            steps = [step for stage in chosen for step in stage.transforms]
            self._pool = WorkerPool(self._num_workers, _functions_of(steps), self._options)
            environment = context.components.environments[PROCESSES]
            environment.urn, environment.payload = PROCESSES, self._pool.key
            for stage in chosen:
                stage.environment = PROCESSES
        return context, stages

    def _execute_bundle(self, *args: Any) -> Any:
        try:
            return super()._execute_bundle(*args)
        except BaseException as error:
            # Without its workers, Beam would wait for them when it closes their connections.
            failure = None if self._pool is None else self._pool.fail(error)
            if failure is None:
                raise
            raise failure from None

    def _get_bundle_manager(self, bundle_context_manager: Any) -> Any:
        for handler in bundle_context_manager.worker_handlers:
            # Beam has no option for the runner's end of the connection.
            handler.data_conn._data_buffer_time_limit_ms = 0
        return super()._get_bundle_manager(bundle_context_manager)


def _functions_of(steps: Iterable[Any]) -> list[bytes]:
    """Return the pickled functions of steps, given as messages of Beam's model."""
    payloads = (
        beam_runner_api_pb2.ParDoPayload.FromString(step.spec.payload)
        for step in steps
        if step.spec.urn == common_urns.primitives.PAR_DO.urn
    )
    functions = (payload.do_fn for payload in payloads)
    return [one.payload for one in functions if one.urn == python_urns.PICKLED_DOFN_INFO]


class LocalJobRunner(PortableRunner):
    """Beam's runner for job services; the embedded service runs each job on a `LocalRunner`."""

    is_lossless = True

    def create_job_service(self, options: PipelineOptions) -> Any:
        """Start the embedded job service, or start or find another one; return its handle."""
        if options.view_as(PortableOptions).job_endpoint != EMBEDDED_JOB_SERVICE:
            return super().create_job_service(options)
        return self.create_job_service_handle(LocalJobServicer(beam_job_type=_LocalJob), options)


class _LocalJob(BeamJob):
    def _invoke_runner(self) -> Any:
        self.set_state(beam_job_api_pb2.JobState.RUNNING)
        runner = LocalRunner(provision_info=self._provision_info)
        return runner.run_via_runner_api(self._pipeline_proto, self.pipeline_options())


_LOSSLESS = {FnApiRunner: LocalRunner, PortableRunner: LocalJobRunner}


_number_labels = beam.pipeline.alter_label_if_ipython


def _keep_label(transform: beam.PTransform, pvalueish: Any) -> None:
    """Leave the label of a step as it is."""


class LaunchedPipeline(beam.Pipeline):
    """A pipeline that obeys the `Launch` around it, and whose local runner loses no elements.

    With `workers`, steps of Python run in so many processes; 0 means that the input decides.

    In IPython, Beam imports its interactive runner to add the number of the notebook's cell to the
    labels of steps. That import takes seconds, and fails without pandas or with pandas 3. So these
    pipelines keep their labels.
    """

    def __init__(
        self,
        options: PipelineOptions,
        start: Callable[[beam.Pipeline, Run], PipelineResult] | None = None,
        *,
        workers: int = 1,
    ) -> None:
        self._asked_workers = workers
        self.workers = Workers()
        try:
            super().__init__(options=options)
        except ValueError as error:
            raise UsageError(f"Beam refuses its options: {' '.join(str(error).split())}") from error
        # Beam removes it at the end of a run, which there may never be.
        remove_with(self, self.local_tempdir)
        lossless = _LOSSLESS.get(type(self.runner))
        self.runner: PipelineRunner = lossless() if lossless else self.runner
        self._start = start

    def apply(self, *args: Any, **kwargs: Any) -> Any:
        """Add a step to the pipeline, as in Beam, and keep its label."""
        # Beam looks this name up first, so the time until it is set back does not matter.
        beam.pipeline.alter_label_if_ipython = _keep_label
        try:
            return super().apply(*args, **kwargs)
        finally:
            beam.pipeline.alter_label_if_ipython = _number_labels

    def run(self, *args: Any, **kwargs: Any) -> PipelineResult:
        """Start the pipeline, or only add it to `Launch.built` if the launch runs no pipelines."""
        launch = current_launch()
        if not launch.runs:
            launch.built.append(self)
            return Finished()
        check_lossless(self)

        def run() -> PipelineResult:
            try:
                return super(LaunchedPipeline, self).run(*args, **kwargs)
            finally:
                # In IPython, Beam leaves this to its interactive runner.
                shutil.rmtree(self.local_tempdir, ignore_errors=True)

        if self._start is not None:
            return self._start(self, run)
        self._choose_workers()
        try:
            with silenced("apache_beam.runners"), _terminable():
                try:
                    result = run()
                except CannotLoad as error:
                    _LOGGER.warning("runs in one process, because no other can load it: %s", error)
                    self.workers.number, self.runner.python_steps = 1, frozenset()
                    result = run()
        except BaseException as error:
            short = short_error(error) if isinstance(error, Exception) else None
            for sink in self._sinks_here():
                sink.abandon(short or error)
            if short is None:
                raise
            _LOGGER.debug("the pipeline failed", exc_info=error)
            raise short from None
        for sink in self._sinks_here():
            sink.warn()
        return result

    def _sinks_here(self) -> list[Any]:
        return [*vars(self).get(SINKS, {}).values()] if isinstance(self.runner, LocalRunner) else []

    def _choose_workers(self) -> None:
        """Let the steps of Python run in worker processes if that pays."""
        if not isinstance(self.runner, LocalRunner):
            return
        steps = python_steps(self)
        large = functools.partial(is_large, self)
        number, why = choose_workers(self._asked_workers, bool(steps), large)
        _LOGGER.debug("worker processes: %d, because %s", number, why)
        self.workers.number = number
        self.runner.python_steps = steps if number > 1 else frozenset()
        if number > 1:
            options = self.options.view_as(DirectOptions)
            options.direct_num_workers, options.direct_running_mode = number, "multi_threading"


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM raise an exception in the block, so that the workers and files of a job go."""
    is_default = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not is_default or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Finished(PipelineResult):
    """The result of a pipeline that was not run, or that is only a template: always done."""

    def __init__(self) -> None:
        super().__init__(PipelineState.DONE)

    def wait_until_finish(self, duration: int | None = None) -> str:
        """Return the state DONE at once."""
        return str(PipelineState.DONE)


class RemoteResult(PipelineResult, abc.ABC):
    """The result of a remote job: wraps Beam's, and polls the state at growing intervals."""

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
        """State of the job, which is requested from the runner at each access."""
        return self._result.state

    def metrics(self) -> Any:
        """Return Beam's metrics of the job."""
        return self._result.metrics()

    def cancel(self) -> Any:
        """End the job."""
        self._remote.cancel()

    def wait_until_finish(self, duration: int | None = None) -> Any:
        """Wait for the end of the job; cancel the job if an interrupt ends the wait."""
        say_start(f"waiting for workers of {self._remote.runner}")
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

    @abc.abstractmethod
    def _failure(self, state: str) -> BeamTFRecordError:
        """Return the error to raise for a job that failed or was cancelled."""

    def _check_workers(self) -> None:
        """End the job, and raise, if its workers cannot start although the runner tries again."""

    def _note_facts(self) -> None:
        """Add facts about the finished job to `Launch.facts`, for ``job.json``."""

    def _await_submission(self) -> None:
        """Wait until the job goes on without this process."""


@contextlib.contextmanager
def silenced(name: str) -> Iterator[None]:
    """Silence a logger of Beam inside the block, since users get its errors as one line.

    A logger that logs at the level INFO or below is not silenced.
    """
    logger = logging.getLogger(name)
    level, show = logger.level, getattr(sdk_worker, "print", print)
    if not logger.isEnabledFor(logging.INFO):
        logger.setLevel(logging.CRITICAL + 1)
    # Its only use there is to print the traceback of a failed step, which it also logs and raises.
    sdk_worker.print = lambda *_, **__: None
    try:
        yield
    finally:
        logger.setLevel(level)
        sdk_worker.print = show


def graph_of(pipeline: beam.Pipeline) -> dict[str, list[str]]:
    """Return the names of a pipeline's outermost steps, in order, each with its inner steps."""
    (root,) = pipeline.transforms_stack
    # A step without inner steps is shown with its class, such as GroupByKey.
    return {
        outer.full_label: [part.full_label.rpartition("/")[2] for part in outer.parts]
        or [type(outer.transform).__name__]
        for outer in root.parts
    }


# A source of Beam that is smaller is done before the processes have started.
LARGE_BYTES = 64 * 2**20
# Transforms of Beam around one step: one with several outputs, and one whose errors are caught.
_WRAPPERS = ("_MultiParDo", "_ExceptionHandlingWrapper")


def python_steps(pipeline: beam.Pipeline) -> frozenset[str]:
    """Return the full labels of the primitive steps that run Python code for each row.

    These are the functions of the user, and the transforms of this package that are marked with
    `runs_python`.
    """
    (root,) = pipeline.transforms_stack
    is_library = hasattr(pipeline, IS_OF_JOB)
    return frozenset(step.full_label for step in _python_below(root, is_library=is_library))


def _python_below(step: AppliedPTransform, *, is_library: bool) -> Iterator[AppliedPTransform]:
    transform = step.transform
    is_marked = getattr(transform, "runs_python", False)
    if not step.parts:
        if isinstance(transform, beam.ParDo) and (is_marked or not is_library):
            yield step
        return
    package = type(transform).__module__.partition(".")[0]
    if is_marked:
        is_library = False
    elif package in ("apache_beam", "beam_tfrecord") and type(transform).__name__ not in _WRAPPERS:
        is_library = True
    for part in step.parts:
        yield from _python_below(part, is_library=is_library)


def is_large(pipeline: beam.Pipeline) -> bool:
    """Return whether one of the inputs of a pipeline is large, or of unknown size."""
    (root,) = pipeline.transforms_stack
    # An input that cannot be listed is an error of the run, which says what is wrong.
    with contextlib.suppress(Exception):
        readers = getattr(pipeline, READERS, ())
        return any(one.is_large() for one in readers) or any(map(_reads_much, _all_below(root)))
    return False


def _all_below(step: AppliedPTransform) -> Iterator[Any]:
    yield step.transform
    for part in step.parts:
        yield from _all_below(part)


def _reads_much(transform: Any) -> bool:
    source = getattr(transform, "source", None)
    return isinstance(source, BoundedSource) and (source.estimate_size() or 0) >= LARGE_BYTES
