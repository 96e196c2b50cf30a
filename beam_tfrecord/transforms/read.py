"""The public transforms that read: `ReadFromCsv`, `ReadFromParquet`, … one for each kind of source.

All of them return a PCollection of `Batch`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS, Batch
from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.base import Source
from beam_tfrecord.sources.csv.source import Csv
from beam_tfrecord.sources.images.source import Images
from beam_tfrecord.sources.numpy.memory import named_arrays, spill_arrays
from beam_tfrecord.sources.numpy.source import Numpy
from beam_tfrecord.sources.parquet.source import Parquet
from beam_tfrecord.sources.sql.source import Sql
from beam_tfrecord.transforms import display
from beam_tfrecord.transforms.map_rows import MapBatches as MapBatches
from beam_tfrecord.transforms.map_rows import MapRows as MapRows
from beam_tfrecord.transforms.reading import ReadBatches
from beam_tfrecord.transforms.rows import BatchRows as BatchRows

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
# The name of a table, plain or quoted, perhaps after the name of its schema and a dot.
_NAME = re.compile(r'(?:[\w$]+|"[^"]+"|`[^`]+`)(?:\.(?:[\w$]+|"[^"]+"|`[^`]+`))*')


class _ReadFrom(ReadBatches):
    """Base class of the readers: a transform that can also read its source without a pipeline."""

    def __init__(self, source: Source, *, batch_rows: int) -> None:
        super().__init__(source, batch_rows=batch_rows)

    def batches(self) -> Iterator[Batch]:
        """Iterate over the batches of the input in this process, without a pipeline."""
        return self.source.batches(batch_rows=self.batch_rows)


class ReadFromCsv(_ReadFrom):
    """Read CSV files, plain or compressed (``.gz .bz2 .zst .lz4 .xz``), as `Batch`es.

    Args:
        paths: Files, globs or directories.
        delimiter: Character between two fields, in ASCII; None means a tab in files whose names end
            in ``.tsv``, and a comma in others.
        quote: Character around a field; None means that there are no quotes.
        escape: Character that makes the next one literal; None means that there is none.
        double_quote: Whether two quotes inside quotes mean one.
        header: Whether the first row of each file holds the names of the columns.
        names: Names of the columns, to replace the header or if there is none.
        null_words: Words that mean null in every column, also in columns of text.
        encoding: Encoding of the files, by its name in Python.
        types: Types of columns by name, as Arrow types or their names; others are inferred.
        columns: Names of the columns to read, in order; None means all.
        union: Accept files that lack columns; these are null there.
        chunk_bytes: Approximate size in bytes of the units, the parts of a file that are read as
            one.
        batch_rows: Maximum number of rows per batch; does not affect the dataset.

    Raises:
        UsageError: The arguments do not fit together.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        delimiter: str | None = None,
        quote: str | None = '"',
        escape: str | None = None,
        double_quote: bool = True,
        header: bool = True,
        names: Sequence[str] | None = None,
        null_words: Sequence[str] = (),
        encoding: str = "utf-8",
        types: Mapping[str, str | pa.DataType] | None = None,
        columns: Sequence[str] | None = None,
        union: bool = False,
        chunk_bytes: int = 64 * 2**20,
        batch_rows: int = DEFAULT_BATCH_ROWS,
    ) -> None:
        source = Csv(
            paths,
            delimiter=delimiter,
            quote=quote,
            escape=escape,
            double_quote=double_quote,
            header=header,
            names=names,
            null_words=null_words,
            encoding=encoding,
            types=types or {},
            columns=columns,
            union=union,
            chunk_bytes=chunk_bytes,
        )
        super().__init__(source, batch_rows=batch_rows)


