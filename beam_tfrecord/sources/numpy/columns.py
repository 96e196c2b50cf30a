"""Converts NumPy arrays to columns (names, types, values), and merges them over several files.

A scalar row becomes a scalar if both Arrow and `tf.train.Example` can hold its dtype; any other row
becomes a tensor. The metadata of the Arrow field contains the dtype and the storage of the
values if the Arrow type alone does not state them.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord.batch import Origin, Reject
from beam_tfrecord.errors import DataError, SchemaConflict, UsageError
from beam_tfrecord.features.feature import make_field
from beam_tfrecord.features.tensors import (
    Array,
    OpenShape,
    TensorType,
    dtype_name,
    dtype_of,
    is_small_float,
    join_dtypes,
    join_shapes,
    little_endian,
    refusal_of,
    tensor_block,
)
from beam_tfrecord.sizes import counted
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.merging import ByFile
from beam_tfrecord.sources.numpy.files import StoredArray, check_shape, is_in_memory, shown_file
from beam_tfrecord.tables import not_found, repeated

# The units of time that both NumPy and Arrow have.
_UNITS = ("s", "ms", "us", "ns")
_LAST_CHARACTER = 0x10FFFF
_PLAIN = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "float16")


@dataclasses.dataclass(frozen=True)
class Column:
    """A column: an array, or a field of an array with a structured dtype."""

    name: str
    array: str
    fields: tuple[str, ...]
    dtype: np.dtype[Any]
    shape: OpenShape

    def of_block(self, block: Array) -> Array:
        """Return the values of this column in a block of rows of its array."""
        for field in self.fields:
            block = block[field]
        # For raw bytes, the dtype of the file is not the dtype of the column.
        return block.view(self.dtype) if block.dtype.kind == "V" else block


def types_of(types: Mapping[str, str] | None) -> dict[str, np.dtype[Any]]:
    """Return the dtypes in the option ``types``, by column."""
    found = {}
    for name, text in (types or {}).items():
        found[name] = dtype_of(text)
        if refusal_of(found[name]):
            raise UsageError(
                f"--types cannot make {text!r} of the raw bytes of {name!r}: "
                f"name one dtype of numbers, text or times, as {name}=bfloat16"
            )
    return found


def names_of(arrays: Sequence[StoredArray]) -> tuple[str, ...]:
    """Return the names of all columns of the arrays of a file, in order."""
    return tuple(column.name for array in arrays for column in _flattened(array.dtype, array))


def columns_of(
    arrays: Sequence[StoredArray],
    file: InputFile,
    *,
    types: Mapping[str, np.dtype[Any]],
    as_row: bool,
    wanted: Sequence[str] | None = None,
) -> tuple[Column, ...]:
    """Return the columns of the arrays of a file, in order."""
    columns = [
        _typed(column, types.get(column.name), file)
        for array in arrays
        for column in _flattened(
            array.dtype, array, shape=array.shape if as_row else array.shape[1:]
        )
        if wanted is None or column.name in wanted
    ]
    for column in columns:
        if refusal := refusal_of(column.dtype):
            raise DataError(f"array {column.name!r} of {file.name} holds {refusal}")
        _check_axes(column, file)
    if doubled := repeated(column.name for column in columns):
        raise DataError(
            f"{file.name} has two columns named {doubled[0]!r}: rename an array or a field"
        )
    return tuple(columns)


def _flattened(
    dtype: np.dtype[Any],
    array: StoredArray,
    fields: tuple[str, ...] = (),
    shape: tuple[int, ...] = (),
) -> Iterator[Column]:
    """Yield the column of a dtype, or one for each of its fields."""
    if dtype.subdtype is not None:
        dtype, inner = dtype.subdtype
        yield from _flattened(dtype, array, fields, (*shape, *inner))
    elif dtype.names is not None:
        for name in dtype.names:
            yield from _flattened(dtype[name], array, (*fields, name), shape)
    else:
        # The array of an .npy file has no name, so only the fields name the column.
        parts = fields if array.is_alone and fields else (array.name, *fields)
        yield Column("/".join(parts), array.name, fields, little_endian(dtype), shape)


def _check_axes(column: Column, file: InputFile) -> None:
    """Check that several rows of a column can be stacked into one NumPy array."""
    # Within one file, no size is None.
    sizes = [size for size in column.shape or () if size is not None]
    try:
        check_shape((1, *sizes), column.dtype)
    except ValueError as error:
        raise DataError(
            f"array {column.name!r} of {file.name} is too large to be stacked with other rows "
            f"({error}): reshape it, or leave it out with --columns"
        ) from error


def _typed(column: Column, dtype: np.dtype[Any] | None, file: InputFile) -> Column:
    """Return a column with the dtype that the option ``types`` has for its raw bytes."""
    if dtype is None:
        return column
    if column.dtype.kind != "V" or column.dtype.itemsize != dtype.itemsize:
        raise UsageError(
            f"array {column.name!r} of {file.name} has values of {column.dtype.str}, which "
            f"--types cannot make {dtype_name(dtype)}: --types applies only to raw bytes (V) of "
            "the same item size"
        )
    return dataclasses.replace(column, dtype=dtype)


def field_of(column: Column, *, store: str) -> pa.Field:
    """Return the Arrow field of a column."""
    dtype, shape = column.dtype, column.shape
    arrow = _scalar_type(dtype, store) if shape == () else None
    if arrow is None:
        arrow = TensorType(dtype, shape)
        as_values = store == "values" and arrow.is_number
        return make_field(column.name, arrow, store="values" if as_values else "auto")
    if pa.types.is_float64(arrow):
        return make_field(column.name, arrow, store="auto" if store == "values" else "bytes")
    is_stated = not is_small_float(dtype) and (
        pa.types.is_temporal(arrow) if dtype.kind in "Mm" else dtype.kind not in "SU"
    )
    return make_field(column.name, arrow, dtype=None if is_stated else dtype_name(dtype))


def _scalar_type(dtype: np.dtype[Any], store: str) -> pa.DataType | None:
    """Return the Arrow type of single values; None if only bytes represent them exactly."""
    if dtype.kind == "U":
        return pa.string()
    if dtype.kind == "S":
        return pa.binary()
    if dtype.kind in "Mm":
        unit, step = np.datetime_data(dtype)
        if unit not in _UNITS or step != 1:
            return pa.int64()
        return pa.timestamp(unit) if dtype.kind == "M" else pa.duration(unit)
    if dtype.name in (*_PLAIN, "float32", "float64") or (dtype.name, store) == ("uint64", "values"):
        return pa.from_numpy_dtype(dtype)
    return pa.float32() if is_small_float(dtype) and store == "values" else None


def plain_fields(arrow: pa.DataType) -> list[pa.Field]:
    """Return the fields of ``--layout plain``: the bytes and the shape of each row's array."""
    sizes = arrow.shape if isinstance(arrow, TensorType) else ()
    rank = -1 if sizes is None else len(sizes)
    shape = pa.list_(pa.int64(), rank) if rank > 0 else pa.list_(pa.int64())
    return [pa.field("shape", shape), pa.field("data", pa.large_binary())]


