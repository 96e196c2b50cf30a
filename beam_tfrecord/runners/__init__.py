"""Runners: where a pipeline runs, and the presets that make it run well there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

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


def runner_options(
    runner: str, options: Sequence[str] = (), *, is_small: bool = False
) -> list[str]:
    """Return Beam's options for a runner, presets first, so that the user's own win.

    Args:
        runner: Our name of a runner, or Beam's.
        options: The user's own.
        is_small: There is too little to do to be worth the start of several workers.
    """
    name = _RUNNERS.get(runner.lower(), runner)
    presets: list[str] = [f"--runner={name}"]
    if name == "FnApiRunner" and not is_small:
        presets += [*_DIRECT, f"--direct_num_workers={os.cpu_count() or 1}"]
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
        options: Further Beam options, as on a command line.
        is_small: There is too little to do to be worth the start of several workers.
        **beam_options: The same by keyword.
    """
    words = runner_options(runner, options, is_small=is_small)
    return beam.Pipeline(options=PipelineOptions(words, **beam_options))
