"""Types of Parquet columns: joined over files, and enforced value by value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord.features.arrow_types import is_binary, is_list, is_text, widen

_UNITS = ("s", "ms", "us", "ns")
_MAX_DECIMAL_DIGITS = 38


def plain_type(arrow: pa.DataType) -> pa.DataType:
    """Return `arrow` without what only says how values are laid out in one file.

    Dictionaries become their values, and the names and nullability of list items, which differ
    from writer to writer, are dropped.
    """
    if pa.types.is_dictionary(arrow):
        return plain_type(arrow.value_type)
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


def plain_field(field: pa.Field) -> pa.Field:
    """Return `field` of its plain type, without metadata, which differs from writer to writer."""
    return pa.field(field.name, plain_type(field.type), field.nullable)


def join_types(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type that holds the values of both exactly, or None where there is none.

    Beyond `widen`, times and decimals widen to the finer unit, and structs of the same fields
    field by field.
    """
    if one.equals(other) or pa.types.is_null(one) or pa.types.is_null(other):
        return widen(one, other)
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return _join_structs(one, other)
    if pa.types.is_decimal128(one) and pa.types.is_decimal128(other):
        return _join_decimals(one, other)
    for is_kind, finer in _TIMES:
        if is_kind(one) and is_kind(other):
            return finer(one, other)
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


def _finer_unit(one: pa.DataType, other: pa.DataType) -> str:
    units: tuple[str, str] = (one.unit, other.unit)
    return max(units, key=_UNITS.index)


def _finer_timestamp(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    return pa.timestamp(_finer_unit(one, other), one.tz) if one.tz == other.tz else None


def _finer_time(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    unit = _finer_unit(one, other)
    return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)


_TIMES: tuple[
    tuple[
        Callable[[pa.DataType], bool],
        Callable[[pa.DataType, pa.DataType], pa.DataType | None],
    ],
    ...,
] = (
    (pa.types.is_timestamp, _finer_timestamp),
    (pa.types.is_duration, lambda one, other: pa.duration(_finer_unit(one, other))),
    (pa.types.is_time, _finer_time),
    (pa.types.is_date, lambda one, other: pa.date64()),
)


def can_cast(of: pa.DataType, to: pa.DataType) -> bool:
    """Tell whether Arrow's checked cast from `of` to `to` is exact wherever it succeeds.

    Left out are the casts that round or cut silently: to a narrower float, from a decimal to a
    float, from a timestamp to a date; and those between text and numbers.
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
        # Arrow has no cast to list views, and its casts from them give arrays that are not valid.
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
    return any(
        is_kind(of) and is_kind(to) for is_kind in (types.is_duration, types.is_time, types.is_date)
    )


def cast_exactly(values: pa.Array, to: pa.DataType) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Cast `values` to a type that `can_cast` allows.

    Returns:
        The values, null where they do not fit exactly, and the numbers of those rows.
    """
    none = np.empty(0, np.int64)
    if values.type.equals(to):
        return values, none
    if isinstance(to, pa.FixedShapeTensorType):
        storage, misfits = cast_exactly(values, to.storage_type)
        return pa.ExtensionArray.from_storage(to, storage), misfits
    try:
        return values.cast(to), none
    except pa.ArrowInvalid:
        # Arrow does not say which value it was: only batches with a misfit pay for this.
        return _cast_one_by_one(values, to)


def _cast_one_by_one(values: pa.Array, to: pa.DataType) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    misfits = []
    pieces = []
    for row in range(len(values)):
        try:
            # A slice of lists would be cast together with the items of all other rows.
            pieces.append(values.take(pa.array([row])).cast(to))
        except pa.ArrowInvalid:
            misfits.append(row)
            pieces.append(pa.nulls(1, to))
    return pa.concat_arrays(pieces), np.array(misfits, np.int64)