def plain_arrays(values: Array, dtype: npt.DTypeLike) -> dict[str, pa.Array]:
    """Return the columns of ``--layout plain`` for a block of values, shape ``[rows, …]``."""
    tensor = tensor_block(values, TensorType(dtype, None)).storage
    return {"shape": tensor.field("shape"), "data": tensor.field("data")}


def arrow_array(values: Array, field: pa.Field) -> pa.Array:
    """Return rows of a column, shape ``[rows, …]``, as an Arrow array of the type of the field."""
    arrow = field.type
    if isinstance(arrow, TensorType):
        return tensor_block(values, arrow)
    values = np.require(values, little_endian(values.dtype), ["C", "A"])
    if values.dtype.kind in "SU":
        return _text_array(values, arrow)
    if values.dtype.kind in "Mm":
        missing = np.isnat(values)
        stored = pa.array(values.view(np.int64), mask=missing if missing.any() else None)
        return stored.view(arrow)
    if is_small_float(values.dtype):
        values = values.astype(np.float32)
    return pa.array(values)


def _text_array(values: Array, arrow: pa.DataType) -> pa.Array:
    """Return text or bytes of a fixed width without trailing NULs.

    Arrow's own conversion ends at the first zero, even if other bytes follow.
    """
    if values.dtype.kind == "U":
        if _is_plain_text(values):
            return pa.array(values, pa.string())
        # The encoder rejects the rows that are not valid Unicode.
        found = [text.encode("utf-8", "surrogatepass") for text in values.tolist()]
        return pa.array(found, pa.binary()).cast(arrow, safe=False)
    width = values.dtype.itemsize
    data = values.view(np.uint8).reshape(len(values), width)
    filled = data[:, ::-1] != 0
    ends = np.where(filled.any(axis=1), width - filled.argmax(axis=1), 0) if width else 0
    lengths = np.broadcast_to(ends, len(values)).astype(np.int64)
    used = data[np.arange(width) < lengths[:, None]]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(used)]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def _is_plain_text(values: Array) -> bool:
    """Return whether text has neither zeros inside nor surrogates."""
    if not values.size or not values.dtype.itemsize:
        return True
    codes = values.view(np.uint32).reshape(len(values), -1)
    if codes.max() > _LAST_CHARACTER:
        raise ValueError("text with code points above U+10FFFF")
    is_inside_zero = (codes[:, :-1] == 0) & (codes[:, 1:] != 0)
    return not (is_inside_zero.any() or ((codes >= 0xD800) & (codes <= 0xDFFF)).any())


