"""What differs between the databases behind ``jdbc:`` drivers, as data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from beam_tfrecord.sources.sql.engine import Dialect

REPEATABLE_READ = 4
"""`java.sql.Connection.TRANSACTION_REPEATABLE_READ`."""

_CONNECT_S = 4
"""Drivers give up a little earlier than we do, with a better message."""


@dataclasses.dataclass(frozen=True)
class Product:
    """How one database is opened and read.

    Attributes:
        dialect: How it writes SQL.
        text_type: Type to cast to for exact text; empty: the driver's own text is used.
        real: How a float of 32 bits is selected with all of its digits.
        hex: Function that writes bytes as text; empty: there is none.
        properties: Connection properties without which the driver loses something, or waits.
        is_autocommit: True where streaming works outside a transaction, and `begin` opens one.
        begin: Statements that set the session up, and begin its moment.
        limit: Statement that limits others to ``{ms}`` milliseconds or ``{s}`` seconds.
        fetch_rows: Rows to fetch until their width is known.
        adapts: False where a fetch size other than `fetch_rows` would end streaming.
        cancels: True where closing a result would read the rest of it.
        shares: True where connections can share a moment.
        writers: What is looked for in the plan of a query, where a transaction may write.
    """

    dialect: Dialect
    text_type: str = ""
    real: str = "{}"
    hex: str = ""
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)
    is_autocommit: bool = False
    begin: tuple[str, ...] = ()
    limit: str = ""
    fetch_rows: int = 16
    adapts: bool = True
    cancels: bool = False
    shares: bool = False
    writers: str = ""


# A FLOAT is sent as a text of six digits; a DOUBLE with all that it has.
_MYSQL_REAL = "({} * 1e0)"
_MYSQL_BEGIN = (
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    # Bytes are sent and taken as UTF-8, moments in UTC, and results to their last row; a CHAR
    # comes without its blanks.
    "SET time_zone = '+00:00', character_set_client = utf8mb4, character_set_results = utf8mb4, "
    "sql_select_limit = 18446744073709551615, "
    "sql_mode = REPLACE(@@sql_mode, 'PAD_CHAR_TO_FULL_LENGTH', '')",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
)

# By the word behind ``jdbc:``.
_PRODUCTS = {
    "postgresql": Product(
        Dialect("postgresql"),
        text_type="text",
        hex="CAST({} AS text)",
        properties={
            # A statement that was asked often would else turn to binary, and texts differ.
            "prepareThreshold": "0",
            "tcpKeepAlive": "true",
            "ApplicationName": "beam_tfrecord",
            "connectTimeout": str(_CONNECT_S),
            "loginTimeout": str(_CONNECT_S),
        },
        # Before anything else in the transaction; a property of its driver may keep it from asking.
        begin=("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY",),
        limit="SET statement_timeout = {ms}",
        shares=True,
    ),
    "h2": Product(
        Dialect("h2"),
        text_type="VARCHAR",
        hex="RAWTOHEX({})",
        # Otherwise a wrong name makes a new and empty database.
        properties={"IFEXISTS": "TRUE"},
        begin=("SET LAZY_QUERY_EXECUTION TRUE", "SET TIME ZONE 'UTC'"),
        limit="SET QUERY_TIMEOUT {ms}",
        writers=r"\b(NEXT VALUE FOR|NEXTVAL|CSVWRITE|FILE_WRITE|LINK_SCHEMA|"
        r"(FINAL|NEW|OLD) TABLE)\b",
    ),
    "mariadb": Product(
        Dialect("mariadb", quote="`", backslashes=True),
        text_type="CHAR",
        real=_MYSQL_REAL,
        hex="HEX({})",
        properties={
            "tinyInt1isBit": "false",
            "yearIsDateType": "false",
            "timezone": "UTC",
            "connectTimeout": str(_CONNECT_S * 1000),
        },
        is_autocommit=True,
        begin=_MYSQL_BEGIN,
        limit="SET max_statement_time = {s}",
        cancels=True,
    ),
    "mysql": Product(
        Dialect("mysql", quote="`", backslashes=True),
        text_type="CHAR",
        real=_MYSQL_REAL,
        hex="HEX({})",
        properties={
            "tinyInt1isBit": "false",
            "yearIsDateType": "false",
            "connectionTimeZone": "UTC",
            "forceConnectionTimeZoneToSession": "true",
            "connectTimeout": str(_CONNECT_S * 1000),
        },
        is_autocommit=True,
        begin=_MYSQL_BEGIN,
        limit="SET max_execution_time = {ms}",
        # Connector/J streams only when it is told this number.
        fetch_rows=-(2**31),
        adapts=False,
        cancels=True,
    ),
    "sqlite": Product(
        Dialect("sqlite"),
        text_type="TEXT",
        # Read only: otherwise a wrong name makes a new and empty database.
        properties={"open_mode": "1"},
    ),
}


def product_of(scheme: str) -> Product:
    """Return what is known of a database by the word behind ``jdbc:``."""
    return _PRODUCTS.get(scheme, Product(Dialect(scheme)))


# Where drivers are found by those who do not know: group and artifact at Maven.
DRIVERS = {
    "postgresql": "org.postgresql:postgresql",
    "h2": "com.h2database:h2",
    "mariadb": "org.mariadb.jdbc:mariadb-java-client",
    "mysql": "com.mysql:mysql-connector-j",
    "sqlite": "org.xerial:sqlite-jdbc",
    "sqlserver": "com.microsoft.sqlserver:mssql-jdbc",
    "oracle": "com.oracle.database.jdbc:ojdbc11",
}
