"""Makes Arrow columns of CSV: by the native kernel, or of texts that Arrow has rewritten.

The kernel reads a column as a *target*, a type it knows, and returns buffers that become an array.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.arrow_types import bare_type, type_name
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.native import values as kinds
from beam_tfrecord.native._csv import Filler, Typer
from beam_tfrecord.native.values import Dialect, Target
from beam_tfrecord.sources.text_files import converted

Buffers = tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8], Any, Any]

_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def keeps_text(field: pa.Field) -> bool:
    """Return whether a column of floats is stored as text, so that its text must also be read."""
    is_float = pa.types.is_float32(field.type) or pa.types.is_float64(field.type)
    return is_float and Feature.from_arrow(field).store == "text"


# Kind and width of the targets of types that have no parameters.
_TARGETS: dict[pa.DataType, tuple[int, int]] = {
    pa.null(): (kinds.AS_NULL, 0),
    pa.bool_(): (kinds.AS_BOOL, 1),
    pa.float32(): (kinds.AS_FLOAT, 4),
    pa.float64(): (kinds.AS_DOUBLE, 8),
    **dict.fromkeys((pa.date32(), pa.date64()), (kinds.AS_DATE, 4)),
    **dict.fromkeys((pa.string(), pa.large_string(), pa.string_view()), (kinds.AS_TEXT, 0)),
    **dict.fromkeys((pa.binary(), pa.large_binary(), pa.binary_view()), (kinds.AS_BYTES, 0)),
}


# Types that the kernel does not know, so that it reads words, of which `values_of` makes values.
_FROM_WORDS = (pa.types.is_decimal, pa.types.is_time, pa.types.is_fixed_size_binary)


def target_of(field: pa.Field, column: int) -> Target:
    """Return the target with which the kernel reads column number `column` as a field."""
    types, arrow = pa.types, bare_type(field.type)
    if arrow in _TARGETS:
        return Target(column, *_TARGETS[arrow])
    if types.is_integer(arrow):
        bits, signed = arrow.bit_width, types.is_signed_integer(arrow)
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        return Target(column, kinds.AS_INT, bits // 8, low, high)
    if types.is_timestamp(arrow):
        zoned = arrow.tz is not None
        return Target(column, kinds.AS_TIME, 8, ticks=_TICKS[arrow.unit], zoned=zoned)
    # Arrow parses no decimals that are multiples of ten.
    is_coarse = types.is_decimal(arrow) and arrow.scale < 0
    if not is_coarse and any(is_kind(arrow) for is_kind in _FROM_WORDS):
        return Target(column, kinds.AS_WORDS)
    raise UsageError(
        f"column {field.name!r} cannot be read from csv as {type_name(arrow)}: "
        "read it as text with --types, and convert it with --map"
    )


def array_of(target: Target, arrow: pa.DataType, buffers: Buffers) -> pa.Array:
    """Return the Arrow array of the buffers that the kernel has filled for one column.

    The buffers are values, one byte of validity for each row, offsets, and exact numbers. Values
    are copied only if the type requires it. Words remain text.
    """
    values, valid, offsets, _ = buffers
    rows, kind, value_type = len(valid), target.kind, bare_type(arrow)
    if kind == kinds.AS_NULL:
        return pa.nulls(rows, arrow)
    absent = rows - int(np.count_nonzero(valid))
    bits = pa.py_buffer(np.packbits(valid, bitorder="little")) if absent else None
    if kind == kinds.AS_BOOL:
        values = np.packbits(values, bitorder="little")
    parts = [bits, pa.py_buffer(values)]
    plain = value_type
    if offsets is not None:
        parts.insert(1, pa.py_buffer(offsets))
        plain = pa.binary() if kind == kinds.AS_BYTES else pa.string()
    elif kind == kinds.AS_DATE:
        plain = pa.date32()
    array = pa.Array.from_buffers(plain, rows, parts, absent)
    if kind == kinds.AS_WORDS or array.type == arrow:
        return array
    array = array.cast(value_type)
    return array if value_type == arrow else array.dictionary_encode().cast(arrow)


def exact_of(buffers: Buffers) -> pa.Array | None:
    """Return the exact numbers of a column of floats, if they differ from the floats."""
    _, valid, _, exact = buffers
    return None if exact is None else pa.array(exact, mask=valid == 0)


def values_of(texts: pa.Array, field: pa.Field) -> tuple[pa.Array, list[int], pa.Array | None]:
    """Return trimmed texts as the type of a field.

    The results are values, the rows that do not fit, and the exact numbers if these differ.
    """
    target = target_of(field, 0)
    if target.kind == kinds.AS_WORDS:
        return *converted(texts, field.type), None
    filler = Filler(_ONE_COLUMN, 1, [target], capacity=max(1, len(texts)), **_NO_WORDS)
    filler.feed(_lines_of(texts), 0, True)
    misfits = [fault.row for fault in filler.take_faults()]
    (buffers,) = filler.take()
    return array_of(target, field.type, buffers), misfits, exact_of(buffers)


# The kernel reads texts as a file of one column; one that could not be a row is text.
_ONE_COLUMN: Dialect = (1, None, None, False)
_NOT_A_ROW = "[\\r\\n\\x01]"
_NO_WORDS: dict[str, Any] = {"keep_blank": True, "nulls": (), "always": ()}


def kinds_of(texts: pa.Array) -> list[tuple[int, int]]:
    """Return the kinds of texts, each with the row of its first text."""
    typer = Typer(_ONE_COLUMN, 1, **_NO_WORDS)
    typer.feed(_lines_of(texts), 0, True)
    return [(one.kind, one.row) for one in typer.take_sightings()]


def _lines_of(texts: pa.Array) -> bytes:
    """Return texts as a file of one column, with a line for each."""
    lines = pc.if_else(pc.match_substring_regex(texts, pattern=_NOT_A_ROW), "?", texts)
    offsets = pa.array([0, len(lines)], pa.int32())
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, pc.fill_null(lines, "")), "\n")
    data: bytes = joined[0].as_py().encode() + b"\n" if len(lines) else b""
    return data
