"""Declares the options of `write`, `plan`, `extract` and of runners, and the tables of flags."""

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from beam_tfrecord.options import (
    DATAFLOW,
    FLINK,
    INPUT,
    ORDER,
    OUTPUT,
    PREPROCESSING,
    REJECTS,
    RUNNER,
    Option,
    flags_of,
)
from beam_tfrecord.options.sources import SOURCE_OPTIONS, ColumnsOption

if TYPE_CHECKING:
    from beam_tfrecord import Schema

# A table reads better than what the formatter makes of it.
# fmt: off

@dataclasses.dataclass(frozen=True)
class InputOptions:
    """What to read."""

    inputs: Annotated[Any, Option(
        "Files, globs, directories, the URL of a database, or ``-`` for standard input; or data in "
        "memory: a table (pandas, polars, Arrow, Hugging Face datasets, and others that export "
        "Arrow), NumPy arrays by name, or an iterable of rows (dicts, NamedTuples, dataclasses).")]
    _: dataclasses.KW_ONLY
    from_: Annotated[str | None, Option(
        "Kind of the input (csv, parquet, …) if its name does not show it.",
        "--from KIND")] = None
    source_options: Annotated[Mapping[str, Any] | None, Option(
        'Options of the source, such as ``{"delimiter": ";"}``; they may also be keywords.')] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectOptions:
    """Which rows to read; all readers have these options, too."""

    filter: Annotated[str | None, Option(
        "Condition in SQL; only rows for which it is true are read.", "--filter CONDITION",
        common=True)] = None
    sample: Annotated[float | str | None, Option(
        "Share of the rows to read, chosen by a hash: 1% or 0.01.", "--sample SHARE")] = None
    sample_seed: Annotated[int | None, Option(
        "Seed of the choice of the sample.", "--sample-seed N")] = 0


@dataclasses.dataclass(frozen=True)
class RunOptions(SelectOptions, InputOptions):
    """The arguments of all jobs."""

    output: Annotated[str | os.PathLike[str], Option("Directory of the output.")]
    _: dataclasses.KW_ONLY
    max_rejects: Annotated[int | str, Option(
        "Rows that may be rejected: a count, a percentage (1%), or any.", "--max-rejects COUNT",
        group=REJECTS, common=True)] = 0
    runner: Annotated[str, Option(
        "Beam runner: direct, flink, dataflow, …", "--runner NAME",
        group=RUNNER, common=True)] = "direct"
    pipeline_options: Annotated[Sequence[str], Option(
        "Further Beam options, as on a command line.")] = ()


@dataclasses.dataclass(frozen=True)
class JobOptions(ColumnsOption, RunOptions):
    """The arguments of jobs that make a dataset or a stage."""

    _: dataclasses.KW_ONLY
    limit: Annotated[int | None, Option(
        "Read only the first rows, after --filter and --sample.", "--limit N",
        least=1, common=True)] = None
    overwrite: Annotated[bool, Option(
        "Replace another dataset in the output.", "--overwrite",
        group=OUTPUT, common=True)] = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class MapOption:
    """The user's function."""

    map: Annotated[Callable[..., Any] | str | None, Option(
        "Python function of a row: module:function or file.py:function.", "--map FUNCTION",
        common=True)] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreprocessOptions(MapOption):
    """What becomes of the rows."""

    transform: Annotated[
        str | os.PathLike[str] | Callable[..., Any] | Sequence[Any] | None, Option(
        "Preprocess by steps.json, or by a function for tensorflow-transform: file.py:function.",
        "--transform STEPS", "Preprocessing by tensorflow-transform: steps as dicts, the path of "
        "their JSON, or a preprocessing function (also as ``module:function`` or "
        "``file.py:function``).")] = None
    step: Annotated[Sequence[str], Option(
        "Further steps: impute=A,B:how=median, zscore=A, vocabulary=C:top_k=100, ….",
        "--step OP=A,B")] = ()
    transform_fn: Annotated[str | os.PathLike[str] | None, Option(
        "Preprocess by the function that was fitted for another dataset.",
        "--transform-fn DATASET")] = None
    fit: Annotated[str, Option(
        "Split that statistics are computed from.", "--fit SPLIT")] = "train"
    raw_too: Annotated[bool, Option("Keep raw values too, as A_raw.", "--raw-too")] = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardOptions:
    """The size of the files."""

    shards: Annotated[int | str | Mapping[str, int] | None, Option(
        "Number of shards, of all splits or of each (train=64,test=8).", "--shards COUNT",
        group=OUTPUT, common=True)] = None
    shard_size: Annotated[int | str | None, Option(
        "Size of a shard.  [default: 128MB]", "--shard-size SIZE",
        group=OUTPUT)] = None


