"""`ReadFromJdbc`: the transform `ReadFromSql` with the arguments of Beam's own JDBC transform."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS
from beam_tfrecord.errors import UsageError
from beam_tfrecord.selection.select import SelectOptions
from beam_tfrecord.sources.sql.source import texts_of
from beam_tfrecord.transforms.read import ReadFromSql

# The name of a table, plain or quoted, perhaps after the name of its schema and a dot.
_NAME = re.compile(r'(?:[\w$]+|"[^"]+"|`[^`]+`)(?:\.(?:[\w$]+|"[^"]+"|`[^`]+`))*')


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
        **select: Which rows to read: `filter`, `sample` and `sample_seed`; see `SelectOptions`.

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
        **select: Unpack[SelectOptions],
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
            session_init=texts_of(connection_init_sqls or ()),
            max_connections=None
            if max_connections is None or max_connections < 0
            else max_connections,
            jars=(*_jars(driver_jars or ""), *texts_of(classpath or ())),
            where=where,
            columns=columns,
            types=types,
            ordered=ordered,
            row_count=row_count,
            arrays=arrays,
            statement_timeout_s=statement_timeout_s,
            password_env=password_env,
            password_file=password_file,
            **select,
        )


def _properties(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(";") if pair.strip()]
    return {name.strip(): value.strip() for name, _, value in pairs}


def _jars(text: str) -> list[str]:
    return [jar.strip() for jar in text.split(",") if jar.strip()]
