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
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from beam_tfrecord.features.arrow_types import is_text
from beam_tfrecord.features.converting import can_cast
from beam_tfrecord.options.sources import DatabaseOptions
from beam_tfrecord.sources.sql.database import Misfit, SqlColumn, SqlRows
from beam_tfrecord.sources.sql.jdbc_dialects import Product
from beam_tfrecord.sources.sql.jdbc_java import helper, java, result_of
from beam_tfrecord.sources.sql.values import cast_column

# Constants of java.sql.Types.
_BIT, _TINYINT, _BIGINT, _LONGVARBINARY, _VARBINARY, _BINARY = -7, -6, -5, -4, -3, -2
_LONGVARCHAR, _CHAR, _NUMERIC, _DECIMAL, _INTEGER, _SMALLINT = -1, 1, 2, 3, 4, 5
_FLOAT, _REAL, _DOUBLE, _VARCHAR, _BOOLEAN, _DATALINK = 6, 7, 8, 12, 16, 70
_DATE, _TIME, _TIMESTAMP, _OTHER, _DISTINCT, _STRUCT, _ARRAY = 91, 92, 93, 1111, 2001, 2002, 2003
_BLOB, _CLOB, _SQLXML, _NCLOB, _TIME_TZ, _TIMESTAMP_TZ = 2004, 2005, 2009, 2011, 2013, 2014
_ROWID, _NCHAR, _NVARCHAR, _LONGNVARCHAR = -8, -15, -9, -16

_TEXTS = frozenset(
    {_CHAR, _VARCHAR, _LONGVARCHAR, _NCHAR, _NVARCHAR, _LONGNVARCHAR, _SQLXML}
    | {_DATALINK, _ROWID, _DISTINCT, _STRUCT, _OTHER}
)
_MAX_DIGITS = 76


@dataclasses.dataclass(frozen=True)
class Described:
    """A column of a result, as the driver describes it."""

    product: Product
    number: int
    name: str
    precision: int
    scale: int
    label: str
    nullable: bool


@dataclasses.dataclass(frozen=True)
class JdbcType:
    """The two types by which a column is read: one of the Java helper, and one of Arrow."""

    kind: str
    arrow: pa.DataType
    refusal: str = ""


TEXT = JdbcType("text", pa.string())
_FLOAT64 = JdbcType("float64", pa.float64())
_LONG_TEXT = JdbcType("long_text", pa.string())
_BINARY_TYPE = JdbcType("binary", pa.binary())
_INT32 = JdbcType("int32", pa.int32())
_INT64 = JdbcType("int64", pa.int64())
_UINT64 = JdbcType("uint64", pa.uint64())
_BOOL = JdbcType("bool", pa.bool_())
_SIMPLE = {
    _TINYINT: _INT32,
    _SMALLINT: _INT32,
    _INTEGER: _INT32,
    _BIGINT: _INT64,
    _REAL: JdbcType("float32", pa.float32()),
    _FLOAT: _FLOAT64,
    _DOUBLE: _FLOAT64,
    _BINARY: _BINARY_TYPE,
    _VARBINARY: _BINARY_TYPE,
    _LONGVARBINARY: _BINARY_TYPE,
    _BLOB: JdbcType("long_binary", pa.binary()),
    _CLOB: _LONG_TEXT,
    _NCLOB: _LONG_TEXT,
    _DATE: JdbcType("date", pa.date32()),
    _TIME_TZ: TEXT,
}

# Smaller unsigned types fit into the signed type that their number stands for.
_UNSIGNED = {_INTEGER: _INT64, _BIGINT: _UINT64}

# Types that are recognized by their name, regardless of their number.
_BY_NAME = {
    "uuid": TEXT,
    "money": TEXT,
    "year": _INT32,
    "oid": _INT64,
    "timetz": TEXT,
}


def type_of(described: Described, *, arrays: str) -> JdbcType:
    """Return the types that read a column without any loss; `RowsOptions` describes `arrays`."""
    name, number = described.name.lower(), described.number
    if number == _ARRAY:
        return TEXT if arrays == "text" else _refused("pass --arrays text")
    if name in _BY_NAME:
        return _BY_NAME[name]
    if number in (_NUMERIC, _DECIMAL):
        return _decimal_type(described.precision, described.scale, name=name)
    if number in (_BIT, _BOOLEAN):
        return _bit_type(described)
    if number in (_TIME, _TIMESTAMP, _TIMESTAMP_TZ):
        return _moment_type(described)
    if "unsigned" in name and number in _UNSIGNED:
        return _UNSIGNED[number]
    if number in _SIMPLE:
        return _SIMPLE[number]
    if number in _TEXTS:
        return TEXT
    return _refused("no type holds it exactly: pass --types to name one")


def _decimal_type(precision: int, scale: int, *, name: str = "numeric") -> JdbcType:
    """Return the type of decimals, or text if no Arrow decimal holds all of them.

    PostgreSQL describes a numeric without limits as one of 0 digits, and a negative scale as a
    scale above a thousand.
    """
    if name == "decfloat" or not (0 < precision <= _MAX_DIGITS and 0 <= scale <= precision):
        return TEXT
    arrow = pa.decimal128 if precision <= 38 else pa.decimal256
    return JdbcType(f"decimal:{precision}:{scale}", arrow(precision, scale))


def _bit_type(described: Described) -> JdbcType:
    if described.name.lower() in ("bit", "varbit") and described.precision > 1:
        return _BINARY_TYPE if described.product.is_mysql else TEXT
    return _BOOL


