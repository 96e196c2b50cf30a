"""The types of the rows that a function returns: from its type hints, or from all of its results.

Types that hints do not tell are found part by part, and `RowTypes.merge` joins them, so that it
makes no difference how the rows are cut into parts.
"""

from __future__ import annotations

import contextlib
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
import pyarrow.compute as pc

from beam_tfrecord import native
from beam_tfrecord.errors import DataError, SchemaConflict
from beam_tfrecord.features.arrow_types import bare_type, is_binary, is_list, is_text
from beam_tfrecord.features.python_rows import python_rows
from beam_tfrecord.features.python_values import (
    MISFITS,
    PLAIN_TYPES,
    Misfit,
    infer_column,
    infer_type,
    join,
    plain_values,
    to_array,
)
from beam_tfrecord.features.type_join import join_types
from beam_tfrecord.rows.batch import EXAMPLES_SCHEMA

_HINTS: dict[Any, pa.DataType] = {
    **PLAIN_TYPES,
    datetime.date: pa.date32(),
    datetime.datetime: pa.timestamp("us"),
    datetime.time: pa.time64("us"),
    datetime.timedelta: pa.duration("us"),
    decimal.Decimal: pa.decimal128(38, 9),
}
_NO_COLUMNS = pa.schema([])


class RowsInColumns(Sequence[Mapping[str, Any]]):
    """Dicts with the same keys, as the values of each key: an array where one type holds them."""

    def __init__(self, columns: Mapping[str, pa.Array | list[Any]]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, index: Any) -> Any:
        values = ((name, values[index]) for name, values in self.columns.items())
        return {name: one.as_py() if isinstance(one, pa.Scalar) else one for name, one in values}


def in_columns(rows: Sequence[Any]) -> Sequence[Any]:
    """Return rows in columns if all are dicts that have the same keys in the same order."""
    found = None if isinstance(rows, RowsInColumns) else native.columns_of(list(rows))
    if not found:
        return rows
    return RowsInColumns({name: _as_column(*of) for name, of in found.items()})


def _as_column(kind: type | None, values: list[Any]) -> pa.Array | list[Any]:
    """Return values as an array if Arrow has one type for their class."""
    if kind in PLAIN_TYPES:
        with contextlib.suppress(*MISFITS):
            array = pa.array(values, PLAIN_TYPES[kind])
            return array if isinstance(array, pa.Array) else values
    return values


def values_of(rows: Sequence[Mapping[str, Any]], name: str) -> Sequence[Any] | pa.Array:
    """Return a column of rows; a row without it has None there."""
    if isinstance(rows, RowsInColumns):
        return rows.columns.get(name, [None] * len(rows))
    return [row.get(name) for row in rows]


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
        return pa.schema([(name, _type_of_hint(one)) for name, one in hints.items()])
    except (KeyError, NameError, TypeError, AttributeError):
        return None


def _type_of_hint(hint: Any) -> pa.DataType:
    """Return the type for a hint such as ``int``, ``int | None`` or ``list[int]``, or raise."""
    origin = typing.get_origin(hint)
    inner = [one for one in typing.get_args(hint) if one is not types.NoneType]
    if origin is list:
        return pa.list_(_type_of_hint(inner[0]))
    is_optional = origin in (typing.Union, types.UnionType) and len(inner) == 1
    return _type_of_hint(inner[0]) if is_optional else _HINTS[hint]