class ReadFromImages(_ReadFrom):
    """Read images (JPEG, PNG, GIF, WebP, BMP, TIFF) as `Batch`es, one image per row.

    Args:
        paths: Directories, globs and files; or tables (CSV, Parquet) of paths.
        columns: Names of the columns to read, in order; None means all.
        layout: Meaning of the folders. ``class``: the first folder is the class. ``split``: the
            first folder is the split, and the second, if there is one, the class. ``flat``: folders
            have no meaning. None means that the names of the folders decide.
        labels: Names of the classes in order, or a file with one name a line; None means all names
            that occur, sorted.
        base: Directory that the paths in a table are relative to; None means the directory of the
            table.
        path_column: Column of a table that holds the paths; None means ``path``. With a name, all
            inputs must be tables.
        label_column: Column of a table that holds the classes, as names or as numbers.
        union: Accept tables that lack columns; these are null there.
        check: Check of each file. ``header``: format, size and end marks. ``decode``: all pixels.
            ``none``: no check.
        resize: New length of the shorter side in pixels, or ``HEIGHTxWIDTH``; None means no
            change.
        format: Format to re-encode all images in: ``jpeg``, ``png`` or ``webp``; None means no
            change.
        quality: Quality of re-encoded JPEG or WebP, from 1 to 100.
        orient: Rotate and mirror the pixels as the EXIF orientation says.
        max_pixels: Largest width times height that is accepted.
        max_bytes: Largest size of a file in bytes that is accepted.
        batch_rows: Maximum number of rows per batch; does not affect the dataset.

    Raises:
        UsageError: The arguments do not fit together.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        columns: Sequence[str] | None = None,
        layout: str | None = None,
        labels: str | os.PathLike[str] | Sequence[str] | None = None,
        base: str | None = None,
        path_column: str | None = None,
        label_column: str = "label",
        union: bool = False,
        check: str = "header",
        resize: int | str | tuple[int, int] | None = None,
        format: str | None = None,
        quality: int = 90,
        orient: bool = False,
        max_pixels: int = 2**28,
        max_bytes: int = 2**30,
        batch_rows: int = DEFAULT_BATCH_ROWS,
    ) -> None:
        source = Images(
            paths,
            columns=columns,
            layout=layout,
            labels=labels,
            base=base,
            path_column=path_column,
            label_column=label_column,
            union=union,
            check=check,
            resize=resize,
            format=format,
            quality=quality,
            orient=orient,
            max_pixels=max_pixels,
            max_bytes=max_bytes,
        )
        super().__init__(source, batch_rows=batch_rows)


class ReadFromNumpy(_ReadFrom):
    """Read NumPy arrays, from files or from memory, as `Batch`es.

    Arrays in memory are written once, when this transform is created, to a temporary file that
    exists until this process ends. The array of an .npy file is the column ``data``, the arrays of
    an .npz file are columns with their names, and each field of a structured dtype is a column.

    Args:
        paths: Files, directories and globs; or an array, or arrays by name:
            ``{"data": array, "label": labels}``, of equal length along their first axis.
        temp_dir: Directory for arrays in memory, which every worker must see; None means the
            temporary directory of this machine.
        columns: Names of the columns to read, in order; None means all.
        example: Content of one example. ``row``: an entry along the first axis of an array.
            ``array``: all of an array, one example per file. Several files have no default.
        store: How values are stored. ``bytes``: exactly, as bytes if an Example has no such type.
            ``values``: numbers as int64 and float32 lists.
        layout: ``plain`` stores the only array as two features, ``shape`` and ``data``; None means
            the features of `store`.
        types: Dtypes, by column, of arrays that were saved as raw bytes, such as bfloat16.
        union: Accept files that lack arrays; these are null there.
        batch_rows: Maximum number of rows per batch; does not affect the dataset.

    Raises:
        UsageError: The arguments do not fit together, such as `types` for arrays in memory.
    """

    def __init__(
        self,
        paths: Paths | npt.NDArray[Any] | Mapping[str, npt.NDArray[Any]],
        *,
        temp_dir: str | None = None,
        columns: Sequence[str] | None = None,
        example: str | None = None,
        store: str = "bytes",
        layout: str | None = None,
        types: Mapping[str, str] | None = None,
        union: bool = False,
        batch_rows: int = DEFAULT_BATCH_ROWS,
    ) -> None:
        self._names: tuple[str, ...] = ()
        if isinstance(paths, Mapping | np.ndarray):
            if types:
                raise UsageError("arrays in memory have dtypes of their own: leave out types")
            arrays = named_arrays(paths)
            self._names = tuple(arrays)
            paths, types = spill_arrays(arrays, temp_dir)
        source = Numpy(
            paths,
            columns=columns,
            example=example,
            store=store,
            layout=layout,
            types=types or None,
            union=union,
        )
        super().__init__(source, batch_rows=batch_rows)

    def display_data(self) -> dict[str, Any]:
        """Return the settings that a runner's page shows for this step."""
        return super().display_data() | display.shown(arrays=self._names)


