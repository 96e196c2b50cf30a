"""`TensorType`: the Arrow type of a column of NumPy arrays, one array for each row.

It is an extension type over bytes: the values of any dtype in C order, little-endian. Arrow's own
tensor type has only numbers of Arrow's types and one fixed shape.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord.errors import UsageError
from beam_tfrecord.native.kernel_types import BoolArray

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
OpenShape = tuple[int | None, ...] | None
"""A shape that may be partly open: None for a size that varies, or in place of a shape if the rank
varies."""

# The width of Arrow's fixed-size binary type is an int32.
_MAX_FIXED_BYTES = 2**31 - 1
_VARYING = [pa.field("data", pa.large_binary()), pa.field("shape", pa.list_(pa.int64()))]


class TensorType(pa.ExtensionType):
    """The type of a column of NumPy arrays of one dtype."""

    def __init__(self, dtype: npt.DTypeLike, shape: Sequence[int | None] | None) -> None:
        self.dtype = little_endian(np.dtype(dtype))
        self.shape: OpenShape = None if shape is None else tuple(shape)
        nbytes = self.nbytes
        fits = nbytes is not None and nbytes <= _MAX_FIXED_BYTES
        storage = pa.binary(nbytes) if fits else pa.struct(_VARYING)
        super().__init__(storage, "beam_tfrecord.tensor")

    @property
    def fixed_shape(self) -> Shape | None:
        """The shape if all rows have the same shape; else None."""
        if self.shape is None or any(size is None for size in self.shape):
            return None
        return tuple(size for size in self.shape if size is not None)

    @property
    def nbytes(self) -> int | None:
        """Number of bytes of one row if all rows have the same shape; else None."""
        shape = self.fixed_shape
        return None if shape is None else math.prod(shape) * self.dtype.itemsize

    @property
    def is_dense(self) -> bool:
        """Whether the storage of a row is only its bytes, since all rows have the same shape."""
        return bool(pa.types.is_fixed_size_binary(self.storage_type))

    @property
    def is_number(self) -> bool:
        """Whether an int64 or float32 list can hold the values."""
        return self.dtype.kind in "biuf" or is_small_float(self.dtype)

    def to_json(self) -> dict[str, Any]:
        """Return the type as a JSON object."""
        shape = None if self.shape is None else list(self.shape)
        return {"tensor": dtype_name(self.dtype), "shape": shape}

    def __arrow_ext_serialize__(self) -> bytes:
        return json.dumps(self.to_json()).encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> TensorType:
        value = json.loads(serialized)
        return cls(dtype_of(value["tensor"]), value["shape"])

    def __arrow_ext_scalar_class__(self) -> type[TensorScalar]:
        return TensorScalar

    def __reduce__(self) -> tuple[Any, ...]:
        return TensorType.__arrow_ext_deserialize__, (None, self.__arrow_ext_serialize__())

    def __hash__(self) -> int:
        return hash(self.__arrow_ext_serialize__())

    def __str__(self) -> str:
        sizes = "?" if self.shape is None else ", ".join(str(size or "?") for size in self.shape)
        return f"tensor<{dtype_name(self.dtype)}>[{sizes}]"


class TensorScalar(pa.ExtensionScalar):
    """The value of one row of a column of type `TensorType`."""

    def as_py(self, **_: Any) -> Array | None:
        """Return the array of the row, or None if it is missing."""
        if self.value is None:
            return None
        dtype = self.type.dtype
        if self.type.is_dense:
            return array_from_bytes(self.value.as_py(), dtype, self.type.fixed_shape)
        return array_from_bytes(self.value["data"].as_py(), dtype, self.value["shape"].as_py())


def array_from_bytes(data: bytes, dtype: np.dtype[Any], shape: Sequence[int]) -> Array:
    """Return a writable array of a dtype and shape from its bytes."""
    # np.frombuffer refuses dtypes that the buffer protocol does not know.
    return np.frombuffer(bytearray(data), np.uint8).view(dtype).reshape(tuple(shape))


def is_small_float(dtype: np.dtype[Any]) -> bool:
    """Return whether `dtype` is a float of ml_dtypes; float32 holds all values of such types."""
    return is_foreign(dtype) and "float" in dtype.name


def is_foreign(dtype: np.dtype[Any]) -> bool:
    """Return whether `dtype` is from the package ml_dtypes; NumPy files cannot name such types."""
    return dtype.type.__module__.startswith("ml_dtypes")


def little_endian(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return `dtype` with its bytes in little-endian order."""
    return dtype.newbyteorder("<") if dtype.str[0] == ">" else dtype


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the name by which `dtype_of` finds a dtype: ``float32``, ``bfloat16``, ``<U5``."""
    return dtype.str if dtype.kind in "SU" else dtype.name


def dtype_of(name: str) -> np.dtype[Any]:
    """Return the dtype of NumPy or ml_dtypes with a name."""
    try:
        return np.dtype(name)
    except (TypeError, ValueError):
        pass
    try:
        import ml_dtypes
    except ImportError as error:
        raise UsageError(f"dtype {name!r} needs the package ml_dtypes: install it") from error
    found = getattr(ml_dtypes, name, None)
    if not (isinstance(found, type) and issubclass(found, np.generic)):
        raise UsageError(f"{name!r} is not a dtype: use a name such as 'float32' or 'bfloat16'")
    return np.dtype(found)


def item_type(dtype: np.dtype[Any]) -> pa.DataType:
    """Return the Arrow type for one number of an array of `dtype`."""
    return pa.float32() if is_small_float(dtype) else pa.from_numpy_dtype(dtype)


def join_tensor_types(one: TensorType, other: TensorType) -> TensorType | None:
    """Return one type that fits the arrays of two types, or None if no dtype fits both."""
    dtype = join_dtypes(one.dtype, other.dtype)
    return None if dtype is None else TensorType(dtype, join_shapes(one.shape, other.shape))


def join_dtypes(one: np.dtype[Any], other: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return the common dtype of two; of fixed-width texts the wider one; None if they differ."""
    if one.kind == other.kind and one.kind in "SU":
        return max(one, other, key=lambda dtype: dtype.itemsize)
    return one if one == other else None


