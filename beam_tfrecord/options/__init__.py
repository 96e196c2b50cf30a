"""The table of all options: the flag, Python keyword, default and help text of each.

The command line makes the flags of a command from this table, and calls the Python function of the
same name with the keywords. Error messages name options by flag, and `beam_tfrecord.errors`
replaces flags by keywords for Python callers. This module contains only data, so that importing it
is fast.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

Form = Literal[
    "text", "count", "number", "choice", "switch", "off", "names", "words", "types", "char"
]
"""How a flag's text becomes a value: the flag sets a ``switch`` to True and an ``off`` to False,
``names`` splits at commas, ``words`` is a flag that may be repeated, ``types`` reads
``column=type,…``, ``char`` is one character, ``count`` a number or text that the function parses;
``text``, ``number`` and ``choice`` are plain."""


@dataclasses.dataclass(frozen=True)
class Option:
    """One option of the command line and of the Python functions.

    Attributes:
        keyword: Name of the argument of `write`, or of the field in the options of a source.
        flag: Name on the command line.
        help: One sentence for ``--help``.
        default: Value if the option is not used; the Python function has the same default.
        form: Name of the syntax of the value, which decides how the flag's text is parsed.
        metavar: Placeholder of the value in ``--help``.
        choices: The possible values if they are few. The command line checks them for the form
            ``choice``; for other forms the source checks them.
        least: Smallest value of a ``number``; None if there is no limit.
        sources: Kinds of input that have this option; empty for an argument of `write`.
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


_IMAGES = ("images",)

IMAGE_OPTIONS: tuple[Option, ...] = (
    Option(
        "layout",
        "--layout",
        "What folders mean: class, split or flat (images); plain: features shape and data (NumPy).",
        metavar="NAME",
        choices=("class", "split", "flat", "plain"),
        sources=("images", "numpy"),
    ),
    Option(
        "labels",
        "--labels",
        "File with the classes in order, one a line (images).",
        metavar="FILE",
        sources=_IMAGES,
    ),
    Option(
        "base",
        "--base",
        "Directory that the paths of a table are relative to (images).",
        metavar="DIR",
        sources=_IMAGES,
    ),
    Option(
        "path_column",
        "--path-column",
        "Column of a table that holds the paths (images).  [default: path]",
        metavar="C",
        sources=_IMAGES,
    ),
    Option(
        "label_column",
        "--label-column",
        "Column of a table that holds the classes (images).",
        "label",
        metavar="C",
        sources=_IMAGES,
    ),
    Option(
        "check",
        "--check",
        "What to check of every picture (images).",
        "header",
        "choice",
        choices=("header", "decode", "none"),
        sources=_IMAGES,
    ),
    Option(
        "resize",
        "--resize",
        "New length of the shorter side, or HEIGHTxWIDTH (images).",
        metavar="SIZE",
        sources=_IMAGES,
    ),
    Option(
        "format",
        "--format",
        "Format to store: jpeg, png or webp (images).",
        metavar="NAME",
        choices=("jpeg", "png", "webp"),
        sources=_IMAGES,
    ),
    Option(
        "quality",
        "--quality",
        "Quality of re-encoded JPEG or WebP, 1 to 100 (images).",
        90,
        "number",
        "N",
        sources=_IMAGES,
    ),
    Option(
        "orient",
        "--orient",
        "Turn the pixels as EXIF says (images).",
        False,
        "switch",
        sources=_IMAGES,
    ),
    Option(
        "max_pixels",
        "--max-pixels",
        "Largest width times height (images).",
        2**28,
        "number",
        "N",
        least=1,
        sources=_IMAGES,
    ),
    Option(
        "max_bytes",
        "--max-bytes",
        "Largest file (images).",
        2**30,
        "number",
        "N",
        least=1,
        sources=_IMAGES,
    ),
)


_NUMPY = ("numpy",)

NUMPY_OPTIONS: tuple[Option, ...] = (
    Option(
        "example",
        "--example",
        "What one example is: an entry along the first axis, or a whole array (NumPy).",
        form="choice",
        choices=("row", "array"),
        sources=_NUMPY,
    ),
    Option(
        "store",
        "--store",
        "How arrays are stored: as their bytes, or as int64 and float32 values (NumPy).",
        "bytes",
        "choice",
        choices=("bytes", "values"),
        sources=_NUMPY,
    ),
)


