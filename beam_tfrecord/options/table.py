"""The table of options: command-line flag ↔ keyword of the functions ↔ default ↔ help.

`beam_tfrecord.cli` makes its flags from this table and calls the function of the same name with
these keywords, so that whatever can be typed can be called. It is pure data: reading it costs no
import.
"""

from __future__ import annotations

from beam_tfrecord.options.images import IMAGE_OPTIONS
from beam_tfrecord.options.numpy import NUMPY_OPTIONS
from beam_tfrecord.options.option import Option as Option
from beam_tfrecord.options.preprocess import PREPROCESS_OPTIONS

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

# What `extract` takes of them.
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
        "Seconds after which a statement is given up (SQL).",
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
    """Return the flag of an option, for messages; the keyword itself where there is none."""
    for option in (*WRITE_OPTIONS, *SOURCE_OPTIONS):
        if option.keyword == keyword:
            return option.flag
    return keyword