def join_shapes(one: OpenShape, other: OpenShape) -> OpenShape:
    """Return a shape that fits two shapes: a size, or the rank, is open if they differ in it."""
    if one is None or other is None or len(one) != len(other):
        return None
    return tuple(a if a == b else None for a, b in zip(one, other, strict=True))


def repeated_shape(shape: Shape, rows: int) -> pa.Array:
    """Return a column with the same shape in every row."""
    ends = pa.array(np.arange(rows + 1, dtype=np.int32) * np.int32(len(shape)))
    return pa.ListArray.from_arrays(ends, pa.array(np.tile(shape, rows), pa.int64()))


def varying_storage(data: pa.Array, shapes: pa.Array, missing: BoolArray | None = None) -> pa.Array:
    """Return the Arrow storage of arrays whose shapes vary: a struct of bytes and shape."""
    mask = None if missing is None else pa.array(missing)
    return pa.StructArray.from_arrays([data, shapes], fields=_VARYING, mask=mask)


def tensor_column(values: Sequence[Any], arrow: TensorType) -> pa.Array:
    """Return a column of type `arrow` from Python values."""
    rows: list[Any] = []
    for value in values:
        if value is None:
            rows.append(None)
            continue
        array = np.asarray(value)
        fits = join_shapes(array.shape, arrow.shape) == arrow.shape
        if not fits or not np.can_cast(array.dtype, arrow.dtype):
            raise ValueError(
                f"an array of {array.dtype} and shape {array.shape} does not fit {arrow}"
            )
        data = np.ascontiguousarray(array, arrow.dtype).reshape(-1).view(np.uint8).tobytes()
        rows.append(data if arrow.is_dense else {"data": data, "shape": array.shape})
    return pa.ExtensionArray.from_storage(arrow, pa.array(rows, arrow.storage_type))


def column_arrays(column: pa.ExtensionArray) -> Array:
    """Return a column of tensors as a NumPy array."""
    arrow = column.type
    if arrow.is_dense and not column.null_count:
        nbytes = arrow.nbytes
        buffer = column.storage.buffers()[1]
        data = np.frombuffer(buffer if nbytes and buffer else b"", np.uint8)
        data = data[column.offset * nbytes : (column.offset + len(column)) * nbytes]
        # Arrow's buffers are read-only and need not be aligned.
        values: Array = data.copy().view(arrow.dtype)
        return values.reshape(len(column), *arrow.fixed_shape)
    out: Array = np.empty(len(column), dtype=object)
    for row, value in enumerate(column):
        out[row] = value.as_py()
    return out


# Registers the class: Arrow finds it by the extension name of this instance.
pa.register_extension_type(TensorType("uint8", ()))
