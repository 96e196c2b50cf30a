"""The public readers, `ReadFrom…`: one for each kind of source."""

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
# A name, as it is or quoted, with the schema before it.
_NAME = re.compile(r'(?:[\w$]+|"[^"]+"|`[^`]+`)(?:\.(?:[\w$]+|"[^"]+"|`[^`]+`))*')


class _ReadFrom(ReadBatches):
    """A reader that can also iterate its source without a pipeline."""

    def __init__(self, source: Source, *, batch_rows: int) -> None:
        super().__init__(source, batch_rows=batch_rows)

    def batches(self) -> Iterator[Batch]:
        """Iterate the input here, without a pipeline."""
        return self.source.batches(batch_rows=self.batch_rows)


class ReadFromCsv(_ReadFrom):
    """Read CSV files, plain or compressed (``.gz .bz2 .zst .lz4 .xz``), as `Batch`es.

    Args:
        paths: Files, globs or directories.
        delimiter: Character between two fields; ASCII.
        quote: Character around a field; None means that there are no quotes.
        escape: Character that takes the meaning from the next one; None means none.
        double_quote: Two quotes inside quotes mean one.
        header: The first row of each file holds the names of the columns.
        names: Names of the columns, instead of the header or if there is none.
        null_words: Words that are null in every column, also in text.
        encoding: Encoding of the files, by its name in Python.
        types: Types of columns by name, as Arrow types or their names; others are inferred.
        columns: Names of the columns to read, in order; None means all.
        union: Columns that a file lacks are null there.
        chunk_bytes: Approximate size of the units that a file is cut into, in bytes.
        batch_rows: Rows of a batch; has no influence on the dataset.

    Raises:
        UsageError: The arguments do not fit together.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        delimiter: str = ",",
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
    """Read images (JPEG, PNG, GIF, WebP, BMP, TIFF) as `Batch`es, one image a row.

    Args:
        paths: Directories, globs and files; or tables (CSV, Parquet) of paths.
        columns: Names of the columns to read, in order; None means all.
        layout: ``class``: the first folder is the class. ``split``: it is the split, and the next
            one, if there is any, the class. ``flat``: folders mean nothing. None: by the names of
            the folders.
        labels: Names of the classes in order, or a file with one a line; None means all names,
            sorted.
        base: Directory that the paths of a table are relative to; None means that of the table.
        path_column: Column of tables that holds the paths, by default ``path``. If it is named,
            the input are tables.
        label_column: Column of a table that holds the classes, as names or as numbers.
        union: Columns that a table lacks are null there.
        check: ``header``: format, size and end marks. ``decode``: all pixels. ``none``: nothing.
        resize: New length of the shorter side in pixels, or ``HEIGHTxWIDTH``; None means no
            change.
        format: ``jpeg``, ``png`` or ``webp``: re-encode all images; None means no change.
        quality: Quality of re-encoded JPEG or WebP, from 1 to 100.
        orient: Turn the pixels as EXIF says.
        max_pixels: Largest width times height that is accepted.
        max_bytes: Largest size of a file that is accepted.
        batch_rows: Rows of a batch; has no influence on the dataset.

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

    Arrays in memory are written once, when this transform is made, to a temporary file that lasts
    as long as this process. The array of an .npy file is the column ``data``, those of an .npz file
    are columns by their names, and a structured dtype is one column a field.

    Args:
        paths: Files, directories and globs; or an array, or arrays by name:
            ``{"data": array, "label": labels}``, of equal length along their first axis.
        temp_dir: Directory for arrays in memory that every worker sees; None means this machine's.
        columns: Names of the columns to read, in order; None means all.
        example: What one example is. ``row``: an entry along the first axis of an array. ``array``:
            a whole array, one example a file. Several files have no default.
        store: ``bytes``: exactly, in bytes if an Example has no such type. ``values``: numbers as
            int64 and float32 lists.
        layout: ``plain``: two features, ``shape`` and ``data``, for the only array.
        types: Dtypes, by column, of arrays that were saved as raw bytes, such as bfloat16.
        union: Arrays that a file lacks are null there.
        batch_rows: Rows of a batch; has no influence on the dataset.

    Raises:
        UsageError: The arguments do not fit together; arrays in memory have dtypes of their own.
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
        """Return what a runner's page shows."""
        return super().display_data() | display.shown(arrays=self._names)


