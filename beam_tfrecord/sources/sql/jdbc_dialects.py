"""Per-database JDBC settings, range-key expressions, and table lookup."""

from __future__ import annotations

import contextlib
import dataclasses
import decimal
import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.sql.database import Connection, Dialect, Key, SqlColumn, Table

REPEATABLE_READ = 4
"""`java.sql.Connection.TRANSACTION_REPEATABLE_READ`."""

_CONNECT_S = 4
"""Drivers time out a little earlier than we do, with a better message."""


@dataclasses.dataclass(frozen=True)
class Product:
    """The properties of one kind of database, such as H2, that decide how to open and read it."""

    dialect: Dialect
    text_type: str = ""
    real: str = "{}"
    hex: str = ""
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)
    is_autocommit: bool = False
    begin: tuple[str, ...] = ()
    timeout_sql: str = ""
    fetch_rows: int = 16
    adaptive_fetch: bool = True
    must_cancel: bool = False
    can_share_snapshot: bool = False
    write_pattern: str = ""


# MySQL sends a FLOAT as a text of six digits, but a DOUBLE with all of its digits.
_MYSQL_REAL = "({} * 1e0)"
_MYSQL_BEGIN = (
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    # Text travels as UTF-8 and times in UTC, results are not cut, and a CHAR has no padding.
    "SET time_zone = '+00:00', character_set_client = utf8mb4, character_set_results = utf8mb4, "
    "sql_select_limit = 18446744073709551615, "
    "sql_mode = REPLACE(@@sql_mode, 'PAD_CHAR_TO_FULL_LENGTH', '')",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
)

# Products by the name that follows ``jdbc:`` in the URL.
_PRODUCTS = {
    "postgresql": Product(
        Dialect("postgresql"),
        text_type="text",
        hex="CAST({} AS text)",
        properties={
            # Otherwise a repeated statement switches to binary transfer, which changes the text
            # form of values.
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
        Dialect("h2"),
        text_type="VARCHAR",
        hex="RAWTOHEX({})",
        # Otherwise a wrong name creates an empty database.
        properties={"IFEXISTS": "TRUE"},
        begin=("SET LAZY_QUERY_EXECUTION TRUE", "SET TIME ZONE 'UTC'"),
        timeout_sql="SET QUERY_TIMEOUT {ms}",
        write_pattern=r"\b(NEXT VALUE FOR|NEXTVAL|CSVWRITE|FILE_WRITE|LINK_SCHEMA|"
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
        timeout_sql="SET max_statement_time = {s}",
        must_cancel=True,
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
        timeout_sql="SET max_execution_time = {ms}",
        # Connector/J streams only with this number.
        fetch_rows=-(2**31),
        adaptive_fetch=False,
        must_cancel=True,
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


_CAST = "CAST({} AS CHAR)"
_NUMBER = (_CAST, "{}")
_FRACTION = ("CAST({} + 0e0 AS CHAR)", "{}")
# Hexadecimal digits do not depend on the mode, character set or escapes of the session.
_TEXT = ("HEX(CONVERT({} USING utf8mb4))", "_utf8mb4 x'{}'")
_BYTES = ("HEX({})", "x'{}'")
_QUOTED = (_CAST, "'{}'")

# For each type, a template that turns a value into text, and one that turns this text into a
# literal. Types are here only if such literals compare in the order in which the column is sorted.
_MYSQL = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "integer", "bigint"), _NUMBER),
    **dict.fromkeys(("decimal", "numeric", "year"), _NUMBER),
    **dict.fromkeys(("float", "double", "real"), _FRACTION),
    "bit": ("CAST({} + 0 AS CHAR)", "{}"),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), _TEXT),
    **dict.fromkeys(("binary", "varbinary"), _BYTES),
    **dict.fromkeys(("tinyblob", "blob", "mediumblob", "longblob"), _BYTES),
    **dict.fromkeys(("date", "datetime", "timestamp", "time"), _QUOTED),
    **dict.fromkeys(("uuid", "inet4", "inet6"), _QUOTED),
}
# MySQL sorts these by their numbers, but compares them as texts.
_MYSQL_NUMBERED = ("enum", "set")

