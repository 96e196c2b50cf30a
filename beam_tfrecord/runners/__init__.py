"""Runners: where a pipeline runs, and the presets that make it run well there.

Importing this imports no Beam: the process that starts workers (`boot`) is below it, and has to
stay small and quick.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from beam_tfrecord.errors import UsageError
from beam_tfrecord.runners.portable import portable_presets, prism_presets

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_tfrecord.jobs.job_kind import JobSettings
    from beam_tfrecord.jobs.settings import Settings
    from beam_tfrecord.runners.launch import Launch
    from beam_tfrecord.runners.pipelines import Way

# In 2.77 Beam's name DirectRunner first tries to download another runner, without a timeout; and
# a killed worker hangs the mode with processes. The kernel releases the GIL, so threads scale.
_DIRECT = ("--direct_running_mode=multi_threading",)

# What our names stand for; any other name is Beam's own.
_RUNNERS = {
    "direct": "FnApiRunner",
    "flink": "FlinkRunner",
    "dataflow": "DataflowRunner",
    "portable": "PortableRunner",
    "prism": "PrismRunner",
}

# Modules that start pipelines in a way of their own; see `runners.pipelines.Way`.
_WAYS = {
    "DataflowRunner": "beam_tfrecord.runners.dataflow",
    "FlinkRunner": "beam_tfrecord.runners.flink",
}


def runner_name(runner: str) -> str:
    """Return Beam's name of a runner."""
    return _RUNNERS.get(runner.lower(), runner)


def runs_here(runner: str) -> bool:
    """Tell whether a runner's workers are threads of this process."""
    return runner_name(runner) == "FnApiRunner"


def exchange_of(runner: str) -> str:
    """Return how records travel to their shards on a runner: ``files`` or ``runner``."""
    # Its shuffle is a service of its own, built for more than any file system takes.
    return "runner" if runner_name(runner) == "DataflowRunner" else "files"


def preflight(settings: JobSettings, *, waits: bool = True) -> None:
    """Make sure that a job can run on its runner, before anything is read or written.

    Args:
        settings: Of the job.
        waits: Its end is waited for.

    Raises:
        UsageError: It cannot.
    """
    name = runner_name(settings.runner)
    if name == "DataflowRunner":
        from beam_tfrecord.runners import dataflow
        from beam_tfrecord.runners.remote_checks import check_reach, check_secrets

        check_secrets("dataflow", settings.pipeline_options)
        dataflow.check(settings.pipeline_options, waits=waits)
        check_reach("dataflow", settings)
    elif name == "FlinkRunner":
        from beam_tfrecord.runners import flink
        from beam_tfrecord.runners.remote_checks import check_secrets

        check_secrets("flink", settings.pipeline_options)
        flink.check(settings)


def is_remote_runner(runner: str) -> bool:
    """Tell whether jobs go on there when the process that started them ends."""
    return runner_name(runner) in _WAYS


def describe_job(settings: Settings, launch: Launch) -> dict[str, Any]:
    """Return the plan of a job with what its runner adds to it.

    Args:
        settings: Of the job.
        launch: It holds the pipeline, which was built and not run.
    """
    if runner_name(settings.runner) == "DataflowRunner":
        from beam_tfrecord.runners import dataflow_plan

        return dataflow_plan.describe(settings, launch)
    from beam_tfrecord.jobs.planning import plan_of
    from beam_tfrecord.runners.pipelines import graph_of

    return {**plan_of(settings), "graph": graph_of(launch.built[-1])}


def runner_options(
    runner: str, options: Sequence[str] = (), *, is_small: bool = False
) -> list[str]:
    """Return Beam's options for a runner, presets first, so that the user's own win.

    Args:
        runner: Our name of a runner, or Beam's.
        options: The user's own.
        is_small: There is too little to do to be worth the start of several workers.
    """
    name = runner_name(runner)
    presets: list[str] = [f"--runner={name}"]
    if name == "FnApiRunner" and not is_small:
        presets += [*_DIRECT, f"--direct_num_workers={os.cpu_count() or 1}"]
    elif name == "PortableRunner":
        presets += portable_presets(options)
    elif name == "PrismRunner":
        presets += prism_presets(options)
    elif name == "DataflowRunner":
        from beam_tfrecord.runners import dataflow

        presets += dataflow.presets(options)
    elif name == "FlinkRunner":
        from beam_tfrecord.runners import flink

        presets += flink.presets(options, is_small=is_small)
    return [*presets, *options]


def pipeline(
    runner: str = "direct",
    *,
    options: Sequence[str] = (),
    is_small: bool = False,
    **beam_options: Any,
) -> beam.Pipeline:
    """Return a `beam.Pipeline` with presets for a runner.

    Args:
        runner: ``direct`` (in this process, on all cores), or the name of any Beam runner.
        options: Further Beam options, as on a command line; no `PipelineOptions`.
        is_small: There is too little to do to be worth the start of several workers.
        **beam_options: The same by keyword.

    Raises:
        UsageError: The runner cannot be told so.
    """
    from apache_beam.options.pipeline_options import PipelineOptions

    from beam_tfrecord.runners.pipelines import LaunchedPipeline, Options

    if not isinstance(runner, str) or isinstance(options, str | PipelineOptions):
        raise UsageError(
            "pipeline takes the name of a runner, and options as words: "
            "pipeline('direct', options=['--name=value']), or by keyword: pipeline(name='value')"
        )
    words = runner_options(runner, options, is_small=is_small)
    module = _WAYS.get(runner_name(runner))
    way = None if module is None else cast("Way", importlib.import_module(module))
    return LaunchedPipeline(Options(words, **beam_options), way)
