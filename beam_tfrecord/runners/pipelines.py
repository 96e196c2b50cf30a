"""The pipeline that `beam_tfrecord.pipeline` gives: a `beam.Pipeline` that knows its runner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineResult, PipelineRunner, PipelineState

from beam_tfrecord.errors import UsageError
from beam_tfrecord.runners.local import check_lossless, lossless_runner
from beam_tfrecord.runners.waiting import current_launch


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
