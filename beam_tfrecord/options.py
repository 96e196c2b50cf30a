"""The table of options: command-line flag ↔ keyword of the functions ↔ default ↔ help.

`beam_tfrecord.cli` makes its flags from this table and calls the function of the same name with
these keywords, so that whatever can be typed can be called. It is pure data: reading it costs no
import.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

Form = Literal[
    "text", "count", "number", "choice", "switch", "off", "names", "words", "types", "char"
]
"""How a flag's text becomes a value: ``switch`` gives True and ``off`` False where the flag is
there, ``names`` splits at commas, ``words`` is a flag that may be repeated, ``types`` reads
``column=type,…``, ``char`` is one character, ``count`` a number or text that the function reads,
and the others are plain."""


@dataclasses.dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        keyword: Name of the argument of `write`, or of the field of a source's options.
        flag: What is typed.
        help: One sentence.
        default: Value where the flag is not there; the same in the function.
        form: How the flag's text becomes a value.
        metavar: What stands for the value in the help.
        choices: The possible values of a ``choice``.
        least: Smallest value of a ``number``, where it has one.
        sources: Kinds of input that have this option; empty: it is an argument of `write`.
    """

    keyword: str
    flag: str
    help: str
    default: Any = None
    form: Form = "text"
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    least: int | None = None
    sources: tuple[str, ...] = ()


FROM = Option(
    "from_",
    "--from",
    "Kind of the input (csv, parquet, …), where its name does not tell.",
    metavar="KIND",
)

WRITE_OPTIONS: tuple[Option, ...] = (
    FROM,
    Option(
        "splits",
        "--split",
        "Splits and their shares, which sum to 1.",
        metavar="train=0.9,test=0.1",
    ),
    Option("split_column", "--split-column", "Column that names each row's split.", metavar="C"),
    Option(
        "group",
        "--group",
        "Columns whose equal values share a split; without it, equal examples do.",
        form="names",
        metavar="C,…",
    ),
    Option(
        "key",
        "--key",
        "Columns that decide the order, however the input is filed.",
        form="names",
        metavar="C,…",
    ),
    Option(
        "shards",
        "--shards",
        "Number of shards, of all splits or of each (train=64,test=8).",
        form="count",
        metavar="N",
    ),
    Option("shard_size", "--shard-size", "Size of a shard.  [default: 128MB]", metavar="SIZE"),
    Option("shuffle", "--no-shuffle", "Keep the order of the input.", True, "off"),
    Option("seed", "--seed", "Seed of the order and of the splits.", 0, "number", "N"),
    Option("limit", "--limit", "Stop after N rows.", form="number", metavar="N", least=1),
    Option(
        "compression",
        "--compression",
        "Compression of the shards.",
        "none",
        "choice",
        choices=("none", "gzip"),
    ),
    Option("schema", "--schema", "Schema to enforce, as JSON.", metavar="FILE"),
    Option("columns", "--columns", "Columns to read.", form="names", metavar="A,B"),
    Option(
        "map",
        "--map",
        "Python function of a row: module:function or file.py:function.",
        metavar="FUNCTION",
    ),
    Option(
        "max_rejects",
        "--max-rejects",
        "Rows that may be rejected: a count, a percentage (1%), or any.",
        0,
        "count",
        "N",
    ),
    Option("overwrite", "--overwrite", "Replace another dataset in OUTPUT.", False, "switch"),
    Option(
        "runner",
        "--runner",
        "Beam runner: direct, flink, dataflow, …",
        "direct",
        metavar="NAME",
    ),
)

SOURCE_OPTIONS: tuple[Option, ...] = (
    Option(
        "delimiter",
        "--delimiter",
        r"Character between fields (CSV; \t for a tab).",
        ",",
        "char",
        "CHAR",
        sources=("csv",),
    ),
    Option(
        "header", "--no-header", "The first line is a row (CSV).", True, "off", sources=("csv",)
    ),
    Option(
        "names",
        "--names",
        "Names of the columns (CSV).",
        form="names",
        metavar="A,B",
        sources=("csv",),
    ),
    Option(
        "null_words",
        "--null",
        "Word that stands for no value in every column; may be repeated (CSV).",
        (),
        "words",
        "WORD",
        sources=("csv",),
    ),
    Option(
        "encoding",
        "--encoding",
        "Encoding of the text (CSV).",
        "utf-8",
        metavar="NAME",
        sources=("csv",),
    ),
    Option(
        "types",
        "--types",
        "Types of columns, instead of inferred ones (CSV).",
        form="types",
        metavar="col=type,…",
        sources=("csv",),
    ),
    Option(
        "union",
        "--union",
        "Columns that a file lacks are null there (CSV, Parquet).",
        False,
        "switch",
        sources=("csv", "parquet"),
    ),
)


def flag_of(keyword: str) -> str:
    """Return the flag of an option, for messages; the keyword itself where there is none."""
    for option in (*WRITE_OPTIONS, *SOURCE_OPTIONS):
        if option.keyword == keyword:
            return option.flag
    return keyword
