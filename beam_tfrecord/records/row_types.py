"""Types of mapped rows: what a row function returned, as Arrow types."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
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

_ARRAYS = (np.ndarray, np.generic)


@dataclasses.dataclass(frozen=True)
class RowTypes:
    """The types of mapped rows; `merge` is associative and order-free.

    Attributes:
        columns: Arrow type by column name.
        has_rows: True where some row was a dict.
        has_examples: True where some row was a serialized example.
    """

    columns: Mapping[str, pa.DataType] = dataclasses.field(default_factory=dict)
    has_rows: bool = False
    has_examples: bool = False

    def merge(self, other: RowTypes) -> RowTypes:
        """Join the types of two parts of the data.

        Raises:
            SchemaConflict: A column has values that no type holds exactly.
        """
        columns = dict(self.columns)
        for name, found in other.columns.items():
            if name not in columns:
                columns[name] = found
                continue
            wider = widen(columns[name], found)
            if wider is None:
                raise SchemaConflict(
                    f"the row function returns {columns[name]} and {found} for column {name!r}: "
                    "return one type, or pass a schema"
                )
            columns[name] = wider
        return RowTypes(
            columns,
            self.has_rows or other.has_rows,
            self.has_examples or other.has_examples,
        )

    def to_arrow(self, before: pa.Schema) -> pa.Schema:
        """Return the schema of the mapped rows: the columns that were there first, in order.

        Raises:
            DataError: The function returned rows and examples.
        """
        if self.has_rows and self.has_examples:
            raise DataError("the row function returns rows and examples: return one kind")
        if self.has_examples:
            return EXAMPLES_SCHEMA
        if not self.has_rows:
            return before
        new = sorted(name for name in self.columns if name not in before.names)
        names = [name for name in before.names if name in self.columns] + new
        return pa.schema([self._field(name, before) for name in names])

    def _field(self, name: str, before: pa.Schema) -> pa.Field:
        """Keep what is noted on a column that keeps its type."""
        field = pa.field(name, self._type(name, before))
        if name in before.names and before.field(name).type == field.type:
            return field.with_metadata(before.field(name).metadata)
        return field

    def _type(self, name: str, before: pa.Schema) -> pa.DataType:
        """Keep the type of a column where it holds all values that the function returned."""
        found = self.columns[name]
        if name in before.names:
            kept = before.field(name).type
            if isinstance(kept, TensorType) and _is_kept(kept, found):
                return kept
            if python_type(kept) == found or widen(python_type(kept), found) == python_type(kept):
                return kept
        return pa.int64() if pa.types.is_signed_integer(found) else found


def python_type(arrow: pa.DataType) -> pa.DataType:
    """Return the type that `types_of` gives values of `arrow` once they were Python values.

    Numbers keep their type: `types_of` finds the narrowest that holds them.
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


def types_of(mapped: Sequence[Any]) -> RowTypes:
    """Infer the types of mapped rows.

    Raises:
        SchemaConflict: A column mixes values that no type holds exactly.
    """
    rows = [row for row in mapped if isinstance(row, dict)]
    columns = {}
    for name in dict.fromkeys(itertools.chain.from_iterable(rows)):
        columns[name] = _type_of(name, [row.get(name) for row in rows])
    return RowTypes(columns, bool(rows), len(rows) < len(mapped))


def _is_kept(kept: TensorType, found: pa.DataType) -> bool:
    """Tell whether arrays that a row function returned are still of a column's type.

    Arrays of one axis are found to be lists: lists and arrays are the same to most functions.
    """
    if isinstance(found, TensorType):
        return bool(join_tensor_types(kept, found) == kept)
    of_items = is_list(found) and found.value_type == item_type(kept.dtype)
    return pa.types.is_null(found) or (of_items and kept.shape is not None and len(kept.shape) == 1)


