"""Reads JDBC results into Arrow: chooses an exact type for each column, and copies the rows.

Drivers describe columns by a number of `java.sql.Types`, but that number differs between drivers
for one and the same type (PostgreSQL's boolean is a BIT, its timestamptz a TIMESTAMP). So the names
of the database and of the type take precedence if they say more.

The Java helper (see `jdbc_java`) writes some rows at a time into a *block* of memory in Arrow's
layout. A block is copied once, without any Python object per value.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from beam_tfrecord.features.arrow_types import is_text
from beam_tfrecord.features.type_join import can_cast
from beam_tfrecord.options.sources import DatabaseOptions
from beam_tfrecord.sources.sql.database import Dialect
from beam_tfrecord.sources.sql.jdbc_java import helper, java, result_of
from beam_tfrecord.sources.sql.values import SqlColumn, SqlRows, cast_column, misfit

_DECIMALS = ("NUMERIC", "DECIMAL")
_MAX_DIGITS = 76

# Types by the names of `java.sql.Types`, other than those of decimals, bits and moments.
_TYPES = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER"), pa.int32()),
    "BIGINT": pa.int64(),
    "REAL": pa.float32(),
    **dict.fromkeys(("FLOAT", "DOUBLE"), pa.float64()),
    **dict.fromkeys(("BINARY", "VARBINARY", "LONGVARBINARY", "BLOB"), pa.binary()),
    "DATE": pa.date32(),
    **dict.fromkeys(("CHAR", "VARCHAR", "LONGVARCHAR", "CLOB"), pa.string()),
    **dict.fromkeys(("NCHAR", "NVARCHAR", "LONGNVARCHAR", "NCLOB"), pa.string()),
    **dict.fromkeys(("SQLXML", "DATALINK", "ROWID", "DISTINCT", "STRUCT", "OTHER"), pa.string()),
    "TIME_WITH_TIMEZONE": pa.string(),
}
# Smaller unsigned types fit into the signed type that they are described as.
_UNSIGNED = {"INTEGER": pa.int64(), "BIGINT": pa.uint64()}
# Types that are recognized by the database's own name.
_BY_NAME = {
    **dict.fromkeys(("uuid", "money", "timetz", "decfloat"), pa.string()),
    "year": pa.int32(),
    "oid": pa.int64(),
}


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


@dataclasses.dataclass(frozen=True)
class Described:
    """A column of a result, as the driver describes it; `kind` is its name in `java.sql.Types`."""

    product: Product
    kind: str
    name: str
    precision: int
    scale: int
    label: str
    nullable: bool


def type_of(one: Described) -> pa.DataType | None:
    """Return the type that holds a column without any loss, or None if there is none."""
    kind, name, is_mysql = one.kind, one.name.lower(), one.product.is_mysql
    if name in _BY_NAME:
        return _BY_NAME[name]
    if kind in _DECIMALS:
        return _decimal_type(one.precision, one.scale)
    if kind in ("BIT", "BOOLEAN"):
        if name not in ("bit", "varbit") or one.precision <= 1:
            return pa.bool_()
        return pa.binary() if is_mysql else pa.string()
    unit = "ns" if one.scale > 6 else "us"
    if kind == "TIME":
        # A TIME of MariaDB is a duration of up to 838 hours.
        return pa.string() if is_mysql else pa.time64(unit)
    if kind in ("TIMESTAMP", "TIMESTAMP_WITH_TIMEZONE"):
        # MariaDB's TIMESTAMP is an instant, shown in the session's zone, which is UTC.
        is_instant = kind != "TIMESTAMP" or name == ("timestamp" if is_mysql else "timestamptz")
        return pa.timestamp(unit, "UTC" if is_instant else None)
    if "unsigned" in name and kind in _UNSIGNED:
        return _UNSIGNED[kind]
    return _TYPES.get(kind)


def _decimal_type(precision: int, scale: int) -> pa.DataType:
    """Return the type of decimals, or text if no Arrow decimal holds all of them.

    PostgreSQL describes a numeric without limits as one of 0 digits, and a negative scale as a
    scale above a thousand.
    """
    if not (0 < precision <= _MAX_DIGITS and 0 <= scale <= precision):
        return pa.string()
    return (pa.decimal128 if precision <= 38 else pa.decimal256)(precision, scale)


def _reader(one: Described, wanted: pa.DataType) -> pa.DataType | None:
    """Return the type to read a column in before Arrow's checked cast to the type `wanted`.

    Returns None if that is never exact.
    """
    if one.kind in _DECIMALS and pa.types.is_decimal(wanted):
        return _decimal_type(wanted.precision, wanted.scale)
    if one.kind in _DECIMALS and pa.types.is_integer(wanted):
        return pa.decimal128(38, 0)
    natural = type_of(one)
    return natural if natural is not None and can_cast(natural, wanted) else None


def _column_of(one: Described, options: DatabaseOptions) -> SqlColumn:
    """Return a column with the type that the user wants; with its own type if that is None."""
    quoted = one.product.dialect.name(one.label)
    natural, wanted = type_of(one), options.typed.get(one.label)
    if one.product.is_mysql and natural == pa.float32():
        # The server sends a FLOAT as a text of six digits, but a DOUBLE with all of its digits.
        quoted = f"({quoted} * 1e0)"
    column = SqlColumn(one.label, one.name, natural, one.nullable, quoted, reader=natural)
    if one.kind == "ARRAY" and options.arrays == "text":
        column = dataclasses.replace(column, arrow=pa.string(), reader=pa.string())
    if wanted is None:
        cure = "pass --arrays text" if one.kind == "ARRAY" else "pass --types to name one"
        return dataclasses.replace(column, refusal=f"no type holds it exactly: {cure}")
    if is_text(wanted):
        column, reader = dataclasses.replace(column, select=_as_text(one, quoted)), pa.string()
    else:
        reader = _reader(one, wanted)
    if reader is None or not column.select:
        return column.refused(f"it cannot be read as {wanted} exactly: cast it in --query")
    return dataclasses.replace(column, arrow=wanted, reader=reader)


def _as_text(one: Described, quoted: str) -> str:
    """Return an expression that selects a column as text, or an empty text if there is none."""
    natural = type_of(one)
    if one.kind == "ARRAY" or natural == pa.string():
        return quoted
    if natural == pa.binary() or one.name.lower() == "bit":
        return one.product.hex.format(quoted)
    return one.product.dialect.as_text(quoted)


def _arrays(blocks: Any, types: Sequence[pa.DataType], count: int) -> Iterator[pa.Array]:
    """Yield the columns of a block, which holds their buffers one after another."""
    data = pa.py_buffer(bytes(memoryview(blocks.block()).cast("B")))
    layout = iter(memoryview(blocks.layout()).cast("B").cast("i"))
    position = 0
    for arrow in types:
        nulls, buffers = next(layout), []
        for size in itertools.islice(layout, arrow.num_buffers):
            buffers.append(data.slice(position, size))
            position += -(-size // _ALIGNMENT) * _ALIGNMENT
        yield pa.Array.from_buffers(arrow, count, buffers if nulls else [None, *buffers[1:]], nulls)


_ALIGNMENT = 64
_BLOCK_BYTES = 8 * 2**20
_CANCEL_MS = 5000

# columnNoNulls in java.sql.ResultSetMetaData.
_NO_NULLS = 0


def ask(statement: Any, sql: str) -> Any:
    """Run a query and return its ``ResultSet``."""
    task = helper("Connector").query(statement, sql)
    try:
        return result_of(task)
    finally:
        _end(task, statement)


def _end(task: Any, statement: Any, *, is_open: bool = False) -> None:
    """Cancel a statement if it is running, or if `is_open`, and give its task time to end."""
    if is_open or not task.isDoneWithin(0):
        with contextlib.suppress(java().JException):
            statement.cancel()
        task.isDoneWithin(_CANCEL_MS)


def columns_in(rows: Any, product: Product, options: DatabaseOptions) -> tuple[SqlColumn, ...]:
    """Return the columns of a ``ResultSet`` as its driver describes them and the options ask."""
    meta = rows.getMetaData()
    fields = java().JClass("java.sql.Types").class_.getFields()
    kinds = {int(field.getInt(None)): str(field.getName()) for field in fields}
    described = (
        Described(
            product=product,
            kind=kinds.get(int(meta.getColumnType(at)), ""),
            name=str(meta.getColumnTypeName(at)),
            precision=int(meta.getPrecision(at)),
            scale=int(meta.getScale(at)),
            label=str(meta.getColumnLabel(at)),
            nullable=int(meta.isNullable(at)) != _NO_NULLS,
        )
        for at in range(1, int(meta.getColumnCount()) + 1)
    )
    return tuple(_column_of(one, options) for one in described)


def read_rows(
    statement: Any,
    rows: Any,
    columns: Sequence[SqlColumn],
    *,
    batch_rows: int,
    fetch_bytes: int,
    cancels: bool,
) -> Iterator[SqlRows]:
    """Stream a result in blocks."""
    names = [column.name for column in columns]
    types = [column.arrow for column in columns]
    readers = [column.reader for column in columns]
    blocks = helper("RowBlocks")(rows, [str(reader) for reader in readers], fetch_bytes)
    task = blocks.start(batch_rows, _BLOCK_BYTES)
    is_open = cancels
    try:
        while count := int(result_of(task)):
            arrays = list(_arrays(blocks, readers, count))
            odd = [(int(one.column), int(one.row), str(one.value)) for one in blocks.misfits()]
            # Java reads the next block while this one is used here.
            task = blocks.start(batch_rows, _BLOCK_BYTES)
            misfits = [misfit(row, names[at], types[at], value) for at, row, value in odd]
            found = SqlRows.of(names, map(cast_column, arrays, names, types))
            yield dataclasses.replace(found, misfits=(*misfits, *found.misfits))
        is_open = False
    finally:
        _end(task, statement, is_open=is_open)