class ReadFromParquet(_ReadFrom):
    """Read Parquet files, or a stage (the output of `ExtractToParquet`), as `Batch`es.

    Args:
        paths: Files, directories and globs.
        columns: Names of the columns to read, in order; None means all.
        union: Accept files that lack columns; these are null there.
        settled: Types of columns whose types in the files have no exact common type; a row with a
            value that does not fit exactly is rejected.
        batch_rows: Maximum number of rows per batch; does not affect the dataset.

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
        batch_rows: int = DEFAULT_BATCH_ROWS,
    ) -> None:
        source = Parquet(
            paths,
            columns=columns,
            union=union,
            settled=settled,
        )
        super().__init__(source, batch_rows=batch_rows)


class ReadFromSql(_ReadFrom):
    """Read a table or a query of a database as `Batch`es, in parallel partitions of one snapshot.

    Put the password in an environment variable or a file on the machines that read. A password in
    the URL or in `password` works only with runners inside this process.

    Args:
        paths: URL of the database, or the path of a SQLite or DuckDB file.
        table: Table or view to read.
        query: SELECT statement to read instead of a table.
        where: SQL condition; only rows that meet it are read.
        columns: Names of the columns to read, in order; None means all.
        types: Types to read columns as, such as ``{"price": "text"}``; no cast loses
            information.
        partition_column: Column by whose values the rows are partitioned; None means the primary
            key.
        partitions: Number of partitions; None means by the number of rows and bytes.
        ordered: Read and number the rows in the order of the key.
        max_connections: Largest number of connections at a time, with every runner.
        row_count: Count the rows of the snapshot, and compare the count with the rows read.
        arrays: How to read array columns: ``refuse`` (an error), ``text`` or ``list``.
        session_init: Statements that every connection executes first.
        fetch_rows: Rows that a driver fetches at a time; None means the default of the engine.
        statement_timeout_s: Seconds after which the database cancels a statement.
        username: User; None means the user in the URL.
        password_env: Environment variable on the reading machines that holds the password.
        password_file: File on the reading machines that holds the password.
        driver: Class of a JDBC driver.
        jars: Jars of a JDBC driver: paths, URLs or Maven coordinates.
        properties: Further properties of the connection.
        password: The password itself.
        batch_rows: Maximum number of rows per batch; does not affect the dataset.

    Raises:
        UsageError: The arguments do not fit together.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        table: str | None = None,
        query: str | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        types: Mapping[str, Any] | None = None,
        partition_column: str | None = None,
        partitions: int | None = None,
        ordered: bool = False,
        max_connections: int | None = None,
        row_count: bool = True,
        arrays: str = "refuse",
        session_init: Sequence[str] = (),
        fetch_rows: int | None = None,
        statement_timeout_s: float | None = None,
        username: str | None = None,
        password_env: str | None = None,
        password_file: str | None = None,
        driver: str | None = None,
        jars: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        password: str | None = None,
        batch_rows: int = DEFAULT_BATCH_ROWS,
    ) -> None:
        source = Sql(
            paths,
            table=table,
            query=query,
            where=where,
            columns=columns,
            types=types or {},
            partition_column=partition_column,
            partitions=partitions,
            ordered=ordered,
            max_connections=max_connections,
            row_count=row_count,
            arrays=arrays,
            session_init=session_init,
            fetch_rows=fetch_rows,
            statement_timeout_s=statement_timeout_s,
            username=username,
            password_env=password_env,
            password_file=password_file,
            driver=driver,
            jars=jars,
            properties=properties or {},
            password=password,
        )
        super().__init__(source, batch_rows=batch_rows)


