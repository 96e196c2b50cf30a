"""Reads PostgreSQL through its ADBC driver: results stream in binary form, straight into Arrow.

All partitions of a job join one exported snapshot, which lives as long as the connection that
planned the job. Types and modifiers come from the driver's description of a result. A type that
has no exact Arrow type (numeric without a precision, interval, ranges, …) is read as the text that
PostgreSQL writes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import pyarrow as pa

from beam_tfrecord.base.extras import require
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.options.sources import DatabaseOptions
from beam_tfrecord.sources.sql import database as db
from beam_tfrecord.sources.sql.values import SqlColumn, SqlRows, convert_batch

# The braces in these statements stand for quoted literals.
_TABLE = """
SELECT c.oid::int8, c.reltuples::int8,
       (SELECT coalesce(sum(pg_table_size(t.relid)), pg_table_size(c.oid))
        FROM pg_partition_tree(c.oid) AS t)::int8
FROM pg_class AS c WHERE c.oid = to_regclass({})
"""
_KEY = """
SELECT a.attname::text
FROM pg_index AS i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k (number, ordinal)
JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = {} AND i.indisprimary ORDER BY k.ordinal
"""
_NOT_NULL = """
SELECT attname::text FROM pg_attribute WHERE attrelid = {}::regclass AND attnotnull AND attnum > 0
"""
_TABLES = """
SELECT n.nspname::text, c.relname::text FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
ORDER BY 1, 2
"""
_PAGES = """
SELECT relkind::text, pg_relation_size(oid) / current_setting('block_size')::int
FROM pg_class WHERE oid = {}::regclass
"""

# Values and their order must not depend on the settings of a user or server.
SETTINGS = {
    "client_encoding": "UTF8",
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "iso_8601",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "array_nulls": "on",
    "standard_conforming_strings": "on",
    "synchronize_seqscans": "off",
    "idle_in_transaction_session_timeout": "0",
}


class PostgresConnection(db.Connection):
    """The base class of connections to PostgreSQL, whether through ADBC or JDBC."""

    dialect = db.Dialect("text")
    address: str
    # Runs a statement that has no result.
    run: Callable[[str], None]

    def apply_settings(self, settings: Mapping[str, str]) -> None:
        """Apply settings to the transaction that has just begun.

        The settings are local to the transaction. So they override all settings of the user, and
        they also work through a pooler that runs each transaction in another session.
        """
        text = self.dialect.text
        # One statement, since each is a round trip, and every partition has its own connection.
        asked = (
            f"pg_catalog.set_config({text(name)}, {text(value)}, true)"
            for name, value in settings.items()
        )
        self.fetch(f"SELECT {', '.join(asked)}")

    def join_snapshot(self, snapshot: str) -> None:
        """Let the transaction that has just begun read an exported snapshot."""
        try:
            self.run(f"SET TRANSACTION SNAPSHOT {self.dialect.text(snapshot)}")
        except UsageError as error:
            raise DataError(
                f"the snapshot of {self.address} is gone, since the connection that held it is "
                f"closed ({error}): run the job again"
            ) from None

    def find_table(self, table: str) -> db.Table:
        here = [schema for (schema,) in self.fetch("SELECT unnest(current_schemas(false))::text")]
        schema, name = db.find_named(table, self.fetch(_TABLES), here, self.address)
        sql = f"{self.dialect.name(schema)}.{self.dialect.name(name)}"
        ((oid, rows, size),) = self.fetch(_TABLE.format(self.dialect.text(sql)))
        return db.Table(
            sql=sql,
            name=f"{schema}.{name}",
            key=tuple(key for (key,) in self.fetch(_KEY.format(oid))),
            rows=int(rows) if rows >= 0 else None,
            bytes=int(size),
        )

    def literal_of(self, column: SqlColumn) -> Callable[[Any], str]:
        """Return the function that quotes values: a quoted literal takes the type of the column."""
        return self.dialect.text

    def row_cuts(self, relation: db.Relation, partitions: int) -> tuple[str, list[str]] | None:
        """Split a table by the numbers of its pages.

        Returns None for anything but a plain table or materialized view. The last range has no
        end, so it includes pages added later.
        """
        assert relation.table is not None
        ((kind, pages),) = self.fetch(_PAGES.format(self.dialect.text(relation.table.sql)))
        if kind not in ("r", "m"):
            return None
        return "ctid", [f"'({cut},0)'::tid" for cut in db.even_cuts(pages, partitions)]

    def export_snapshot(self) -> str:
        """Export the snapshot of this transaction."""
        return str(self.fetch("SELECT pg_export_snapshot()")[0][0])


# Classes of SQLSTATE, and words of libpq, after which another attempt may succeed.
_LOST_STATES = ("08", "57P", "53300")
_LOST_WORDS = (
    *("connection refused", "timeout expired", "server closed the connection", "reset by peer"),
    *("connection not open", "no connection to the server", "terminating connection"),
    *("broken pipe", "too many clients", "starting up", "shutting down", "could not receive data"),
    *("could not send data", "ssl syscall error", "network is unreachable", "lost synchronization"),
)


def _first_line(text: str) -> str:
    """Return the database's own message, without the driver's prefix and without details."""
    line = text.strip().splitlines()[0] if text.strip() else "no reason given"
    line = re.sub(r"^[A-Z_]+: (\[libpq\] )?", "", line)
    line = re.sub(r"^.*?(ERROR|FATAL): *", "", line)
    return re.sub(r"\. SQLSTATE: \w+$", "", line)


_LARGEST_PRECISION = 38

# Types that the driver reads exactly. Not money: its number depends on the locale.
_EXACT: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    **dict.fromkeys(("text", "varchar", "bpchar", "name", "json"), pa.string()),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
}

# PostgreSQL stores infinity as the largest number and -infinity as the smallest; the driver shifts
# them by thirty years, and they wrap around.
_INFINITIES = {
    32: {-(2**31) + 10_956: "infinity", -(2**31) + 10_957: "-infinity"},
    64: {-(2**63) + 946_684_799_999_999: "infinity", -(2**63) + 946_684_800_000_000: "-infinity"},
}
# 4713 BC: PostgreSQL has no earlier timestamp, so a smaller number is one that has wrapped around.
_FIRST_MOMENT = -210_866_803_200_000_000


def _column_of(field: pa.Field, nullable: bool, options: DatabaseOptions) -> SqlColumn:
    """Return a column of a described result."""
    name = (field.metadata or {}).get(b"POSTGRESQL:type", b"").decode() or str(field.type)
    wanted = options.typed.get(field.name)
    quoted = PostgresConnection.dialect.name(field.name)
    text = PostgresConnection.dialect.as_text(quoted)
    arrow, select = pa.string(), text
    if name in _EXACT:
        arrow, select = _EXACT[name], quoted
    elif name in ("oid", "xid", "cid"):
        # These have no sign, but the driver reads them as signed.
        arrow, select = pa.int64(), f"CAST({text} AS bigint)"
    elif name == "numeric":
        # The driver converts digits much slower than the server, which runs in parallel.
        arrow = wanted if pa.types.is_decimal(wanted or arrow) else _decimal_of(field)
    if not name.startswith("_"):
        return SqlColumn(field.name, name, arrow, nullable, select).read_as(wanted, text)
    item = _EXACT.get(name[1:])
    arrow, select = item and pa.list_(item), _list_of_one_dimension(field.name, quoted, name[1:])
    array = SqlColumn(field.name, f"{name[1:]}[]", arrow, nullable, select)
    return array.as_array(options.arrays, text).read_as(wanted, text)


def _decimal_of(field: pa.Field) -> pa.DataType:
    """Return the decimal type of a numeric column, or text if no Arrow decimal holds all of it.

    After subtracting four, the upper half of the modifier is the precision, and the lower half the
    scale as a signed number of eleven bits (`numeric_typmod_precision` in PostgreSQL's numeric.c).
    """
    modifier = int((field.metadata or {}).get(b"POSTGRESQL:typmod", b"-1")) - 4
    precision, scale = modifier >> 16, ((modifier & 0x7FF) ^ 1024) - 1024
    is_exact = 0 < precision <= _LARGEST_PRECISION and 0 <= scale <= precision
    return pa.decimal128(precision, scale) if is_exact else pa.string()


def _list_of_one_dimension(name: str, quoted: str, item: str) -> str:
    """Return an expression that selects an array as a list; more dimensions are an error.

    The driver flattens arrays of several dimensions, and fails on other lower bounds than 1.
    """
    dialect = PostgresConnection.dialect
    why = f" has more than one dimension, so it is not a list: pass --types {name}=text"
    failing = f"CAST(CAST({quoted} AS text) || {dialect.text(why)} AS {dialect.name(item)}[])"
    return f"CASE WHEN array_ndims({quoted}) > 1 THEN {failing} ELSE {quoted}[:] END"


_BATCH_BYTES = 4 * 2**20


@dataclasses.dataclass(frozen=True)
class Postgres(db.Engine):
    """A PostgreSQL database: ``postgresql://user@host:port/database?sslmode=…``."""

    guarantee = "one snapshot"

    @property
    def address(self) -> str:
        """URL of host and database, without user and port."""
        parts = urlsplit(self.url)
        return f"postgresql://{parts.hostname or ''}{parts.path}"

    def connect(self, *, snapshot: str = "") -> AdbcConnection:
        """Open a read-only transaction; unless `snapshot` is empty, join that snapshot."""
        password = self.password()
        require("postgres", "reading postgresql:// databases")
        import adbc_driver_postgresql

        with self.errors(password):
            database = adbc_driver_postgresql.connect(_uri(self, password))
            return AdbcConnection(self, database, password, snapshot)

    def translate(self, error: Exception, hide: Callable[[str], str]) -> Exception | None:
        """Return the error of this package for an error of the driver."""
        import adbc_driver_manager

        if not isinstance(error, adbc_driver_manager.Error | pa.ArrowException | OSError):
            return None
        text = hide(str(error))
        state = getattr(error, "sqlstate", None) or ""
        if not state and (match := re.search(r"SQLSTATE: (\w{5})", text)):
            state = match[1]
        message = _first_line(text)
        lower = text.lower()
        if state.startswith(_LOST_STATES) or any(word in lower for word in _LOST_WORDS):
            return db.ConnectionLost(message)
        if state == "57014" or "statement timeout" in lower:
            return UsageError(
                f"a statement in {self.address} ran into the time limit ({message}): "
                "raise --statement-timeout"
            )
        # A wrong name of a column has a state of its own.
        if "password" in lower and state in ("", "28P01"):
            return UsageError(
                f"cannot log in to {self.address} ({message}): pass --password-env or "
                "--password-file"
            )
        return UsageError(f"cannot read {self.address}: {message}")


def _uri(engine: Postgres, password: str | None) -> str:
    """Return the URI to connect to, with all parameters, including the password."""
    parts = urlsplit(engine.url)
    parameters = {"connect_timeout": "4", "application_name": "beam_tfrecord"}
    parameters |= dict(parse_qsl(parts.query)) | dict(engine.options.properties or {})
    if engine.options.username is not None:
        parameters["user"] = engine.options.username
    if password is not None:
        parameters["password"] = password
    return f"postgresql://{parts.netloc}{parts.path}?{urlencode(parameters, quote_via=quote)}"


class AdbcConnection(PostgresConnection):
    """An ADBC connection to PostgreSQL, inside a read-only transaction of one snapshot."""

    def __init__(
        self, engine: Postgres, database: Any, password: str | None, snapshot: str
    ) -> None:
        import adbc_driver_manager

        self._engine = engine
        self.address = engine.address
        self._database = database
        self._password = password
        self._connection = adbc_driver_manager.AdbcConnection(database)
        options = engine.options
        with db.closed_on_error(self):
            for statement in options.session_init:
                self.run(statement)
            self.run("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            if snapshot:
                self.join_snapshot(snapshot)
            self.apply_settings(SETTINGS)
            if options.statement_timeout_s is not None:
                self.run(f"SET LOCAL statement_timeout = {int(options.statement_timeout_s * 1000)}")

    @contextlib.contextmanager
    def _statement(self, sql: str) -> Iterator[Any]:
        import adbc_driver_manager

        with self._engine.errors(self._password):
            statement = adbc_driver_manager.AdbcStatement(self._connection)
            try:
                statement.set_sql_query(sql)
                yield statement
            finally:
                # If the connection is broken, this fails once more.
                with contextlib.suppress(Exception):
                    statement.close()

    def run(self, sql: str) -> None:
        with self._statement(sql) as statement:
            statement.execute_update()

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a small result as Python values."""
        with self._statement(sql) as statement:
            table = _reader(statement).read_all()
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def describe(self, relation: db.Relation) -> tuple[SqlColumn, ...]:
        with self._statement(relation.select("*")) as statement:
            schema = pa.schema(statement.execute_schema())
        sure: set[str] = set()
        if relation.table is not None:
            asked = _NOT_NULL.format(self.dialect.text(relation.table.sql))
            sure = {name for (name,) in self.fetch(asked)}
        options = self._engine.options
        return tuple(_column_of(field, field.name not in sure, options) for field in schema)

    def read(self, sql: str, columns: Sequence[SqlColumn], *, batch_rows: int) -> Iterator[SqlRows]:
        with self._statement(sql) as statement:
            statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
            for data in _reader(statement):
                yield convert_batch(data.columns, columns, _INFINITIES, _FIRST_MOMENT)

    def close(self) -> None:
        """Close the connection, and with it the snapshot."""
        # If the server has closed it, this fails once more.
        for each in (self._connection, self._database):
            with contextlib.suppress(Exception):
                each.close()


def _reader(statement: Any) -> pa.RecordBatchReader:
    handle, _ = statement.execute_query()
    return pa.RecordBatchReader.from_stream(handle)
