"""Per-database JDBC settings, and the lookup of tables."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from beam_tfrecord.sources.sql.database import Dialect, Table, find_named


@dataclasses.dataclass(frozen=True)
class Product:
    """The properties of one kind of database, such as H2, that decide how to open and read it."""

    dialect: Dialect
    hex: str = ""
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Reads in a transaction that `begin` starts, and streams a result until it is cancelled.
    is_mysql: bool = False
    begin: tuple[str, ...] = ()
    fetch_rows: int = 16


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
        Dialect("CHAR", quote="`"),
        hex="HEX({})",
        properties={**common, **properties},
        is_mysql=True,
        begin=begin,
        **others,
    )


# Products by the name that follows ``jdbc:`` in the URL.
PRODUCTS = {
    "postgresql": Product(
        Dialect("text"),
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
        Dialect("VARCHAR"),
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


def find_table(product: Product, opened: Any, table: str, place: str) -> Table:
    """Look up a table or view in the catalog, which on MariaDB and MySQL has no schemas."""
    is_mysql, meta, catalog = product.is_mysql, opened.getMetaData(), opened.getCatalog()
    rows = _each(meta.getTables(catalog, None, "%", list(_KINDS)))
    outer_at = 1 if is_mysql else 2
    known = [(str(row.getString(outer_at) or ""), str(row.getString(3))) for row in rows]
    here = str((catalog if is_mysql else opened.getSchema()) or "")
    outer, name = find_named(table, known, [here], place)
    inside = (outer, None) if is_mysql else (catalog, outer or None)
    rows = _each(meta.getPrimaryKeys(*inside, name))
    keys = sorted((int(row.getShort(5)), str(row.getString(4))) for row in rows)
    return Table(
        sql=".".join(product.dialect.name(part) for part in (outer, name) if part),
        name=name if is_mysql or not outer else f"{outer}.{name}",
        key=tuple(key for _, key in keys),
    )


def _each(rows: Any) -> Iterator[Any]:
    """Yield a ``ResultSet`` once for each of its rows."""
    with contextlib.closing(rows):
        while rows.next():
            yield rows
