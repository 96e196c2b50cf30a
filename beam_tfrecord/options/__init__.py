"""The table of all options: the flag, Python keyword, default and help text of each.

The command line makes the flags of a command from this table, and calls the Python function of the
same name with the keywords. Error messages name options by flag, and `beam_tfrecord.errors`
replaces flags by keywords for Python callers. This module contains only data, so that importing it
is fast.
"""

from __future__ import annotations

from beam_tfrecord.options.option import (
    INPUT,
    ORDER,
    OUTPUT,
    PREPROCESSING,
    REJECTS,
    RUNNER,
    Option,
)
from beam_tfrecord.options.sources import SOURCE_OPTIONS

__all__ = [
    "EXTRACT_OPTIONS",
    "FROM",
    "SOURCE_OPTIONS",
    "WRITE_OPTIONS",
    "Option",
    "flag_of",
]

PREPROCESS_OPTIONS: tuple[Option, ...] = (
    Option(
        "transform",
        "--transform",
        "Preprocess by steps.json, or by a function for tensorflow-transform: file.py:function.",
        metavar="STEPS",
        group=PREPROCESSING,
    ),
    Option(
        "step",
        "--step",
        "Another step: impute=A,B:how=median, zscore=A, vocabulary=C:top_k=100, …; repeatable.",
        (),
        "words",
        "OP=A,B",
        group=PREPROCESSING,
    ),
    Option(
        "transform_fn",
        "--transform-fn",
        "Preprocess by the function that was fitted for another dataset.",
        metavar="DATASET",
        group=PREPROCESSING,
    ),
    Option(
        "fit",
        "--fit",
        "Split that statistics are computed from.",
        "train",
        metavar="SPLIT",
        group=PREPROCESSING,
    ),
    Option(
        "raw_too",
        "--raw-too",
        "Keep raw values too, as A_raw.",
        False,
        "switch",
        group=PREPROCESSING,
    ),
)


FROM = Option(
    "from_",
    "--from",
    "Kind of the input (csv, parquet, …) if its name does not show it.",
    metavar="KIND",
    group=INPUT,
)

WRITE_OPTIONS: tuple[Option, ...] = (
    FROM,
    Option(
        "splits",
        "--split",
        "Splits and their shares, which sum to 1.",
        metavar="train=0.9,test=0.1",
        group=ORDER,
        common=True,
    ),
    Option(
        "split_column",
        "--split-column",
        "Column that names each row's split.",
        metavar="C",
        group=ORDER,
    ),
    Option(
        "group",
        "--group",
        "Columns whose equal values share a split; without it, equal examples do.",
        form="names",
        metavar="C,…",
        group=ORDER,
        common=True,
    ),
    Option(
        "key",
        "--key",
        "Columns that decide the order, independent of the files of the input.",
        form="names",
        metavar="C,…",
        group=ORDER,
    ),
    Option(
        "shards",
        "--shards",
        "Number of shards, of all splits or of each (train=64,test=8).",
        form="count",
        metavar="N",
        group=OUTPUT,
        common=True,
    ),
    Option(
        "shard_size",
        "--shard-size",
        "Size of a shard.  [default: 128MB]",
        metavar="SIZE",
        group=OUTPUT,
    ),
    Option(
        "shuffle",
        "--no-shuffle",
        "Keep the order of the input.",
        True,
        "off",
        group=ORDER,
        common=True,
    ),
    Option("seed", "--seed", "Seed of the order and of the splits.", 0, "number", "N", group=ORDER),
    Option(
        "filter",
        "--filter",
        "Condition in SQL; only rows for which it is true are read.",
        metavar="CONDITION",
        group=INPUT,
        common=True,
    ),
    Option(
        "sample",
        "--sample",
        "Share of the rows to read, chosen by a hash: 1% or 0.01.",
        form="count",
        metavar="SHARE",
        group=INPUT,
    ),
    Option(
        "sample_seed",
        "--sample-seed",
        "Seed of the choice of the sample.",
        0,
        "number",
        "N",
        group=INPUT,
    ),
    Option(
        "limit",
        "--limit",
        "Read only the first N rows, after --filter and --sample.",
        form="number",
        metavar="N",
        least=1,
        group=INPUT,
        common=True,
    ),
    Option(
        "compression",
        "--compression",
        "Compression of the shards.",
        "none",
        "choice",
        choices=("none", "gzip"),
        group=OUTPUT,
    ),
    Option("schema", "--schema", "Schema to enforce, as JSON.", metavar="FILE", group=INPUT),
    Option(
        "columns",
        "--columns",
        "Columns to read.",
        form="names",
        metavar="A,B",
        group=INPUT,
        common=True,
    ),
    Option(
        "map",
        "--map",
        "Python function of a row: module:function or file.py:function.",
        metavar="FUNCTION",
        group=PREPROCESSING,
        common=True,
    ),
    *PREPROCESS_OPTIONS,
    Option(
        "max_rejects",
        "--max-rejects",
        "Rows that may be rejected: a count, a percentage (1%), or any.",
        0,
        "count",
        "N",
        group=REJECTS,
        common=True,
    ),
    Option(
        "overwrite",
        "--overwrite",
        "Replace another dataset in OUTPUT.",
        False,
        "switch",
        group=OUTPUT,
        common=True,
    ),
    Option(
        "runner",
        "--runner",
        "Beam runner: direct, flink, dataflow, …",
        "direct",
        metavar="NAME",
        group=RUNNER,
        common=True,
    ),
)

# The options of `extract`.
_OF_EXTRACT = (
    *("from_", "filter", "sample", "sample_seed", "limit", "columns"),
    *("max_rejects", "overwrite", "runner"),
)
EXTRACT_OPTIONS: tuple[Option, ...] = tuple(
    option for option in WRITE_OPTIONS if option.keyword in _OF_EXTRACT
)


def flag_of(keyword: str) -> str:
    """Return the flag of the option `keyword`, for messages; the keyword if it has no flag."""
    flags = {option.keyword: option.flag for option in (*WRITE_OPTIONS, *SOURCE_OPTIONS)}
    return flags.get(keyword, keyword)
