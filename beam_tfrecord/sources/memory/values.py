"""Converts columns of Python values to Arrow, with types that follow from the values alone.

Arrow's own inference depends on the first value: it drops the time of a `datetime` that follows a
`date`, and takes a `datetime` without a zone for UTC if another has one. Here each kind of value
has one type, and `join` says which types go together. So it makes no difference how a long column
is cut into pieces.
"""

from __future__ import annotations

import datetime
import decimal
import functools
import itertools
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
import pyarrow as pa

from beam_tfrecord.errors import DataError
from beam_tfrecord.features.arrow_types import is_list
from beam_tfrecord.features.tensors import TensorType, is_foreign, tensor_column
from beam_tfrecord.records.rows import with_dicts
from beam_tfrecord.sources.exact_types import join_types

# Length of the text of a value in a message.
_SHOWN = 40
_PLAIN: dict[type, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    **dict.fromkeys((bytes, bytearray, memoryview), pa.binary()),
    uuid.UUID: pa.uuid(),
}
_UNITS = ("s", "ms", "us", "ns")
# What Arrow raises for a value that does not fit a type.
_MISFITS = (pa.ArrowException, OverflowError, TypeError, ValueError)


class Misfit(Exception):
    """Values have no common type; the message says why, and continues a sentence."""


def column_of(name: str, values: Sequence[Any], first_row: int) -> pa.Array:
    """Return Python values as an Arrow array; None and the missing values of pandas are null."""
    kinds = set(map(type, values))
    if absent := {kind for kind in kinds if is_missing(kind)}:
        values = [None if type(value) in absent else value for value in values]
    if (plain := with_dicts(values, kinds)) is not values:
        values, kinds = plain, set(map(type, plain))
    try:
        return _array_of(values, _type_of_kinds(kinds - absent, values))
    except (Misfit, *_MISFITS) as error:
        row, why = _first_misfit(values)
        raise DataError(f"column {name!r} in row {first_row + row:,}: {why or error}") from error


def is_missing(kind: type) -> bool:
    """Return whether a type is that of `pandas.NA` or `pandas.NaT`, without importing pandas."""
    return kind.__module__.startswith("pandas.") and kind.__name__ in ("NAType", "NaTType")


def type_of(values: Sequence[Any]) -> pa.DataType:
    """Return the Arrow type of Python values."""
    return _type_of_kinds(set(map(type, values)), values)


def _type_of_kinds(kinds: Set[type], values: Sequence[Any]) -> pa.DataType:
    return joined(
        _PLAIN.get(kind) or _type_of_kind(kind, [one for one in values if type(one) is kind])
        for kind in kinds - {type(None)}
    )


def joined(types: Iterable[pa.DataType]) -> pa.DataType:
    """Return the type that represents the values of all types exactly; null if there is none."""
    return functools.reduce(join, types, pa.null())