@dataclasses.dataclass(frozen=True)
class AppendOptions(ShardOptions, MapOption, RunOptions):
    """The arguments of `append`; all others are those of the dataset."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WriteOptions(ShardOptions, PreprocessOptions, JobOptions):
    """The arguments of `write` and `plan`."""

    splits: Annotated[Mapping[str, float | str] | str | None, Option(
        "Splits by shares of 1, or by numbers of rows or conditions, and rest.",
        "--split train=0.9,test=0.1",
        'Shares by name, such as ``{"train": .9, "test": .1}`` or ``"train=0.9,test=0.1"``; '
        "numbers of rows or conditions in SQL, and ``rest`` for the last split; ``fold=5``.",
        common=True)] = None
    stratify: Annotated[str | None, Option(
        "Column of classes that all splits have alike.", "--stratify C")] = None
    split_column: Annotated[str | None, Option(
        "Column that names each row's split.", "--split-column C")] = None
    group: Annotated[Sequence[str] | str | None, Option(
        "Columns whose equal values share a split; without it, equal examples do.",
        "--group C,…", common=True)] = None
    key: Annotated[Sequence[str] | str | None, Option(
        "Columns that decide the order, independent of the files of the input.",
        "--key C,…")] = None
    shuffle: Annotated[bool, Option(
        "Keep the order of the input.", "--no-shuffle", "False keeps the order of the input.",
        common=True)] = True
    dedup: Annotated[bool, Option(
        "Leave out rows that are exact copies of another one of their split.", "--dedup")] = False
    seed: Annotated[int | None, Option(
        "Seed of the order and of the splits.", "--seed N")] = 0
    compression: Annotated[str, Option(
        "Compression of the shards.", "--compression",
        choices=("none", "gzip"), group=OUTPUT)] = "none"
    schema: Annotated["Schema | str | os.PathLike[str] | None", Option(
        "Schema to enforce, as JSON.", "--schema FILE",
        "Schema to enforce, or the path of its JSON.", group=INPUT)] = None

# fmt: on

(FROM,) = flags_of((INPUT, InputOptions))
EXTRACT_OPTIONS = flags_of((INPUT, JobOptions))
APPEND_OPTIONS = flags_of((INPUT, RunOptions), (PREPROCESSING, MapOption), (OUTPUT, ShardOptions))
WRITE_OPTIONS = flags_of(
    (INPUT, JobOptions), (PREPROCESSING, PreprocessOptions), (ORDER, WriteOptions)
)


def flag_of(keyword: str) -> str:
    """Return the flag of the option `keyword`, for messages; the keyword if it has no flag."""
    flags = {option.keyword: option.flag for option in (*WRITE_OPTIONS, *SOURCE_OPTIONS)}
    return flags.get(keyword, keyword)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunnerOption(Option):
    """One option of one or several runners; `keyword` is the name of the option in Beam."""

    runners: tuple[str, ...]


_on_dataflow = functools.partial(RunnerOption, group=DATAFLOW, runners=("dataflow",))
_on_flink = functools.partial(RunnerOption, group=FLINK, runners=("flink",))

# fmt: off
RUNNER_OPTIONS: tuple[RunnerOption, ...] = (
    RunnerOption("Worker processes for Python code that runs for each row; 1: none.  "
                 "[default: one for each core if the input is large]", "--workers N", least=1,
                 keyword="direct_num_workers", group=RUNNER, runners=("direct",)),
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
    values = {option.keyword: flags.get(option.keyword) for option in RUNNER_OPTIONS}
    return [f"--{keyword}={value}" for keyword, value in values.items() if value is not None]


def beam_words(words: Sequence[str]) -> list[str]:
    """Return arguments of Beam's command line, with our flags of runners as Beam names them."""
    names = {option.flag: f"--{option.keyword}" for option in RUNNER_OPTIONS}
    split = [word.partition("=") for word in words]
    return [f"{names.get(flag, flag)}{sign}{value}" for flag, sign, value in split]


def misplaced(runner: str, flags: Mapping[str, Any]) -> RunnerOption | None:
    """Return an option that the user set but the runner lacks; None if there is none."""
    for option in RUNNER_OPTIONS:
        if flags.get(option.keyword) is not None and runner not in option.runners:
            return option
    return None
