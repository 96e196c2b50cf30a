"""Converts columns to the types of a schema without changing values; finds rows that do not fit.

Values may be widened, converted to another unit, or parsed from text. A value that the conversion
would change does not fit. The only exception is rounding to float32, for columns that the schema
stores as float32 (types float32 and float64): the native kernel rounds float64, decimals and text
later, and reports the error.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.features.arrow_arrays import (
    Layer,
    Rounded,
    bare_array,
    from_text,
    list_offsets,
    make_list,
    missing_of,
    open_list,
    open_map,
    round_decimals,
    round_text,
    to_text,
    uuid_from_text,
    uuid_to_text,
    with_nulls_at,
)
from beam_tfrecord.features.arrow_types import bare_type, is_binary, is_list, is_text, type_to_json
from beam_tfrecord.features.tensors import (
    TensorType,
    join_tensor_types,
    repeated_shape,
    varying_storage,
)
from beam_tfrecord.features.type_join import Convert, cast, convert_each
from beam_tfrecord.native.kernel_types import BoolArray


class NoConversion(Exception):
    """Raised if no value of one type can be a value of the other type."""


class Converted(NamedTuple):
    """A column after conversion to its type in the schema; only the layout of lists may differ."""

    array: pa.Array
    bad_rows: BoolArray | None = None
    error: float = 0.0


@functools.lru_cache(maxsize=1024)
def same_values(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether two types differ at most in what an Example does not store.

    That is: dictionary or run-end encoding of the column, index types, and the item names and
    nullability of nested types.
    """
    if source == target:
        return True
    source, target = bare_type(source), bare_type(target)
    return bool(type_to_json(source) == type_to_json(target))


def convert(array: pa.Array, target: pa.DataType, store: str = "auto") -> Converted:
    """Convert a column to a type of the schema."""
    if same_values(array.type, target):
        return Converted(array)
    array, target = bare_array(array), bare_type(target)
    if isinstance(target, pa.BaseExtensionType) or isinstance(array.type, pa.BaseExtensionType):
        return _convert_extension(array, target, store)
    if pa.types.is_null(array.type):
        return Converted(pa.nulls(len(array), target))
    if pa.types.is_struct(target) and pa.types.is_struct(array.type):
        return _convert_struct(array, target, store)
    if pa.types.is_map(target) and pa.types.is_map(array.type):
        return _convert_map(array, target, store)
    if is_list(target):
        return _convert_list(array, target, store)
    if pa.types.is_nested(target) or pa.types.is_nested(array.type):
        raise NoConversion
    return _convert_scalars(array, target, store)


def _convert_extension(array: pa.Array, target: pa.DataType, store: str) -> Converted:
    source = array.type
    if isinstance(source, pa.UuidType) and is_text(target):
        return Converted(pc.cast(uuid_to_text(array.storage), target))
    if isinstance(target, pa.UuidType) and is_text(source):
        return _cast_each(array, pa.binary(16), lambda part, _: uuid_from_text(part))
    if isinstance(source, TensorType) and isinstance(target, TensorType):
        return Converted(_convert_tensors(array, target))
    if isinstance(source, TensorType) or (
        isinstance(target, TensorType) and not pa.types.is_null(source)
    ):
        raise NoConversion
    storage = array.storage if isinstance(source, pa.BaseExtensionType) else array
    if not isinstance(target, pa.BaseExtensionType):
        return convert(storage, target, store)
    # Storage does not show it: tensors of another shape with as many values have the same storage.
    shapes = [getattr(one, "shape", None) for one in (source, target)]
    if None not in shapes and shapes[0] != shapes[1]:
        raise NoConversion
    converted = convert(storage, target.storage_type, store)
    storage = converted.array
    if storage.type != target.storage_type:
        storage = pc.cast(storage, target.storage_type)
    return converted._replace(array=pa.ExtensionArray.from_storage(target, storage))


def _convert_tensors(array: pa.ExtensionArray, target: TensorType) -> pa.Array:
    """Return a column of tensors in a type of the same dtype whose shape leaves more sizes open."""
    source = array.type
    if join_tensor_types(source, target) != target or source.dtype != target.dtype:
        raise NoConversion
    if source.storage_type == target.storage_type:
        return pa.ExtensionArray.from_storage(target, array.storage)
    data = array.storage.cast(pa.binary()).cast(pa.large_binary())
    shapes = repeated_shape(source.fixed_shape or (), len(array))
    storage = varying_storage(data, shapes, missing_of(array))
    return pa.ExtensionArray.from_storage(target, storage)


def _convert_struct(array: pa.Array, target: pa.DataType, store: str) -> Converted:
    names = [field.name for field in array.type]
    children, bad_rows, error = array.flatten(), None, 0.0
    fields: list[pa.Array] = []
    for field in target:
        if field.name in names:
            converted = convert(children[names.index(field.name)], field.type, store)
        else:
            converted = Converted(pa.nulls(len(array), field.type))
        fields.append(converted.array)
        bad_rows = _either(bad_rows, converted.bad_rows)
        error = max(error, converted.error)
    target_names = [field.name for field in target]
    made = pa.StructArray.from_arrays(fields, target_names, mask=pc.is_null(array))
    return Converted(made, bad_rows, error)


