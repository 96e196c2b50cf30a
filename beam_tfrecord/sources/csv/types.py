"""What a CSV column is read as: Arrow types to kernel targets, and kernel buffers to arrays."""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.feature import field_options
from beam_tfrecord.native import values as kinds
from beam_tfrecord.native.values import Target

_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_CLOCK = re.compile(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9})0*)?)?", re.ASCII)
_NUMBER = re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?", re.ASCII)


def keeps_text(field: pa.Field) -> bool:
    """Tell whether a column of floats is stored as text: its text in the file goes with it."""
    is_float = pa.types.is_float32(field.type) or pa.types.is_float64(field.type)
    return is_float and field_options(field)["store"] == "text"


def target_of(field: pa.Field, column: int) -> Target:
    """Return how the kernel reads column number `column` as a field of the schema.

    Raises:
        UsageError: Text cannot be read as its type.
    """
    types, arrow = pa.types, field.type
    if types.is_dictionary(arrow):
        return target_of(field.with_type(arrow.value_type), column)
    if types.is_null(arrow):
        return Target(column, kinds.AS_NULL)
    if types.is_boolean(arrow):
        return Target(column, kinds.AS_BOOL, 1)
    if types.is_integer(arrow):
        bits = arrow.bit_width
        signed = types.is_signed_integer(arrow)
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        return Target(column, kinds.AS_INT, bits // 8, low, high)
    if types.is_float32(arrow) or types.is_float64(arrow):
        is_single = types.is_float32(arrow)
        return (
            Target(column, kinds.AS_FLOAT, 4) if is_single else Target(column, kinds.AS_DOUBLE, 8)
        )
    if types.is_date(arrow):
        return Target(column, kinds.AS_DATE, 4)
    if types.is_timestamp(arrow):
        zoned = arrow.tz is not None
        return Target(column, kinds.AS_TIME, 8, ticks=_TICKS[arrow.unit], zoned=zoned)
    if _is_text(arrow):
        return Target(column, kinds.AS_TEXT)
    if _is_bytes(arrow):
        return Target(column, kinds.AS_BYTES)
    if converter_of(arrow):
        return Target(column, kinds.AS_WORDS)
    raise UsageError(
        f"column {field.name!r} cannot be read from csv as {arrow}: "
        "read it as text with --types, and convert it with --map"
    )


def text_of(column: int) -> Target:
    """Return how the kernel reads column number `column` as the text of its numbers."""
    return Target(column, kinds.AS_WORDS)


def _is_text(arrow: pa.DataType) -> bool:
    return arrow in (pa.string(), pa.large_string(), pa.string_view())


def _is_bytes(arrow: pa.DataType) -> bool:
    return arrow in (pa.binary(), pa.large_binary(), pa.binary_view())


def array_of(
    target: Target,
    arrow: pa.DataType,
    buffers: tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8], Any, Any],
) -> pa.Array:
    """Return the array of kernel buffers (values, a valid byte a row, offsets, exact numbers).

    Values are not copied unless the type asks for it; one that `converter_of` serves stays text.
    """
    values, valid, offsets, _ = buffers
    rows = len(valid)
    if target.kind == kinds.AS_NULL:
        return pa.nulls(rows, arrow)
    absent = rows - int(np.count_nonzero(valid))
    bits = pa.py_buffer(np.packbits(valid, bitorder="little")) if absent else None
    if offsets is not None:
        plain = pa.binary() if target.kind == kinds.AS_BYTES else pa.string()
        parts = [bits, pa.py_buffer(offsets), pa.py_buffer(values)]
        array = pa.Array.from_buffers(plain, rows, parts, absent)
    elif target.kind == kinds.AS_BOOL:
        packed = pa.py_buffer(np.packbits(values, bitorder="little"))
        array = pa.Array.from_buffers(pa.bool_(), rows, [bits, packed], absent)
    else:
        plain = pa.date32() if target.kind == kinds.AS_DATE else _value_type(arrow)
        array = pa.Array.from_buffers(plain, rows, [bits, pa.py_buffer(values)], absent)
    if target.kind == kinds.AS_WORDS or array.type == arrow:
        return array
    if pa.types.is_dictionary(arrow):
        return array.cast(arrow.value_type).dictionary_encode().cast(arrow)
    return array.cast(arrow)


def _value_type(arrow: pa.DataType) -> pa.DataType:
    return arrow.value_type if pa.types.is_dictionary(arrow) else arrow


Converter = Callable[[str], Any]


def converter_of(arrow: pa.DataType) -> Converter | None:
    """Return the function from text to a scalar of a type the kernel does not know, if any.

    The function raises `ValueError` where the text does not mean exactly such a value.
    """
    types = pa.types
    if types.is_decimal(arrow):
        return lambda text: _exact_decimal(text, arrow)
    if types.is_time(arrow):
        return lambda text: _exact_clock(text, arrow)
    if types.is_fixed_size_binary(arrow):
        return lambda text: pa.scalar(text.encode(), arrow)
    return None


def _exact_decimal(text: str, arrow: pa.DataType) -> pa.Scalar:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is not a number")
    number = decimal.Decimal(text)
    made = pa.scalar(number, arrow)
    # Arrow makes 0 of a number that is 39 digits finer than the type.
    if made.as_py() != number:
        raise ValueError(f"{text!r} is finer than {arrow}")
    return made


def _exact_clock(text: str, arrow: pa.DataType) -> pa.Scalar:
    match = _CLOCK.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not a time of day")
    hour, minute, second = (int(part or 0) for part in match.groups()[:3])
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"{text!r} is not a time of day")
    nanos = int((match.group(4) or "").ljust(9, "0"))
    ticks, rest = divmod(nanos * _TICKS[arrow.unit], 10**9)
    if rest:
        raise ValueError(f"{text!r} is finer than {arrow}")
    whole = ((hour * 60 + minute) * 60 + second) * _TICKS[arrow.unit] + ticks
    integer = pa.int32() if arrow.bit_width == 32 else pa.int64()
    return pa.scalar(whole, integer).cast(arrow)
