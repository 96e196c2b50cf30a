"""The public transforms that read files which state their types: `ReadFromParquet` and others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack

import pyarrow as pa

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS
from beam_tfrecord.selection.select import SelectOptions
from beam_tfrecord.sources.arrow import Arrow
from beam_tfrecord.sources.avro.source import Avro
from beam_tfrecord.sources.base import Source
from beam_tfrecord.sources.excel import Excel
from beam_tfrecord.sources.memory.source import OnDisk, until_exit
from beam_tfrecord.sources.orc import Orc
from beam_tfrecord.sources.parquet.source import Parquet
from beam_tfrecord.sources.typed_files import TypedFiles
from beam_tfrecord.sources.webdataset import WebDataset
from beam_tfrecord.transforms.read_source import Paths, ReadFromSource


class _ReadFromTyped(ReadFromSource):
    """Base class of the readers of files that state the types of their columns."""

    _kind: ClassVar[type[TypedFiles]]

    def __init__(
        self,
        paths: Paths,
        *,
        columns: Sequence[str] | None = None,
        union: bool = False,
        settled: pa.Schema | None = None,
        batch_rows: int = DEFAULT_BATCH_ROWS,
        **select: Unpack[SelectOptions],
    ) -> None:
        source = self._kind(paths, columns=columns, union=union, settled=settled)
        super().__init__(source, batch_rows=batch_rows, **select)


class ReadFromArrow(ReadFromSource):
    """Read Arrow IPC files and streams, Feather V2 files, or data in memory, as `Batch`es.

    Data in memory is written once, when this transform is created, to a temporary file that exists
    until this process ends.

    Args:
        paths: Files, directories and globs; or a table (pandas, polars, Arrow, Hugging Face
            datasets, and others that export Arrow), NumPy arrays by name, or an iterable of rows
            (dicts, NamedTuples, dataclasses).
        temp_dir: Directory for data in memory, which every worker must see; None means the
            temporary directory of this machine.
        columns: Names of the columns to read, in order; None means all.
        union: Accept files that lack columns; these are null there.
        settled: Types of columns whose types in the files have no exact common type; a row with a
            value that does not fit exactly is rejected.
        batch_rows: Maximum number of rows per batch; does not affect the dataset.
        **select: Which rows to read: `filter`, `sample` and `sample_seed`; see `SelectOptions`.

    Raises:
        UsageError: The arguments do not fit together, or the data in memory is no table.
        DataError: Values of a column in memory have no common type.
        StorageError: The temporary file cannot be written.
    """

    def __init__(
        self,
        paths: Any,
        *,
        temp_dir: str | None = None,
        columns: Sequence[str] | None = None,
        union: bool = False,
        settled: pa.Schema | None = None,
        batch_rows: int = DEFAULT_BATCH_ROWS,
        **select: Unpack[SelectOptions],
    ) -> None:
        readable = until_exit(paths, temp_dir)
        source: Source
        if isinstance(readable, OnDisk):
            source = readable.source_of(columns=columns)
        else:
            source = Arrow(readable, columns=columns, union=union, settled=settled)
        super().__init__(source, batch_rows=batch_rows, **select)


class ReadFromAvro(_ReadFromTyped):
    """Read Avro object container files as `Batch`es.

    Args:
        paths: Files, directories and globs.
        columns: Names of the columns to read, in order; None means all.
        union: Accept files that lack columns; these are null there.
        settled: Types of columns whose types in the files have no exact common type; a row with a
            value that does not fit exactly is rejected.
        batch_rows: Maximum number of rows per batch; does not affect the dataset.
        **select: Which rows to read: `filter`, `sample` and `sample_seed`; see `SelectOptions`.

    Raises:
        UsageError: The arguments do not fit together.
    """

    _kind = Avro


class ReadFromOrc(_ReadFromTyped):
    """Read ORC files as `Batch`es.

    Args:
        paths: Files, directories and globs.
        columns: Names of the columns to read, in order; None means all.
        union: Accept files that lack columns; these are null there.
        settled: Types of columns whose types in the files have no exact common type; a row with a
            value that does not fit exactly is rejected.
        batch_rows: Maximum number of rows per batch; does not affect the dataset.
        **select: Which rows to read: `filter`, `sample` and `sample_seed`; see `SelectOptions`.

    Raises:
        UsageError: The arguments do not fit together.
    """

    _kind = Orc


class ReadFromExcel(ReadFromSource):
    """Read one sheet of each Excel workbook (``.xlsx``) as `Batch`es; row 1 names the columns.

    Args:
        paths: Files, directories and globs.
        columns: Names of the columns to read, in order; None means all.
        union: Accept files that lack columns; these are null there.
        settled: Types of columns whose types in the files have no exact common type; a row with a
            value that does not fit exactly is rejected.
        sheet: Name of the sheet; None means the only visible one.
        types: Types of columns by name, as Arrow types or their names; others are inferred. Text is
            the only type for a column with several kinds of values.
        null_words: Words that mean null in every column, also errors such as ``#N/A``.
        batch_rows: Maximum number of rows per batch; does not affect the dataset.
        **select: Which rows to read: `filter`, `sample` and `sample_seed`; see `SelectOptions`.

    Raises:
        UsageError: The arguments do not fit together.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        columns: Sequence[str] | None = None,
        union: bool = False,
        settled: pa.Schema | None = None,
        sheet: str | None = None,
        types: Mapping[str, str | pa.DataType] | None = None,
        null_words: Sequence[str] = (),
        batch_rows: int = DEFAULT_BATCH_ROWS,
        **select: Unpack[SelectOptions],
    ) -> None:
        source = Excel(
            paths,
            columns=columns,
            union=union,
            settled=settled,
            sheet=sheet,
            types=types or {},
            null_words=null_words,
        )
        super().__init__(source, batch_rows=batch_rows, **select)


class ReadFromParquet(_ReadFromTyped):
    """Read Parquet files, or a stage (the output of `ExtractToParquet`), as `Batch`es.

    Args:
        paths: Files, directories and globs.
        columns: Names of the columns to read, in order; None means all.
        union: Accept files that lack columns; these are null there.
        settled: Types of columns whose types in the files have no exact common type; a row with a
            value that does not fit exactly is rejected.
        batch_rows: Maximum number of rows per batch; does not affect the dataset.
        **select: Which rows to read: `filter`, `sample` and `sample_seed`; see `SelectOptions`.

    Raises:
        UsageError: The arguments do not fit together.
    """

    _kind = Parquet


class ReadFromWebDataset(_ReadFromTyped):
    """Read WebDataset shards (``.tar``) as `Batch`es; a sample is a row, an extension a column.

    Args:
        paths: Files, directories and globs.
        columns: Names of the columns to read, in order; None means all.
        union: Accept files that lack columns; these are null there.
        settled: Types of columns whose types in the files have no exact common type; a row with a
            value that does not fit exactly is rejected.
        batch_rows: Maximum number of rows per batch; does not affect the dataset.
        **select: Which rows to read: `filter`, `sample` and `sample_seed`; see `SelectOptions`.

    Raises:
        UsageError: The arguments do not fit together.
    """

    _kind = WebDataset