class ReadFromJdbc(ReadFromSql):
    """Read a database as `Batch`es, with the arguments of `apache_beam.io.jdbc.ReadFromJdbc`.

    Unlike Beam's transform, it reads rows whose partition column is null, partitions a `query` too,
    and connects on workers only. The argument `password` works only with runners inside this
    process; for other runners leave it empty and pass `password_env` or `password_file`.

    Args:
        table_name: Table or view; `query` overrides it.
        driver_class_name: Class of the JDBC driver; only ``jdbc:`` URLs need it.
        jdbc_url: URL of the database.
        username: User.
        password: Password.
        query: SELECT statement to read instead of the table.
        disable_autocommit: Has no effect: every read is a transaction.
        output_parallelization: Has no effect: partitions are always read in parallel.
        fetch_size: Rows that the driver fetches at a time.
        partition_column: Column by whose values the rows are partitioned; None means the primary
            key.
        partitions: Number of partitions; None means by the number of rows and bytes.
        connection_properties: ``name=value;name=value``.
        connection_init_sqls: Statements that every connection executes first.
        max_connections: Largest number of connections; None or a negative number means no limit.
        driver_jars: Jars of the driver, separated by commas.
        expansion_service: Has no effect: there is none.
        classpath: Further jars: paths, URLs or Maven coordinates.
        schema: Must be None: types come from the database.
        secret_manager: Must be None.
        batch_rows: Maximum number of rows per batch; does not affect the dataset.
        where: SQL condition; only rows that meet it are read.
        columns: Names of the columns to read, in order; None means all.
        types: Types to read columns as; see `ReadFromSql`.
        ordered: Read and number the rows in the order of the key.
        row_count: Count the rows of the snapshot, and compare the count with the rows read.
        arrays: How to read array columns: ``refuse`` (an error), ``text`` or ``list``.
        statement_timeout_s: Seconds after which the database cancels a statement.
        password_env: Environment variable on the reading machines that holds the password.
        password_file: File on the reading machines that holds the password.

    Raises:
        UsageError: The arguments do not fit together.
    """

    def __init__(
        self,
        table_name: str | None,
        driver_class_name: str | None,
        jdbc_url: str,
        username: str | None,
        password: str | None,
        query: str | None = None,
        disable_autocommit: bool | None = None,
        output_parallelization: bool | None = None,
        fetch_size: int | None = None,
        partition_column: str | None = None,
        partitions: int | None = None,
        connection_properties: str | None = None,
        connection_init_sqls: Sequence[str] | None = None,
        max_connections: int | None = None,
        driver_jars: str | None = None,
        expansion_service: Any = None,
        classpath: Sequence[str] | None = None,
        schema: Any = None,
        secret_manager: str | None = None,
        *,
        batch_rows: int = DEFAULT_BATCH_ROWS,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        types: Mapping[str, Any] | None = None,
        ordered: bool = False,
        row_count: bool = True,
        arrays: str = "refuse",
        statement_timeout_s: float | None = None,
        password_env: str | None = None,
        password_file: str | None = None,
    ) -> None:
        if schema is not None:
            raise UsageError(
                "ReadFromJdbc takes its types from the database: leave schema out, or pass "
                "types={'column': 'type'}"
            )
        if secret_manager is not None:
            raise UsageError(
                "ReadFromJdbc asks no secret manager: put the password in an environment "
                "variable of the workers, and pass password_env"
            )
        if query is None and not _NAME.fullmatch(table_name or ""):
            raise UsageError(f"{table_name!r} is not the name of a table: pass query instead")
        super().__init__(
            jdbc_url,
            batch_rows=batch_rows,
            table=table_name if query is None else None,
            query=query,
            driver=driver_class_name or None,
            username=username or None,
            password=password or None,
            fetch_rows=fetch_size,
            partition_column=partition_column,
            partitions=partitions,
            properties=_properties(connection_properties or ""),
            session_init=tuple(connection_init_sqls or ()),
            max_connections=None
            if max_connections is None or max_connections < 0
            else max_connections,
            jars=(*_jars(driver_jars or ""), *(classpath or ())),
            where=where,
            columns=columns,
            types=types,
            ordered=ordered,
            row_count=row_count,
            arrays=arrays,
            statement_timeout_s=statement_timeout_s,
            password_env=password_env,
            password_file=password_file,
        )


def _properties(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(";") if pair.strip()]
    return {name.strip(): value.strip() for name, _, value in pairs}


def _jars(text: str) -> list[str]:
    return [jar.strip() for jar in text.split(",") if jar.strip()]
