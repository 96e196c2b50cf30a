"""Makes Beam pipelines that suit a runner: with default options, and a function that starts jobs.

Importing this package does not import Beam, because the program that starts workers (`boot`) is a
module of this package, and has to stay small and quick.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from beam_tfrecord.errors import UsageError
from beam_tfrecord.options.jobs import beam_words
from beam_tfrecord.runners.traits import check_runner_name, traits_of

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_tfrecord.runners.launch import Launch

_LOGGER = logging.getLogger(__name__)

# In Beam's mode with processes, a job hangs if a worker is killed. Threads scale here, since the
# native kernel releases the GIL.
_THREADS = "--direct_running_mode=multi_threading"


def runner_options(
    runner: str, options: Sequence[str] = (), *, is_small: bool = False
) -> list[str]:
    """Return Beam's options for a runner: the defaults of this package, then the user's options.

    The user's options win, since they come last.
    """
    check_runner_name(runner)
    name = traits_of(runner).beam_name
    presets: list[str] = []
    if name == "FnApiRunner" and not is_small:
        presets = [_THREADS, f"--direct_num_workers={os.cpu_count() or 1}"]
    elif name in ("PortableRunner", "PrismRunner"):
        from beam_tfrecord.runners import portable

        is_prism = name == "PrismRunner"
        presets = (portable.prism_presets if is_prism else portable.portable_presets)(options)
    elif name == "DataflowRunner":
        from beam_tfrecord.runners import dataflow

        presets = dataflow.presets(options)
    elif name == "FlinkRunner":
        from beam_tfrecord.runners import flink

        presets = flink.presets(options, is_small=is_small)
    _LOGGER.debug("runs on %s with %s", name, " ".join(presets) or "Beam's defaults")
    return [f"--runner={name}", *presets, *options]


def pipeline(
    runner: str = "direct",
    *,
    options: Sequence[str] = (),
    is_small: bool = False,
    **beam_options: object,
) -> beam.Pipeline:
    """Return a `beam.Pipeline` with default options that suit a runner.

    Args:
        runner: ``direct`` (in this process, on all cores), or the name of any Beam runner.
        options: Further Beam options as words of a command line, not as `PipelineOptions`. They win
            over the defaults. Flags of ``beam-tfrecord write`` for runners are accepted, too.
        is_small: True if there is too little work for several workers.
        **beam_options: Further Beam options by keyword.

    Raises:
        UsageError: Beam or the runner refuses the options.
    """
    from apache_beam.options.pipeline_options import PipelineOptions

    from beam_tfrecord.runners.pipelines import LaunchedPipeline, Options

    if not isinstance(runner, str) or isinstance(options, str | PipelineOptions):
        raise UsageError(
            "pipeline takes the name of a runner, and options as words: "
            "pipeline('direct', options=['--name=value']), or by keyword: pipeline(name='value')"
        )
    words = runner_options(runner, beam_words(options), is_small=is_small)
    parsed = Options(words, **beam_options)
    name = traits_of(runner).beam_name
    if name == "DataflowRunner":
        from beam_tfrecord.runners import dataflow

        dataflow.check_credentials()
        return LaunchedPipeline(parsed, dataflow.start)
    if name == "FlinkRunner":
        from beam_tfrecord.runners import flink

        return LaunchedPipeline(parsed, flink.start)
    return LaunchedPipeline(parsed)


def describe(runner: str, launch: Launch, *, groups: int) -> dict[str, Any]:
    """Return the steps of a pipeline that was built and not run, and details of its runner."""
    from beam_tfrecord.runners.pipelines import graph_of

    built = launch.built[-1]
    details: dict[str, Any] = {}
    if traits_of(runner).beam_name == "DataflowRunner":
        from beam_tfrecord.runners import dataflow

        details = dataflow.describe(built, launch.modules, groups)
    return {**details, "graph": graph_of(built)}
