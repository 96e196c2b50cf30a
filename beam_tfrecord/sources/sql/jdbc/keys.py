"""How columns of the databases behind ``jdbc:`` drivers cut a table, as data.

Only types whose values come back as literals that compare as the column orders are here; any
other type does not cut.
"""

from __future__ import annotations

import decimal
from typing import Any

import pyarrow as pa

from beam_tfrecord.sources.sql.engine import Dialect, Key, SqlColumn
from beam_tfrecord.sources.sql.sqlite.engine import key_of as sqlite_key

_CAST = "CAST({} AS CHAR)"
_NUMBER = (_CAST, "{}")
_FRACTION = ("CAST({} + 0e0 AS CHAR)", "{}")
# Hexadecimal digits depend on no mode, character set or escape of the session.
_TEXT = ("HEX(CONVERT({} USING utf8mb4))", "_utf8mb4 x'{}'")
_BYTES = ("HEX({})", "x'{}'")
_QUOTED = (_CAST, "'{}'")

# By type: how a value becomes text, and how that text becomes a literal.
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
# Ordered by their numbers, but compared as texts.
_MYSQL_NUMBERED = ("enum", "set")

_AS_IT_IS = ("CAST({} AS VARCHAR)", "{}")
_H2_BYTES = ("RAWTOHEX({})", "X'{}'")
_H2 = {
    **dict.fromkeys(("boolean", "tinyint", "smallint", "integer", "bigint"), _AS_IT_IS),
    "numeric": _AS_IT_IS,
    **dict.fromkeys(("binary", "binary varying"), _H2_BYTES),
}
# H2 reads a text as the type that it is compared with; not so for these.
_H2_NONE = ("binary large object", "array", "row")


def key_of(dialect: Dialect, column: SqlColumn, type_in_catalogue: str | None) -> Key | None:
    """Return how a column cuts what is read; None: it cannot cut it exactly.

    Args:
        dialect: How the database writes SQL.
        column: The column.
        type_in_catalogue: Its type in the catalogue of MariaDB or MySQL, whose drivers call
            several types ``CHAR``; None where there is none.
    """
    name = dialect.name(column.name)
    declared = (type_in_catalogue or column.declared).lower()
    if dialect.product in ("mariadb", "mysql"):
        return _mysql_key(name, declared, is_sure=type_in_catalogue is not None)
    if dialect.product == "sqlite":
        return sqlite_key(name)
    if dialect.product == "h2":
        if declared.endswith(_H2_NONE):
            return None
        found = _H2.get(declared)
        if found is None:
            return Key(name, _AS_IT_IS[0], lambda value: dialect.text(str(value)))
        return Key(name, found[0], found[1].format)
    # Of a database that no test knows, nothing but numbers is sure to compare as it orders.
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
        # It may be an ENUM: its text is both ordered and compared, but by no index.
        name = f"CONCAT({name}, '')"
    return Key(name, found[0], found[1].format, null)


def _plain(value: Any) -> str:
    return f"{value:f}" if isinstance(value, decimal.Decimal) else str(value)
