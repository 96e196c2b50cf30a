"""Reads databases through their JDBC drivers, in a Java virtual machine inside this process."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from beam_tfrecord.errors import UsageError
from beam_tfrecord.options.sources import DatabaseOptions
from beam_tfrecord.sources.sql import database as db
from beam_tfrecord.sources.sql.jdbc_java import helper, java, local_jars, result_of
from beam_tfrecord.sources.sql.jdbc_values import Product, ask, columns_in, read_rows
from beam_tfrecord.sources.sql.postgres import SETTINGS, PostgresConnection
from beam_tfrecord.sources.sql.values import SqlColumn, SqlRows


def _mysql(properties: Mapping[str, str], **others: Any) -> Product:
    """Return what MariaDB and MySQL have in common, with more properties of the driver."""
    common = {"tinyInt1isBit": "false", "yearIsDateType": "false"}
    begin = (
        "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        # Text travels as UTF-8 and times in UTC, results are not cut, and a CHAR has no padding.
        "SET time_zone = '+00:00', character_set_client = utf8mb4, "
        "character_set_results = utf8mb4, sql_select_limit = 18446744073709551615, "
        "sql_mode = REPLACE(@@sql_mode, 'PAD_CHAR_TO_FULL_LENGTH', '')",
        "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
    )
    return Product(
        db.Dialect("CHAR", quote="`"),
        hex="HEX({})",
        properties={**common, **properties},
        is_mysql=True,
        begin=begin,
        **others,
    )


# Products by the name that follows ``jdbc:`` in the URL.
PRODUCTS = {
    "postgresql": Product(
        db.Dialect("text"),
        hex="CAST({} AS text)",
        properties={
            # Binary transfer changes the text form of values.
            "prepareThreshold": "0",
            "tcpKeepAlive": "true",
            "ApplicationName": "beam_tfrecord",
        },
        # This must come first. A driver property may disable setTransactionIsolation.
        begin=("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY",),
    ),
    "h2": Product(
        db.Dialect("VARCHAR"),
        hex="RAWTOHEX({})",
        # Otherwise a wrong name creates an empty database.
        properties={"IFEXISTS": "TRUE"},
        begin=("SET LAZY_QUERY_EXECUTION TRUE", "SET TIME ZONE 'UTC'"),
    ),
    "mariadb": _mysql({"timezone": "UTC"}),
    "mysql": _mysql(
        {"connectionTimeZone": "UTC", "forceConnectionTimeZoneToSession": "true"},
        # Connector/J streams only with this number.
        fetch_rows=-(2**31),
    ),
}


_KINDS = (
    "TABLE", "BASE TABLE", "VIEW", "MATERIALIZED VIEW", "PARTITIONED TABLE", "FOREIGN TABLE",
)  # fmt: skip


def _each(rows: Any) -> Iterator[Any]:
    """Yield a ``ResultSet`` once for each of its rows."""
    with contextlib.closing(rows):
        while rows.next():
            yield rows


_SHOWN_CHARACTERS = 300

_FETCH_BYTES = 2 * 2**20
_CONNECT_S = 5
_USER = re.compile(r"(jdbc:[^/?;@]*//)([^/?;@]*)@")

# The JDBC driver writes intervals in another style than the ADBC driver.
_POSTGRES_SETTINGS = {**SETTINGS, "IntervalStyle": "postgres"}

# A constant of java.sql.Connection.
_REPEATABLE_READ = 4


@dataclasses.dataclass(frozen=True)
class Jdbc(db.Engine):
    """A database with a JDBC driver: ``jdbc:postgresql://host/shop``, ``jdbc:h2:./file``."""

    @property
    def scheme(self) -> str:
        """The name of the driver in the URL, such as ``postgresql``."""
        return self.url.split(":")[1].lower() if self.url.count(":") > 1 else ""

    @property
    def product(self) -> Product:
        """The `Product` that describes this kind of database."""
        return PRODUCTS.get(self.scheme, Product(db.Dialect()))

    @property
    def guarantee(self) -> str:  # type: ignore[override]
        """The consistency guarantee for all partitions of a job."""
        return "one snapshot" if self.scheme == "postgresql" else "one snapshot per partition"

    @property
    def address(self) -> str:
        """The URL without its parameters and without the user."""
        return re.split(r"[?;]", self._address[0])[0]

    @property
    def _address(self) -> tuple[str, str | None]:
        """The URL without the user, and the user: few drivers understand ``//user@host``."""
        match = _USER.match(self.url)
        if match is None:
            return self.url, None
        return match[1] + self.url[match.end() :], unquote(match[2])

    def connect(self, *, snapshot: str = "") -> JdbcConnection:
        """Open a connection; unless `snapshot` is empty, join that snapshot."""
        if self.scheme in ("sqlite", "duckdb"):
            raise UsageError(
                f"cannot read {self.scheme} by its jdbc driver, which changes values: pass "
                f"{self.scheme}:///file instead"
            )
        password = self.password()
        jpype = java()
        properties = jpype.JClass("java.util.Properties")()
        properties.putAll(self._properties(password))
        arguments = (local_jars(self.options.jars), self.options.driver or "", self._address[0])
        with self.errors(password):
            try:
                task = helper("Connector").open(*arguments, properties)
                opened = result_of(task, within_s=_CONNECT_S)
            except TimeoutError as error:
                raise db.ConnectionLost(str(error)) from None
            except jpype.JException as error:
                if "ClassNotFoundException" in str(error.getClass().getName()):
                    raise UsageError(self._no_driver()) from None
                raise
        if opened is None:
            raise UsageError(self._no_driver())
        kind = JdbcPostgresConnection if self.scheme == "postgresql" else JdbcConnection
        connection: JdbcConnection = kind(self, opened, password)
        with db.closed_on_error(connection):
            connection.begin(snapshot)
        return connection

    def translate(self, error: Exception, hide: Callable[[str], str]) -> Exception | None:
        """Return the error of this package for a Java exception."""
        if not isinstance(error, java().JException):
            return None
        address, fault = self.address, helper("DriverError")
        message = hide(str(fault.message(error)))[:_SHOWN_CHARACTERS]
        kind = str(fault.kind(error))
        if kind == "lost":
            return db.ConnectionLost(message)
        known = {
            "memory": f"cannot read {address}: java's memory is used up: set "
            "JAVA_TOOL_OPTIONS=-Xmx2g, or pass a smaller --fetch-rows",
            "host": f"cannot reach {address}: no such host: correct the URL",
            "cancelled": f"a statement in {address} ran into the time limit: raise "
            "--statement-timeout",
        }
        return UsageError(known.get(kind, f"cannot read {address}: {message}"))

    def _properties(self, password: str | None) -> dict[str, str]:
        options = self.options
        login = {"user": options.username or self._address[1], "password": password}
        known = {name: value for name, value in login.items() if value is not None}
        return {**self.product.properties, **known, **dict(options.properties or {})}

    def _no_driver(self) -> str:
        named = f" {self.options.driver!r}" if self.options.driver else ""
        return (
            f"no jdbc driver{named} for {self.address}: pass --jar driver.jar, or the coordinates "
            "of the driver in Maven, --jar group:artifact:version, to download it"
        )


