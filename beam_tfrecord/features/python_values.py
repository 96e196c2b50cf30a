"""Converts Python values to Arrow, with types that follow from the values alone.

Arrow's own inference depends on the first value: it drops the time of a `datetime` that follows a
`date`, and takes a `datetime` without a zone for UTC if another has one. Here each kind of value
has one type, and `join` says which types go together. So it makes no difference how a long column
is cut into pieces.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import functools
import itertools
import operator
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from beam_tfrecord.features.arrow_types import is_list, with_inner_types
from beam_tfrecord.features.tensors import TensorType, is_foreign, tensor_column
from beam_tfrecord.features.type_join import join_decimals, join_types

# Length of the text of a value in a message.
_SHOWN = 40
PLAIN_TYPES: dict[type, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    **dict.fromkeys((bytes, bytearray, memoryview), pa.binary()),
    uuid.UUID: pa.uuid(),
}
_INTEGERS = (int, np.integer, np.bool_, type(None))
_UNITS = ("s", "ms", "us", "ns")
# Microseconds of the units that are coarser.
_STEPS = {"s": 10**6, "ms": 1000}
# Bits of integers that float32 represents exactly.
_EXACT_IN_FLOAT32 = 16
# Of decimal256.
_MOST_DIGITS = 76

# What Python and Arrow raise for a value that does not fit a type.
MISFITS = (pa.ArrowException, OverflowError, TypeError, ValueError)


class Misfit(ValueError):
    """A value has no type, or none in common with those before it.

    Attributes:
        row: Index of the value.
    """

    def __init__(self, reason: str, row: int = 0) -> None:
        super().__init__(reason)
        self.row = row


def as_row(value: Any) -> dict[Any, Any] | None:
    """Return a dict, NamedTuple, dataclass or `beam.Row` as a dict; None for any other value."""
    if type(value) is dict:
        return value
    # The Struct of protobuf is a mapping, but a message.
    if isinstance(value, Mapping) and not hasattr(value, "DESCRIPTOR"):
        return dict(value)
    if hasattr(value, "_asdict"):
        return dict(value._asdict())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def plain_values(values: Sequence[Any]) -> Sequence[Any]:
    """Return values with dicts in place of rows, and None in place of pandas' NA, at any depth.

    Arrow takes a NamedTuple for a list, and has no type for other rows.
    """
    return list(map(_plain, values)) if _has_others(values) else values


def _has_others(values: Sequence[Any]) -> bool:
    # Look at the few types first, since there are many values.
    kinds = set(map(type, values))
    if any(hasattr(kind, "_asdict") or dataclasses.is_dataclass(kind) for kind in kinds):
        return True
    if any((issubclass(kind, Mapping) and kind is not dict) or is_missing(kind) for kind in kinds):
        return True
    lists = [kind for kind in kinds if issubclass(kind, (list, tuple))]
    inner = [value for value in values if type(value) in lists] if lists else []
    items = list(itertools.chain.from_iterable(inner))
    if dict in kinds:
        for value in values:
            if type(value) is dict:
                items += value.values()
    return bool(items) and _has_others(items)


def _plain(value: Any) -> Any:
    if is_missing(type(value)):
        return None
    if (row := as_row(value)) is not None:
        return {name: _plain(item) for name, item in row.items()}
    return list(map(_plain, value)) if isinstance(value, (list, tuple)) else value


def is_missing(kind: type) -> bool:
    """Return whether a type is that of `pandas.NA` or `pandas.NaT`, without importing pandas."""
    return kind.__name__ in ("NAType", "NaTType") and kind.__module__.startswith("pandas.")


def infer_column(values: Sequence[Any]) -> pa.Array | pa.ChunkedArray:
    """Return Python values as an array of their own type.

    Raises:
        Misfit: A value has no type, or none in common with those before it.
    """
    values = plain_values(values)
    try:
        return _to_array(values, infer_type(values))
    except MISFITS as error:
        raise _first_misfit(values) or Misfit(str(error)) from error


def infer_type(values: Sequence[Any]) -> pa.DataType:
    """Return the type of `plain_values`; null if all are None.

    Raises:
        Misfit: A value has no type, or not all have a common one.
    """
    return joined(
        PLAIN_TYPES.get(kind) or _type_of_kind(kind, [one for one in values if type(one) is kind])
        for kind in set(map(type, values)) - {type(None)}
    )


def joined(types: Iterable[pa.DataType]) -> pa.DataType:
    """Return the type for the values of all types; null if there is none."""
    return functools.reduce(join, types, pa.null())


def join(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return a type for the values of both types; associative and commutative.

    Integers and floats become floats: the conversion refuses an integer that is not exact. Times of
    several zones become UTC. Structs have the fields of both, in the order of names if they differ.

    Raises:
        Misfit: There is no such type.
    """
    both = (one, other)
    if all(map(pa.types.is_struct, both)):
        fields = {field.name: field.type for field in one}
        for field in other:
            fields[field.name] = join(fields.get(field.name, pa.null()), field.type)
        names = one.names if one.names == other.names else sorted(fields)
        return pa.struct([(name, fields[name]) for name in names])
    if all(map(is_list, both)):
        return pa.list_(join(one.value_type, other.value_type))
    if any(map(pa.types.is_integer, both)) and any(map(pa.types.is_floating, both)):
        integer, number = sorted(both, key=pa.types.is_floating)
        is_narrow = integer.bit_width <= _EXACT_IN_FLOAT32 and number.bit_width <= 32
        return pa.float32() if is_narrow else pa.float64()
    if all(map(pa.types.is_timestamp, both)) and one.tz and other.tz and one.tz != other.tz:
        one, other = (pa.timestamp(arrow.unit, "UTC") for arrow in both)
    is_decimal = all(map(pa.types.is_decimal, both))
    wider = join_decimals(one, other, _MOST_DIGITS) if is_decimal else join_types(one, other)
    if wider is None:
        names = " and ".join(map(_name_of, both))
        raise Misfit(f"{names} have no common type: convert them first")
    return wider