def _type_of(name: str, values: list[Any]) -> pa.DataType:
    kinds = set(map(type, values))
    # There are few types of values, and many values.
    if any(issubclass(k, _ARRAYS) for k in kinds) and any(map(_is_tensor, values)):
        return _tensor_type_of(name, values)
    try:
        column = pa.array(values, from_pandas=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise SchemaConflict(
            f"the row function returns values of no single type for column {name!r}: {error}: "
            "return one type, or pass a schema"
        ) from error
    return _narrowest(column)


def _is_tensor(value: Any) -> bool:
    """Tell whether a value is an array that is no list of what Arrow holds."""
    if not isinstance(value, _ARRAYS):
        return False
    is_odd = value.dtype.kind == "c" or is_foreign(value.dtype)
    return is_odd or (isinstance(value, np.ndarray) and value.ndim != 1)


def _tensor_type_of(name: str, values: list[Any]) -> TensorType:
    arrays = [np.asarray(value) for value in values if value is not None]
    types = [TensorType(array.dtype, array.shape) for array in arrays]
    joined = types[0]
    for found in types[1:]:
        if wider := join_tensor_types(joined, found):
            joined = wider
            continue
        raise SchemaConflict(
            f"the row function returns arrays of {joined.dtype} and {found.dtype} for column "
            f"{name!r}: return one dtype"
        )
    return joined


def _narrowest(column: pa.Array) -> pa.DataType:
    """Return the narrowest number type that holds a column exactly, else its own type."""
    candidates: tuple[pa.DataType, ...]
    if pa.types.is_integer(column.type):
        candidates = (pa.int8(), pa.int16(), pa.int32())
    elif pa.types.is_floating(column.type):
        candidates = (pa.float32(),)
    else:
        return column.type
    for narrow in candidates:
        try:
            narrowed = column.cast(narrow, safe=pa.types.is_integer(narrow)).cast(column.type)
            if _same_numbers(narrowed, column):
                return narrow
        except pa.ArrowInvalid:
            continue
    return column.type


def _same_numbers(one: pa.Array, other: pa.Array) -> bool:
    """Tell whether numbers are equal; NaN, unlike in Arrow, equals NaN."""
    if one.equals(other):
        return True
    left, right = (array.to_numpy(zero_copy_only=False) for array in (one, other))
    # Nulls are NaN here on both sides, at the same rows.
    return bool(pa.types.is_floating(one.type) and np.array_equal(left, right, equal_nan=True))


_TYPES: dict[Any, pa.DataType] = {
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
    """Return the schema of a function's TypedDict or NamedTuple return hint, or None.

    ``list[Hint]``, ``Iterator[Hint]`` and ``Hint | None`` mean the same as ``Hint``: one row
    becomes several, or none.
    """
    try:
        hint = typing.get_type_hints(function).get("return")
    except (NameError, TypeError, AttributeError):
        return None
    return schema_of_hint(hint)


def schema_of_hint(hint: Any) -> pa.Schema | None:
    """Return the schema of a TypedDict or NamedTuple class, or None for another hint."""
    if not (typing.is_typeddict(hint) or hasattr(hint, "_fields")):
        arguments = [one for one in typing.get_args(hint) if one is not types.NoneType]
        return schema_of_hint(arguments[0]) if len(arguments) == 1 else None
    try:
        hints = typing.get_type_hints(hint)
    except (NameError, TypeError, AttributeError):
        return None
    fields = [_field(name, of) for name, of in hints.items()]
    # An Arrow field cannot be compared with None.
    known = [field for field in fields if field is not None]
    return pa.schema(known) if len(known) == len(fields) else None


def _field(name: str, hint: Any) -> pa.Field | None:
    arguments = typing.get_args(hint)
    nullable = types.NoneType in arguments
    if nullable:
        rest = [one for one in arguments if one is not types.NoneType]
        hint = rest[0] if len(rest) == 1 else None
    arrow = _type(hint)
    return None if arrow is None else pa.field(name, arrow)


def _type(hint: Any) -> pa.DataType | None:
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is list and arguments:
        item = _type(arguments[0])
        return None if item is None else pa.list_(item)
    return _TYPES.get(hint)