# A limit, because a tiny file can claim any number of zero-size rows, as in shape (n, 0).
MAX_EMPTY_ROWS = 2**24


def common_rows(arrays: Sequence[StoredArray], file: InputFile) -> int:
    """Return the common number of rows of arrays, the length of their first axes."""
    shown, is_here = shown_file(file).name, is_in_memory(file)
    leave_out = "out" if is_here else "out with --columns"
    as_row = "example='array'" if is_here else "--example array"
    for array in arrays:
        if not array.shape:
            raise DataError(
                f"array {array.name!r} of {shown} is a single value and has no rows: "
                f"pass {as_row}, or leave it {leave_out}"
            )
    for array in arrays[1:]:
        if array.shape[0] != arrays[0].shape[0]:
            raise DataError(
                f"array {array.name!r} of {shown} has {counted(array.shape[0], 'row')} but "
                f"{arrays[0].name!r} has {arrays[0].shape[0]:,}: make them equal, leave one "
                f"{leave_out}, or pass {as_row}"
            )
    rows = arrays[0].shape[0] if arrays else 0
    if rows > MAX_EMPTY_ROWS and not any(array.nbytes for array in arrays):
        raise DataError(
            f"array {arrays[0].name!r} of {shown} has shape {reprlib.repr(arrays[0].shape)}, more "
            f"than {MAX_EMPTY_ROWS:,} rows without bytes: correct it, or pass {as_row}"
        )
    return rows


def check_typed(types: Mapping[str, str] | None, names: Collection[str]) -> None:
    """Check that the input has the columns of the option ``types``."""
    if unknown := [name for name in types or () if name not in names]:
        raise UsageError(not_found(unknown[0], names, of="--types"))


def joined_column(name: str, having: ByFile[Column], *, widen: bool) -> Column:
    """Return the common description of a column in many files; sizes that differ become None."""
    first, joined = having[0]
    for file, column in having[1:]:
        dtype = join_dtypes(joined.dtype, column.dtype)
        if dtype is None or not (widen or column.dtype == joined.dtype):
            raise SchemaConflict(
                f"column {name!r} is {dtype_name(column.dtype)} in {file.name} but "
                f"{dtype_name(joined.dtype)} in {first.name}: save both with one dtype"
            )
        shape = join_shapes(joined.shape, column.shape)
        joined = dataclasses.replace(joined, dtype=dtype, shape=shape)
    return joined


def can_read_as(wanted: pa.DataType, column: Column, own: pa.DataType) -> bool:
    """Return whether a column, whose type is `own`, can be read as the type `wanted`."""
    if not isinstance(wanted, TensorType):
        return bool(wanted == own)
    return (
        join_dtypes(wanted.dtype, column.dtype) == wanted.dtype
        and join_shapes(wanted.shape, column.shape) == wanted.shape
    )


def too_large(origin: Origin, row: int, row_bytes: int) -> Reject:
    """Return the reject for a row of a unit that is too large for an example."""
    where = origin.address_of(row)
    message = (
        f"{where} has {row_bytes:,} bytes, more than an example can hold: "
        "cut the array into smaller rows"
    )
    return Reject(origin.unit, row, "", "too-large", message, address=where)
