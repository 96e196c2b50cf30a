"""Makes pipelines for a runner, with default options that suit it.

Importing this module does not import Beam or a module of one runner: the command line needs both
only once a job starts.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from beam_tfrecord.errors import UsageError
from beam_tfrecord.options.jobs import beam_words
from beam_tfrecord.runners import EMBEDDED_JOB_SERVICE, asked_workers, check_runner_name, traits_of

if TYPE_CHECKING:
    import apache_beam as beam

    from beam_tfrecord.runners.launch_settings import Launch

PRISM_PACKAGE = "github.com/apache/beam/sdks/v2/go/cmd/prism"

_LOGGER = logging.getLogger(__name__)

# Threads scale where no Python code runs for each row, since the native kernel releases the GIL.
_THREADS = "--direct_running_mode=multi_threading"
# Directories of `go install`, and of Beam's own downloads.
_PRISM_DIRECTORIES = ("~/go/bin", "~/.apache_beam/cache/prism/bin")


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
        presets = (prism_presets if name == "PrismRunner" else portable_presets)(options)
    elif name == "DataflowRunner":
        from beam_tfrecord.runners import dataflow

        presets = dataflow.presets(options)
    elif name == "FlinkRunner":
        from beam_tfrecord.runners import flink

        presets = flink.presets(options, is_small=is_small)
    _LOGGER.debug("runs on %s with %s", name, " ".join(presets) or "Beam's defaults")
    return [f"--runner={name}", *presets, *options]


def portable_presets(options: Sequence[str]) -> list[str]:
    """Return the default options for Beam's portable runner: its embedded job service.

    Workers are threads of this process (Beam's LOOPBACK), so that nothing has to be installed for
    them, sent to them or kept running.
    """
    if has_option(options, "--job_endpoint"):
        return []
    presets = [f"--job_endpoint={EMBEDDED_JOB_SERVICE}"]
    if not has_option(options, "--environment_type"):
        presets.append("--environment_type=LOOPBACK")
    return presets


def prism_presets(options: Sequence[str]) -> list[str]:
    """Return the default options for Prism, with the path of the program.

    If Prism is missing, Beam would download it without a timeout. This function raises instead.
    """
    if has_option(options, "--prism_location") or has_option(options, "--job_endpoint"):
        return []
    program = find_prism()
    if program is None:
        from apache_beam.version import __version__ as beam_version

        raise UsageError(
            "there is no prism on this machine: install it "
            f"(go install {PRISM_PACKAGE}@v{beam_version}), or name it "
            "(Beam's option --prism_location=PATH)"
        )
    # At other levels Prism logs its start and its end.
    return [f"--prism_location={program}", "--prism_log_level=error"]


def find_prism() -> str | None:
    """Return the path of Prism on this machine; None if Prism is not found."""
    directories = [os.environ.get("PATH", ""), os.environ.get("GOBIN", "")]
    directories += map(os.path.expanduser, _PRISM_DIRECTORIES)
    return shutil.which("prism", path=os.pathsep.join(filter(None, directories)))


def has_option(options: Sequence[str], flag: str) -> bool:
    """Return whether a flag is among options, with its value in the same word or the next."""
    return any(word == flag or word.startswith(f"{flag}=") for word in options)


def pipeline(
    runner: str = "direct",
    *,
    options: Sequence[str] = (),
    workers: int | None = None,
    is_small: bool = False,
    **beam_options: object,
) -> beam.Pipeline:
    """Return a `beam.Pipeline` with default options that suit a runner.

    Args:
        runner: ``direct`` (on all cores of this machine), or the name of any Beam runner.
        options: Further Beam options as words of a command line, not as `PipelineOptions`. They win
            over the defaults. Flags of ``beam-tfrecord write`` for runners are accepted, too.
        workers: Number of worker processes for steps of Python on the runner ``direct``; 1 runs all
            in this process, and None means one for each core if the input is large.
        is_small: True if there is too little work for several workers.
        **beam_options: Further Beam options by keyword.

    Raises:
        UsageError: Beam or the runner refuses the options.

    Example:
        >>> with bt.pipeline("direct", workers=1) as p:
        ...     _ = p | bt.ReadFromCsv("penguins.csv") | bt.WriteToTFRecord("birds/part")
    """
    from apache_beam.options.pipeline_options import PipelineOptions

    from beam_tfrecord.runners.pipelines import LaunchedPipeline, Options

    if not isinstance(runner, str) or isinstance(options, str | PipelineOptions):
        raise UsageError(
            "pipeline takes the name of a runner, and options as words: "
            "pipeline('direct', options=['--name=value']), or by keyword: pipeline(name='value')"
        )
    asked = beam_words(options)
    if workers is not None:
        asked.append(f"--direct_num_workers={workers}")
    parsed = Options(runner_options(runner, asked, is_small=is_small), **beam_options)
    name = traits_of(runner).beam_name
    if name == "DataflowRunner":
        from beam_tfrecord.runners import dataflow

        dataflow.check_credentials()
        return LaunchedPipeline(parsed, dataflow.start)
    if name == "FlinkRunner":
        from beam_tfrecord.runners import flink

        return LaunchedPipeline(parsed, flink.start)
    return LaunchedPipeline(parsed, workers=asked_workers(asked, **beam_options))


def describe(runner: str, launch: Launch, *, tasks: int) -> dict[str, Any]:
    """Return the steps of a pipeline that was built and not run, and details of its runner."""
    from beam_tfrecord.runners.pipelines import graph_of

    built = launch.built[-1]
    details: dict[str, Any] = {}
    if traits_of(runner).beam_name == "DataflowRunner":
        from beam_tfrecord.runners import dataflow

        details = dataflow.describe(built, launch.modules, tasks)
    return {**details, "graph": graph_of(built)}
