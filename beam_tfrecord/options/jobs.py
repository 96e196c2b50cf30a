"""The options of the functions and commands that run or plan jobs: `write`, `plan`, `extract`."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from beam_tfrecord.options.option import (
    INPUT,
    OUTPUT,
    REJECTS,
    RUNNER,
    Option,
)
from beam_tfrecord.options.sources import ColumnsOption

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
class JobOptions(ColumnsOption, SelectOptions, InputOptions):
    """The arguments of all jobs."""

    output: Annotated[str | os.PathLike[str], Option("Directory of the output.")]
    _: dataclasses.KW_ONLY
    limit: Annotated[int | None, Option(
        "Read only the first rows, after --filter and --sample.", "--limit N",
        least=1, common=True)] = None
    max_rejects: Annotated[int | str, Option(
        "Rows that may be rejected: a count, a percentage (1%), or any.", "--max-rejects COUNT",
        group=REJECTS, common=True)] = 0
    overwrite: Annotated[bool, Option(
        "Replace another dataset in the output.", "--overwrite",
        group=OUTPUT, common=True)] = False
    runner: Annotated[str, Option(
        "Beam runner: direct, flink, dataflow, …", "--runner NAME",
        group=RUNNER, common=True)] = "direct"
    pipeline_options: Annotated[Sequence[str], Option(
        "Further Beam options, as on a command line.")] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreprocessOptions:
    """What becomes of the rows."""

    map: Annotated[Callable[..., Any] | str | None, Option(
        "Python function of a row: module:function or file.py:function.", "--map FUNCTION",
        common=True)] = None
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
class WriteOptions(PreprocessOptions, JobOptions):
    """The arguments of `write` and `plan`."""

    splits: Annotated[Mapping[str, float] | str | None, Option(
        "Splits and their shares, which sum to 1.", "--split train=0.9,test=0.1",
        'Shares by name, such as ``{"train": .9, "test": .1}`` or ``"train=0.9,test=0.1"``.',
        common=True)] = None
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
    seed: Annotated[int | None, Option(
        "Seed of the order and of the splits.", "--seed N")] = 0
    shards: Annotated[int | str | Mapping[str, int] | None, Option(
        "Number of shards, of all splits or of each (train=64,test=8).", "--shards COUNT",
        group=OUTPUT, common=True)] = None
    shard_size: Annotated[int | str | None, Option(
        "Size of a shard.  [default: 128MB]", "--shard-size SIZE",
        group=OUTPUT)] = None
    compression: Annotated[str, Option(
        "Compression of the shards.", "--compression",
        choices=("none", "gzip"), group=OUTPUT)] = "none"
    schema: Annotated["Schema | str | os.PathLike[str] | None", Option(
        "Schema to enforce, as JSON.", "--schema FILE",
        "Schema to enforce, or the path of its JSON.", group=INPUT)] = None