def _name_of(arrow: pa.DataType) -> str:
    if pa.types.is_timestamp(arrow):
        return f"times with the zone {arrow.tz}" if arrow.tz else "times without a zone"
    return str(arrow)


def _type_of_kind(kind: type, values: Sequence[Any]) -> pa.DataType:
    """Return the type of values of one Python type, none of which is None."""
    for base, typed in _TYPES.items():
        if issubclass(kind, base):
            return typed(values)
    for base, arrow in PLAIN_TYPES.items():
        if issubclass(kind, base):
            return arrow
    raise Misfit(f"{kind.__name__} ({_shown(values[0])}) has no type here: convert it first")


def _struct_of(values: Sequence[Mapping[Any, Any]]) -> pa.DataType:
    orders = set(map(tuple, values))
    names = dict.fromkeys(itertools.chain.from_iterable(orders))
    if odd := [name for name in names if not isinstance(name, str)]:
        raise Misfit(f"the key {odd[0]!r} of a dict is not text: give str keys")
    ordered = names if len(orders) == 1 else sorted(names)
    return pa.struct([(name, infer_type([one.get(name) for one in values])) for name in ordered])


def _list_of(values: Sequence[Sequence[Any]]) -> pa.DataType:
    return pa.list_(infer_type(list(itertools.chain.from_iterable(values))))


def _set_of(_: Sequence[Any]) -> pa.DataType:
    raise Misfit("a set has no order: give a sorted list")


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
    return joined(pa.timestamp(_time_unit(values), pa.array([value]).type.tz) for value in zones)


def _time_unit(values: Sequence[Any]) -> str:
    """Return the finest unit of times, of which those of pandas may have nanoseconds."""
    return max((getattr(value, "unit", "us") for value in values), key=_UNITS.index)


def _times_of_day(values: Sequence[datetime.time]) -> pa.DataType:
    if any(value.tzinfo for value in values):
        raise Misfit("a time of day with a zone has no type here: give it without")
    return pa.time64("us")


def _decimals(values: Sequence[decimal.Decimal]) -> pa.DataType:
    if odd := [value for value in values if not value.is_finite()]:
        raise Misfit(
            f"{odd[0]!r} has no type here: give None for a missing value, or floats for all values"
        )
    return pa.array(values).type


# A datetime is a date, and NumPy's float64 is a float: the first type that fits counts.
_TYPES: dict[type | tuple[type, ...], Callable[[Any], pa.DataType]] = {
    Mapping: _struct_of,
    (list, tuple): _list_of,
    (set, frozenset): _set_of,
    datetime.datetime: _times,
    datetime.date: lambda _: pa.date32(),
    datetime.time: _times_of_day,
    datetime.timedelta: lambda values: pa.duration(_time_unit(values)),
    decimal.Decimal: _decimals,
    np.ndarray: _arrays,
    np.generic: _scalars,
}


def _first_misfit(values: Sequence[Any]) -> Misfit | None:
    """Return the first value that has no type, or does not go with those before it."""
    arrow = pa.null()
    for row, value in enumerate(values):
        try:
            own = infer_type([value])
            _to_array([value], own)
            arrow = join(arrow, own)
        except MISFITS as error:
            return _misfit(row, value, error)
    for row, value in enumerate(values):
        try:
            _to_array([value], arrow)
        except MISFITS as error:
            return _misfit(row, value, error)
    return None


