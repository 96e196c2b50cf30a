"""The public readers, `ReadFrom…`: one for each kind of source."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import apache_beam as beam
import numpy as np

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS, Batch
from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources import Source
from beam_tfrecord.sources.csv.source import Csv
from beam_tfrecord.sources.images.source import Images
from beam_tfrecord.sources.numpy.arrays import Numpy
from beam_tfrecord.sources.numpy.memory import named_arrays, spill_arrays
from beam_tfrecord.sources.parquet.source import Parquet
from beam_tfrecord.sources.sql.source import Sql
from beam_tfrecord.transforms import display
from beam_tfrecord.transforms.map_rows import MapBatches as MapBatches
from beam_tfrecord.transforms.map_rows import MapRows as MapRows
from beam_tfrecord.transforms.reading import ReadBatches
from beam_tfrecord.transforms.rows import BatchRows as BatchRows

# A name, as it is or quoted, with the schema before it.
_NAME = re.compile(r'(?:[\w$]+|"[^"]+"|`[^`]+`)(?:\.(?:[\w$]+|"[^"]+"|`[^`]+`))*')


class _ReadFrom(ReadBatches):
    """A `ReadBatches` whose arguments are those of its source."""

    source_class: Callable[..., Source]

    def __init__(self, paths: Any, *, batch_rows: int = DEFAULT_BATCH_ROWS, **options: Any) -> None:
        super().__init__(self.source_class(paths=paths, **options), batch_rows=batch_rows)

    def batches(self) -> Iterator[Batch]:
        """Iterate the input here, without a pipeline."""
        return self.source.batches(batch_rows=self.batch_rows)


class ReadFromCsv(_ReadFrom):
    """Read CSV files as `Batch`es; arguments as `beam_tfrecord.sources.csv.source.Csv`."""

    source_class = Csv


class ReadFromImages(_ReadFrom):
    """Read pictures as `Batch`es; arguments as `beam_tfrecord.sources.images.source.Images`."""

    source_class = Images


class ReadFromNumpy(_ReadFrom):
    """Read NumPy arrays, of files or in memory, as `Batch`es.

    Arrays in memory are written once, when the pipeline is built, to a temporary file that lasts
    as long as this process.

    Args:
        paths: Files, or an array, or arrays by name: ``{"data": array, "label": labels}``.
        temp_dir: Where that file is written; every worker must see it. None: on this machine.
        batch_rows: Rows of a batch; has no influence on the dataset.
        **options: Those of `beam_tfrecord.sources.numpy.arrays.Numpy`.

    Raises:
        UsageError: An option makes no sense; arrays in memory take no `types`, they have dtypes.
    """

    source_class = Numpy

    def __init__(
        self,
        paths: Any,
        *,
        temp_dir: str | None = None,
        batch_rows: int = DEFAULT_BATCH_ROWS,
        **options: Any,
    ) -> None:
        is_in_memory = isinstance(paths, Mapping | np.ndarray)
        if is_in_memory and options.get("types"):
            raise UsageError("arrays in memory have dtypes of their own: leave out types")
        super().__init__("" if is_in_memory else paths, batch_rows=batch_rows, **options)
        self._arrays = named_arrays(paths) if is_in_memory else None
        self._temp_dir = temp_dir

    def display_data(self) -> dict[str, Any]:
        """Return what a runner's page shows."""
        return super().display_data() | display.shown(arrays=self._arrays and list(self._arrays))

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[Batch]:
        """Build the chain."""
        self._spill()
        return super().expand(begin)

    def batches(self) -> Iterator[Batch]:
        """Iterate the arrays here, without a pipeline."""
        self._spill()
        return super().batches()

    def _spill(self) -> None:
        if self._arrays is None:
            return
        path, types = spill_arrays(self._arrays, self._temp_dir)
        self.source = dataclasses.replace(cast(Numpy, self.source), paths=path, types=types or None)
        self._arrays = None


class ReadFromParquet(_ReadFrom):
    """Read Parquet as `Batch`es; arguments as `beam_tfrecord.sources.parquet.source.Parquet`."""

    source_class = Parquet


class ReadFromSql(_ReadFrom):
    """Read a database as `Batch`es; arguments as `beam_tfrecord.sources.sql.source.Sql`."""

    source_class = Sql


class ReadFromJdbc(ReadFromSql):
    """Read a database as `Batch`es, called as `apache_beam.io.jdbc.ReadFromJdbc` is.

    Unlike Beam's, it keeps the rows whose partition column is null, partitions a `query` as well,
    and connects on workers alone. The password given here serves runners inside this process;
    for others leave it empty and pass ``password_env`` or ``password_file``.

    Args:
        table_name: Table or view; with `query` it is not looked at.
        driver_class_name: Class of the JDBC driver; of no use for URLs that are not ``jdbc:``.
        jdbc_url: URL of the database.
        username: User.
        password: Password.
        query: SELECT to read instead of the table.
        disable_autocommit: Reading always has a transaction: of no use here.
        output_parallelization: Partitions are always read in parallel: of no use here.
        fetch_size: Rows that the driver fetches at a time.
        partition_column: Column to cut the rows by; None: the primary key.
        partitions: Number of parts.
        connection_properties: ``name=value;name=value``.
        connection_init_sqls: Statements that every connection runs first.
        max_connections: Connections at a time; None or a negative number: any.
        driver_jars: Jars of the driver, with commas between them.
        expansion_service: There is none: of no use here.
        classpath: Further jars: paths, URLs or Maven coordinates.
        schema: Must be None: types come from the database.
        secret_manager: Must be None.
        batch_rows: Rows of a batch.
        **options: Further arguments of `beam_tfrecord.sources.sql.source.Sql`.

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
        **options: Any,
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
            **options,
        )


def _properties(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(";") if pair.strip()]
    return {name.strip(): value.strip() for name, _, value in pairs}


def _jars(text: str) -> list[str]:
    return [jar.strip() for jar in text.split(",") if jar.strip()]