_AS_IT_IS = ("CAST({} AS VARCHAR)", "{}")
_H2_BYTES = ("RAWTOHEX({})", "X'{}'")
_H2 = {
    **dict.fromkeys(("boolean", "tinyint", "smallint", "integer", "bigint"), _AS_IT_IS),
    "numeric": _AS_IT_IS,
    **dict.fromkeys(("binary", "binary varying"), _H2_BYTES),
}
# H2 converts a text to the type that it is compared with, except for these types.
_H2_NONE = ("binary large object", "array", "row")


def range_key(dialect: Dialect, column: SqlColumn, catalog_type: str | None) -> Key | None:
    """Return the expression and literal format used to read ranges of a column.

    None if no exact one exists: if ranges of literals could miss or repeat rows.
    """
    name = dialect.name(column.name)
    declared = (catalog_type or column.declared).lower()
    if dialect.product in ("mariadb", "mysql"):
        return _mysql_key(name, declared, is_sure=catalog_type is not None)
    if dialect.product == "h2":
        if declared.endswith(_H2_NONE):
            return None
        found = _H2.get(declared)
        if found is None:
            return Key(name, _AS_IT_IS[0], lambda value: dialect.text(str(value)))
        return Key(name, found[0], found[1].format)
    # In an untested database, only numbers are guaranteed to compare in sort order.
    is_number = pa.types.is_integer(column.arrow) or pa.types.is_decimal(column.arrow)
    return Key(name, literal=_plain) if is_number else None


def _mysql_key(name: str, declared: str, *, is_sure: bool) -> Key | None:
    declared = declared.removesuffix(" zerofill").removesuffix(" unsigned")
    null = "{} <=> NULL"  # IS NULL also holds for the date 0000-00-00.
    if declared in _MYSQL_NUMBERED:
        return Key(f"({name} + 0)", _CAST, null=null)
    found = _MYSQL.get(declared)
    if found is None:
        return None
    if declared == "char" and not is_sure:
        # For a possible ENUM, this sorts and compares the text, but uses no index.
        name = f"CONCAT({name}, '')"
    return Key(name, found[0], found[1].format, null)


def _plain(value: Any) -> str:
    return f"{value:f}" if isinstance(value, decimal.Decimal) else str(value)


_KINDS = (
    "TABLE", "BASE TABLE", "VIEW", "MATERIALIZED VIEW", "PARTITIONED TABLE", "FOREIGN TABLE",
)  # fmt: skip
_SYSTEM = frozenset(
    ("information_schema", "pg_catalog", "mysql", "performance_schema", "sys", "system_lobs")
)
_PART = re.compile(r'"((?:[^"]|"")*)"|`((?:[^`]|``)*)`|([^."`]+)')

# Queries for estimated rows and bytes; the parameters are literals.
_SIZES = {
    "h2": "SELECT row_count_estimate, CAST(NULL AS bigint) FROM information_schema.tables "
    "WHERE table_schema = {schema} AND table_name = {name}",
    **dict.fromkeys(
        ("mariadb", "mysql"),
        "SELECT CAST(table_rows AS signed), CAST(data_length AS signed) FROM "
        "information_schema.tables WHERE table_schema = {schema} AND table_name = {name}",
    ),
}


@dataclasses.dataclass(frozen=True)
class _Found:
    catalog: str | None
    schema: str | None
    name: str
    outer: str | None
    """The schema qualifier; on MariaDB and MySQL this is the JDBC catalog."""