class ReadFromParquet(_ReadFrom):
    """Read Parquet files, or a stage, as `Batch`es.

    Args:
        paths: Files, directories and globs.
        columns: Names of the columns to read, in order; None means all.
        union: Columns that a file lacks are null there.
        settled: Types of columns that files disagree about beyond an exact common type; a value
            that does not fit exactly makes its row a reject.
        batch_rows: Rows of a batch; has no influence on the dataset.

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
    """Read a table or a query of a database as `Batch`es, in parallel partitions of one moment.

    The password belongs in an environment variable or a file of the machines that read. One inside
    the URL, or passed as an argument, serves runners in this process alone.

    Args:
        paths: URL of the database, or the path of a SQLite or DuckDB file.
        table: Table or view to read.
        query: SELECT to read instead.
        where: Condition in SQL that every row meets.
        columns: Names of the columns to read, in order; None means all.
        types: Types to read columns as, such as ``{"price": "text"}``; never a cast that loses
            something.
        partition_column: Column to cut the rows by; None means the primary key.
        partitions: Number of parts that are read at the same time; None means by rows and bytes.
        ordered: Return the rows in the order of the key, and number them so.
        max_connections: Largest number of connections at a time, whatever the runner.
        row_count: Count the rows at the moment that is read, and compare.
        arrays: What becomes of array columns: ``refuse``, ``text`` or ``list``.
        session_init: Statements that every connection runs first.
        fetch_rows: Rows that a driver fetches at a time; None means the engine's choice.
        statement_timeout_s: Seconds after which the database gives a statement up.
        username: User; None means the one in the URL.
        password_env: Environment variable of the readers that holds the password.
        password_file: File of the readers that holds the password.
        driver: Class of a JDBC driver.
        jars: Where a JDBC driver is: paths, URLs or Maven coordinates.
        properties: Further properties of the connection.
        password: The password itself.
        batch_rows: Rows of a batch; has no influence on the dataset.

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
    """Read a database as `Batch`es, called as `apache_beam.io.jdbc.ReadFromJdbc` is.

    Unlike Beam's, it keeps the rows whose partition column is null, partitions a `query` as well,
    and connects on workers alone. The password given here serves runners inside this process;
    for others leave it empty and pass ``password_env`` or ``password_file``.

    Args:
        table_name: Table or view; `query` overrides it.
        driver_class_name: Class of the JDBC driver; only ``jdbc:`` URLs need it.
        jdbc_url: URL of the database.
        username: User.
        password: Password.
        query: SELECT to read instead of the table.
        disable_autocommit: Has no effect: every read is a transaction.
        output_parallelization: Has no effect: partitions are always read in parallel.
        fetch_size: Rows that the driver fetches at a time.
        partition_column: Column to cut the rows by; None means the primary key.
        partitions: Number of parts.
        connection_properties: ``name=value;name=value``.
        connection_init_sqls: Statements that every connection runs first.
        max_connections: Largest number of connections; None or a negative number means any.
        driver_jars: Jars of the driver, with commas between them.
        expansion_service: Has no effect: there is none.
        classpath: Further jars: paths, URLs or Maven coordinates.
        schema: Must be None: types come from the database.
        secret_manager: Must be None.
        batch_rows: Rows of a batch.
        where: As for `ReadFromSql`, as are all that follow.
        columns: Names of the columns to read, in order; None means all.
        types: Types to read columns as.
        ordered: Return the rows in the order of the key, and number them so.
        row_count: Count the rows at the moment that is read, and compare.
        arrays: What becomes of array columns: ``refuse``, ``text`` or ``list``.
        statement_timeout_s: Seconds after which the database gives a statement up.
        password_env: Environment variable of the readers that holds the password.
        password_file: File of the readers that holds the password.

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
