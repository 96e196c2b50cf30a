"""Finds the common Arrow type of a column in several files, and casts values to it exactly.

A conversion is exact if it changes no value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from beam_tfrecord.features.arrow_types import (
    bare_type,
    is_binary,
    is_list,
    is_text,
    numpy_dtype,
    with_inner_types,
)
from beam_tfrecord.features.feature import labels_of, with_labels
from beam_tfrecord.features.tensors import TensorType, join_tensor_types
from beam_tfrecord.native.kernel_types import Int64Array

# What Arrow and Python raise for a value that cannot be converted exactly.
NOT_EXACT = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError)

# Converts an array or a list to a type.
Convert = Callable[[Any, pa.DataType], pa.Array]

_UNITS = ("s", "ms", "us", "ns")
_MOST_DIGITS = 38


def plain_type(arrow: pa.DataType) -> pa.DataType:
    """Return the logical type of a column, without details of the layout in one file.

    A dictionary or run-end encoded type becomes the type of its values.
    """
    if pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow):
        return _without_view(plain_type(arrow.value_type))
    return with_inner_types(arrow, plain_type)


def _without_view(arrow: pa.DataType) -> pa.DataType:
    """Return another layout for views of text or bytes, which Arrow cannot look up by index."""
    return {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(arrow, arrow)


def plain_field(field: pa.Field) -> pa.Field:
    """Return a field with its plain type, and of its metadata only the class names.

    Other metadata differs between writers.
    """
    plain = pa.field(field.name, plain_type(field.type), field.nullable)
    return with_labels(plain, labels_of(field))


def join_types(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type that represents the values of both types exactly, or None if there is none.

    Integers become the smallest integer type that holds both ranges, and never floats. Floats,
    decimals and times become the finer type, text and bytes the large layout, null any type. Lists
    are joined by their items, structs of the same fields field by field.
    """
    types = pa.types

    def both(is_kind: Callable[[pa.DataType], bool]) -> bool:
        return is_kind(one) and is_kind(other)

    if one.equals(other) or types.is_null(other):
        return one
    if types.is_null(one):
        return other
    if types.is_dictionary(one) or types.is_dictionary(other):
        return join_types(bare_type(one), bare_type(other))
    if both(types.is_integer):
        dtype = np.promote_types(numpy_dtype(one), numpy_dtype(other))
        # No integer holds both int64 and uint64: NumPy makes them float64.
        return pa.from_numpy_dtype(dtype) if dtype.kind in "iu" else None
    if both(types.is_floating):
        return max(one, other, key=lambda arrow: arrow.bit_width)
    if both(is_text):
        return pa.large_string()
    if both(is_binary):
        return pa.large_binary()
    if both(types.is_decimal128):
        return join_decimals(one, other, _MOST_DIGITS)
    if both(types.is_date):
        return pa.date64()
    if any(map(both, (types.is_timestamp, types.is_time, types.is_duration))):
        return _join_times(one, other)
    if both(is_list):
        item = join_types(one.value_type, other.value_type)
        is_large = types.is_large_list(one) or types.is_large_list(other)
        return None if item is None else pa.large_list(item) if is_large else pa.list_(item)
    if both(types.is_struct) and one.names == other.names:
        fields = [join_types(a.type, b.type) for a, b in zip(one, other, strict=True)]
        return None if None in fields else pa.struct(list(zip(one.names, fields, strict=True)))
    if isinstance(one, TensorType) and isinstance(other, TensorType):
        return join_tensor_types(one, other)
    return None


def join_decimals(one: pa.DataType, other: pa.DataType, most: int) -> pa.DataType | None:
    """Return the decimal type that holds both types, if `most` digits are enough for that."""
    scale = max(one.scale, other.scale)
    digits = scale + max(one.precision - one.scale, other.precision - other.scale)
    if digits > most:
        return None
    return pa.decimal128(digits, scale) if digits <= _MOST_DIGITS else pa.decimal256(digits, scale)


