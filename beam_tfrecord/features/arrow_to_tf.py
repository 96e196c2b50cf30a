"""Converts a column of any Arrow type to arrays of its TF columns, which the kernel encodes.

A *TF column* is one key of the Examples. The native kernel encodes booleans, integers, floats,
text, bytes, and lists of these. Other types are converted: times are viewed as integers, the fields
of a struct get the nulls of the struct, and lists in lists become one list and the lengths of the
inner lists.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.arrow_arrays import (
    Layer,
    bare_array,
    make_list,
    missing_of,
    open_list,
    open_map,
    round_decimals,
    to_text,
    uuid_to_text,
    with_nulls_at,
)
from beam_tfrecord.features.arrow_types import bare_type, is_binary, is_list, is_temporal, is_text
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.python_values import MISFITS, to_array
from beam_tfrecord.features.tensors import (
    Array,
    TensorType,
    dtype_name,
    is_small_float,
    repeated_shape,
    tensor_column,
)
from beam_tfrecord.features.tf_columns import decimal_is_integer, is_flat_tensor
from beam_tfrecord.native.kernel_types import Int64Array


class TFArrays(NamedTuple):
    """The TF columns of one column, as arrays that the kernel encodes."""

    arrays: tuple[pa.Array, ...]
    null_rows: list[int]
    """Rows with a null in a list that no fill replaces."""


def is_encoded_as_is(feature: Feature) -> bool:
    """Return whether the kernel encodes columns of `feature` without conversion."""
    arrow, types = feature.type, pa.types
    if is_list(arrow) and feature.fill is None:
        arrow = arrow.value_type
    if types.is_floating(arrow) or types.is_boolean(arrow) or types.is_integer(arrow):
        return feature.store == "auto"
    return is_text(arrow) or is_binary(arrow)


def arrow_to_tf(array: pa.Array, feature: Feature, *, merge_equal_floats: bool = False) -> TFArrays:
    """Convert a column to the arrays of its TF columns."""
    conversion = _Conversion(feature, merge_equal_floats, set())
    arrays = tuple(conversion.arrays(array, feature.type))
    return TFArrays(arrays, sorted(conversion.null_rows))


class _Conversion(NamedTuple):
    """The conversion of one column of one batch."""

    feature: Feature
    merge_equal_floats: bool
    null_rows: set[int]

    def arrays(
        self,
        array: pa.Array,
        arrow: pa.DataType,
        layers: tuple[Layer, ...] = (),
        *,
        dense: bool = True,
    ) -> Iterator[pa.Array]:
        """Yield the arrays of the TF columns for `array`."""
        array, arrow = bare_array(array), bare_type(arrow)
        if isinstance(arrow, TensorType):
            yield from self._tensors(array, arrow)
        elif isinstance(arrow, pa.BaseExtensionType) and not isinstance(arrow, pa.UuidType):
            storage = array.storage if isinstance(array.type, pa.BaseExtensionType) else array
            yield from self.arrays(storage, arrow.storage_type, layers, dense=dense)
        elif pa.types.is_struct(arrow):
            for field, child in zip(arrow, array.flatten(), strict=True):
                yield from self.arrays(child, field.type, layers, dense=dense)
        elif pa.types.is_map(arrow):
            layer, keys, items = open_map(array)
            yield from self.arrays(keys, arrow.key_type, (*layers, layer), dense=False)
            yield from self.arrays(items, arrow.item_type, (*layers, layer), dense=False)
        elif is_list(arrow):
            layer, values = open_list(array)
            dense = dense and pa.types.is_fixed_size_list(arrow)
            yield from self.arrays(values, arrow.value_type, (*layers, layer), dense=dense)
        elif not pa.types.is_null(arrow):
            yield from self._values(array, arrow, layers, dense)

    def _values(
        self, values: pa.Array, arrow: pa.DataType, layers: tuple[Layer, ...], dense: bool
    ) -> Iterator[pa.Array]:
        if layers and self.feature.fill is not None and values.null_count:
            fill = typed_scalar(self.feature.fill, values.type, self.feature, "fill")
            values = pc.fill_null(values, fill)
        if self.merge_equal_floats:
            values = _with_merged_floats(values)
        stored = store_values(values, arrow, store=self.feature.store)
        if self.merge_equal_floats:
            # What is still a float here, the kernel rounds to float32.
            stored = _with_merged_floats(stored, is_narrow=True)
        if not layers:
            yield stored
            return
        # starts[k][row] is the index of a row's first item among the items of all lists of level k.
        starts = [layers[0].offsets]
        for layer in layers[1:]:
            if layer.missing is not None:
                lists = np.flatnonzero(layer.missing)
                rows = np.searchsorted(starts[-1], lists, side="right") - 1
                missing = layers[0].missing
                self.null_rows.update((rows if missing is None else rows[~missing[rows]]).tolist())
            starts.append(layer.offsets[starts[-1]])
        yield make_list(Layer(starts[-1], layers[0].missing), stored)
        if dense:
            return
        for level, layer in enumerate(layers[1:]):
            lengths = pa.array(np.diff(layer.offsets))
            yield make_list(Layer(starts[level], layers[0].missing), lengths)

    def _tensors(self, array: pa.ExtensionArray, tensor: TensorType) -> Iterator[pa.Array]:
        is_flat = is_flat_tensor(tensor, self.feature.store)
        if self.merge_equal_floats:
            array = _merged_tensors(array, is_narrow=is_flat)
        missing, shape = missing_of(array), tensor.fixed_shape
        data, shapes = (array.storage, None) if tensor.is_dense else array.storage.flatten()
        if is_flat:
            values, offsets = _numbers(data, tensor)
            yield (
                pa.array(values, mask=missing)
                if shape == ()
                else make_list(Layer(offsets, missing), pa.array(values))
            )
            if shape is not None:
                return
        else:
            # A fixed-size binary array of width 0 has no buffer, which the kernel needs.
            yield data if tensor.nbytes != 0 else data.cast(pa.binary())
        if shapes is None:
            shapes = with_nulls_at(repeated_shape(shape or (), len(array)), missing)
        yield shapes
        if not is_flat:
            yield with_nulls_at(pa.repeat(dtype_name(tensor.dtype), len(array)), missing)


def _numbers(data: pa.Array, tensor: TensorType) -> tuple[Array, Int64Array]:
    """Return the numbers of all tensors, and the position of the first number of each row."""
    rows, first, width = len(data), data.offset, tensor.dtype.itemsize
    if tensor.is_dense:
        starts = np.arange(first, first + rows + 1, dtype=np.int64) * (tensor.nbytes or 0)
    else:
        starts = np.frombuffer(data.buffers()[1], np.int64)[first : first + rows + 1]
    raw = np.frombuffer(data.buffers()[-1] or b"", np.uint8)[starts[0] : starts[-1]]
    # Arrow's buffers need not be aligned to the size of the numbers.
    values = np.require(raw.view(tensor.dtype), requirements=["C", "A"])
    if values.dtype.kind == "b":
        values = values.view(np.uint8)
    if is_small_float(tensor.dtype):
        values = values.astype(np.float32)
    return values, (starts - starts[0]) // width


def _merged_floats(numbers: Array, *, is_narrow: bool) -> Array:
    """Return a copy of floats with only one zero and one NaN: equal floats have equal bytes."""
    kind = numbers.dtype.type
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        stored = numbers.astype(np.float32) if is_narrow else numbers
        # Adding zero changes the parts of complex numbers: one may be -0.0 beside another number.
        merged_zeros = np.where(stored == 0, kind(0), numbers + kind(0))
        made: Array = np.where(np.isnan(numbers), kind(np.nan), merged_zeros)
    return made


def _merged_tensors(array: pa.ExtensionArray, *, is_narrow: bool) -> pa.ExtensionArray:
    """Return a column of tensors; tensors of floats get only one zero and one NaN."""
    arrow = array.type
    if arrow.dtype.kind not in "fc" and not is_small_float(arrow.dtype):
        return array
    tensors = (value.as_py() for value in array)
    made = [
        None if tensor is None else _merged_floats(tensor, is_narrow=is_narrow)
        for tensor in tensors
    ]
    return tensor_column(made, arrow)


def _with_merged_floats(values: pa.Array, *, is_narrow: bool = False) -> pa.Array:
    """Return values; floats get only one zero and one NaN."""
    if not pa.types.is_floating(values.type):
        return values
    numbers = np.frombuffer(values.buffers()[1] or b"", f"<f{values.type.bit_width // 8}")
    numbers = numbers[values.offset : values.offset + len(values)]
    made = _merged_floats(numbers, is_narrow=is_narrow)
    return pa.array(made, values.type, mask=missing_of(values))


def typed_scalar(value: Any, arrow: pa.DataType, feature: Feature, what: str) -> pa.Scalar:
    """Return a value from a schema as a scalar of type `arrow`."""
    if isinstance(arrow, pa.FixedShapeTensorType):
        # pyarrow makes no tensors of lists.
        return typed_scalar(np.reshape(value, -1).tolist(), arrow.storage_type, feature, what)
    try:
        with contextlib.suppress(*MISFITS):
            return to_array([value], arrow)[0]
        return pc.cast(pa.scalar(value), arrow)
    except MISFITS as error:
        raise UsageError(
            f"{what} {value!r} of column {feature.name!r} is not a value of type {arrow}"
        ) from error


def store_values(values: pa.Array, arrow: pa.DataType, *, store: str = "auto") -> pa.Array:
    """Return scalars of type `arrow` in a type that the kernel encodes.

    A decimal that is stored as a float becomes a float64 that rounds to float32 as the decimal
    does.
    """
    if isinstance(arrow, pa.UuidType):
        return uuid_to_text(getattr(values, "storage", values))
    if is_text(arrow) or is_binary(arrow):
        return values
    if store == "text":
        return to_text(values)
    if store == "bytes" and pa.types.is_float64(arrow):
        return values.view(pa.binary(8))
    if is_temporal(values.type):
        return values.view(pa.int64() if values.type.bit_width == 64 else pa.int32())
    if pa.types.is_decimal(values.type):
        is_integer = decimal_is_integer(arrow)
        if is_integer and pa.types.is_decimal32(values.type):
            # Arrow checks the range of a cast from decimal32 to int64 in 32 bits.
            values = pc.cast(values, pa.decimal64(18, values.type.scale))
        return pc.cast(values, pa.int64()) if is_integer else round_decimals(values).exact
    return values
