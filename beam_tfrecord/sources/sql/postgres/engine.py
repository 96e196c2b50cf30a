"""PostgreSQL through ADBC: results stream in binary form, straight into Arrow.

All partitions of a job join one exported snapshot; the connection that planned keeps it alive.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import pyarrow as pa

from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.sql.engine import (
    Connection,
    Dialect,
    Engine,
    Key,
    Relation,
    SqlColumn,
    SqlRows,
    Table,
)
from beam_tfrecord.sources.sql.postgres import catalogue, cuts
from beam_tfrecord.sources.sql.postgres.errors import told
from beam_tfrecord.sources.sql.postgres.session import SETTINGS, settle
from beam_tfrecord.sources.sql.postgres.tables import find_table
from beam_tfrecord.sources.sql.postgres.types import INFINITIES, column_of, without_matrices
from beam_tfrecord.sources.sql.secrets import password_of
from beam_tfrecord.sources.sql.values import rows_taken

_CONNECT_S = 4
_BATCH_BYTES = 4 * 2**20

_BEGIN = "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"


@dataclasses.dataclass(frozen=True)
class Postgres(Engine):
    """A PostgreSQL database: ``postgresql://user@host:port/database?sslmode=…``."""

    guarantee = "one snapshot"

    @property
    def place(self) -> str:
        """Host and database."""
        parts = urlsplit(self.url)
        return f"postgresql://{parts.hostname or ''}{parts.path}"

    def load(self) -> None:
        """Import the driver."""
        _driver()

    def connect(self, *, snapshot: str = "") -> PostgresConnection:
        """Open a read-only transaction, at the moment `snapshot` where one is given."""
        password = password_of(self.url, self.options)
        driver = _driver()
        with told(self.place, password):
            database = driver.connect(_uri(self, password))
            return PostgresConnection(self, database, password, snapshot)


def _driver() -> Any:
    try:
        import adbc_driver_manager  # noqa: F401
        import adbc_driver_postgresql as driver
    except ImportError as error:
        raise UsageError(
            f"cannot read postgresql:// databases ({error}): pip install 'beam-tfrecord[postgres]'"
        ) from None
    return driver


def _uri(engine: Postgres, password: str | None) -> str:
    """Return the URI with all parameters, the password among them, for this one call."""
    parts = urlsplit(engine.url)
    parameters = {"connect_timeout": str(_CONNECT_S), "application_name": "beam_tfrecord"}
    parameters |= dict(parse_qsl(parts.query)) | dict(engine.options.properties)
    if engine.options.username is not None:
        parameters["user"] = engine.options.username
    if password is not None:
        parameters["password"] = password
    return f"postgresql://{parts.netloc}{parts.path}?{urlencode(parameters, quote_via=quote)}"


class PostgresConnection(Connection):
    """A connection inside a read-only transaction of one snapshot."""

    dialect = Dialect("postgresql")

    def __init__(
        self, engine: Postgres, database: Any, password: str | None, snapshot: str
    ) -> None:
        import adbc_driver_manager

        self._engine = engine
        self._database = database
        self._told = functools.partial(told, engine.place, password)
        self._connection = adbc_driver_manager.AdbcConnection(database)
        try:
            self._begin(snapshot)
        except BaseException:
            self.close()
            raise

    def _begin(self, snapshot: str) -> None:
        options = self._engine.options
        for statement in (*options.session_init, _BEGIN):
            self._run(statement)
        if snapshot:
            self._run(f"SET TRANSACTION SNAPSHOT {self.dialect.text(snapshot)}")
        settle(self, self._engine.place, SETTINGS)
        if options.statement_timeout_s is not None:
            self._run(f"SET LOCAL statement_timeout = {int(options.statement_timeout_s * 1000)}")

    @contextlib.contextmanager
    def _statement(self, sql: str) -> Iterator[Any]:
        import adbc_driver_manager

        with self._told():
            statement = adbc_driver_manager.AdbcStatement(self._connection)
            try:
                statement.set_sql_query(sql)
                yield statement
            finally:
                # Of a broken connection it complains once more.
                with contextlib.suppress(Exception):
                    statement.close()

    def _run(self, sql: str) -> None:
        with self._statement(sql) as statement:
            statement.execute_update()

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a small result as Python values."""
        with self._statement(sql) as statement:
            table = _reader(statement).read_all()
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def find_table(self, table: str) -> Table:
        """Look a table or view up, as SQL reads its name; else letter for letter."""
        return find_table(self, table, self._engine.place)

    def describe(
        self, relation: Relation, *, types: Mapping[str, pa.DataType] | None = None
    ) -> tuple[SqlColumn, ...]:
        """Return the columns, as the server describes the result."""
        try:
            with self._statement(relation.select("*")) as statement:
                schema = pa.schema(statement.execute_schema())
        except UsageError as error:
            if relation.table is not None:
                raise
            raise UsageError(f"{error}: the query has to be one SELECT") from None
        sure: set[str] = set()
        if relation.table is not None:
            asked = catalogue.NOT_NULL.format(cuts.regclass(self, relation.table))
            sure = {name for (name,) in self.fetch(asked)}
        return tuple(
            column_of(
                field,
                self.dialect.name(field.name),
                nullable=field.name not in sure,
                arrays=self._engine.options.arrays,
                wanted=(types or {}).get(field.name),
            )
            for field in schema
        )

    def read(self, sql: str, columns: Sequence[SqlColumn], *, batch_rows: int) -> Iterator[SqlRows]:
        """Stream a result by COPY in binary form."""
        with self._statement(sql) as statement:
            statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
            for data in _reader(statement):
                given, matrices = without_matrices(data, columns)
                rows = rows_taken(given, columns, INFINITIES)
                yield dataclasses.replace(rows, misfits=matrices + rows.misfits)

    def key_of(self, relation: Relation, column: SqlColumn) -> Key:
        """Return how a column cuts."""
        return cuts.key_of(self, relation, column)

    def cut_points(
        self, relation: Relation, column: SqlColumn, key: Key, partitions: int
    ) -> list[str]:
        """Cut by what the server knows of the column, or by a sample of a large table."""
        found = cuts.histogram(self, relation, column, key, partitions)
        if found is not None:
            return found
        return super().cut_points(cuts.sampled(self, relation), column, key, partitions)

    def row_ranges(self, relation: Relation, partitions: int) -> list[str] | None:
        """Cut a table by the numbers of its pages."""
        return cuts.page_ranges(self, relation, partitions)

    def export_snapshot(self) -> str:
        """Export the snapshot of this transaction."""
        ((snapshot,),) = self.fetch("SELECT pg_export_snapshot()")
        return str(snapshot)

    def close(self) -> None:
        """Close the connection, and with it the snapshot."""
        # One that the server has closed complains once more.
        for each in (self._connection, self._database):
            with contextlib.suppress(Exception):
                each.close()


def _reader(statement: Any) -> pa.RecordBatchReader:
    handle, _ = statement.execute_query()
    return pa.RecordBatchReader.from_stream(handle)
