"""Arrow types as JSON, and back.

A type without children is a string in Arrow's own notation (``int64``, ``timestamp[us, tz=UTC]``,
``decimal128(10, 2)``); one with children is an object with a single key, such as
``{"list": "float"}``, ``{"struct": {"lat": "double", "lon": "double"}}`` or, for NumPy arrays,
``{"tensor": "float32", "shape": [28, null]}``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.tensors import TensorType, dtype_of, join_tensor_types

_PLAIN: dict[str, pa.DataType] = {
    str(plain): plain
    for plain in (
        *(pa.null(), pa.bool_()),
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float16(), pa.float32(), pa.float64()),
        *(pa.string(), pa.large_string(), pa.string_view()),
        *(pa.binary(), pa.large_binary(), pa.binary_view()),
        *(pa.date32(), pa.date64()),
        *(pa.time32(unit) for unit in ("s", "ms")),
        *(pa.time64(unit) for unit in ("us", "ns")),
        *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
        *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
    )
}
# What people write by hand; the right side is what is written back.
_ALIASES = {
    "text": pa.string(),
    "str": pa.string(),
    "bytes": pa.binary(),
    "boolean": pa.bool_(),
    "int": pa.int64(),
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "date": pa.date32(),
    "date32": pa.date32(),
    "date64": pa.date64(),
    "timestamp": pa.timestamp("us"),
}
_ZONED = re.compile(r"timestamp\[(s|ms|us|ns), tz=([^\]]+)\]")
_DECIMAL = re.compile(r"decimal(32|64|128|256)\((\d+), ?(-?\d+)\)")
_FIXED = re.compile(r"fixed_size_binary\[(\d+)\]")


def type_to_json(arrow: pa.DataType) -> Any:
    """Return `arrow` as a JSON value."""
    if isinstance(arrow, TensorType):
        return arrow.to_json()
    if isinstance(arrow, pa.OpaqueType):
        return {"extension": arrow.type_name, "storage": type_to_json(arrow.storage_type)}
    if isinstance(arrow, pa.BaseExtensionType):
        return {"extension": arrow.extension_name, "storage": type_to_json(arrow.storage_type)} | (
            {"shape": list(arrow.shape)} if isinstance(arrow, pa.FixedShapeTensorType) else {}
        )
    if pa.types.is_run_end_encoded(arrow):
        return {"run_end_encoded": type_to_json(arrow.value_type)}
    if pa.types.is_dictionary(arrow):
        return {"dictionary": type_to_json(arrow.value_type)}
    if pa.types.is_struct(arrow):
        return {"struct": {field.name: type_to_json(field.type) for field in arrow}}
    if pa.types.is_map(arrow):
        return {"map": [type_to_json(arrow.key_type), type_to_json(arrow.item_type)]}
    if pa.types.is_fixed_size_list(arrow):
        return {"fixed_size_list": type_to_json(arrow.value_type), "size": arrow.list_size}
    for name, is_kind in _LISTS.items():
        if is_kind(arrow):
            return {name: type_to_json(arrow.value_type)}
    return str(arrow)


_LISTS = {
    "list": pa.types.is_list,
    "large_list": pa.types.is_large_list,
    "list_view": pa.types.is_list_view,
    "large_list_view": pa.types.is_large_list_view,
}


def type_from_json(value: Any) -> pa.DataType:
    """Return the Arrow type that `value`, as written by `type_to_json` or by hand, means.

    Raises:
        UsageError: No such type.
    """
    if isinstance(value, pa.DataType):
        return value
    if isinstance(value, str):
        return _type_from_text(value.strip())
    if isinstance(value, dict):
        return _nested_from_json(value)
    raise UsageError(f"{value!r} is not a type: use a name such as 'int64', 'text' or 'double'")


def _type_from_text(text: str) -> pa.DataType:
    if text in _PLAIN:
        return _PLAIN[text]
    if text in _ALIASES:
        return _ALIASES[text]
    if zoned := _ZONED.fullmatch(text):
        return pa.timestamp(zoned[1], zoned[2])
    if decimal := _DECIMAL.fullmatch(text):
        return getattr(pa, f"decimal{decimal[1]}")(int(decimal[2]), int(decimal[3]))
    if fixed := _FIXED.fullmatch(text):
        return pa.binary(int(fixed[1]))
    known = ", ".join(["text", "bytes", "int64", "float", "double", "bool", "date", "timestamp"])
    raise UsageError(f"{text!r} is not a type: use one of {known}, or any other Arrow type's name")


def _nested_from_json(value: dict[str, Any]) -> pa.DataType:
    if "tensor" in value:
        return TensorType(dtype_of(value["tensor"]), value.get("shape"))
    if "extension" in value:
        return _extension_from_json(value)
    if "struct" in value:
        return pa.struct([(name, type_from_json(of)) for name, of in value["struct"].items()])
    if "map" in value:
        key, item = value["map"]
        return pa.map_(type_from_json(key), type_from_json(item))
    if "dictionary" in value:
        return pa.dictionary(pa.int32(), type_from_json(value["dictionary"]))
    if "run_end_encoded" in value:
        return pa.run_end_encoded(pa.int32(), type_from_json(value["run_end_encoded"]))
    if "fixed_size_list" in value:
        return pa.list_(type_from_json(value["fixed_size_list"]), int(value["size"]))
    makers = {
        "list": pa.list_,
        "large_list": pa.large_list,
        "list_view": pa.list_view,
        "large_list_view": pa.large_list_view,
    }
    for name, make in makers.items():
        if name in value:
            return make(type_from_json(value[name]))
    raise UsageError(f"{value!r} is not a type")


def _extension_from_json(value: dict[str, Any]) -> pa.DataType:
    name, storage = value["extension"], type_from_json(value["storage"])
    if name == "arrow.fixed_shape_tensor":
        return pa.fixed_shape_tensor(storage.value_type, value["shape"])
    if name == "arrow.uuid":
        return pa.uuid()
    if name == "arrow.json":
        return pa.json_(storage)
    if name == "arrow.bool8":
        return pa.bool8()
    # An extension that is not known here is its storage under its name.
    return pa.opaque(storage, name, "")


def with_shape(arrow: pa.DataType, shape: Sequence[int]) -> pa.DataType:
    """Return lists of the sizes `shape`, outermost first, of the values of `arrow`.

    As many of its own lists as the shape has sizes are replaced; plain values are put into lists.

    Raises:
        UsageError: The shape has no positive sizes, or does not fit the lists of the type.
    """
    if not shape or not all(isinstance(size, int) and size > 0 for size in shape):
        raise UsageError(f"shape {shape!r} is not a list of positive numbers")
    item, sizes = arrow, []
    while is_list(item):
        sizes.append(item.list_size if pa.types.is_fixed_size_list(item) else None)
        item = item.value_type
    fits = not sizes or len(sizes) == len(shape)
    if not fits or any(own not in (None, new) for own, new in zip(sizes, shape, strict=False)):
        raise UsageError(f"shape {list(shape)} does not fit values of type {arrow}")
    for size in reversed(shape):
        item = pa.list_(item, size)
    return item


def widen(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type that holds the values of both exactly, or None where there is none.

    Integers widen to the smallest integer type that holds both ranges, floats to the wider float,
    text and bytes to the larger layout, and null to anything. Integers never become floats.
    """
    if one.equals(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_null(other):
        return one
    if pa.types.is_dictionary(one):
        return widen(one.value_type, other)
    if pa.types.is_dictionary(other):
        return widen(one, other.value_type)
    if pa.types.is_integer(one) and pa.types.is_integer(other):
        return _wider_integer(one, other)
    if pa.types.is_floating(one) and pa.types.is_floating(other):
        return max(one, other, key=lambda arrow: arrow.bit_width)
    if is_text(one) and is_text(other):
        return pa.large_string()
    if is_binary(one) and is_binary(other):
        return pa.large_binary()
    if isinstance(one, TensorType) and isinstance(other, TensorType):
        return join_tensor_types(one, other)
    if is_list(one) and is_list(other):
        item = widen(one.value_type, other.value_type)
        return None if item is None else pa.list_(item)
    return None


def _wider_integer(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    signed = [pa.types.is_signed_integer(arrow) for arrow in (one, other)]
    if signed[0] == signed[1]:
        return max(one, other, key=lambda arrow: arrow.bit_width)
    positive, either = (other, one) if signed[0] else (one, other)
    for arrow in (pa.int16(), pa.int32(), pa.int64()):
        if arrow.bit_width > positive.bit_width and arrow.bit_width >= either.bit_width:
            return arrow
    return None


def bare_type(arrow: pa.DataType) -> pa.DataType:
    """Return the type of the values of dictionary and run-end encoded types."""
    while pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow):
        arrow = arrow.value_type
    return arrow


def is_tensor(arrow: pa.DataType) -> bool:
    """Tell whether `arrow` is the canonical fixed-shape tensor."""
    return isinstance(arrow, pa.FixedShapeTensorType)


def is_numpy_tensor(arrow: pa.DataType) -> bool:
    """Tell whether `arrow` is the type of NumPy arrays, of any dtype and of varying shapes too."""
    return isinstance(arrow, TensorType)


def is_uuid(arrow: pa.DataType) -> bool:
    """Tell whether `arrow` is the canonical UUID type."""
    return isinstance(arrow, pa.UuidType)


def is_extension(arrow: pa.DataType) -> bool:
    """Tell whether `arrow` is an extension type."""
    return isinstance(arrow, pa.BaseExtensionType)


def is_list(arrow: pa.DataType) -> bool:
    """Tell whether `arrow` is one of the five list layouts (a map is not)."""
    return _is_varying_list(arrow) or pa.types.is_fixed_size_list(arrow)


def is_text(arrow: pa.DataType) -> bool:
    """Tell whether `arrow` is one of the three text layouts."""
    types = pa.types
    return bool(
        types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow)
    )


def is_binary(arrow: pa.DataType) -> bool:
    """Tell whether `arrow` is one of the binary layouts, fixed size included."""
    types = pa.types
    return bool(
        types.is_binary(arrow)
        or types.is_large_binary(arrow)
        or types.is_binary_view(arrow)
        or types.is_fixed_size_binary(arrow)
    )


def is_temporal(arrow: pa.DataType) -> bool:
    """Tell whether `arrow` is a date, time, timestamp or duration."""
    return pa.types.is_temporal(arrow) and not pa.types.is_interval(arrow)


def _is_varying_list(arrow: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_list(arrow)
        or types.is_large_list(arrow)
        or types.is_list_view(arrow)
        or types.is_large_list_view(arrow)
    )
