"""The public transforms that read: `ReadFromCsv`, `ReadFromSql`, … one for each kind of source.

All of them return a PCollection of `Batch`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS
from beam_tfrecord.errors import UsageError
from beam_tfrecord.selection.select import SelectOptions
from beam_tfrecord.sources.images.source import Images
from beam_tfrecord.sources.numpy.memory import named_arrays, spill_arrays
from beam_tfrecord.sources.numpy.source import Numpy
from beam_tfrecord.sources.sql.source import Sql
from beam_tfrecord.transforms import display
from beam_tfrecord.transforms.map_rows import MapBatches as MapBatches
from beam_tfrecord.transforms.map_rows import MapRows as MapRows
from beam_tfrecord.transforms.read_csv import ReadFromCsv as ReadFromCsv
from beam_tfrecord.transforms.read_source import Paths, ReadFromSource
from beam_tfrecord.transforms.rows import BatchRows as BatchRows


class ReadFromImages(ReadFromSource):
    """Read images (JPEG, PNG, GIF, WebP, BMP, TIFF) as `Batch`es, one image per row.

    Args:
        paths: Directories, globs and files; or tables (CSV, Parquet, JSON) of paths. A
            directory may have tables of metadata, such as ``metadata.jsonl``.
        columns: Names of the columns to read, in order; None means all.
        layout: Meaning of the folders. ``class``: the first folder is the class. ``split``: the
            first folder is the split, and the second, if there is one, the class. ``flat``: folders
            have no meaning. None means that tables of metadata decide, or else the names of the
            folders.
        labels: Names of the classes in order, or a file with one name a line; None means all names
            that occur, sorted.
        base: Directory that the paths in a table are relative to; None means the directory of the
            table.
        path_column: Column of a table that holds the paths; None means ``path``, or ``file_name``
            of metadata. With a name, all inputs must be tables or have metadata.
        label_column: Column of a table that holds the classes, as names or as numbers.
        union: Accept tables that lack columns; these are null there.
        types: Types of columns of tables of CSV or JSON, as Arrow types or their names; others are
            inferred.
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
        **select: Which rows to read: `filter`, `sample` and `sample_seed`; see `SelectOptions`.

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
        types: Mapping[str, str | pa.DataType] | None = None,
        check: str = "header",
        resize: int | str | tuple[int, int] | None = None,
        format: str | None = None,
        quality: int = 90,
        orient: bool = False,
        max_pixels: int = 2**28,
        max_bytes: int = 2**30,
        batch_rows: int = DEFAULT_BATCH_ROWS,
        **select: Unpack[SelectOptions],
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
            types=types or {},
            check=check,
            resize=resize,
            format=format,
            quality=quality,
            orient=orient,
            max_pixels=max_pixels,
            max_bytes=max_bytes,
        )
        super().__init__(source, batch_rows=batch_rows, **select)


class ReadFromNumpy(ReadFromSource):
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
        **select: Which rows to read: `filter`, `sample` and `sample_seed`; see `SelectOptions`.

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
        **select: Unpack[SelectOptions],
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
        super().__init__(source, batch_rows=batch_rows, **select)

    def display_data(self) -> dict[str, Any]:
        """Return the settings that a runner's page shows for this step."""
        return super().display_data() | display.shown(arrays=self._names)


class ReadFromSql(ReadFromSource):
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
        **select: Which rows to read: `filter`, `sample` and `sample_seed`; see `SelectOptions`.

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
        **select: Unpack[SelectOptions],
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
        super().__init__(source, batch_rows=batch_rows, **select)