def _convert_map(array: pa.Array, target: pa.DataType, store: str) -> Converted:
    layer, keys, items = open_map(array)
    keys, bad_keys, key_error = convert(keys, target.key_type, store)
    items, bad_items, item_error = convert(items, target.item_type, store)
    bad_rows = _either(rows_with(layer, bad_keys), rows_with(layer, bad_items))
    if bad_keys is not None:
        # A map array refuses null keys. These rows are rejected anyway, so use any valid key.
        keys = pc.fill_null(keys, next(key for key in keys if key.is_valid))
    offsets = pa.array(layer.offsets.astype(np.int32))
    mask = None if layer.missing is None else pa.array(layer.missing)
    made = pa.MapArray.from_arrays(offsets, keys, items, mask=mask)
    return Converted(made, bad_rows, max(key_error, item_error))


def _convert_list(array: pa.Array, target: pa.DataType, store: str) -> Converted:
    if is_list(array.type):
        layer, values = open_list(array)
    elif pa.types.is_nested(array.type):
        raise NoConversion
    else:
        # A single value becomes a list of one value: both are the same Example.
        missing = missing_of(array)
        counts = np.ones(len(array), np.int64) if missing is None else (~missing).astype(np.int64)
        layer, values = Layer(list_offsets(counts), missing), array.drop_null()
    values, bad_values, error = convert(values, target.value_type, store)
    bad_rows = rows_with(layer, bad_values)
    if pa.types.is_fixed_size_list(target):
        wrong_size = np.diff(layer.offsets) != target.list_size
        if layer.missing is not None:
            wrong_size &= ~layer.missing
        bad_rows = _either(bad_rows, wrong_size if wrong_size.any() else None)
    return Converted(make_list(layer, values), bad_rows, error)


def rows_with(layer: Layer, bad_values: BoolArray | None) -> BoolArray | None:
    """Return which lists contain a bad value, shape `[rows]`; None if there are no bad values."""
    if bad_values is None:
        return None
    before = list_offsets(bad_values)
    rows = before[layer.offsets[1:]] > before[layer.offsets[:-1]]
    return rows if layer.missing is None else rows & ~layer.missing


def _either(one: BoolArray | None, other: BoolArray | None) -> BoolArray | None:
    if one is None or other is None:
        return other if one is None else one
    return one | other


def _convert_scalars(array: pa.Array, target: pa.DataType, store: str) -> Converted:
    source, types = array.type, pa.types
    from_string = is_text(source) or is_binary(source)
    if from_string and (is_text(target) or is_binary(target)):
        return _cast_each(array, target)
    if is_text(target):
        return Converted(pc.cast(to_text(array), target))
    is_rounded = types.is_floating(target) and not types.is_float16(target)
    if from_string and is_rounded:
        return _convert_text_to_float(array, store)
    if from_string:
        return _cast_each(array, target, from_text)
    if is_rounded and types.is_float64(source):
        return Converted(array)
    if is_rounded and types.is_decimal(source):
        return _stored(round_decimals(array), store)
    if _differ_in_meaning(source, target):
        raise NoConversion
    if types.is_integer(source) and types.is_decimal(target):
        array = pc.cast(array, pa.decimal256(20, 0))
    return _unchanged(_cast_each(array, target), array, target)


def _convert_text_to_float(array: pa.Array, store: str) -> Converted:
    """Convert text to float64 (the kernel rounds it later); keep text that is stored as text."""
    bad_rows = _cast_each(array, pa.float64(), lambda part, _: round_text(part).nearest).bad_rows
    array = with_nulls_at(array, bad_rows)
    if store == "text":
        return Converted(array, bad_rows)
    return _stored(round_text(array), store)._replace(bad_rows=bad_rows)


def _stored(rounded: Rounded, store: str) -> Converted:
    if store == "bytes":
        return Converted(rounded.nearest, error=rounded.error)
    return Converted(rounded.exact)


def _differ_in_meaning(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether Arrow's cast would drop a date, or drop or add a zone other than UTC."""
    types = pa.types
    if types.is_timestamp(source) and types.is_timestamp(target):
        return (source.tz is None) != (target.tz is None) and "UTC" not in (source.tz, target.tz)
    return bool(types.is_timestamp(source) and types.is_time(target))


def _unchanged(converted: Converted, source: pa.Array, target: pa.DataType) -> Converted:
    """Reject the values that a cast has changed, which a cast back shows."""
    array, bad_rows, _ = converted
    if pa.types.is_integer(source.type) and pa.types.is_integer(target):
        return converted
    back = pc.cast(array, source.type, safe=False)
    changed = pc.and_(pc.is_valid(array), pc.not_equal(back, source))
    if pa.types.is_floating(source.type) and pa.types.is_floating(target):
        changed = pc.and_(changed, pc.invert(pc.is_nan(source)))
    changed = pc.fill_null(changed, False).to_numpy(zero_copy_only=False)
    if not changed.any():
        return converted
    return Converted(with_nulls_at(array, changed), _either(bad_rows, changed))


def _cast_each(array: pa.Array, to: pa.DataType, convert: Convert = cast) -> Converted:
    """Convert all values to a type, and find those that do not fit."""
    try:
        made, misfits = convert_each(array, to, convert)
    except pa.ArrowNotImplementedError as error:
        raise NoConversion from error
    return Converted(made, np.isin(np.arange(len(array)), misfits) if len(misfits) else None)