def join(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return a type for the values of both types.

    Integers and floats become float64: the conversion refuses an integer that has no exact float64.
    Times of several zones become UTC, and structs have the fields of both.
    """
    both = (one, other)
    if all(map(pa.types.is_struct, both)):
        fields = {field.name: field.type for arrow in both for field in arrow}
        for field in one:
            fields[field.name] = join(field.type, fields[field.name])
        return pa.struct(list(fields.items()))
    if all(map(is_list, both)):
        return pa.list_(join(one.value_type, other.value_type))
    if any(map(pa.types.is_integer, both)) and any(map(pa.types.is_floating, both)):
        return pa.float64()
    if all(map(pa.types.is_timestamp, both)) and one.tz and other.tz and one.tz != other.tz:
        one, other = (pa.timestamp(arrow.unit, "UTC") for arrow in both)
    wider = join_types(one, other)
    if wider is None:
        raise Misfit(
            f"{_name_of(one)} and {_name_of(other)} have no common type: convert them first"
        )
    return wider


def _name_of(arrow: pa.DataType) -> str:
    if pa.types.is_timestamp(arrow):
        return f"times with the zone {arrow.tz}" if arrow.tz else "times without a zone"
    return str(arrow)


def _type_of_kind(kind: type, values: Sequence[Any]) -> pa.DataType:
    """Return the type of values of one Python type, none of which is None."""
    if issubclass(kind, Mapping):
        return _struct_of(values)
    if issubclass(kind, list | tuple):
        return pa.list_(type_of(list(itertools.chain.from_iterable(values))))
    if issubclass(kind, set | frozenset):
        raise Misfit("a set has no order: give a sorted list")
    for base, typed in _SPECIAL:
        if issubclass(kind, base):
            return typed(values)
    for base, arrow in _PLAIN.items():
        if issubclass(kind, base):
            return arrow
    raise Misfit(f"{kind.__name__} ({_shown(values[0])}) has no type here: convert it first")


def _struct_of(values: Sequence[Mapping[Any, Any]]) -> pa.DataType:
    names = dict.fromkeys(itertools.chain.from_iterable(values))
    if odd := [name for name in names if not isinstance(name, str)]:
        raise Misfit(f"the key {odd[0]!r} of a dict is not text: give str keys")
    return pa.struct([(name, type_of([one.get(name) for one in values])) for name in names])


def _arrays(values: Sequence[np.ndarray[Any, Any]]) -> pa.DataType:
    kinds = {(array.dtype, array.shape if array.ndim != 1 else None): array for array in values}
    return joined(map(_type_of_array, kinds.values()))


def _type_of_array(array: np.ndarray[Any, Any]) -> pa.DataType:
    if array.ndim != 1 or _is_odd(array.dtype):
        return TensorType(array.dtype, array.shape)
    return pa.list_(pa.array(array[:0] if array.dtype.kind != "O" else array).type)


def _is_odd(dtype: np.dtype[Any]) -> bool:
    """Return whether Arrow has no type for numbers of a dtype."""
    return dtype.kind == "c" or is_foreign(dtype)


def _scalars(values: Sequence[np.generic]) -> pa.DataType:
    # Values of one class, such as datetime64, can have several dtypes.
    kinds = {value.dtype: value for value in values}
    return joined(
        TensorType(dtype, ()) if _is_odd(dtype) else pa.array(np.asarray([value])).type
        for dtype, value in kinds.items()
    )


def _times(values: Sequence[datetime.datetime]) -> pa.DataType:
    # Not a set of zones, because those of dateutil have no hash.
    zones = {id(value.tzinfo): value for value in values}.values()
    unit = max((getattr(value, "unit", "us") for value in values), key=_UNITS.index)
    return joined(pa.timestamp(unit, pa.array([value]).type.tz) for value in zones)


def _times_of_day(values: Sequence[datetime.time]) -> pa.DataType:
    if any(value.tzinfo for value in values):
        raise Misfit("a time of day with a zone has no type here: give it without")
    return pa.time64("us")


def _durations(values: Sequence[datetime.timedelta]) -> pa.DataType:
    return pa.duration(max((getattr(v, "unit", "us") for v in values), key=_UNITS.index))


def _decimals(values: Sequence[decimal.Decimal]) -> pa.DataType:
    if odd := [value for value in values if not value.is_finite()]:
        raise Misfit(
            f"{odd[0]!r} has no type here: give None for a missing value, or floats for all values"
        )
    return pa.array(values).type


# A datetime is a date, and NumPy's float64 is a float: the first type that fits counts.
_SPECIAL: tuple[tuple[type, Callable[[Any], pa.DataType]], ...] = (
    (datetime.datetime, _times),
    (datetime.date, lambda _: pa.date32()),
    (datetime.time, _times_of_day),
    (datetime.timedelta, _durations),
    (decimal.Decimal, _decimals),
    (np.ndarray, _arrays),
    (np.generic, _scalars),
)


def _array_of(values: Sequence[Any], arrow: pa.DataType) -> pa.Array | pa.ChunkedArray:
    if isinstance(arrow, TensorType):
        return tensor_column(values, arrow)
    if pa.types.is_date32(arrow):
        # Arrow infers this type of NumPy's days, but does not convert them to it.
        values = [one.item() if isinstance(one, np.datetime64) else one for one in values]
    return pa.array(values, arrow, from_pandas=False)


def _first_misfit(values: Sequence[Any]) -> tuple[int, str]:
    """Return the index of the first value at fault, and why it does not go with those before."""
    arrow = pa.null()
    for row, value in enumerate(values):
        try:
            own = type_of([value])
            _array_of([value], own)
            arrow = join(arrow, own)
        except (Misfit, *_MISFITS) as error:
            return row, str(error) if isinstance(error, Misfit) else _why(value, error)
    for row, value in enumerate(values):
        try:
            _array_of([value], arrow)
        except _MISFITS as error:
            return row, _why(value, error)
    return 0, ""


def _why(value: Any, error: Exception) -> str:
    if isinstance(error, OverflowError):
        return f"{_shown(value)} does not fit 64 bits: convert the column, such as to text"
    return f"{_shown(value)}: {error}"


def _shown(value: Any) -> str:
    return repr(value)[:_SHOWN]
