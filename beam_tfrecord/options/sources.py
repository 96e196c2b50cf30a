"""Declares the options of sources, such as ``--delimiter`` of CSV files.

A source inherits the fields of its options from the classes here. They are not evaluated as text
(`from __future__ import annotations`), because the table of options comes from the annotations.
"""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from beam_tfrecord.options import CSV, IMAGES, INPUT, LAKE, NUMPY, SQL, Option, flags_of

if TYPE_CHECKING:
    import pyarrow as pa

# A table reads better than what the formatter makes of it.
# fmt: off

@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnsOption:
    """The columns to read."""

    columns: Annotated[Sequence[str] | None, Option(
        "Columns to read.", "--columns A,B", group=INPUT, common=True)] = None


@dataclasses.dataclass(frozen=True)
class FileOptions(ColumnsOption):
    """What to read."""

    paths: Annotated[str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
                     Option("Files, directories and globs.")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnionOption:
    """The option of sources of several files with columns."""

    union: Annotated[bool, Option(
        "Columns that a file lacks are null there (CSV, Parquet, Arrow, ORC, Avro, Excel, NumPy, "
        "TFRecord, tables of images, WebDataset).", "--union", group=INPUT)] = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class TypesOption:
    """The option of sources that infer types."""

    types: Annotated["Mapping[str, str | pa.DataType] | None", Option(
        "Types of columns, instead of inferred ones (CSV, JSON, Excel, SQL, tables of images), or "
        "of bytes (NumPy).", "--types col=type,…", group=INPUT, common=True)] = None

    @property
    def typed(self) -> "Mapping[str, str | pa.DataType]":
        """The types, none by default."""
        return self.types or {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChunkOption:
    """The option of sources of text."""

    chunk_bytes: Annotated[int, Option(
        "Approximate size in bytes of the units, the parts of a file that are read as one.",
        )] = 64 * 2**20


@dataclasses.dataclass(frozen=True, kw_only=True)
class NullWordsOption:
    """The option of sources with words for null."""

    null_words: Annotated[Sequence[str], Option(
        "Words that stand for no value in every column (CSV, Excel).", "--null WORD",
        common=True)] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class PropertiesOption:
    """The option of sources that connect to something."""

    properties: Annotated[Mapping[str, str] | None, Option(
        "Further properties of the connection, storage or catalogue (SQL, Delta Lake, Iceberg).",
        "--properties key=value,…")] = dataclasses.field(default=None, repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CsvOptions(UnionOption, TypesOption, NullWordsOption, ChunkOption):
    """The options of CSV files."""

    delimiter: Annotated[str | None, Option(
        r"Character between fields, such as ';' or '\t'.  [default: tab in .tsv, else comma]",
        "--delimiter CHAR", common=True)] = None
    header: Annotated[bool, Option(
        "The first line is a row.", "--no-header",
        "Whether the first row of each file holds the names of the columns.", common=True)] = True
    names: Annotated[Sequence[str] | None, Option(
        "Names of the columns, instead of those in the first line (see --no-header).",
        "--names A,B", common=True)] = None
    skip_lines: Annotated[int, Option(
        "Lines at the start of each file that are not rows.", "--skip-lines N", least=0)] = 0
    comment: Annotated[str | None, Option(
        "Character that begins a line that is not a row, such as '#'.", "--comment CHAR")] = None
    quote: Annotated[str | None, Option(
        "Character around fields with delimiters or line ends; none: quotes have no meaning.",
        "--quote CHAR|none", choices=("none",))] = '"'
    escape: Annotated[str | None, Option(
        "Character that makes the next one literal; None means that there is none.")] = None
    double_quote: Annotated[bool, Option("Whether two quotes inside quotes mean one.")] = True
    date_formats: Annotated[Sequence[str], Option(
        "Formats of dates or times, such as %d.%m.%Y, or COLUMN=FORMAT.",
        "--date-format FORMAT")] = ()
    null_in: Annotated[Sequence[str], Option(
        "Words that stand for no value in one column.", "--null-in COLUMN=WORD")] = ()
    thousands: Annotated[str | None, Option(
        "Character between groups of three digits.", "--thousands CHAR")] = None
    decimal: Annotated[str, Option(
        "Character before the fraction of a number.", "--decimal CHAR")] = "."
    encoding: Annotated[str, Option("Encoding of the text.", "--encoding NAME")] = "utf-8"


@dataclasses.dataclass(frozen=True, kw_only=True)
class JsonOptions(TypesOption, ChunkOption):
    """The options of JSON files."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TypedOptions(UnionOption):
    """The options of files that state the types of their columns."""

    settled: Annotated["pa.Schema | None", Option(
        "Types of columns whose types in the files have no exact common type; a row with a value "
        "that does not fit exactly is rejected.")] = dataclasses.field(default=None, repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryOptions:
    """The option of data in memory."""

    nan: Annotated[str, Option(
        "NaN of pandas: a missing value, or a value.", choices=("null", "value"))] = "null"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExcelOptions(TypedOptions, TypesOption, NullWordsOption):
    """The options of Excel workbooks."""

    sheet: Annotated[str | None, Option(
        "Sheet of an Excel workbook.  [default: the only visible one]", "--sheet NAME",
        group=INPUT)] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatabaseOptions(TypesOption, PropertiesOption):
    """The options of databases."""

    where: Annotated[str | None, Option("SQL condition on the rows.", "--where SQL")] = None
    ordered: Annotated[bool, Option("Read and number the rows in the order of the key.")] = False
    row_count: Annotated[bool, Option(
        "Do not count the rows to compare.", "--no-row-count",
        "Count the rows of the snapshot, and compare the count with the rows read.")] = True
    arrays: Annotated[str, Option(
        "What becomes of array columns.", "--arrays",
        choices=("refuse", "text", "list"))] = "refuse"
    password_env: Annotated[str | None, Option(
        "Environment variable that holds the password where the database is read.",
        "--password-env VAR")] = None
    password_file: Annotated[str | None, Option(
        "File that holds the password there.", "--password-file FILE")] = None
    statement_timeout_s: Annotated[float | None, Option(
        "Seconds after which a statement is cancelled.", "--statement-timeout S", least=1)] = None
    table: Annotated[str | None, Option("Table or view to read.", "--table NAME")] = None
    query: Annotated[str | None, Option("SELECT to read instead.", "--query SQL")] = None
    partition_column: Annotated[str | None, Option(
        "Column to cut the rows by, instead of the key.", "--partition-column C")] = None
    partitions: Annotated[int | None, Option(
        "Parts to read in parallel.  [default: by rows and bytes]", "--partitions N",
        least=1)] = None
    max_connections: Annotated[int | None, Option(
        "Connections to read over at a time, on all workers together.", "--max-connections N",
        least=1)] = None
    username: Annotated[str | None, Option("User of the database.", "--username U")] = None
    session_init: Annotated[Sequence[str], Option(
        "Statements that every connection runs first.", "--session-init SQL")] = ()
    fetch_rows: Annotated[int | None, Option(
        "Rows that a driver fetches at a time.", "--fetch-rows N", least=1)] = None
    driver: Annotated[str | None, Option("Class of a JDBC driver.", "--driver CLASS")] = None
    jars: Annotated[Sequence[str], Option(
        "Jars of a JDBC driver: paths, URLs or Maven coordinates.", "--jar JAR")] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class LakeOptions(PropertiesOption):
    """The options of tables of a data lake."""

    version: Annotated[int | None, Option(
        "Version of a Delta Lake table, or id of a snapshot of an Iceberg table.", "--version N",
        least=0)] = None
    as_of: Annotated[str | None, Option(
        "Read the version that was the last one at a time in ISO 8601.", "--as-of TIME")] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PictureOptions:
    """The options of all sources of images."""

    base: Annotated[str | None, Option(
        "Directory that relative paths of a table or of a COCO file start from.",
        "--base DIR")] = None
    check: Annotated[str, Option(
        "What to check of every image.", "--check",
        choices=("header", "decode", "none"))] = "header"
    resize: Annotated[int | str | tuple[int, int] | None, Option(
        "New length of the shorter side, or HEIGHTxWIDTH.", "--resize SIZE")] = None
    format: Annotated[str | None, Option(
        "Format to store: jpeg, png or webp.", "--format NAME",
        choices=("jpeg", "png", "webp"))] = None
    quality: Annotated[int, Option(
        "Quality of re-encoded JPEG or WebP, 1 to 100.", "--quality N")] = 90
    orient: Annotated[bool, Option("Turn the pixels as EXIF or XMP says.", "--orient")] = False
    max_pixels: Annotated[int, Option(
        "Largest width times height.", "--max-pixels N", least=1)] = 2**28
    max_bytes: Annotated[int, Option("Largest file.", "--max-bytes N", least=1)] = 2**30


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageOptions(UnionOption, TypesOption, PictureOptions):
    """The options of images in folders or tables."""

    layout: Annotated[str | None, Option(
        "What folders mean: class, split or flat.", "--layout NAME",
        choices=("class", "split", "flat"))] = None
    labels: Annotated[str | os.PathLike[str] | Sequence[str] | None, Option(
        "File with the classes in order, one per line.", "--labels FILE",
        "Names of the classes in order, or a file with one name a line; None means all names that "
        "occur, sorted.")] = None
    path_column: Annotated[str | None, Option(
        "Column of a table that holds the paths.  [default: path]", "--path-column C")] = None
    label_column: Annotated[str, Option(
        "Column of a table that holds the classes.", "--label-column C")] = "label"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CocoOptions(PictureOptions):
    """The options of COCO files."""

    masks: Annotated[Sequence[str] | None, Option(
        "Masks to draw of COCO's objects: objects (one each), classes (one an image), or both.",
        "--masks A,B")] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class NumpyOptions(TypedOptions, TypesOption):
    """The options of NumPy arrays."""

    example: Annotated[str | None, Option(
        "What one example is: an entry along the first axis, or an array.", "--example",
        choices=("row", "array"))] = None
    store: Annotated[str, Option(
        "How arrays are stored: as their bytes, or as int64 and float32 values.", "--store",
        choices=("bytes", "values"))] = "bytes"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SourceOptions(
    NumpyOptions, CocoOptions, ImageOptions, LakeOptions, DatabaseOptions, ExcelOptions,
    JsonOptions, CsvOptions, MemoryOptions,
):
    """The options of all kinds of sources."""

# fmt: on

SOURCE_OPTIONS = flags_of(
    (CSV, CsvOptions),
    (CSV, ExcelOptions),
    (SQL, DatabaseOptions),
    (LAKE, LakeOptions),
    (IMAGES, ImageOptions),
    (IMAGES, CocoOptions),
    (NUMPY, NumpyOptions),
)
