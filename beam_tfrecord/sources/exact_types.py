"""Finds the common Arrow type of a column in several files, and casts values to it exactly.

A cast is exact if it changes no value.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord.features.arrow_types import is_binary, is_list, is_text, widen

_UNITS = ("s", "ms", "us", "ns")
_DURATIONS_TIMES_DATES = (pa.types.is_duration, pa.types.is_time, pa.types.is_date)
_MAX_DECIMAL_DIGITS = 38


def plain_type(arrow: pa.DataType) -> pa.DataType:
    """Return the logical type of a column, without details of the layout in one file.

    A dictionary type becomes the type of its values. The names and nullability of list items are
    dropped, because they differ between writers.
    """
    if pa.types.is_dictionary(arrow):
        return _without_view(plain_type(arrow.value_type))
    if pa.types.is_fixed_size_list(arrow):
        return pa.list_(plain_type(arrow.value_type), arrow.list_size)
    if pa.types.is_large_list(arrow):
        return pa.large_list(plain_type(arrow.value_type))
    if pa.types.is_list(arrow):
        return pa.list_(plain_type(arrow.value_type))
    if pa.types.is_struct(arrow):
        return pa.struct([(field.name, plain_type(field.type)) for field in arrow])
    if pa.types.is_map(arrow):
        return pa.map_(plain_type(arrow.key_type), plain_type(arrow.item_type))
    return arrow


def _without_view(arrow: pa.DataType) -> pa.DataType:
    """Return another layout for views of text or bytes, which Arrow cannot look up by index."""
    return {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(arrow, arrow)


def plain_field(field: pa.Field) -> pa.Field:
    """Return a field with its plain type and without metadata, which differs between writers."""
    return pa.field(field.name, plain_type(field.type), field.nullable)


def join_types(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type that represents the values of both types exactly, or None if there is none.

    Unlike `widen`, it also joins times to the finer unit, decimals to a type with enough digits for
    both, lists by their items, and structs of the same fields, field by field.
    """
    if one.equals(other) or pa.types.is_null(one) or pa.types.is_null(other):
        return widen(one, other)
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return _join_structs(one, other)
    if pa.types.is_decimal128(one) and pa.types.is_decimal128(other):
        return _join_decimals(one, other)
    for is_kind in (pa.types.is_timestamp, *_DURATIONS_TIMES_DATES):
        if is_kind(one) and is_kind(other):
            return _join_times(one, other)
    if is_list(one) and is_list(other):
        item = join_types(one.value_type, other.value_type)
        is_large = pa.types.is_large_list(one) or pa.types.is_large_list(other)
        return None if item is None else pa.large_list(item) if is_large else pa.list_(item)
    return widen(one, other)


def _join_structs(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    names = [field.name for field in one]
    if names != [field.name for field in other]:
        return None
    joined = [join_types(a.type, b.type) for a, b in zip(one, other, strict=True)]
    return None if None in joined else pa.struct(list(zip(names, joined, strict=True)))


def _join_decimals(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    scale = max(one.scale, other.scale)
    digits = scale + max(one.precision - one.scale, other.precision - other.scale)
    return pa.decimal128(digits, scale) if digits <= _MAX_DECIMAL_DIGITS else None


def _join_times(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type with the finer unit; None for timestamps of different time zones."""
    if pa.types.is_date(one):
        return pa.date64()
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
    if types.is_dictionary(of) or types.is_dictionary(to):
        return can_cast(*(t.value_type if types.is_dictionary(t) else t for t in (of, to)))
    if of.equals(to) or types.is_null(of):
        return True
    if types.is_integer(of) or types.is_boolean(of):
        is_number = types.is_floating(to) and not types.is_boolean(of)
        return bool(types.is_integer(to) or is_number)
    if types.is_floating(of):
        is_wider = types.is_floating(to) and to.bit_width >= of.bit_width
        return bool(is_wider or types.is_integer(to))
    if is_text(of) or is_binary(of):
        return is_text(to) or is_binary(to)
    if any(types.is_list_view(t) or types.is_large_list_view(t) for t in (of, to)):
        # Arrow has no cast to list views, and its casts from them return invalid arrays.
        return False
    if is_list(of) and is_list(to):
        return can_cast(of.value_type, to.value_type)
    if types.is_struct(of) and types.is_struct(to):
        names = [field.name for field in of] == [field.name for field in to]
        return names and all(can_cast(a.type, b.type) for a, b in zip(of, to, strict=True))
    if types.is_map(of) and types.is_map(to):
        return can_cast(of.key_type, to.key_type) and can_cast(of.item_type, to.item_type)
    if types.is_timestamp(of) and types.is_timestamp(to):
        return (of.tz is None) == (to.tz is None)
    if types.is_date32(of) and types.is_timestamp(to):
        return to.tz is None
    if types.is_decimal(of) and types.is_decimal(to):
        return True
    return any(is_kind(of) and is_kind(to) for is_kind in _DURATIONS_TIMES_DATES)


def always_fits(of: pa.DataType, to: pa.DataType) -> bool:
    """Return whether every value of the type `of` has the same value of the type `to`."""
    if any(is_kind(of) and is_kind(to) for is_kind in (is_text, is_binary)):
        return True
    joined = join_types(of, to)
    return joined is not None and bool(joined.equals(to))


def cast_exactly(values: pa.Array, to: pa.DataType) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Cast values to a type that `can_cast` allows."""
    none = np.empty(0, np.int64)
    if values.type.equals(to):
        return values, none
    if isinstance(to, pa.FixedShapeTensorType):
        storage, misfits = cast_exactly(values, to.storage_type)
        return pa.ExtensionArray.from_storage(to, storage), misfits
    if pa.types.is_dictionary(values.type):
        words = values.dictionary.cast(_without_view(values.dictionary.type))
        values = pa.DictionaryArray.from_arrays(values.indices, words)
    try:
        return values.cast(to), none
    except pa.ArrowInvalid:
        # Arrow does not report the value at fault. Only batches with such a value take this slow
        # path.
        return _cast_one_by_one(values, to)


def _cast_one_by_one(values: pa.Array, to: pa.DataType) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    misfits = []
    pieces = []
    for row in range(len(values)):
        try:
            # Not a slice, because the cast of a slice of lists includes the items of other rows.
            pieces.append(values.take(pa.array([row])).cast(to))
        except pa.ArrowInvalid:
            misfits.append(row)
            pieces.append(pa.nulls(1, to))
    return pa.concat_arrays(pieces), np.array(misfits, np.int64)
