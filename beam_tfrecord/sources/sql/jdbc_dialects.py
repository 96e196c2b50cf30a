"""Per-database JDBC settings, and the lookup of tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from beam_tfrecord.sources.sql.database import Dialect, Table, find_named

REPEATABLE_READ = 4
"""`java.sql.Connection.TRANSACTION_REPEATABLE_READ`."""

_CONNECT_S = 4
"""Drivers time out a little earlier than we do, with a better message."""


@dataclasses.dataclass(frozen=True)
class Product:
    """The properties of one kind of database, such as H2, that decide how to open and read it."""

    dialect: Dialect
    real: str = "{}"
    hex: str = ""
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Reads in a transaction that `begin` starts, and streams a result until it is cancelled.
    is_mysql: bool = False
    begin: tuple[str, ...] = ()
    timeout_sql: str = ""
    fetch_rows: int = 16
    can_share_snapshot: bool = False


def _mysql(product: str, properties: Mapping[str, str], **others: Any) -> Product:
    """Return what MariaDB and MySQL have in common, with more properties of the driver."""
    connect_ms = str(_CONNECT_S * 1000)
    common = {"tinyInt1isBit": "false", "yearIsDateType": "false", "connectTimeout": connect_ms}
    begin = (
        "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        # Text travels as UTF-8 and times in UTC, results are not cut, and a CHAR has no padding.
        "SET time_zone = '+00:00', character_set_client = utf8mb4, "
        "character_set_results = utf8mb4, sql_select_limit = 18446744073709551615, "
        "sql_mode = REPLACE(@@sql_mode, 'PAD_CHAR_TO_FULL_LENGTH', '')",
        "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
    )
    return Product(
        Dialect(product, "CHAR", quote="`", backslashes=True),
        # The server sends a FLOAT as a text of six digits, but a DOUBLE with all of its digits.
        real="({} * 1e0)",
        hex="HEX({})",
        properties={**common, **properties},
        is_mysql=True,
        begin=begin,
        **others,
    )


# Products by the name that follows ``jdbc:`` in the URL.
_PRODUCTS = {
    "postgresql": Product(
        Dialect("postgresql", "text"),
        hex="CAST({} AS text)",
        properties={
            # Binary transfer changes the text form of values.
            "prepareThreshold": "0",
            "tcpKeepAlive": "true",
            "ApplicationName": "beam_tfrecord",
            "connectTimeout": str(_CONNECT_S),
            "loginTimeout": str(_CONNECT_S),
        },
        # This must come first. A driver property may disable setTransactionIsolation.
        begin=("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY",),
        timeout_sql="SET statement_timeout = {ms}",
        can_share_snapshot=True,
    ),
    "h2": Product(
        Dialect("h2", "VARCHAR"),
        hex="RAWTOHEX({})",
        # Otherwise a wrong name creates an empty database.
        properties={"IFEXISTS": "TRUE"},
        begin=("SET LAZY_QUERY_EXECUTION TRUE", "SET TIME ZONE 'UTC'"),
        timeout_sql="SET QUERY_TIMEOUT {ms}",
    ),
    "mariadb": _mysql("mariadb", {"timezone": "UTC"}, timeout_sql="SET max_statement_time = {s}"),
    "mysql": _mysql(
        "mysql",
        {"connectionTimeZone": "UTC", "forceConnectionTimeZoneToSession": "true"},
        timeout_sql="SET max_execution_time = {ms}",
        # Connector/J streams only with this number.
        fetch_rows=-(2**31),
    ),
}


def product_of(scheme: str) -> Product:
    """Return the properties of a database by its name in the URL."""
    return _PRODUCTS.get(scheme, Product(Dialect(scheme)))


# Maven group and artifact of drivers, for messages.
DRIVERS = {
    "postgresql": "org.postgresql:postgresql",
    "h2": "com.h2database:h2",
    "mariadb": "org.mariadb.jdbc:mariadb-java-client",
    "mysql": "com.mysql:mysql-connector-j",
    "sqlserver": "com.microsoft.sqlserver:mssql-jdbc",
    "oracle": "com.oracle.database.jdbc:ojdbc11",
}


_KINDS = (
    "TABLE", "BASE TABLE", "VIEW", "MATERIALIZED VIEW", "PARTITIONED TABLE", "FOREIGN TABLE",
)  # fmt: skip
_SYSTEM = frozenset(
    ("information_schema", "pg_catalog", "mysql", "performance_schema", "sys", "system_lobs")
)


def find_table(product: Product, opened: Any, table: str, place: str) -> Table:
    """Look up a table or view in the catalog, which on MariaDB and MySQL has no schemas."""
    has_schemas = not product.is_mysql
    catalog = _text(opened.getCatalog())
    known: dict[tuple[str, str], tuple[str | None, str | None]] = {}
    rows = opened.getMetaData().getTables(catalog, None, "%", list(_KINDS))
    while rows.next():
        place_of = _text(rows.getString(1)), _text(rows.getString(2))
        outer = place_of[has_schemas] or ""
        if outer.lower() not in _SYSTEM:
            known[outer, str(rows.getString(3))] = place_of
    rows.close()
    here = _text(opened.getSchema()) if has_schemas else catalog
    outer, name = find_named(table, known, [here or ""], place)
    return Table(
        sql=".".join(product.dialect.name(part) for part in (outer, name) if part),
        name=f"{outer}.{name}" if has_schemas and outer else name,
        key=_primary_key(opened, *known[outer, name], name),
    )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _primary_key(
    opened: Any, catalog: str | None, schema: str | None, name: str
) -> tuple[str, ...]:
    rows = opened.getMetaData().getPrimaryKeys(catalog, schema, name)
    found = []
    while rows.next():
        found.append((int(rows.getShort(5)), str(rows.getString(4))))
    rows.close()
    return tuple(column for _, column in sorted(found))
