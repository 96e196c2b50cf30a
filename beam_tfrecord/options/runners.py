"""The table of the options of runners: our flags, and the names that Beam has for the options."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from beam_tfrecord.options.option import DATAFLOW, FLINK, RUNNER, Option

_DATAFLOW = ("dataflow",)
_FLINK = ("flink",)


@dataclasses.dataclass(frozen=True)
class RunnerOption(Option):
    """One option of one or several runners; `keyword` is the name of the option in Beam."""

    runners: tuple[str, ...] = ()


RUNNER_OPTIONS: tuple[RunnerOption, ...] = (
    RunnerOption(
        "project",
        "--project",
        "Google Cloud project.",
        metavar="ID",
        runners=_DATAFLOW,
        group=DATAFLOW,
    ),
    RunnerOption(
        "region",
        "--region",
        "Google Cloud region.",
        metavar="NAME",
        runners=_DATAFLOW,
        group=DATAFLOW,
    ),
    RunnerOption(
        "temp_location",
        "--temp-location",
        "Directory for temporary files of the runner.",
        metavar="gs://…",
        runners=_DATAFLOW,
        group=DATAFLOW,
    ),
    RunnerOption(
        "staging_location",
        "--staging-location",
        "Directory for staged packages.  [default: staging/ in --temp-location]",
        metavar="gs://…",
        runners=_DATAFLOW,
        group=DATAFLOW,
    ),
    RunnerOption(
        "job_name",
        "--job-name",
        "Name of the job.  [default: beam-tfrecord-… with the time]",
        metavar="NAME",
        runners=_DATAFLOW,
        group=DATAFLOW,
    ),
    RunnerOption(
        "machine_type",
        "--machine-type",
        "Type of the workers.  [default: by what the steps need]",
        metavar="TYPE",
        runners=_DATAFLOW,
        group=DATAFLOW,
    ),
    RunnerOption(
        "max_num_workers",
        "--max-workers",
        "Largest number of workers.",
        form="number",
        metavar="N",
        least=1,
        runners=_DATAFLOW,
        group=DATAFLOW,
    ),
    RunnerOption(
        "sdk_container_image",
        "--worker-image",
        "Container image of the workers.",
        metavar="IMAGE",
        runners=_DATAFLOW,
        group=DATAFLOW,
    ),
    RunnerOption(
        "template_location",
        "--template-location",
        "Write the job as a classic template there, and do not run it.",
        metavar="gs://…",
        runners=_DATAFLOW,
        group=DATAFLOW,
    ),
    RunnerOption(
        "flink_master",
        "--flink-master",
        "Address of Flink's REST interface.",
        metavar="HOST:PORT",
        runners=_FLINK,
        group=FLINK,
    ),
    RunnerOption(
        "job_endpoint",
        "--job-endpoint",
        "Address of a running job server of Beam (Flink, portable).",
        metavar="HOST:PORT",
        runners=("flink", "portable"),
        group=FLINK,
    ),
    RunnerOption(
        "flink_job_server_jar",
        "--job-server-jar",
        "Jar to start a job server from, if none is running.",
        metavar="FILE",
        runners=_FLINK,
        group=FLINK,
    ),
    RunnerOption(
        "worker_command",
        "--worker-command",
        "Path of beam-tfrecord-boot on the hosts of the workers.  [default: as here]",
        metavar="PATH",
        runners=_FLINK,
        group=FLINK,
    ),
    RunnerOption(
        "worker_wheel",
        "--worker-wheel",
        "Wheel of this package for remote workers: a path, or none if they have it.  "
        "[default: made from what is installed here]",
        metavar="FILE",
        runners=("dataflow", "flink"),
        group=RUNNER,
    ),
)

# `extract` has no templates, because its command always waits for the end of the job.
EXTRACT_RUNNER_OPTIONS: tuple[RunnerOption, ...] = tuple(
    option for option in RUNNER_OPTIONS if option.keyword != "template_location"
)


def runner_words(flags: Mapping[str, Any]) -> list[str]:
    """Return the runner options that the user set, as arguments of Beam's command line."""
    words: list[str] = []
    for option in RUNNER_OPTIONS:
        value = flags.get(option.keyword)
        if value is None or value == option.default:
            continue
        many = value if isinstance(value, tuple | list) else (value,)
        words += [f"--{option.keyword}={one}" for one in many]
    return words


def beam_words(words: Sequence[str]) -> list[str]:
    """Return arguments of Beam's command line, with our flags of runners as Beam names them."""
    names = {option.flag: f"--{option.keyword}" for option in RUNNER_OPTIONS}
    split = [word.partition("=") for word in words]
    return [f"{names.get(flag, flag)}{sign}{value}" for flag, sign, value in split]


def misplaced(runner: str, flags: Mapping[str, Any]) -> RunnerOption | None:
    """Return an option that the user set but the runner lacks; None if there is none."""
    for option in RUNNER_OPTIONS:
        typed = flags.get(option.keyword)
        if typed is not None and typed != option.default and runner not in option.runners:
            return option
    return None
