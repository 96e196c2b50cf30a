"""Infers Arrow types for the rows that a row function returns, from its type hints or results."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import functools
import itertools
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from beam_tfrecord.batch import EXAMPLES_SCHEMA
from beam_tfrecord.errors import DataError, SchemaConflict
from beam_tfrecord.features.arrow_types import is_binary, is_list, is_text, widen
from beam_tfrecord.features.tensors import TensorType, is_foreign, item_type, join_tensor_types
from beam_tfrecord.records.rows import with_dicts

_ARRAYS = (np.ndarray, np.generic)
# Length of the text of a value in a message.
_SHOWN = 40
# Bits of integers that float32 represents exactly.
_EXACT_IN_FLOAT32 = 16
# Of decimal256.
_MOST_DIGITS = 76
_HINTS: dict[Any, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    datetime.date: pa.date32(),
    datetime.datetime: pa.timestamp("us"),
    datetime.time: pa.time64("us"),
    datetime.timedelta: pa.duration("us"),
    decimal.Decimal: pa.decimal128(38, 9),
}


def returned_schema(function: Callable[..., Any]) -> pa.Schema | None:
    """Return the schema of a function's return hint, if that is a class of rows.

    A class of rows is a TypedDict, NamedTuple or dataclass. The hints ``list[Hint]``,
    ``Iterator[Hint]`` and ``Hint | None``, for functions that turn a row into several or none, mean
    the same as ``Hint``.
    """
    try:
        hint = typing.get_type_hints(function).get("return")
    except (NameError, TypeError, AttributeError):
        return None
    return schema_of_hint(hint)


def schema_of_hint(hint: Any) -> pa.Schema | None:
    """Return the schema of a class of rows; None if `hint` is another hint."""
    is_rows = typing.is_typeddict(hint) or hasattr(hint, "_fields")
    if not (is_rows or dataclasses.is_dataclass(hint)):
        arguments = [one for one in typing.get_args(hint) if one is not types.NoneType]
        return schema_of_hint(arguments[0]) if len(arguments) == 1 else None
    try:
        hints = typing.get_type_hints(hint)
    except (NameError, TypeError, AttributeError):
        return None
    found = {name: _type_of_hint(_without_none(one)) for name, one in hints.items()}
    # An Arrow type cannot be compared with None.
    return None if any(arrow is None for arrow in found.values()) else pa.schema(found)


def _without_none(hint: Any) -> Any:
    arguments = typing.get_args(hint)
    if types.NoneType not in arguments:
        return hint
    rest = [one for one in arguments if one is not types.NoneType]
    return rest[0] if len(rest) == 1 else None


def _type_of_hint(hint: Any) -> pa.DataType | None:
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is list and arguments:
        item = _type_of_hint(arguments[0])
        return None if item is None else pa.list_(item)
    return _HINTS.get(hint)


@dataclasses.dataclass(frozen=True)
class RowTypes:
    """The types of the rows that a row function returned."""

    columns: Mapping[str, pa.DataType] = dataclasses.field(default_factory=dict)
    has_rows: bool = False
    has_examples: bool = False
    order: tuple[str, ...] = ()

    def merge(self, other: RowTypes) -> RowTypes:
        """Return the types of two parts of the data together; associative and commutative."""
        columns = dict(self.columns)
        for name, found in other.columns.items():
            wider = _wider(columns.get(name, found), found)
            if wider is None:
                raise SchemaConflict(
                    f"column {name!r} has values of two types, {columns[name]} and {found}: give "
                    "them one type, or pass a schema"
                )
            columns[name] = wider
        orders = {types.order for types in (self, other) if types.has_rows}
        return RowTypes(
            columns,
            self.has_rows or other.has_rows,
            self.has_examples or other.has_examples,
            orders.pop() if len(orders) == 1 else (),
        )

    def to_arrow(self, before: pa.Schema) -> pa.Schema:
        """Return the schema of the returned rows.

        Columns of `before` come first, in their order; a column keeps its type there if that holds
        all returned values. New columns have the order that all rows have, else that of names.
        """
        if self.has_rows and self.has_examples:
            raise DataError("the row function returns rows and examples: return one kind")
        if self.has_examples:
            return EXAMPLES_SCHEMA
        if not self.has_rows:
            return before
        order = self.order or sorted(self.columns)
        new = [name for name in order if name not in before.names]
        old = [name for name in before.names if name in self.columns]
        return pa.schema([self._field(name, before) for name in old + new])

    def _field(self, name: str, before: pa.Schema) -> pa.Field:
        """Return the field of a column; it keeps its type and metadata from `before` if it fits."""
        found = self.columns[name]
        if name in before.names:
            old = before.field(name)
            if _fits(found, old.type):
                return pa.field(name, old.type, metadata=old.metadata)
        return pa.field(name, pa.int64() if pa.types.is_signed_integer(found) else found)


def _fits(found: pa.DataType, arrow: pa.DataType) -> bool:
    """Return whether a column of type `arrow` holds all values that the function returned."""
    if isinstance(arrow, TensorType) and _fits_tensor(found, arrow):
        return True
    python = python_type(arrow)
    return bool(python == found or widen(python, found) == python)


def _fits_tensor(found: pa.DataType, arrow: TensorType) -> bool:
    """Return whether a column of NumPy arrays holds all values that the function returned.

    Inference takes arrays of one axis for lists, so such lists fit too.
    """
    if isinstance(found, TensorType):
        return bool(join_tensor_types(arrow, found) == arrow)
    if is_list(found) and found.value_type == item_type(arrow.dtype):
        return arrow.shape is not None and len(arrow.shape) == 1
    return bool(pa.types.is_null(found))


def python_type(arrow: pa.DataType) -> pa.DataType:
    """Return the type that `infer_row_types` infers if a function returns values unchanged.

    Numbers keep their type, since `infer_row_types` infers at most that: it returns the narrowest
    type that holds them.
    """
    if pa.types.is_dictionary(arrow):
        return python_type(arrow.value_type)
    if is_text(arrow):
        return pa.string()
    if is_binary(arrow):
        return pa.binary()
    if is_list(arrow):
        item = python_type(arrow.value_type)
        wide = pa.int64() if pa.types.is_integer(item) else item
        return pa.list_(pa.float64() if pa.types.is_floating(item) else wide)
    if pa.types.is_timestamp(arrow):
        return pa.timestamp("us", arrow.tz)
    return arrow


def infer_row_types(mapped: Sequence[Any]) -> RowTypes:
    """Infer the types of the results of a row function: dicts, or serialized examples."""
    rows = [row for row in mapped if isinstance(row, dict)]
    orders = set(map(tuple, rows))
    columns = {}
    for name in dict.fromkeys(itertools.chain.from_iterable(orders)):
        if not isinstance(name, str):
            raise SchemaConflict(f"column name {name!r} is not text: give str keys")
        columns[name] = _type_of(name, [row.get(name) for row in rows])
    order = orders.pop() if len(orders) == 1 else ()
    return RowTypes(columns, bool(rows), len(rows) < len(mapped), order)


def _type_of(name: str, values: Sequence[Any]) -> pa.DataType:
    # Look at the few types first, since there are many values.
    kinds: set[Any] = set(map(type, values))
    if (plain := with_dicts(values, kinds)) is not values:
        return _type_of(name, plain)
    if np.ndarray in kinds:
        kinds |= {value.dtype for value in values if isinstance(value, np.ndarray)}
        kinds.remove(np.ndarray)
    if any(map(_may_be_tensor, kinds)) and any(map(_is_tensor, values)):
        return _tensor_type_of(name, values)
    if len(kinds - {types.NoneType}) > 1:
        # Each kind apart: what Arrow makes of several depends on which values are in one batch.
        by_kind: dict[Any, list[Any]] = {}
        for value in values:
            kind = value.dtype if isinstance(value, np.ndarray) else type(value)
            by_kind.setdefault(kind, []).append(value)
        joined = functools.reduce(_wider_or_none, (_type_of(name, of) for of in by_kind.values()))
        if joined is None:
            raise SchemaConflict(_no_type(name, values, ValueError("no type holds both")))
        return joined
    try:
        column = pa.array(values, from_pandas=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        if (joined := _joined(values)) is not None:
            return joined
        raise SchemaConflict(_no_type(name, values, error)) from error
    return _narrowest(column)


def _joined(values: Sequence[Any]) -> pa.DataType | None:
    """Return the type of values that Arrow converts one by one, but not together."""
    if not all(_has_type([value]) for value in values):
        return None
    found = (_narrowest(pa.array([value], from_pandas=False)) for value in values)
    return functools.reduce(_wider_or_none, found, pa.null())


def _wider_or_none(one: pa.DataType | None, other: pa.DataType) -> pa.DataType | None:
    # An Arrow type cannot be compared with None.
    return None if one is None else _wider(one, other)


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return a type for the values of both types, or None if there is none.

    Integers and floats become floats: the conversion of the rows refuses an integer that is not
    exact. In lists and structs of the same fields, too.
    """
    if is_list(one) and is_list(other):
        item = _wider(one.value_type, other.value_type)
        return None if item is None else pa.list_(item)
    if pa.types.is_struct(one) and pa.types.is_struct(other) and one.names == other.names:
        fields = [_wider(a.type, b.type) for a, b in zip(one, other, strict=True)]
        return None if None in fields else pa.struct(list(zip(one.names, fields, strict=True)))
    if pa.types.is_decimal(one) and pa.types.is_decimal(other):
        return _wider_decimal(one, other)
    integer, number = sorted((one, other), key=pa.types.is_floating)
    if pa.types.is_integer(integer) and pa.types.is_floating(number):
        return number if integer.bit_width <= _EXACT_IN_FLOAT32 else pa.float64()
    return widen(one, other)