class JdbcConnection(db.Connection):
    """A connection through a JDBC driver, in one snapshot if the database has snapshots."""

    def __init__(self, engine: Jdbc, opened: Any, password: str | None) -> None:
        self._engine = engine
        self.address = engine.address
        self._opened = opened
        self._password = password
        self.dialect = engine.product.dialect

    def _errors(self) -> contextlib.AbstractContextManager[None]:
        return self._engine.errors(self._password)

    def begin(self, snapshot: str = "") -> None:
        """Apply session settings, and begin a transaction; PostgreSQL can join a snapshot."""
        jpype = java()
        # Not every driver supports this, and none has to: this package never writes.
        with contextlib.suppress(jpype.JException):
            self._opened.setReadOnly(True)
        for statement in self._engine.options.session_init:
            self.run(statement)
        if not self._engine.product.is_mysql:
            with contextlib.suppress(jpype.JException):
                self._opened.setTransactionIsolation(_REPEATABLE_READ)
            with self._errors():
                self._opened.setAutoCommit(False)
        for statement in self._engine.product.begin:
            self.run(statement)

    def run(self, sql: str) -> None:
        with self._errors(), contextlib.closing(self._opened.createStatement()) as statement:
            statement.execute(sql)

    def find_table(self, table: str) -> db.Table:
        """Look up a table or view in the catalog, which on MariaDB and MySQL has no schemas."""
        product, opened = self._engine.product, self._opened
        is_mysql = product.is_mysql
        with self._errors():
            meta, catalog = opened.getMetaData(), opened.getCatalog()
            rows = _each(meta.getTables(catalog, None, "%", list(_KINDS)))
            outer_at = 1 if is_mysql else 2
            known = [(str(row.getString(outer_at) or ""), str(row.getString(3))) for row in rows]
            here = str((catalog if is_mysql else opened.getSchema()) or "")
            outer, name = db.find_named(table, known, [here], self.address)
            inside = (outer, None) if is_mysql else (catalog, outer or None)
            rows = _each(meta.getPrimaryKeys(*inside, name))
            keys = sorted((int(row.getShort(5)), str(row.getString(4))) for row in rows)
        return db.Table(
            sql=".".join(product.dialect.name(part) for part in (outer, name) if part),
            name=name if is_mysql or not outer else f"{outer}.{name}",
            key=tuple(key for _, key in keys),
        )

    def check_text(self, text: str, option: str) -> None:
        """Refuse a text that could end its statement, and begin one that ends the transaction."""
        if ";" in text:
            raise UsageError(
                f"{option} holds a ';', which could end a statement of ours and begin another: "
                "leave it out, or read a view"
            )

    def describe(self, relation: db.Relation) -> tuple[SqlColumn, ...]:
        with self._errors(), self._statement() as statement:
            # A query in brackets can only be a SELECT.
            rows = ask(statement, relation.select("*", "1 = 0"))
            columns = columns_in(rows, self._engine.product, self._engine.options)
        if relation.table is not None:
            return columns
        # For a query, drivers report the NOT NULL of the table, but an outer join returns nulls.
        return tuple(dataclasses.replace(column, nullable=True) for column in columns)

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a small result as Python values."""
        return [
            row
            for rows in self.read(sql, (), batch_rows=1024)
            for row in zip(*(column.to_pylist() for column in rows.data.columns), strict=True)
        ]

    def read(self, sql: str, columns: Sequence[SqlColumn], *, batch_rows: int) -> Iterator[SqlRows]:
        is_fixed = (
            self._engine.product.fetch_rows < 0 or self._engine.options.fetch_rows is not None
        )
        with self._errors(), self._statement() as statement:
            rows = ask(statement, sql)
            yield from read_rows(
                statement,
                rows,
                columns or columns_in(rows, self._engine.product, DatabaseOptions(arrays="text")),
                batch_rows=batch_rows,
                fetch_bytes=0 if is_fixed else _FETCH_BYTES,
                cancels=self._engine.product.is_mysql,
            )

    @contextlib.contextmanager
    def _statement(self) -> Iterator[Any]:
        statement = self._opened.createStatement()
        try:
            # Text in braces is the user's SQL, not an escape of JDBC.
            statement.setEscapeProcessing(False)
            statement.setFetchSize(
                self._engine.options.fetch_rows or self._engine.product.fetch_rows
            )
            if self._engine.options.statement_timeout_s is not None:
                statement.setQueryTimeout(math.ceil(self._engine.options.statement_timeout_s))
            yield statement
        finally:
            with contextlib.suppress(java().JException):
                statement.close()

    def close(self) -> None:
        """Close the connection."""
        # Errors do not matter: the connection only read, or it is broken or closed already.
        with contextlib.suppress(java().JException):
            self._opened.close()


class JdbcPostgresConnection(PostgresConnection, JdbcConnection):
    """A connection to PostgreSQL through its JDBC driver."""

    def begin(self, snapshot: str = "") -> None:
        """Apply session settings, and begin a transaction or join a snapshot."""
        super().begin()
        if snapshot:
            self.join_snapshot(snapshot)
        self.apply_settings(_POSTGRES_SETTINGS)
