"""Lowering: a column of any Arrow type as the plain columns that the kernel encodes.

The kernel knows booleans, integers, floats, text, bytes and lists of those. Everything else is
brought there by views where the bytes allow it: times are their integers, fields of a struct carry
the nulls of the struct, and lists in lists become one list and the lengths of the inner ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.arrow_arrays import (
    BoolArray,
    Int64Array,
    Layer,
    bare_array,
    fixed_binary,
    make_list,
    missing_of,
    null_positions,
    open_list,
    open_map,
    round_decimals,
    to_text,
    uuid_to_text,
)
from beam_tfrecord.features.arrow_types import (
    bare_type,
    is_binary,
    is_extension,
    is_list,
    is_numpy_tensor,
    is_temporal,
    is_tensor,
    is_text,
    is_uuid,
)
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.tensors import (
    Array,
    TensorType,
    dtype_name,
    is_small_float,
    tensor_column,
)
from beam_tfrecord.features.type_contract import (
    decimal_is_integer,
    tensor_shape,
    value_count,
)


@dataclasses.dataclass(frozen=True)
class Lowered:
    """The leaves of one column, as the kernel takes them.

    Attributes:
        arrays: One array a leaf, in the order of `beam_tfrecord.features.type_contract.leaves`.
        null_in_list: Rows with a null where no Example can hold one; None where there is none.
    """

    arrays: tuple[pa.Array, ...]
    null_in_list: BoolArray | None = None


def needs_lowering(feature: Feature) -> bool:
    """Tell whether columns of `feature` are anything else than what the kernel takes as it is."""
    arrow = feature.type
    if is_list(arrow) and feature.fill is None:
        if pa.types.is_list_view(arrow) or pa.types.is_large_list_view(arrow):
            return True
        arrow = arrow.value_type
    types = pa.types
    if types.is_floating(arrow) or types.is_boolean(arrow) or types.is_integer(arrow):
        return feature.store != "auto"
    return not (is_text(arrow) or is_binary(arrow))


def lower(array: pa.Array, feature: Feature, *, one_zero: bool = False) -> Lowered:
    """Return the leaves of a column.

    Args:
        array: The column; its type is that of `feature`, up to the layout of lists, dictionaries
            and the rounding that the kernel does itself (float64 where float32 is asked for).
        feature: What the schema says of it.
        one_zero: Floats that are stored as equal ones get equal bytes, and so does every NaN.
    """
    lowering = _Lowering(feature, len(array), one_zero)
    arrays = tuple(lowering.leaves(array, feature.type))
    return Lowered(arrays, lowering.null_in_list)


class _Lowering:
    """The lowering of one column of one batch."""

    def __init__(self, feature: Feature, rows: int, one_zero: bool) -> None:
        self._feature = feature
        self._rows = rows
        self._one_zero = one_zero
        self.null_in_list: BoolArray | None = None

    def leaves(
        self,
        array: pa.Array,
        arrow: pa.DataType,
        layers: tuple[Layer, ...] = (),
        *,
        dense: bool = True,
    ) -> Iterator[pa.Array]:
        """Yield the leaves of `array`, whose values lie in the lists `layers`.

        `dense` tells that the schema fixes the size of all of them.
        """
        array, arrow = bare_array(array), bare_type(arrow)
        if is_tensor(arrow):
            yield from self._tensor(array.storage, arrow)
        elif is_numpy_tensor(arrow):
            if self._one_zero:
                is_narrow = self._feature.store == "values"
                array = tensors_with_one_zero(array, is_narrow=is_narrow)
            yield from lower_tensors(array, arrow, store=self._feature.store)
        elif is_extension(arrow) and not is_uuid(arrow):
            storage = array.storage if is_extension(array.type) else array
            yield from self.leaves(storage, arrow.storage_type, layers, dense=dense)
        elif pa.types.is_struct(arrow):
            for field, child in zip(arrow, array.flatten(), strict=True):
                yield from self.leaves(child, field.type, layers, dense=dense)
        elif pa.types.is_map(arrow):
            layer, keys, items = open_map(array)
            yield from self.leaves(keys, arrow.key_type, (*layers, layer), dense=False)
            yield from self.leaves(items, arrow.item_type, (*layers, layer), dense=False)
        elif is_list(arrow):
            layer, values = open_list(array)
            dense = dense and pa.types.is_fixed_size_list(arrow)
            yield from self.leaves(values, arrow.value_type, (*layers, layer), dense=dense)
        elif pa.types.is_null(arrow):
            return
        else:
            yield from self._values(array, arrow, layers, dense)

    def _values(
        self, values: pa.Array, arrow: pa.DataType, layers: tuple[Layer, ...], dense: bool
    ) -> Iterator[pa.Array]:
        if layers and self._feature.fill is not None and values.null_count:
            values = fill_nulls(values, self._feature)
        if self._one_zero:
            values = _with_one_zero(values)
        stored = store_values(values, arrow, store=self._feature.store)
        if self._one_zero:
            # What is no text or bytes by now, the kernel rounds to float32.
            stored = _with_one_zero(stored, is_narrow=True)
        if not layers:
            yield stored
            return
        # starts[k] holds, per row, where its lists begin among the lists of level k.
        starts = [layers[0].offsets]
        for layer in layers[1:]:
            self._find_null_lists(layer, starts[-1], layers[0].missing)
            starts.append(layer.offsets[starts[-1]])
        yield make_list(Layer(starts[-1], layers[0].missing), stored)
        if dense:
            return
        for level, layer in enumerate(layers[1:]):
            lengths = pa.array(np.diff(layer.offsets))
            yield make_list(Layer(starts[level], layers[0].missing), lengths)

    def _find_null_lists(
        self, layer: Layer, starts: Int64Array, missing_rows: BoolArray | None
    ) -> None:
        if layer.missing is None:
            return
        rows = np.searchsorted(starts, np.flatnonzero(layer.missing), side="right") - 1
        self._mark(rows, missing_rows)

    def _mark(self, rows: Int64Array, missing_rows: BoolArray | None) -> None:
        marks = np.zeros(self._rows, bool)
        marks[rows] = True
        if missing_rows is not None:
            marks &= ~missing_rows
        if marks.any():
            self.null_in_list = marks | (False if self.null_in_list is None else self.null_in_list)

    def _tensor(self, storage: pa.Array, arrow: pa.DataType) -> Iterator[pa.Array]:
        shape = tensor_shape(arrow, self._feature.name)
        layer, values = open_list(storage)
        if self._one_zero:
            values = _with_one_zero(values, is_narrow=self._feature.store == "values")
        if self._feature.store == "values":
            yield make_list(layer, values)
            return
        if values.null_count:
            count = max(value_count(shape), 1)
            self._mark(null_positions(values) // count, layer.missing)
        if pa.types.is_boolean(values.type):
            values = pc.cast(values, pa.uint8())
        yield _tensor_bytes(values, value_count(shape), layer.missing, len(storage))
        shapes = np.tile(np.array(shape, np.int64), len(storage))
        offsets = np.arange(len(storage) + 1, dtype=np.int64) * len(shape)
        yield make_list(Layer(offsets, layer.missing), pa.array(shapes))


def _with_one_zero(values: pa.Array, *, is_narrow: bool = False) -> pa.Array:
    """Return values, where they are floats, with one zero and one NaN."""
    if not pa.types.is_floating(values.type):
        return values
    numbers = np.frombuffer(values.buffers()[1] or b"", f"<f{values.type.bit_width // 8}")
    numbers = numbers[values.offset : values.offset + len(values)]
    mask = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
    made = floats_with_one_zero(numbers, is_narrow=is_narrow)
    return pa.array(made, values.type, mask=mask)


def _tensor_bytes(values: pa.Array, count: int, missing: BoolArray | None, rows: int) -> pa.Array:
    if not count:
        mask = missing if missing is not None else np.zeros(rows, bool)
        return pa.array([None if gone else b"" for gone in mask.tolist()], pa.binary())
    width = values.type.bit_width // 8
    data = np.frombuffer(values.buffers()[1] or b"", np.uint8)
    data = data[values.offset * width : (values.offset + len(values)) * width]
    return fixed_binary(data, width * count, missing, rows=rows)


def fill_nulls(values: pa.Array, feature: Feature) -> pa.Array:
    """Replace the nulls among the values of lists by the `fill` of `feature`.

    Raises:
        UsageError: The fill is no value of that type.
    """
    return pc.fill_null(values, typed_scalar(feature.fill, values.type, feature, "fill"))


def typed_scalar(value: Any, arrow: pa.DataType, feature: Feature, what: str) -> pa.Scalar:
    """Return `value`, as it stands in a schema, as a scalar of type `arrow`.

    Raises:
        UsageError: It is no value of that type.
    """
    try:
        return pa.scalar(value, arrow)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError):
        pass
    try:
        return pc.cast(pa.scalar(value), arrow)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError, OverflowError) as error:
        raise UsageError(
            f"{what} {value!r} of column {feature.name!r} is not a value of type {arrow}"
        ) from error


def store_values(values: pa.Array, arrow: pa.DataType, *, store: str = "auto") -> pa.Array:
    """Return scalars of type `arrow` in the type the kernel encodes.

    A decimal that becomes a float becomes a float64 that rounds to float32 as the decimal would.
    """
    if is_uuid(arrow):
        return uuid_to_text(values.storage if is_extension(values.type) else values)
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


def lower_tensors(array: pa.ExtensionArray, arrow: TensorType, *, store: str) -> Iterator[pa.Array]:
    """Yield the leaves of a column of tensors.

    Args:
        array: The column.
        arrow: Its type.
        store: ``values``: flat numbers; else bytes.
    """
    missing, shape = missing_of(array), arrow.fixed_shape
    storage = array.storage
    data, shapes = (storage, None) if arrow.is_dense else storage.flatten()
    if store != "values":
        # A fixed-size binary of no bytes at all has no buffer that the kernel could look at.
        yield data if arrow.nbytes != 0 else data.cast(pa.binary())
    else:
        values, offsets = _values_of(data, arrow)
        yield (
            make_list(Layer(offsets, missing), pa.array(values))
            if shape != ()
            else (pa.array(values, mask=missing))
        )
        if shape is not None:
            return
    if shapes is None:
        sizes = np.tile(np.array(shape, np.int64), len(array))
        offsets = np.arange(len(array) + 1, dtype=np.int64) * len(shape or ())
        shapes = make_list(Layer(offsets, missing), pa.array(sizes))
    yield shapes
    if store != "values":
        name = pa.repeat(pa.scalar(dtype_name(arrow.dtype)), len(array))
        yield name if missing is None else pa.array(name.to_pylist(), name.type, mask=missing)


def floats_with_one_zero(numbers: Array, *, is_narrow: bool) -> Array:
    """Return a copy of floats with one zero and one NaN: those that are equal are equal bytes.

    Args:
        numbers: The floats.
        is_narrow: They are stored as float32. What that makes zero is zero, whatever its sign.
    """
    kind = numbers.dtype.type
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        stored = numbers.astype(np.float32) if is_narrow else numbers
        # The sum is for the parts of complex numbers: one may be a zero without the other.
        with_one_zero = np.where(stored == 0, kind(0), numbers + kind(0))
        made: Array = np.where(np.isnan(numbers), kind(np.nan), with_one_zero)
    return made


def tensors_with_one_zero(array: pa.ExtensionArray, *, is_narrow: bool) -> pa.ExtensionArray:
    """Return a column of tensors, where they are of floats, with one zero and one NaN."""
    arrow = array.type
    if arrow.dtype.kind not in "fc" and not is_small_float(arrow.dtype):
        return array
    tensors = (value.as_py() for value in array)
    made = [
        None if tensor is None else floats_with_one_zero(tensor, is_narrow=is_narrow)
        for tensor in tensors
    ]
    return tensor_column(made, arrow)


def _values_of(data: pa.Array, arrow: TensorType) -> tuple[Array, Int64Array]:
    """Return the numbers of binary values, and where those of each row begin."""
    rows, first, width = len(data), data.offset, arrow.dtype.itemsize
    if arrow.is_dense:
        starts = np.arange(first, first + rows + 1, dtype=np.int64) * (arrow.nbytes or 0)
    else:
        starts = np.frombuffer(data.buffers()[1], np.int64)[first : first + rows + 1]
    raw = np.frombuffer(data.buffers()[-1] or b"", np.uint8)[starts[0] : starts[-1]]
    # Arrow's buffers need not be aligned to the values that lie in them.
    values = np.require(raw.view(arrow.dtype), requirements=["C", "A"])
    if values.dtype.kind == "b":
        values = values.view(np.uint8)
    if is_small_float(arrow.dtype):
        values = values.astype(np.float32)
    return values, (starts - starts[0]) // width