def _wider_decimal(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    scale = max(one.scale, other.scale)
    digits = scale + max(one.precision - one.scale, other.precision - other.scale)
    if digits > _MOST_DIGITS:
        return None
    return pa.decimal128(digits, scale) if digits <= 38 else pa.decimal256(digits, scale)


def _no_type(name: str, values: Sequence[Any], error: Exception) -> str:
    """Return the message for the values of a column that Arrow has no type for."""
    by_kind = {type(value): value for value in reversed(values) if value is not None}
    for pair in itertools.combinations(reversed(by_kind.values()), 2):
        # Values that go together, such as 1 and 1.5, are not at fault.
        if all(_has_type([one]) for one in pair) and _joined(pair) is None:
            both = " and ".join(f"{type(one).__name__} ({repr(one)[:_SHOWN]})" for one in pair)
            return f"column {name!r} has values of two types, {both}: give them one type"
    return (
        f"column {name!r} has values that have no type here ({error}): give numbers, text, bytes, "
        "times, arrays, or lists or dicts of these"
    )


def _has_type(values: Sequence[Any]) -> bool:
    try:
        pa.array(list(values), from_pandas=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return False
    return True


def _may_be_tensor(kind: Any) -> bool:
    return isinstance(kind, np.dtype) or issubclass(kind, _ARRAYS)


def _is_tensor(value: Any) -> bool:
    """Return whether a value is an array that Arrow cannot hold as a number or list of numbers."""
    if not isinstance(value, _ARRAYS):
        return False
    is_odd = value.dtype.kind == "c" or is_foreign(value.dtype)
    return is_odd or (isinstance(value, np.ndarray) and value.ndim != 1)


def _tensor_type_of(name: str, values: Sequence[Any]) -> TensorType:
    arrays = [np.asarray(value) for value in values if value is not None]
    joined, *rest = [TensorType(array.dtype, array.shape) for array in arrays]
    for found in rest:
        wider = join_tensor_types(joined, found)
        if wider is None:
            raise SchemaConflict(
                f"column {name!r} has arrays of {joined.dtype} and {found.dtype}: give them one "
                "dtype"
            )
        joined = wider
    return joined


def _narrowest(column: pa.Array) -> pa.DataType:
    """Return the narrowest type that holds numbers exactly; return another type unchanged."""
    candidates: tuple[pa.DataType, ...] = ()
    if pa.types.is_integer(column.type):
        candidates = (pa.int8(), pa.int16(), pa.int32())
    elif pa.types.is_floating(column.type):
        candidates = (pa.float32(),)
    for narrow in candidates:
        try:
            narrowed = column.cast(narrow, safe=pa.types.is_integer(narrow)).cast(column.type)
            if _same_numbers(narrowed, column):
                return narrow
        except pa.ArrowInvalid:
            continue
    return column.type


def _same_numbers(one: pa.Array, other: pa.Array) -> bool:
    """Return whether two arrays have equal numbers; NaN equals NaN, unlike in Arrow."""
    if one.equals(other):
        return True
    left, right = (array.to_numpy(zero_copy_only=False) for array in (one, other))
    # Both arrays have NaN for nulls here, in the same rows.
    return bool(pa.types.is_floating(one.type) and np.array_equal(left, right, equal_nan=True))