def _misfit(row: int, value: Any, error: Exception) -> Misfit:
    if isinstance(error, Misfit):
        return Misfit(str(error), row)
    if isinstance(error, OverflowError):
        return Misfit(
            f"{_shown(value)} does not fit 64 bits: convert the column, such as to text", row
        )
    return Misfit(f"{_shown(value)}: {error}", row)


def _shown(value: Any) -> str:
    return repr(value)[:_SHOWN]


def to_array(values: Sequence[Any], arrow: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Return `plain_values` as an array of a type, if that changes none of them.

    Raises:
        ValueError, TypeError, OverflowError, pyarrow.ArrowException: A value does not fit.
    """
    if fault := _silent_change(values, arrow):
        raise TypeError(fault)
    return _to_array(values, arrow)


def _to_array(values: Sequence[Any], arrow: pa.DataType) -> pa.Array | pa.ChunkedArray:
    if isinstance(arrow, TensorType):
        return tensor_column(values, arrow)
    if isinstance(arrow, pa.Bool8Type):  # Arrow makes none of Python's booleans
        return pa.array(values, pa.bool_()).cast(arrow)
    if pa.types.is_date32(arrow):
        # Arrow infers this type of NumPy's days, but does not convert them to it.
        values = [one.item() if isinstance(one, np.datetime64) else one for one in values]
    step = _STEPS.get(getattr(arrow, "unit", ""), 1)
    if step > 1 and any(_microseconds(value) % step for value in values):
        # Arrow would cut it.
        raise ValueError(f"a time is finer than {arrow}")
    if pa.types.is_decimal(arrow) and any(_is_finer(value, arrow.scale) for value in values):
        # Arrow turns a number that is 39 digits finer than the type into 0.
        raise ValueError(f"a number is finer than {arrow}")
    try:
        return pa.array(values, arrow, from_pandas=False)
    except NotImplementedError:  # of extension types in nested ones
        return pa.array(values, _storage(arrow), from_pandas=False).cast(arrow)


def _is_finer(value: Any, scale: int) -> bool:
    return isinstance(value, decimal.Decimal) and bool(value) and value.adjusted() < -scale


def _storage(arrow: pa.DataType) -> pa.DataType:
    """Return a type with the types in which Arrow stores extension types, at any depth."""
    return with_inner_types(getattr(arrow, "storage_type", arrow), _storage)


def _microseconds(time: Any) -> int:
    found: int = getattr(time, "microsecond", 0) or getattr(time, "microseconds", 0)
    return found


def _silent_change(values: Iterable[Any], arrow: pa.DataType) -> str:
    """Return what Arrow would change in values without an error, at any depth, or nothing.

    Arrow cuts fractions. It stores a set as a list in the order of hashes, which for text differ
    between processes.
    """
    if not (pa.types.is_integer(arrow) or pa.types.is_nested(arrow)):
        return ""
    values = list(values)
    kinds = set(map(type, values))
    if pa.types.is_integer(arrow):
        others = [kind.__name__ for kind in kinds if not issubclass(kind, _INTEGERS)]
        return f"{others[0]} is no type of integers: convert it to int" if others else ""
    if any(issubclass(kind, (set, frozenset)) for kind in kinds):
        return "a set has no order: give a sorted list"
    inner = _inner_values([value for value in values if value is not None], arrow)
    return next(filter(None, itertools.starmap(_silent_change, inner)), "")


def _inner_values(
    values: Sequence[Any], arrow: pa.DataType
) -> Iterator[tuple[Iterable[Any], pa.DataType]]:
    """Yield the values inside of nested values, and their types.

    Raises:
        TypeError: A struct has no such field: Arrow would leave out the value.
    """
    if is_list(arrow):
        yield itertools.chain.from_iterable(map(_items, values)), arrow.value_type
        return
    # Arrow also reads a struct or a map from pairs.
    rows = [value if isinstance(value, dict) else dict(value) for value in values]
    if pa.types.is_map(arrow):
        yield itertools.chain.from_iterable(rows), arrow.key_type
        yield itertools.chain.from_iterable(row.values() for row in rows), arrow.item_type
        return
    if extra := set(itertools.chain.from_iterable(rows)) - set(arrow.names):
        raise TypeError(f"{min(extra, key=str)!r} is no field of {arrow}")
    for field in arrow:
        yield map(operator.methodcaller("get", field.name), rows), field.type


def _items(values: Iterable[Any]) -> Iterable[Any]:
    """Return the items of a list; of an array only the first, which shows the type of all."""
    return values[:1] if isinstance(values, np.ndarray) and values.dtype != object else values
