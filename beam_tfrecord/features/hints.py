"""Return hints of row functions as Arrow schemas."""

from __future__ import annotations

import datetime
import decimal
import types
import typing
from collections.abc import Callable
from typing import Any

import pyarrow as pa

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
