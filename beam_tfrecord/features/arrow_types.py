"""Tells families of Arrow types apart, and converts Arrow types to and from JSON.

In JSON, a type without children is a string in Arrow's own notation (``int64``,
``timestamp[us, tz=UTC]``, ``decimal128(10, 2)``). A type with children is an object, such as
``{"list": "float"}``, ``{"struct": {"lat": "double", "lon": "double"}}`` or, for NumPy arrays,
``{"tensor": "float32", "shape": [28, null]}``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from beam_tfrecord.errors import UsageError, did_you_mean
from beam_tfrecord.features.tensors import TensorType, dtype_name, dtype_of

# The test for a kind of type with one child, and its constructor.
_Wrapper = tuple[Callable[[pa.DataType], bool], Callable[[Any], pa.DataType]]
_LISTS: dict[str, _Wrapper] = {
    "list": (pa.types.is_list, pa.list_),
    "large_list": (pa.types.is_large_list, pa.large_list),
}
_WRAPPERS: dict[str, _Wrapper] = _LISTS | {
    "run_end_encoded": (
        pa.types.is_run_end_encoded,
        lambda item: pa.run_end_encoded(pa.int32(), item),
    ),
    "dictionary": (pa.types.is_dictionary, lambda item: pa.dictionary(pa.int32(), item)),
}
# Names of types that users may write. `type_to_json` writes Arrow's own names.
_ALIASES = {
    "text": pa.string(),
    "str": pa.string(),
    "bytes": pa.binary(),
    "boolean": pa.bool_(),
    "int": pa.int64(),
    "integer": pa.int64(),
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "date": pa.date32(),
    "date32": pa.date32(),
    "date64": pa.date64(),
    "timestamp": pa.timestamp("us"),
    "datetime": pa.timestamp("us"),
}
# The names that messages list.
_USUAL = ("string", "bytes", "int64", "float32", "float64", "bool", "date", "timestamp")
# The names that messages use in place of Arrow's own.
_NAMES = {_ALIASES[name]: name for name in ("float16", "float32", "float64", "date", "timestamp")}
_ZONED = re.compile(r"timestamp\[(s|ms|us|ns), tz=([^\]]+)\]")
_DECIMAL = re.compile(r"decimal(32|64|128|256)\((\d+), ?(-?\d+)\)")
_FIXED = re.compile(r"fixed_size_binary\[(\d+)\]")


def bare_type(arrow: pa.DataType) -> pa.DataType:
    """Return the value type of a dictionary or run-end encoded type, else the type itself."""
    while pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow):
        arrow = arrow.value_type
    return arrow


def is_list(arrow: pa.DataType) -> bool:
    """Return whether `arrow` is a list of fixed or varying size; maps and list views are not."""
    return _list_layout(arrow) is not None or pa.types.is_fixed_size_list(arrow)


def value_type(arrow: pa.DataType) -> pa.DataType:
    """Return the type of the values of a column, or of those inside its lists."""
    arrow = bare_type(arrow)
    while is_list(arrow):
        arrow = bare_type(arrow.value_type)
    return arrow


def time_unit(arrow: pa.DataType) -> Any:
    """Return the unit of a temporal type, as NumPy names it: ``D`` for days, ``s`` to ``ns``."""
    return {pa.date32(): "D", pa.date64(): "ms"}.get(arrow) or arrow.unit


def has_values(arrow: pa.DataType) -> bool:
    """Return whether `arrow` has more values than null, empty lists and structs of these."""
    if pa.types.is_nested(arrow):
        return any(has_values(arrow.field(index).type) for index in range(arrow.num_fields))
    return not pa.types.is_null(arrow)


def is_text(arrow: pa.DataType) -> bool:
    """Return whether `arrow` is text in any of the three layouts."""
    types = pa.types
    return bool(
        types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow)
    )


def is_binary(arrow: pa.DataType) -> bool:
    """Return whether `arrow` is binary in any layout, fixed size included."""
    types = pa.types
    return bool(
        types.is_binary(arrow)
        or types.is_large_binary(arrow)
        or types.is_binary_view(arrow)
        or types.is_fixed_size_binary(arrow)
    )


def with_inner_types(
    arrow: pa.DataType, change: Callable[[pa.DataType], pa.DataType]
) -> pa.DataType:
    """Return a nested type in which the types directly inside are changed; others as they are.

    The names of list items and the nullability inside are dropped: they differ between writers.
    """
    if pa.types.is_struct(arrow):
        return pa.struct([(field.name, change(field.type)) for field in arrow])
    if pa.types.is_map(arrow):
        return pa.map_(change(arrow.key_type), change(arrow.item_type))
    if pa.types.is_fixed_size_list(arrow):
        return pa.list_(change(arrow.value_type), arrow.list_size)
    if (layout := _list_layout(arrow)) is not None:
        return _LISTS[layout][1](change(arrow.value_type))
    return arrow


def with_bytes(arrow: pa.DataType) -> pa.DataType:
    """Return a type with binary in place of text, also of text in lists, structs and maps."""
    return with_inner_types(_BYTES.get(arrow, arrow), with_bytes)


_BYTES = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
}


def is_temporal(arrow: pa.DataType) -> bool:
    """Return whether `arrow` is a date, time, timestamp or duration."""
    return pa.types.is_temporal(arrow) and not pa.types.is_interval(arrow)


def _list_layout(arrow: pa.DataType) -> str | None:
    return next((name for name, (is_kind, _) in _LISTS.items() if is_kind(arrow)), None)


def decoded_type(arrow: pa.DataType) -> pa.DataType:
    """Return the type that a column has after decoding: without dictionaries and views."""
    bare = bare_type(arrow)
    return with_inner_types(_WITHOUT_VIEWS.get(bare, bare), decoded_type)


# Arrow has no `take` for views, nor for types that contain them.
_WITHOUT_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


def type_to_json(arrow: pa.DataType) -> Any:
    """Return `arrow` as a JSON value; `type_from_json` is the inverse."""
    if isinstance(arrow, TensorType):
        return arrow.to_json()
    if isinstance(arrow, pa.BaseExtensionType):
        name = arrow.type_name if isinstance(arrow, pa.OpaqueType) else arrow.extension_name
        found = {"extension": name, "storage": type_to_json(arrow.storage_type)}
        if isinstance(arrow, pa.OpaqueType) and arrow.vendor_name:
            found["vendor"] = arrow.vendor_name
        if isinstance(arrow, pa.FixedShapeTensorType):
            order = arrow.permutation
            found |= {"shape": list(arrow.shape), "permutation": order and list(order)}
        return found
    for name, (is_kind, _) in _WRAPPERS.items():
        if is_kind(arrow):
            return {name: type_to_json(arrow.value_type)}
    if pa.types.is_struct(arrow):
        return {"struct": {field.name: type_to_json(field.type) for field in arrow}}
    if pa.types.is_map(arrow):
        return {"map": [type_to_json(arrow.key_type), type_to_json(arrow.item_type)]}
    if pa.types.is_fixed_size_list(arrow):
        return {"fixed_size_list": type_to_json(arrow.value_type), "size": arrow.list_size}
    return str(arrow)


def type_from_json(value: Any) -> pa.DataType:
    """Return the Arrow type for a value that `type_to_json` returned or that a user wrote."""
    if isinstance(value, pa.DataType):
        return value
    if isinstance(value, str):
        return _type_from_text(value.strip())
    if isinstance(value, dict):
        return _nested_from_json(value)
    raise UsageError(f"{value!r} is not a type: use a name such as 'int64', 'text' or 'double'")


def type_of_column(name: str, value: Any) -> pa.DataType:
    """Return `type_from_json` of a value; the error for a wrong type names the column."""
    try:
        return type_from_json(value)
    except UsageError as error:
        raise UsageError(f"column {name!r}: {error.message}") from None


def _type_from_text(text: str) -> pa.DataType:
    if text in _ALIASES:
        return _ALIASES[text]
    if zoned := _ZONED.fullmatch(text):
        return pa.timestamp(zoned[1], zoned[2])
    if decimal := _DECIMAL.fullmatch(text):
        return getattr(pa, f"decimal{decimal[1]}")(int(decimal[2]), int(decimal[3]))
    if fixed := _FIXED.fullmatch(text):
        return pa.binary(int(fixed[1]))
    try:
        named = pa.type_for_alias(text)
    except ValueError:
        named = None
    # Refuse PyArrow's own aliases, such as "i4": each type has one name in a schema.
    if named is not None and str(named) == text and not pa.types.is_interval(named):
        return named
    hint = did_you_mean(text.lower(), (*_USUAL, *_ALIASES))
    raise UsageError(
        f"{text!r} is not a type: {hint and f'{hint} '}"
        f"the types are {', '.join(_USUAL)} and others of Arrow"
    )


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
    if "fixed_size_list" in value:
        return pa.list_(type_from_json(value["fixed_size_list"]), int(value["size"]))
    for name, (_, make) in _WRAPPERS.items():
        if name in value:
            return make(type_from_json(value[name]))
    raise UsageError(f"{value!r} is not a type")


def _extension_from_json(value: dict[str, Any]) -> pa.DataType:
    name, storage = value["extension"], type_from_json(value["storage"])
    if name == "arrow.fixed_shape_tensor":
        return pa.fixed_shape_tensor(
            storage.value_type, value["shape"], permutation=value["permutation"]
        )
    if name == "arrow.uuid":
        return pa.uuid()
    if name == "arrow.json":
        return pa.json_(storage)
    if name == "arrow.bool8":
        return pa.bool8()
    # An unknown extension type becomes an opaque type with its name and storage.
    return pa.opaque(storage, name, value.get("vendor", ""))


def item_and_shape(arrow: pa.DataType) -> tuple[str, tuple[int | None, ...]]:
    """Return the type of a single value as text, and the shape of the values of a row.

    A size is None if it varies from row to row. The shape of a scalar is empty, and so is the shape
    of an array whose rank varies.
    """
    arrow = bare_type(arrow)
    if isinstance(arrow, TensorType):
        return dtype_name(arrow.dtype), arrow.shape or ()
    if isinstance(arrow, pa.FixedShapeTensorType):
        return str(arrow.value_type), tuple(arrow.shape)
    sizes = []
    while is_list(arrow):
        sizes.append(arrow.list_size if pa.types.is_fixed_size_list(arrow) else None)
        arrow = bare_type(arrow.value_type)
    return str(arrow), tuple(sizes)


def type_text(arrow: pa.DataType) -> str:
    """Return a type as text for people, such as ``string``, ``double[?]`` or ``uint8[28, 28]``."""
    item, shape = item_and_shape(arrow)
    return item + shape_text(shape)


def type_name(arrow: pa.DataType) -> str:
    """Return the usual name of a type, as users write it: ``float64``, not Arrow's ``double``."""
    return _NAMES.get(arrow, str(arrow))


def shape_text(shape: Iterable[int | None]) -> str:
    """Return a shape as text in brackets, empty for a scalar; ``?`` is a size that varies."""
    sizes = ", ".join("?" if size is None else str(size) for size in shape)
    return f"[{sizes}]" if sizes else ""


def with_shape(arrow: pa.DataType, shape: Sequence[int]) -> pa.DataType:
    """Return a type of nested fixed-size lists of the values of `arrow`."""
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


def numpy_dtype(arrow: pa.DataType) -> np.dtype[Any]:
    """Return the NumPy dtype of numbers or booleans; `to_pandas_dtype` would need pandas."""
    dtype: np.dtype[Any] = pa.array([], arrow).to_numpy(zero_copy_only=False).dtype
    return dtype
