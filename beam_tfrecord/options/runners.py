"""The table of the options of runners: our flags, and the names that Beam has for the options."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from beam_tfrecord.options import Option

_DATAFLOW = ("dataflow",)
_FLINK = ("flink",)


@dataclasses.dataclass(frozen=True)
class RunnerOption(Option):
    """One option of one or several runners; `keyword` is the name of the option in Beam.

    Attributes:
        runners: The runners that have the option, by the names that this package has for them.
    """

    runners: tuple[str, ...] = ()


RUNNER_OPTIONS: tuple[RunnerOption, ...] = (
    RunnerOption(
        "project", "--project", "Google Cloud project (Dataflow).", metavar="ID", runners=_DATAFLOW
    ),
    RunnerOption(
        "region", "--region", "Google Cloud region (Dataflow).", metavar="NAME", runners=_DATAFLOW
    ),
    RunnerOption(
        "temp_location",
        "--temp-location",
        "Directory for temporary files of the runner (Dataflow).",
        metavar="gs://…",
        runners=_DATAFLOW,
    ),
    RunnerOption(
        "staging_location",
        "--staging-location",
        "Directory for staged packages (Dataflow).  [default: staging/ in --temp-location]",
        metavar="gs://…",
        runners=_DATAFLOW,
    ),
    RunnerOption(
        "job_name",
        "--job-name",
        "Name of the job (Dataflow).  [default: beam-tfrecord-… with the time]",
        metavar="NAME",
        runners=_DATAFLOW,
    ),
    RunnerOption(
        "machine_type",
        "--machine-type",
        "Type of the workers (Dataflow).  [default: by what the steps need]",
        metavar="TYPE",
        runners=_DATAFLOW,
    ),
    RunnerOption(
        "max_num_workers",
        "--max-workers",
        "Largest number of workers (Dataflow).",
        form="number",
        metavar="N",
        least=1,
        runners=_DATAFLOW,
    ),
    RunnerOption(
        "sdk_container_image",
        "--worker-image",
        "Container image of the workers (Dataflow).",
        metavar="IMAGE",
        runners=_DATAFLOW,
    ),
    RunnerOption(
        "template_location",
        "--template-location",
        "Write the job as a classic template there, and do not run it (Dataflow).",
        metavar="gs://…",
        runners=_DATAFLOW,
    ),
    RunnerOption(
        "flink_master",
        "--flink-master",
        "Address of Flink's REST interface (Flink).",
        metavar="HOST:PORT",
        runners=_FLINK,
    ),
    RunnerOption(
        "job_endpoint",
        "--job-endpoint",
        "Address of a running job server of Beam (Flink, portable).",
        metavar="HOST:PORT",
        runners=("flink", "portable"),
    ),
    RunnerOption(
        "flink_job_server_jar",
        "--job-server-jar",
        "Jar to start a job server from, if none is running (Flink).",
        metavar="FILE",
        runners=_FLINK,
    ),
    RunnerOption(
        "worker_command",
        "--worker-command",
        "Path of beam-tfrecord-boot on the hosts of the workers (Flink).  [default: as here]",
        metavar="PATH",
        runners=_FLINK,
    ),
    RunnerOption(
        "worker_wheel",
        "--worker-wheel",
        "Wheel of this package for remote workers: a path, or none if they have it.  "
        "[default: made from what is installed here]",
        metavar="FILE",
        runners=("dataflow", "flink"),
    ),
)

# `extract` has no templates, because its command always waits for the end of the job.
EXTRACT_RUNNER_OPTIONS: tuple[RunnerOption, ...] = tuple(
    option for option in RUNNER_OPTIONS if option.keyword != "template_location"
)


def runner_words(flags: Mapping[str, Any]) -> list[str]:
    """Return the runner options that the user set, as arguments of Beam's command line.

    Args:
        flags: Values of all flags by keyword.
    """
    words: list[str] = []
    for option in RUNNER_OPTIONS:
        value = flags.get(option.keyword)
        if value is None or value == option.default:
            continue
        many = value if isinstance(value, tuple | list) else (value,)
        words += [f"--{option.keyword}={one}" for one in many]
    return words


def misplaced(runner: str, flags: Mapping[str, Any]) -> RunnerOption | None:
    """Return an option that the user set but the runner lacks; None if there is none.

    Args:
        runner: The name that this package has for the runner.
        flags: Values of all flags by keyword.
    """
    for option in RUNNER_OPTIONS:
        typed = flags.get(option.keyword)
        if typed is not None and typed != option.default and runner not in option.runners:
            return option
    return None