def _moment_type(described: Described) -> JdbcType:
    name, is_mysql = described.name.lower(), described.product.is_mysql
    unit = "ns" if described.scale > 6 else "us"
    if described.number == _TIME:
        # A TIME of MariaDB is a duration of up to 838 hours.
        return TEXT if is_mysql else JdbcType(f"time_{unit}", pa.time64(unit))
    if described.number == _TIMESTAMP_TZ or name == "timestamptz":
        return JdbcType(f"instant_{unit}", pa.timestamp(unit, "UTC"))
    # MariaDB's TIMESTAMP is an instant, shown in the session's zone, which is UTC.
    zone = "UTC" if is_mysql and name == "timestamp" else None
    return JdbcType(f"timestamp_{unit}", pa.timestamp(unit, zone))


def _refused(refusal: str) -> JdbcType:
    return JdbcType("text", pa.string(), refusal)


def _wanted_type(described: Described, wanted: pa.DataType) -> JdbcType | None:
    """Return the types that read a column as the user wants it, or None if that is never exact.

    Arrow's checked cast may still have to convert the result to the type `wanted`.
    """
    if described.number in (_NUMERIC, _DECIMAL):
        if pa.types.is_decimal(wanted):
            found = _decimal_type(wanted.precision, wanted.scale)
            return None if found is TEXT else found
        if pa.types.is_integer(wanted):
            return _UINT64 if wanted.equals(pa.uint64()) else JdbcType("integer", pa.int64())
    natural = type_of(described, arrays="text")
    return natural if can_cast(natural.arrow, wanted) else None


def _column_of(described: Described, options: DatabaseOptions) -> SqlColumn:
    """Return a column with the type that the user wants; with its own type if that is None."""
    product, wanted = described.product, options.typed.get(described.label)
    quoted = product.dialect.name(described.label)
    natural = type_of(described, arrays=options.arrays)
    reader: JdbcType | None = natural
    arrow, refusal = natural.arrow, natural.refusal
    if pa.types.is_float32(arrow):
        quoted = product.real.format(quoted)
    if wanted is not None:
        arrow, refusal = wanted, ""
        if is_text(wanted):
            quoted, reader = _as_text(quoted, described)
        else:
            reader = _wanted_type(described, wanted)
        if reader is None or not quoted:
            refusal = f"it cannot be read as {wanted} exactly: cast it in --query"
    column = SqlColumn(
        described.label, described.name, arrow, described.nullable, quoted, reader=reader
    )
    return column.refused(refusal) if refusal else column


def _as_text(quoted: str, described: Described) -> tuple[str, JdbcType]:
    """Return an expression that selects a column as text, empty if there is none, and its type."""
    natural = type_of(described, arrays="text")
    if pa.types.is_string(natural.arrow) and not natural.refusal:
        return quoted, natural
    if pa.types.is_binary(natural.arrow) or described.name.lower() == "bit":
        return described.product.hex.format(quoted), TEXT
    return described.product.dialect.as_text(quoted), TEXT


class _Block:
    """The reader of one block of the Java helper, which holds columns one after another."""

    def __init__(self, blocks: Any) -> None:
        data = memoryview(blocks.block()).cast("B")
        self._copy = pa.allocate_buffer(len(data))
        memoryview(self._copy).cast("B")[:] = data
        self._position = 0

    def _next(self, size: int) -> pa.Buffer:
        piece = self._copy.slice(self._position, size)
        self._position += -(-size // _ALIGNMENT) * _ALIGNMENT
        return piece

    def array(self, arrow: pa.DataType, count: int, layout: Iterator[int]) -> pa.Array:
        """Return the next column without copying; ``RowBlocks.layout`` describes `layout`."""
        nulls, variable = next(layout), next(layout)
        validity = self._next((count + 7) // 8)
        known = validity if nulls else None
        if pa.types.is_string(arrow) or pa.types.is_binary(arrow):
            buffers = [self._next(4 * (count + 1)), self._next(variable)]
        else:
            buffers = [self._next((count * arrow.bit_width + 7) // 8)]
        return pa.Array.from_buffers(arrow, count, [known, *buffers], nulls)


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
    described = (
        Described(
            product=product,
            number=int(meta.getColumnType(at)),
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
    kinds = [column.reader.kind for column in columns]
    blocks = helper("RowBlocks")(rows, kinds, fetch_bytes)
    task = blocks.start(batch_rows, _BLOCK_BYTES)
    is_open = cancels
    try:
        while count := int(result_of(task)):
            block, layout = _Block(blocks), list(memoryview(blocks.layout()).cast("B").cast("i"))
            misfits = list(_misfits(blocks, names, types)) if layout[-1] else []
            # Java reads the next block while this one is used here.
            task = blocks.start(batch_rows, _BLOCK_BYTES)
            numbers = iter(layout)
            arrays = [block.array(one.reader.arrow, count, numbers) for one in columns]
            found = SqlRows.of(names, map(cast_column, arrays, names, types))
            yield dataclasses.replace(found, misfits=(*misfits, *found.misfits))
        is_open = False
    finally:
        _end(task, statement, is_open=is_open)


def _misfits(blocks: Any, names: Sequence[str], types: Sequence[Any]) -> Iterator[Misfit]:
    for one in blocks.misfits():
        at, value = int(one.column), str(one.value)
        shown = f"is {value[:40]!r}, which" if value else "holds a value that"
        cure = f"{names[at]}={'bytes' if is_text(types[at]) else 'text'}"
        message = f"{shown} is not {types[at]} exactly ({one.reason}): pass --types {cure}"
        yield Misfit(int(one.row), names[at], message, value)