def find_table(connection: Connection, opened: Any, table: str, place: str) -> Table:
    """Look up a table or view by the name that the user wrote."""
    *outer, (name, is_quoted) = _parts(table)
    wanted_schema = outer[-1][0] if outer else None
    uses_catalogs = connection.dialect.product in ("mariadb", "mysql")
    here = _text(opened.getCatalog() if uses_catalogs else _schema_of(opened))
    every = list(_tables(opened, uses_catalogs))
    found = [one for one in every if _is_in(one.outer, wanted_schema)]
    # The exact name also matches, since it may itself contain dots and quotes.
    same = [one for one in found if one.name == name] or [one for one in every if one.name == table]
    if not same and not is_quoted:
        same = [one for one in found if one.name.lower() == name.lower()]
    if len(same) > 1:
        same = [one for one in same if here in (one.catalog, one.schema)] or same
    if len(same) != 1:
        raise UsageError(_not_found(table, place, name, found, same))
    (one,) = same
    rows, size = _size(connection, one)
    return Table(
        sql=".".join(connection.dialect.name(part) for part in (one.outer, one.name) if part),
        name=one.name if uses_catalogs or not one.schema else f"{one.schema}.{one.name}",
        schema=one.outer or "",
        key=_primary_key(opened, one),
        rows=rows,
        bytes=size,
    )


def _parts(table: str) -> list[tuple[str, bool]]:
    """Return the parts of a name, and for each whether it is quoted."""
    parts = []
    for double, back, plain in _PART.findall(table):
        quoted = double.replace('""', '"') or back.replace("``", "`")
        parts.append((quoted or plain, bool(quoted)))
    return parts or [(table, False)]


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _schema_of(opened: Any) -> Any:
    # Old drivers do not have this method.
    with contextlib.suppress(Exception):
        return opened.getSchema()
    return None


def _is_in(schema: str | None, wanted: str | None) -> bool:
    known = (schema or "").lower()
    return known not in _SYSTEM if wanted is None else known == wanted.lower()


def _tables(opened: Any, uses_catalogs: bool) -> Iterator[_Found]:
    """Yield all tables and views, including those of the system."""
    here = _text(opened.getCatalog())
    rows = opened.getMetaData().getTables(here, None, "%", list(_KINDS))
    while rows.next():
        catalog, schema = _text(rows.getString(1)), _text(rows.getString(2))
        outer = catalog if uses_catalogs else schema
        yield _Found(catalog, schema, str(rows.getString(3)), outer)
    rows.close()


def _primary_key(opened: Any, table: _Found) -> tuple[str, ...]:
    rows = opened.getMetaData().getPrimaryKeys(table.catalog, table.schema, table.name)
    found = []
    while rows.next():
        found.append((int(rows.getShort(5)), str(rows.getString(4))))
    rows.close()
    return tuple(column for _, column in sorted(found))


def _size(connection: Connection, table: _Found) -> tuple[int | None, int | None]:
    sql = _SIZES.get(connection.dialect.product)
    if sql is None:
        return None, None
    text = connection.dialect.text
    found = connection.fetch(sql.format(schema=text(table.outer or ""), name=text(table.name)))
    rows, size = found[0] if found else (None, None)
    return (None if rows is None else int(rows)), (None if size is None else int(size))


def _not_found(table: str, place: str, name: str, found: list[_Found], same: list[_Found]) -> str:
    if same:
        where = ", ".join(sorted(f"{one.outer}.{one.name}" for one in same))
        return f"table {table!r} is ambiguous in {place}: pass one of {where} as --table"
    names = {one.name.lower(): one.name for one in found}
    near = [names[one] for one in difflib.get_close_matches(name.lower(), names, n=3)]
    hint = f"did you mean {' or '.join(near)}?" if near else "correct --table"
    return f"table {table!r} is not in {place}: {hint}"


def catalog_type(connection: Connection, table: Table | None, column: str) -> str | None:
    """Return a column's type in the catalog of MariaDB or MySQL; None for other databases."""
    if table is None or connection.dialect.product not in ("mariadb", "mysql"):
        return None
    schema, name, of = map(connection.dialect.text, (table.schema, table.name, column))
    found = connection.fetch(
        "SELECT data_type FROM information_schema.columns WHERE "
        f"table_schema = {schema} AND table_name = {name} AND column_name = {of}"
    )
    return str(found[0][0]) if found else None
