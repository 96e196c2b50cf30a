"""PostgreSQL's types as Arrow: exact, as the database's own text, or refused by name.

Types and modifiers come from the driver's description of a result. What has no exact Arrow type
(numeric without a precision, interval, ranges, …) is read as the text that PostgreSQL writes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from beam_tfrecord.sources.parquet.types import can_cast
from beam_tfrecord.sources.sql.engine import Misfit, SqlColumn
from beam_tfrecord.sources.sql.values import Infinities

_LARGEST_PRECISION = 38
_SHOWN_CHARACTERS = 200

# Taken as the driver gives them. A money is left out: its number depends on the locale.
_EXACT: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "text": pa.string(),
    "varchar": pa.string(),
    "bpchar": pa.string(),
    "char": pa.string(),
    "name": pa.string(),
    "json": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
}
# How people, and the catalogue, write them.
_SHOWN_NAMES = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "float4": "real",
    "float8": "double precision",
    "bpchar": "char",
}
# An oid has no sign, but the driver gives it one.
_AS_BIGINT = {"oid", "xid", "cid", "regproc"}

# The database's largest and smallest number, which its driver moves by thirty years and wraps.
INFINITIES = Infinities(
    days=(-(2**31) + 10_956, -(2**31) + 10_957),
    ticks=(-(2**63) + 946_684_799_999_999, -(2**63) + 946_684_800_000_000),
)


def column_of(
    field: pa.Field, quoted: str, *, nullable: bool, arrays: str, wanted: pa.DataType | None
) -> SqlColumn:
    """Return a column of a described result.

    Args:
        field: The driver's description.
        quoted: Its quoted name.
        nullable: False where the catalogue promises a value.
        arrays: ``refuse``, ``text`` or ``list``.
        wanted: Type that the user asks for; None: the one of the contract.
    """
    name = _type_name(field)
    declared = _declared(field, name)
    arrow, select, refusal = _native(field, name, quoted, arrays)
    if wanted is not None and (arrow is None or not wanted.equals(arrow)):
        if pa.types.is_string(wanted) or (name == "numeric" and pa.types.is_decimal(wanted)):
            arrow, select, refusal = wanted, f"CAST({quoted} AS text)", ""
        elif _can_read(name, arrow, wanted):
            arrow, select, refusal = wanted, quoted, ""
        else:
            refusal = f"it cannot be read as {wanted}: pass --types {field.name}=text"
            arrow = None
    return SqlColumn(field.name, declared, arrow, nullable, select, refusal)


def _type_name(field: pa.Field) -> str:
    return (field.metadata or {}).get(b"POSTGRESQL:type", b"").decode() or str(field.type)


def _declared(field: pa.Field, name: str) -> str:
    if name == "numeric" and (digits := _digits(field)) is not None:
        return f"numeric({digits[0]},{digits[1]})"
    if name.startswith("_"):
        return f"{_SHOWN_NAMES.get(name[1:], name[1:])}[]"
    return _SHOWN_NAMES.get(name, name)


def _digits(field: pa.Field) -> tuple[int, int] | None:
    """Return precision and scale of a numeric; None where it has none.

    The modifier is four more than the precision in its upper half and the scale, of eleven bits
    with a sign, in its lower: `numeric_typmod_precision` in PostgreSQL's numeric.c.
    """
    modifier = int((field.metadata or {}).get(b"POSTGRESQL:typmod", b"-1")) - 4
    if modifier < 0:
        return None
    return (modifier >> 16) & 0xFFFF, ((modifier & 0x7FF) ^ 1024) - 1024


def _native(
    field: pa.Field, name: str, quoted: str, arrays: str
) -> tuple[pa.DataType | None, str, str]:
    """Return the Arrow type, the expression to select, and the refusal of a column."""
    if name in _EXACT:
        return _EXACT[name], quoted, ""
    if name in _AS_BIGINT:
        return pa.int64(), f"CAST({quoted} AS bigint)", ""
    if name == "numeric" and (digits := _digits(field)) is not None:
        precision, scale = digits
        if precision <= _LARGEST_PRECISION and 0 <= scale <= precision:
            # The driver writes digits much slower than the server, which is another process.
            return pa.decimal128(precision, scale), f"CAST({quoted} AS text)", ""
    if not name.startswith("_"):
        return pa.string(), f"CAST({quoted} AS text)", ""
    if arrays == "text":
        return pa.string(), f"CAST({quoted} AS text)", ""
    item = _EXACT.get(name[1:])
    if arrays == "list" and item is not None:
        # The driver flattens arrays of more dimensions, and ends where one does not begin at 1.
        is_matrix = f"array_ndims({quoted}) > 1"
        values = f"CASE WHEN {is_matrix} THEN NULL ELSE {quoted}[:] END"
        return pa.list_(item), f"{values}, CASE WHEN {is_matrix} THEN {quoted}::text END", ""
    cure = "--arrays list or --arrays text" if item is not None else "--arrays text"
    return None, quoted, f"an array is read with {cure}"


def _can_read(name: str, arrow: pa.DataType | None, wanted: pa.DataType) -> bool:
    is_plain = arrow is not None and name in _EXACT
    return is_plain and can_cast(arrow, wanted)


def without_matrices(
    data: pa.RecordBatch, columns: Sequence[SqlColumn]
) -> tuple[pa.RecordBatch, tuple[Misfit, ...]]:
    """Take out the column that follows each list: the text of arrays of more dimensions.

    Args:
        data: A batch of the driver.
        columns: What was selected.

    Returns:
        A batch of one column each, and the arrays of more than one dimension, which are misfits.
    """
    given, arrays, misfits = iter(data.columns), [], []
    for column in columns:
        arrays.append(next(given))
        if pa.types.is_list(column.arrow):
            texts = next(given)
            for row in np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False)).tolist():
                text = texts[row].as_py()
                message = (
                    f"is {text[:40]!r}, which is not {column.arrow} exactly (an array of more "
                    f"than one dimension is no list): pass --types {column.name}=text"
                )
                misfits.append(Misfit(row, column.name, message, text[:_SHOWN_CHARACTERS]))
    names = [str(index) for index in range(len(columns))]
    return pa.RecordBatch.from_arrays(arrays, names=names), tuple(misfits)
