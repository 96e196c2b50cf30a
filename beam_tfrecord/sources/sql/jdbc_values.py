"""The type contract of ``jdbc:`` databases: which getter, and which Arrow type, for which column.

Drivers describe columns by a number of `java.sql.Types`, but the number of one and the same type
differs between drivers (PostgreSQL's boolean is a BIT, its timestamptz a TIMESTAMP), so the name
of the database and of the type decide wherever they tell more.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from beam_tfrecord.features.arrow_types import is_text
from beam_tfrecord.sources.parquet.types import can_cast, cast_exactly
from beam_tfrecord.sources.sql.database import Misfit, SqlColumn, SqlRows
from beam_tfrecord.sources.sql.jdbc_dialects import Product
from beam_tfrecord.sources.sql.jdbc_java import helper, java, result_of

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
    """A column of a result, as the driver describes it.

    Attributes:
        product: The database, in lower case.
        number: Its type in `java.sql.Types`.
        name: Its type as the database writes it.
        precision: Digits, where it has any.
        scale: Digits after the point; of times, digits of the second.
        label: The column's name in the result.
        nullable: False only where the database promises it.
    """

    product: str
    number: int
    name: str
    precision: int = 0
    scale: int = 0
    label: str = ""
    nullable: bool = True


@dataclasses.dataclass(frozen=True)
class JdbcType:
    """How a column is read.

    Attributes:
        kind: The kind of column of the Java helper.
        arrow: The Arrow type that it fills.
        refusal: The option that cures it, where there is none; the others are then those of text.
    """

    kind: str
    arrow: pa.DataType
    refusal: str = ""


TEXT = JdbcType("text", pa.string())
FLOAT32 = JdbcType("float32", pa.float32())
FLOAT64 = JdbcType("float64", pa.float64())
_LONG_TEXT = JdbcType("long_text", pa.string())
_BINARY_TYPE = JdbcType("binary", pa.binary())
_LONG_BINARY = JdbcType("long_binary", pa.binary())
_INT32 = JdbcType("int32", pa.int32())
_INT64 = JdbcType("int64", pa.int64())
_UINT64 = JdbcType("uint64", pa.uint64())
_BOOL = JdbcType("bool", pa.bool_())
_DATE_TYPE = JdbcType("date", pa.date32())
_SIMPLE = {
    _TINYINT: _INT32,
    _SMALLINT: _INT32,
    _INTEGER: _INT32,
    _BIGINT: _INT64,
    _REAL: FLOAT32,
    _FLOAT: FLOAT64,
    _DOUBLE: FLOAT64,
    _BINARY: _BINARY_TYPE,
    _VARBINARY: _BINARY_TYPE,
    _LONGVARBINARY: _BINARY_TYPE,
    _BLOB: _LONG_BINARY,
    _CLOB: _LONG_TEXT,
    _NCLOB: _LONG_TEXT,
    _DATE: _DATE_TYPE,
    _TIME_TZ: TEXT,
}

# The others fit into the signed type of their number.
_UNSIGNED = {_INTEGER: _INT64, _BIGINT: _UINT64}

# What the name decides, whatever the number.
_BY_NAME = {
    "uuid": TEXT,
    "money": TEXT,
    "year": _INT32,
    "oid": _INT64,
    "timetz": TEXT,
}

# The items of arrays whose Java objects are exact; dates and times come as java.sql's, which are
# not.
_ITEMS = {
    **dict.fromkeys(("int2", "int4", "smallint", "integer", "int", "tinyint"), _INT32),
    **dict.fromkeys(("int8", "bigint"), _INT64),
    **dict.fromkeys(("float4", "real"), FLOAT32),
    **dict.fromkeys(("float8", "double precision", "double"), FLOAT64),
    **dict.fromkeys(("bool", "boolean"), _BOOL),
    **dict.fromkeys(("text", "varchar", "bpchar", "character varying", "character", "uuid"), TEXT),
}


def type_of(described: Described, *, arrays: str = "refuse") -> JdbcType:
    """Return how to read a column without any loss.

    Args:
        described: The column.
        arrays: ``refuse``, ``text`` or ``list``.
    """
    name, number = described.name.lower(), described.number
    if described.product == "sqlite":
        return _sqlite_type(name)
    if number == _ARRAY:
        return _array_type(described, arrays)
    if name in _BY_NAME:
        return _BY_NAME[name]
    if number in (_NUMERIC, _DECIMAL):
        return decimal_type(described.precision, described.scale, name=name)
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


def decimal_type(precision: int, scale: int, *, name: str = "numeric") -> JdbcType:
    """Return the type of decimals; text where no Arrow decimal holds all of them.

    PostgreSQL describes a numeric without limits as of 0 digits, and a negative scale as one of
    some thousand.
    """
    if name == "decfloat" or not (0 < precision <= _MAX_DIGITS and 0 <= scale <= precision):
        return TEXT
    arrow = pa.decimal128 if precision <= 38 else pa.decimal256
    return JdbcType(f"decimal:{precision}:{scale}", arrow(precision, scale))


def _bit_type(described: Described) -> JdbcType:
    if described.name.lower() in ("bit", "varbit") and described.precision > 1:
        is_bytes = described.product in ("mariadb", "mysql")
        return _BINARY_TYPE if is_bytes else TEXT
    return _BOOL


def _moment_type(described: Described) -> JdbcType:
    name, is_mysql = described.name.lower(), described.product in ("mariadb", "mysql")
    unit = "ns" if described.scale > 6 else "us"
    if described.number == _TIME:
        # A TIME of MariaDB is a duration of up to 838 hours.
        return TEXT if is_mysql else JdbcType(f"time_{unit}", pa.time64(unit))
    if described.number == _TIMESTAMP_TZ or name == "timestamptz":
        return JdbcType(f"instant_{unit}", pa.timestamp(unit, "UTC"))
    # MariaDB's TIMESTAMP is an instant, shown in the session's zone, which is UTC.
    zone = "UTC" if is_mysql and name == "timestamp" else None
    return JdbcType(f"timestamp_{unit}", pa.timestamp(unit, zone))


def _array_type(described: Described, arrays: str) -> JdbcType:
    if arrays == "text":
        return TEXT
    item = described.name.lower().removeprefix("_").removesuffix("[]")
    item = item.removesuffix(" array").split("(")[0].strip()
    if arrays == "list":
        if item not in _ITEMS:
            return _refused(f"lists of {item} cannot be read: pass --arrays text")
        return list_type(_ITEMS[item])
    return _refused("pass --arrays list or --arrays text")


def list_type(item: JdbcType) -> JdbcType:
    """Return the type of lists of `item`."""
    return JdbcType(f"list:{item.kind}", pa.list_(item.arrow))


# SQLite's rules of affinity, in their order: what a declared type contains decides. Only the
# types that then hold nothing but one kind of value if the user kept to them are taken.
_SQLITE = (
    ("int", JdbcType("strict:int64", pa.int64())),
    ("char", JdbcType("strict:text", pa.string())),
    ("clob", JdbcType("strict:text", pa.string())),
    ("text", JdbcType("strict:text", pa.string())),
    ("blob", JdbcType("strict:binary", pa.binary())),
    ("real", JdbcType("strict:float64", pa.float64())),
    ("floa", JdbcType("strict:float64", pa.float64())),
    ("doub", JdbcType("strict:float64", pa.float64())),
    ("bool", JdbcType("strict:bool", pa.bool_())),
)

_SQLITE_ANY = JdbcType("strict:any", pa.string())


def _sqlite_type(name: str) -> JdbcType:
    for part, found in _SQLITE:
        if part in name:
            return found
    return _refused("SQLite keeps no such type: pass --types, or read the file by sqlite:///")


def _refused(refusal: str) -> JdbcType:
    return dataclasses.replace(TEXT, refusal=refusal)


def wanted_type(described: Described, wanted: pa.DataType) -> JdbcType | None:
    """Return how to read a column for a type that the user wants; None: it cannot be exact.

    What it fills may still have to be cast, by Arrow's checked cast, to what is wanted.
    """
    if described.product == "sqlite":
        if is_text(wanted):
            return _SQLITE_ANY
        fit = [found for _, found in _SQLITE if can_cast(found.arrow, wanted)]
        # Integers fit floats too, but would leave out all others.
        return min(fit, key=lambda found: not found.arrow.equals(wanted), default=None)
    if described.number == _ARRAY and pa.types.is_list(wanted):
        items = {item.arrow: item for item in _ITEMS.values()}
        item = items.get(wanted.value_type)
        return None if item is None else list_type(item)
    if described.number in (_NUMERIC, _DECIMAL):
        if pa.types.is_decimal(wanted):
            found = decimal_type(wanted.precision, wanted.scale)
            return None if found is TEXT else found
        if pa.types.is_integer(wanted):
            return _UINT64 if wanted.equals(pa.uint64()) else JdbcType("whole", pa.int64())
    natural = type_of(described, arrays="text")
    return natural if can_cast(natural.arrow, wanted) else None


# PostgreSQL's types whose text is the same whether values travel as text or in binary.
_SAME_TEXT = frozenset(("text", "varchar", "bpchar", "name", "uuid", "json", "jsonb"))


def is_binary_safe(declared: str, arrow: pa.DataType | None) -> bool:
    """Tell whether PostgreSQL's binary transfer changes nothing about a column.

    Its driver writes points, arrays and times with a zone otherwise when they come in binary.
    """
    if arrow is None or pa.types.is_list(arrow):
        return False
    return not pa.types.is_string(arrow) or declared.lower() in _SAME_TEXT


def column_of(
    described: Described, wanted: pa.DataType | None, *, product: Product, arrays: str
) -> SqlColumn:
    """Return a column as it will be read.

    Args:
        described: What the driver says of it.
        wanted: The type that the user wants; None: its own.
        product: The database.
        arrays: What becomes of arrays: ``refuse``, ``text`` or ``list``.
    """
    quoted = product.dialect.name(described.label)
    natural = type_of(described, arrays=arrays)
    if pa.types.is_float32(natural.arrow):
        quoted = product.real.format(quoted)
    plain = SqlColumn(described.label, described.name, None, described.nullable, quoted)
    if wanted is None:
        if natural.refusal:
            return dataclasses.replace(plain, refusal=natural.refusal)
        return dataclasses.replace(plain, arrow=natural.arrow)
    select = quoted
    if is_text(wanted) and described.product != "sqlite":
        select = _as_text(quoted, described, product)
    elif wanted_type(described, wanted) is None:
        select = ""
    if not select:
        refusal = f"it cannot be read as {wanted} exactly: cast it in --query"
        return dataclasses.replace(plain, refusal=refusal)
    return dataclasses.replace(plain, arrow=wanted, select=select)


def _as_text(quoted: str, described: Described, product: Product) -> str:
    """Return the expression of a column as text; empty where it has none."""
    natural = type_of(described, arrays="text")
    if pa.types.is_string(natural.arrow) and not natural.refusal:
        return quoted
    if pa.types.is_binary(natural.arrow) or described.name.lower() == "bit":
        return product.hex.format(quoted)
    return f"CAST({quoted} AS {product.text_type})" if product.text_type else quoted


_ALIGNMENT = 64


def copy_of(block: Any) -> pa.Buffer:
    """Copy a block, a direct ``ByteBuffer``, out of Java, which will write over it."""
    data = memoryview(block).cast("B")
    copy = pa.allocate_buffer(len(data))
    memoryview(copy).cast("B")[:] = data
    return copy


def layout_of(blocks: Any) -> Sequence[int]:
    """Return the numbers that ``RowBlocks.layout`` describes."""
    return memoryview(blocks.layout()).cast("B").cast("i")


def arrays_of(
    block: pa.Buffer, layout: Sequence[int], types: Sequence[pa.DataType], rows: int
) -> list[pa.Array]:
    """Return the columns of a block without copying it.

    Args:
        block: The bytes of the block.
        layout: NULLs and length of the variable part, by column, items of lists after the lists.
        types: Arrow types of the columns, as the helper was told to write them.
        rows: Number of rows.
    """
    pieces = _Pieces(block)
    numbers = iter(layout)
    return [_array(arrow, rows, pieces, numbers) for arrow in types]


def _array(arrow: pa.DataType, count: int, pieces: _Pieces, numbers: Iterator[int]) -> pa.Array:
    nulls, variable = next(numbers), next(numbers)
    validity = pieces.take((count + 7) // 8)
    known = validity if nulls else None
    if pa.types.is_list(arrow):
        offsets = pieces.take(4 * (count + 1))
        items = _array(arrow.value_type, variable, pieces, numbers)
        return pa.Array.from_buffers(arrow, count, [known, offsets], nulls, children=[items])
    if pa.types.is_string(arrow) or pa.types.is_binary(arrow):
        buffers = [pieces.take(4 * (count + 1)), pieces.take(variable)]
    else:
        buffers = [pieces.take((count * arrow.bit_width + 7) // 8)]
    return pa.Array.from_buffers(arrow, count, [known, *buffers], nulls)


class _Pieces:
    """Buffers cut from a block one after the other."""

    def __init__(self, block: pa.Buffer) -> None:
        self._block = block
        self._position = 0

    def take(self, size: int) -> pa.Buffer:
        """Return the next `size` bytes."""
        piece = self._block.slice(self._position, size)
        self._position += -(-size // _ALIGNMENT) * _ALIGNMENT
        return piece


_BLOCK_BYTES = 8 * 2**20
_CANCEL_MS = 5000
_SHOWN_CHARACTERS = 200

# Of java.sql.ResultSetMetaData.
_NO_NULLS = 0


def ask(statement: Any, sql: str) -> Any:
    """Return the ``ResultSet`` of a question."""
    task = helper("Connector").query(statement, sql)
    try:
        return result_of(task)
    finally:
        _end(task, statement)


def _end(task: Any, statement: Any, *, is_open: bool = False) -> None:
    """Cancel a statement that is still at work, and leave it alone for a moment to end."""
    if is_open or not task.isDoneWithin(0):
        with contextlib.suppress(java().JException):
            statement.cancel()
        task.isDoneWithin(_CANCEL_MS)


def described_in(meta: Any, product: str) -> list[Described]:
    """Return the columns that a ``ResultSetMetaData`` of a database describes."""
    return [
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
    ]


def read_rows(
    statement: Any,
    rows: Any,
    described: Sequence[Described],
    columns: Sequence[SqlColumn] | None,
    *,
    batch_rows: int,
    fetch_bytes: int,
    cancels: bool = False,
) -> Iterator[SqlRows]:
    """Stream a result in blocks.

    Args:
        statement: The ``Statement`` that gave the result.
        rows: The ``ResultSet``.
        described: Its columns.
        columns: What to make of them; None: what they are by themselves, arrays as text.
        batch_rows: Rows of a block, unless it takes too many bytes before.
        fetch_bytes: Bytes that the driver fetches at a time, once the width of rows is known; 0:
            it keeps the number of rows that it was told.
        cancels: Cancel the statement where the caller does not take all rows.
    """
    wanted = [None] * len(described) if columns is None else [column.arrow for column in columns]
    readings = [_reading(of, arrow) for of, arrow in zip(described, wanted, strict=True)]
    filled = [reading.arrow for reading in readings]
    names = [of.label for of in described] if columns is None else [one.name for one in columns]
    types = [own if arrow is None else arrow for own, arrow in zip(filled, wanted, strict=True)]
    blocks = helper("RowBlocks")(rows, [reading.kind for reading in readings], fetch_bytes)
    task = blocks.start(batch_rows, _BLOCK_BYTES)
    is_open = cancels
    try:
        while count := int(result_of(task)):
            block, layout = blocks.block(), layout_of(blocks)
            misfits = list(_misfits(blocks, names, types)) if layout[-1] else []
            # Java reads on while the block is copied and used here.
            task = blocks.start(batch_rows, _BLOCK_BYTES)
            arrays = arrays_of(copy_of(block), layout, filled, count)
            yield _rows(arrays, names, types, misfits)
        is_open = False
    finally:
        _end(task, statement, is_open=is_open)


def _reading(described: Described, wanted: pa.DataType | None) -> JdbcType:
    natural = type_of(described, arrays="text")
    if wanted is None or (natural.arrow.equals(wanted) and not natural.refusal):
        return natural
    if natural is FLOAT64 and pa.types.is_float32(wanted):
        # What was described as a float of 32 bits is selected as one of 64, and fits.
        return FLOAT32
    return wanted_type(described, wanted) or TEXT


def _misfits(blocks: Any, names: Sequence[str], types: Sequence[Any]) -> Iterator[Misfit]:
    for one in blocks.misfits():
        at, value = int(one.column), str(one.value)
        shown = f"is {value[:40]!r}, which" if value else "holds a value that"
        cure = f"{names[at]}={'bytes' if is_text(types[at]) else 'text'}"
        message = f"{shown} is not {types[at]} exactly ({one.reason}): pass --types {cure}"
        yield Misfit(int(one.row), names[at], message, value)


def _rows(
    arrays: Sequence[pa.Array], names: Sequence[str], types: Sequence[Any], misfits: list[Misfit]
) -> SqlRows:
    cast = []
    for name, values, arrow in zip(names, arrays, types, strict=True):
        array, rows = cast_exactly(values, arrow)
        cast.append(array)
        for row in rows.tolist():
            text = _shown(values[row])
            misfits.append(Misfit(row, name, f"is {text[:40]}, which is not {arrow}", text))
    return SqlRows(pa.RecordBatch.from_arrays(cast, names=list(names)), tuple(misfits))


def _shown(value: pa.Scalar) -> str:
    # Python has no dates before year 1 or after 9999.
    try:
        return str(value.as_py())[:_SHOWN_CHARACTERS]
    except (OverflowError, ValueError):
        return str(value.cast(pa.string()))