def _join_times(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type with the finer unit; None for timestamps of different time zones."""
    unit = max(one.unit, other.unit, key=_UNITS.index)
    if pa.types.is_timestamp(one):
        return pa.timestamp(unit, one.tz) if one.tz == other.tz else None
    if pa.types.is_duration(one):
        return pa.duration(unit)
    return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)


def can_cast(of: pa.DataType, to: pa.DataType) -> bool:
    """Return whether Arrow's checked cast from `of` to `to` is always exact if it succeeds.

    The result is False for casts that round or truncate silently (to a narrower float, from a
    decimal to a float, from a timestamp to a date) and for casts between text and numbers.
    """
    types = pa.types
    if isinstance(to, pa.FixedShapeTensorType) and not isinstance(of, pa.BaseExtensionType):
        return can_cast(of, to.storage_type)
    of, to = bare_type(of), bare_type(to)
    if of.equals(to) or types.is_null(of):
        return True
    if is_list(of) and is_list(to):
        return can_cast(of.value_type, to.value_type)
    if types.is_struct(of) and types.is_struct(to):
        fields = list(zip(of, to, strict=False))
        return of.names == to.names and all(can_cast(a.type, b.type) for a, b in fields)
    if types.is_map(of) and types.is_map(to):
        return can_cast(of.key_type, to.key_type) and can_cast(of.item_type, to.item_type)
    if types.is_floating(of) and types.is_floating(to):
        return bool(to.bit_width >= of.bit_width)
    if types.is_timestamp(of) and types.is_timestamp(to):
        return (of.tz is None) == (to.tz is None)
    if types.is_date32(of) and types.is_timestamp(to):
        return to.tz is None
    return any(is_kind(of) and is_target(to) for is_kind, is_target in _EXACT_CASTS)


def _is_words(arrow: pa.DataType) -> bool:
    return is_text(arrow) or is_binary(arrow)


_EXACT_CASTS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], bool]], ...] = (
    (pa.types.is_boolean, pa.types.is_integer),
    (pa.types.is_integer, pa.types.is_integer),
    (pa.types.is_integer, pa.types.is_floating),
    (pa.types.is_floating, pa.types.is_integer),
    (pa.types.is_decimal, pa.types.is_decimal),
    (pa.types.is_duration, pa.types.is_duration),
    (pa.types.is_time, pa.types.is_time),
    (pa.types.is_date, pa.types.is_date),
    (_is_words, _is_words),
)


def always_fits(of: pa.DataType, to: pa.DataType) -> bool:
    """Return whether every value of the type `of` has the same value of the type `to`."""
    if any(is_kind(of) and is_kind(to) for is_kind in (is_text, is_binary)):
        return True
    joined = join_types(of, to)
    return joined is not None and bool(joined.equals(to))


def cast_exactly(values: pa.Array, to: pa.DataType) -> tuple[pa.Array, Int64Array]:
    """Cast values to a type that `can_cast` allows; `convert_each` describes the result."""
    if values.type.equals(to):
        return values, np.empty(0, np.int64)
    if pa.types.is_dictionary(values.type):
        words = values.dictionary.cast(_without_view(values.dictionary.type))
        values = pa.DictionaryArray.from_arrays(values.indices, words)
    return convert_each(values, to, cast)


def cast(values: pa.Array, to: pa.DataType) -> pa.Array:
    """Return Arrow's checked cast, which is the usual `Convert`."""
    if pa.types.is_nested(to) and values.null_count == len(values):
        # Arrow would leave the items of lists of a fixed size undefined.
        return pa.nulls(len(values), to)
    return values.cast(to)


def convert_each(values: Any, arrow: pa.DataType, convert: Convert) -> tuple[pa.Array, Int64Array]:
    """Convert values, of which those that do not fit become null.

    Args:
        values: An Arrow array or a list.
        arrow: Type of the result.
        convert: Converts some of the values to a type, and raises one of `NOT_EXACT` if one of them
            does not fit.

    Returns:
        The converted values, and the indices of those that do not fit.
    """
    try:
        return convert(values, arrow), np.empty(0, np.int64)
    except NOT_EXACT:
        if len(values) <= 1:
            return pa.nulls(len(values), arrow), np.arange(len(values))
    # Arrow does not tell which value is at fault: look for it in each half.
    middle = len(values) // 2
    first, misfits = convert_each(_part(values, 0, middle), arrow, convert)
    second, others = convert_each(_part(values, middle, len(values)), arrow, convert)
    return pa.concat_arrays([first, second]), np.concatenate([misfits, others + middle])


def _part(values: Any, start: int, stop: int) -> Any:
    if isinstance(values, pa.Array) and pa.types.is_nested(values.type):
        # The cast of a slice of lists would include the items of other rows.
        return values.take(pa.array(np.arange(start, stop)))
    return values[start:stop]