@dataclasses.dataclass(frozen=True)
class RowTypes:
    """The types of the rows that a row function returned.

    Attributes:
        columns: The type of each column; None if its values have none but that of its input.
        changed: The columns with values that are not of the type of their input.
    """

    columns: Mapping[str, pa.DataType | None] = dataclasses.field(default_factory=dict)
    has_rows: bool = False
    has_examples: bool = False
    order: tuple[str, ...] = ()
    changed: frozenset[str] = frozenset()

    def merge(self, other: RowTypes) -> RowTypes:
        """Return the types of two parts of the data together; associative and commutative."""
        columns = dict(self.columns)
        for name, found in other.columns.items():
            columns[name] = _wider(name, columns.get(name, found), found)
        orders = {types.order for types in (self, other) if types.has_rows}
        return RowTypes(
            columns,
            self.has_rows or other.has_rows,
            self.has_examples or other.has_examples,
            orders.pop() if len(orders) == 1 else (),
            self.changed | other.changed,
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
            if name not in self.changed or (found is not None and _fits(found, old.type)):
                return pa.field(name, old.type, metadata=old.metadata)
        if found is None:
            raise SchemaConflict(f"column {name!r} has values of two types: pass a schema")
        return pa.field(name, pa.int64() if pa.types.is_signed_integer(found) else found)


def _fits(found: pa.DataType, arrow: pa.DataType) -> bool:
    """Return whether a column of type `arrow` holds all values that the function returned."""
    return bool(join_types(python_type(arrow), found) == python_type(arrow))


def python_type(arrow: pa.DataType) -> pa.DataType:
    """Return the type that `infer_row_types` infers if a function returns values unchanged.

    Numbers keep their type, since `infer_row_types` infers at most that: it returns the narrowest
    type that holds them. Only types of many values are here: `_comes_back` knows all, and is slow.
    """
    arrow = bare_type(arrow)
    if is_text(arrow):
        return pa.string()
    if is_binary(arrow):
        return pa.binary()
    if is_list(arrow):
        item = python_type(arrow.value_type)
        wide = pa.int64() if pa.types.is_integer(item) else item
        return pa.list_(pa.float64() if pa.types.is_floating(item) else wide)
    if pa.types.is_timestamp(arrow) and arrow.unit != "ns":
        return pa.timestamp("us", arrow.tz)
    return arrow


def infer_row_types(mapped: Sequence[Any], before: pa.Schema = _NO_COLUMNS) -> RowTypes:
    """Infer the types of the results of a row function: dicts, or serialized examples.

    Args:
        mapped: The results.
        before: Types of the rows that the function was given.
    """
    rows = in_columns(mapped)
    if isinstance(rows, RowsInColumns):
        orders = {tuple(rows.columns)}
    else:
        rows = [row for row in mapped if isinstance(row, dict)]
        orders = set(map(tuple, rows))
    columns: dict[str, pa.DataType | None] = {}
    changed = set()
    for name in dict.fromkeys(itertools.chain.from_iterable(orders)):
        if not isinstance(name, str):
            raise SchemaConflict(f"column name {name!r} is not text: give str keys")
        values = values_of(rows, name)
        old = before.field(name).type if name in before.names else pa.null()
        try:
            columns[name] = found = _type_of(name, values)
            if not (_fits(found, old) or _comes_back(values, old)):
                changed.add(name)
        except SchemaConflict:
            columns[name] = None
            if not _comes_back(values, old):
                raise
    order = orders.pop() if len(orders) == 1 else ()
    return RowTypes(columns, bool(rows), len(rows) < len(mapped), order, frozenset(changed))


def _comes_back(values: Sequence[Any] | pa.Array, arrow: pa.DataType) -> bool:
    """Return whether values are the same after a conversion to a type and back.

    Most numbers have types that `infer_row_types` finds: they need no such test, which takes long.
    """
    is_found = pa.types.is_floating(arrow) and not pa.types.is_float16(arrow)
    if not (is_found or pa.types.is_signed_integer(arrow)):
        with contextlib.suppress(*MISFITS):
            if isinstance(values, pa.Array):
                if pa.types.is_integer(arrow) and pa.types.is_integer(values.type):
                    values.cast(arrow)
                    return True
                values = values.to_pylist()
            back = python_rows(pa.record_batch([to_array(values, arrow)], ["x"]))
            # As text, NaN equals itself, and True is not 1.
            return repr(back) == repr([{"x": value} for value in values])
    return False


def _type_of(name: str, values: Sequence[Any] | pa.Array) -> pa.DataType:
    if isinstance(values, pa.Array):
        return _narrowest(values)
    kinds = list(dict.fromkeys(map(type, values)))
    if not all(kind in PLAIN_TYPES for kind in kinds):
        values = plain_values(values)
        kinds = list(dict.fromkeys(map(type, values)))
    try:
        # Each kind apart, because integers among floats are narrowed as integers.
        types = [
            _type_of_kind(
                kind, [one for one in values if type(one) is kind] if kinds[1:] else values
            )
            for kind in kinds
        ]
    except Misfit as error:
        raise SchemaConflict(
            f"column {name!r} has values that have no type here ({error}): give numbers, text, "
            "bytes, times, arrays, or lists or dicts of these"
        ) from error
    return functools.reduce(functools.partial(_wider, name), types, pa.null())


def _wider(name: str, one: pa.DataType | None, other: pa.DataType | None) -> pa.DataType | None:
    if one is None or other is None:
        return None
    try:
        return join(one, other)
    except Misfit as error:
        raise SchemaConflict(
            f"column {name!r} has values of two types, {one} and {other}: give them one type, or "
            "pass a schema"
        ) from error


def _type_of_kind(kind: type, values: Sequence[Any]) -> pa.DataType:
    arrow = PLAIN_TYPES.get(kind) or infer_type(values)
    if not (pa.types.is_integer(arrow) or pa.types.is_floating(arrow)):
        return arrow
    try:
        return _narrowest(pa.array(values, arrow))
    except MISFITS:
        return _narrowest(infer_column(values))


def _narrowest(values: pa.Array) -> pa.DataType:
    """Return the narrowest type that holds numbers exactly, or the type of other values."""
    if pa.types.is_integer(values.type):
        low, high = (value.as_py() for value in pc.min_max(values).values())
        for narrow in (np.int8, np.int16, np.int32):
            if np.iinfo(narrow).min <= low and high <= np.iinfo(narrow).max:
                return pa.from_numpy_dtype(narrow)
    elif pa.types.is_floating(values.type):
        numbers = values.drop_null().to_numpy(zero_copy_only=False)
        with np.errstate(over="ignore"):
            narrowed = numbers.astype(np.float32)
        if np.array_equal(narrowed, numbers, equal_nan=True):
            return pa.float32()
    return values.type