PREPROCESS_OPTIONS: tuple[Option, ...] = (
    Option(
        "transform",
        "--transform",
        "Preprocess by steps.json, or by a function for tensorflow-transform: file.py:function.",
        metavar="STEPS",
    ),
    Option(
        "step",
        "--step",
        "Another step: impute=A,B:how=median, zscore=A, vocabulary=C:top_k=100, …; repeatable.",
        (),
        "words",
        "OP=A,B",
    ),
    Option(
        "transform_fn",
        "--transform-fn",
        "Preprocess by the function that was fitted for another dataset.",
        metavar="DATASET",
    ),
    Option("fit", "--fit", "Split that statistics are computed from.", "train", metavar="SPLIT"),
    Option("raw_too", "--raw-too", "Keep raw values too, as A_raw.", False, "switch"),
)


FROM = Option(
    "from_",
    "--from",
    "Kind of the input (csv, parquet, …) if its name does not show it.",
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
        "Columns that decide the order, independent of the files of the input.",
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
    *PREPROCESS_OPTIONS,
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

# The options of `extract`.
EXTRACT_OPTIONS: tuple[Option, ...] = tuple(
    option
    for option in WRITE_OPTIONS
    if option.keyword in ("from_", "limit", "columns", "max_rejects", "overwrite", "runner")
)

_SQL = ("sql",)

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
        "Types of columns, instead of inferred ones (CSV, SQL), or of raw bytes (NumPy).",
        form="types",
        metavar="col=type,…",
        sources=("csv", "sql", "numpy"),
    ),
    Option(
        "union",
        "--union",
        "Columns that a file lacks are null there (CSV, Parquet, NumPy, tables of images).",
        False,
        "switch",
        sources=("csv", "parquet", "images", "numpy"),
    ),
    Option("table", "--table", "Table or view to read (SQL).", metavar="NAME", sources=_SQL),
    Option("query", "--query", "SELECT to read instead (SQL).", metavar="SQL", sources=_SQL),
    Option("where", "--where", "Condition on the rows (SQL).", metavar="SQL", sources=_SQL),
    Option(
        "partition_column",
        "--partition-column",
        "Column to cut the rows by, instead of the key (SQL).",
        metavar="C",
        sources=_SQL,
    ),
    Option(
        "partitions",
        "--partitions",
        "Parts to read side by side (SQL).  [default: by rows and bytes]",
        form="number",
        metavar="N",
        least=1,
        sources=_SQL,
    ),
    Option(
        "max_connections",
        "--max-connections",
        "Connections to read over at a time, on all workers together (SQL).",
        form="number",
        metavar="N",
        least=1,
        sources=_SQL,
    ),
    Option(
        "row_count",
        "--no-row-count",
        "Do not count the rows to compare (SQL).",
        True,
        "off",
        sources=_SQL,
    ),
    Option(
        "arrays",
        "--arrays",
        "What becomes of array columns (SQL).",
        "refuse",
        "choice",
        choices=("refuse", "text", "list"),
        sources=_SQL,
    ),
    Option("username", "--username", "User of the database (SQL).", metavar="U", sources=_SQL),
    Option(
        "password_env",
        "--password-env",
        "Environment variable that holds the password where the database is read (SQL).",
        metavar="VAR",
        sources=_SQL,
    ),
    Option(
        "password_file",
        "--password-file",
        "File that holds the password there (SQL).",
        metavar="FILE",
        sources=_SQL,
    ),
    Option(
        "session_init",
        "--session-init",
        "Statement that every connection runs first; may be repeated (SQL).",
        (),
        "words",
        "SQL",
        sources=_SQL,
    ),
    Option(
        "statement_timeout_s",
        "--statement-timeout",
        "Seconds after which a statement is cancelled (SQL).",
        form="number",
        metavar="S",
        least=1,
        sources=_SQL,
    ),
    Option(
        "fetch_rows",
        "--fetch-rows",
        "Rows that a driver fetches at a time (SQL).",
        form="number",
        metavar="N",
        least=1,
        sources=_SQL,
    ),
    Option("driver", "--driver", "Class of a JDBC driver (SQL).", metavar="CLASS", sources=_SQL),
    Option(
        "jars",
        "--jar",
        "Jar of a JDBC driver: path, URL or Maven coordinates; may be repeated (SQL).",
        (),
        "words",
        "JAR",
        sources=_SQL,
    ),
    Option(
        "properties",
        "--properties",
        "Further properties of the connection (SQL).",
        form="types",
        metavar="key=value,…",
        sources=_SQL,
    ),
    *IMAGE_OPTIONS,
    *NUMPY_OPTIONS,
)


def flag_of(keyword: str) -> str:
    """Return the flag of the option `keyword`, for messages; the keyword if it has no flag."""
    flags = {option.keyword: option.flag for option in (*WRITE_OPTIONS, *SOURCE_OPTIONS)}
    return flags.get(keyword, keyword)
