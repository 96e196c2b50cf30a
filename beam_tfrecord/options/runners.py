"""The table of the options of runners: our flags, and the names that Beam has for the options."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from beam_tfrecord.options.option import DATAFLOW, FLINK, RUNNER, Option


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunnerOption(Option):
    """One option of one or several runners; `keyword` is the name of the option in Beam."""

    runners: tuple[str, ...]


_on_dataflow = functools.partial(RunnerOption, group=DATAFLOW, runners=("dataflow",))
_on_flink = functools.partial(RunnerOption, group=FLINK, runners=("flink",))

# fmt: off
RUNNER_OPTIONS: tuple[RunnerOption, ...] = (
    _on_dataflow("Google Cloud project.", "--project ID", keyword="project"),
    _on_dataflow("Google Cloud region.", "--region NAME", keyword="region"),
    _on_dataflow("Directory for temporary files of the runner.", "--temp-location gs://…",
                 keyword="temp_location"),
    _on_dataflow("Directory for staged packages.  [default: staging/ in --temp-location]",
                 "--staging-location gs://…", keyword="staging_location"),
    _on_dataflow("Name of the job.  [default: beam-tfrecord-… with the time]", "--job-name NAME",
                 keyword="job_name"),
    _on_dataflow("Type of the workers.  [default: n2-standard-4]", "--machine-type TYPE",
                 keyword="machine_type"),
    _on_dataflow("Largest number of workers.", "--max-workers N", least=1,
                 keyword="max_num_workers"),
    _on_dataflow("Container image of the workers.", "--worker-image IMAGE",
                 keyword="sdk_container_image"),
    _on_dataflow("Write the job as a classic template there, and do not run it.",
                 "--template-location gs://…", keyword="template_location"),
    _on_flink("Address of Flink's REST interface.", "--flink-master HOST:PORT",
              keyword="flink_master"),
    RunnerOption("Address of a running job server of Beam (Flink, portable).",
                 "--job-endpoint HOST:PORT", keyword="job_endpoint", group=FLINK,
                 runners=("flink", "portable")),
    _on_flink("Jar to start a job server from, if none is running.", "--job-server-jar FILE",
              keyword="flink_job_server_jar"),
    _on_flink("Path of beam-tfrecord-boot on the hosts of the workers.  [default: as here]",
              "--worker-command PATH", keyword="worker_command"),
    RunnerOption("Wheel of this package for remote workers: a path, or none if they have it.  "
                 "[default: made from what is installed here]", "--worker-wheel FILE",
                 keyword="worker_wheel", group=RUNNER, runners=("dataflow", "flink")),
)
# fmt: on

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
