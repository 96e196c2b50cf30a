"""Reads arrays in .npy and .npz files, split by rows; column types come from dtypes and shapes.

A scalar row becomes a scalar if both Arrow and `tf.train.Example` can hold its dtype; any other row
becomes a tensor. The metadata of the Arrow field contains the dtype and the storage of the values
if the Arrow type alone does not state them. While files are compared, every column is a
`TensorType`, also one of single values.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from beam_tfrecord.base.text import counted, not_found
from beam_tfrecord.errors import DataError, SchemaConflict, UsageError
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.tensors import (
    Array,
    Shape,
    TensorType,
    dtype_name,
    dtype_of,
    is_foreign,
    is_small_float,
    join_tensor_types,
    little_endian,
    repeated_shape,
    varying_storage,
)
from beam_tfrecord.options.sources import NumpyOptions
from beam_tfrecord.sources.base import InputFile, Scan
from beam_tfrecord.sources.numpy_files import FAULTS, ArrayReader, StoredArray, stored_arrays
from beam_tfrecord.sources.typed_files import Batches, OpenTable, Piece, TypedFiles

# Largest size of a batch in bytes, because rows of arrays can be large.
BATCH_BYTES = 16 * 2**20
# Estimated bytes of a feature in addition to its values: name, kind, lengths, shape and dtype.
_FEATURE_BYTES = 64
# Examples, with names and shapes, must be shorter than 2 GiB.
_MAX_ROW_BYTES = 2**31 - 2**16
_CHOICES = {"example": ("row", "array"), "store": ("bytes", "values")}
# The units of time that both NumPy and Arrow have.
_UNITS = ("s", "ms", "us", "ns")
# The kinds of NumPy's own dtypes whose bytes mean the same on all machines.
_PLAIN_KINDS = "biufcSUMm"
_MAX_ITEM_BYTES = {"f": 8, "c": 16}
_TEXTS = {"U": pa.string(), "S": pa.binary()}


@dataclasses.dataclass(frozen=True)
class Numpy(NumpyOptions, TypedFiles):
    """NumPy arrays in .npy and .npz files; a piece is a range of rows.

    The array of an .npy file becomes the column ``data``, and each array of an .npz file a column
    with the name of the array. Each field of a structured dtype becomes a column.
    """

    kind: ClassVar[str] = "numpy"
    title: ClassVar[str] = "NumPy"
    suffixes: ClassVar[tuple[str, ...]] = (".npy", ".npz")
    faults = FAULTS
    converts: ClassVar[bool] = True
    if_types_differ: ClassVar[str] = "save both with one dtype"

    def __post_init__(self) -> None:
        super().__post_init__()
        for option, known in _CHOICES.items():
            if (value := getattr(self, option)) not in (None, *known):
                raise UsageError(
                    f"--{option} {value!r} has no meaning for arrays: "
                    f"choose {' or '.join(known)}, or leave it out"
                )
        types_of(self.types)

    def files(self) -> Iterator[InputFile]:
        files = list(super().files())
        if len(files) > 1 and self.example is None:
            raise UsageError(
                f"{files[0].name} and {files[1].name} are several files of arrays: pass --example "
                "row for an example from each row, or --example array for one from each file"
            )
        return iter(files)

    def open(self, raw: pa.NativeFile, file: InputFile) -> OpenTable:
        arrays = stored_arrays(raw, file)
        if self.example == "array":
            arrays = [dataclasses.replace(array, shape=(1, *array.shape)) for array in arrays]
        known = [column for array in arrays for column in columns_of(array)]
        wanted = [column for column in known if self.reads(column.name)]
        columns = checked_columns(wanted, file.name, types_of(self.types))
        used = {column.array for column in columns.values()}
        read = [array for array in arrays if array.name in used]
        rows, row_bytes = common_rows(read or arrays, file.name), sum(one.row_bytes for one in read)
        if row_bytes > _MAX_ROW_BYTES:
            raise DataError(
                f"a row of {file.name} has {row_bytes:,} bytes, more than an example can hold: cut "
                "its arrays into smaller rows, or leave some out with --columns"
            )
        types = {name: TensorType(one.dtype, one.shape) for name, one in columns.items()}
        schema = [pa.field(one.name, types.get(one.name, pa.null())) for one in known]
        pieces = self._pieces(file, read, rows, row_bytes + _FEATURE_BYTES * len(columns))
        return OpenTable(
            pa.schema(schema), pieces, functools.partial(self._read, raw, file, read, columns)
        )

    def _pieces(
        self, file: InputFile, read: Sequence[StoredArray], rows: int, record_bytes: int
    ) -> Iterator[Piece]:
        """Yield the units of a file."""
        row_bytes = sum(array.row_bytes for array in read)
        is_one = any(array.is_one_unit for array in read)
        step = max(1, rows if is_one else self.unit_bytes // max(1, row_bytes))
        for start in range(0, rows, step):
            count = min(step, rows - start)
            nbytes = file.bytes if is_one else count * row_bytes
            encoded = max(1, count * record_bytes)
            yield Piece(start, start + count, count, nbytes, count * row_bytes, encoded)

    def merge(self, inferences: Iterable[Scan]) -> pa.Schema:
        scans = list(inferences)
        names = dict.fromkeys(name for scan in scans for name in scan.detail.names)
        if unknown := [name for name in self.types or () if name not in names]:
            raise UsageError(not_found(unknown[0], names, of="--types"))
        return pa.schema(
            field_of(field.name, field.type, store=self.store)
            if isinstance(field.type, TensorType)
            else field
            for field in super().merge(scans)
        )

    def _read(
        self,
        raw: pa.NativeFile,
        file: InputFile,
        arrays: Sequence[StoredArray],
        columns: Mapping[str, ArrayColumn],
        start: int,
        stop: int,
        fields: pa.Schema,
        batch_rows: int,
    ) -> Batches:
        for field in fields:
            self._check_type(columns[field.name], field, file)
        used = {columns[name].array for name in fields.names}
        readers = {one.name: ArrayReader(raw, one) for one in arrays if one.name in used}
        row_bytes = sum(array.row_bytes for array in arrays)
        step = max(1, min(batch_rows, BATCH_BYTES // max(1, row_bytes)))
        for first in range(start, stop, step):
            last = min(stop, first + step)
            blocks = {name: reader.rows(first, last) for name, reader in readers.items()}
            found = []
            for field in fields:
                column = columns[field.name]
                found.append(arrow_array(column.of_block(blocks[column.array]), field.type))
            # One column more keeps the number of rows where there are no others.
            yield pa.RecordBatch.from_arrays([*found, pa.nulls(last - first)], [*fields.names, ""])

    def _check_type(self, column: ArrayColumn, field: pa.Field, file: InputFile) -> None:
        """Check that a column of the schema has the type that follows from that of a file."""
        of = tensor = TensorType(column.dtype, column.shape)
        if isinstance(field.type, TensorType):
            tensor = join_tensor_types(of, field.type) or of
        own = field_of(field.name, of, store=self.store).type
        if field_of(field.name, tensor, store=self.store).type != field.type:
            raise SchemaConflict(
                f"column {field.name!r} is {own} in {file.name} but {field.type} in the schema: "
                f"change it to {own} there, or convert it with --map"
            )


@dataclasses.dataclass(frozen=True)
class ArrayColumn:
    """A column: an array, or a field of an array with a structured dtype."""

    name: str
    array: str
    fields: tuple[str, ...]
    dtype: np.dtype[Any]
    shape: Shape

    def of_block(self, block: Array) -> Array:
        """Return the values of this column in a block of rows of its array."""
        for field in self.fields:
            block = block[field]
        # For raw bytes, the dtype of the file is not the dtype of the column.
        return block.view(self.dtype) if block.dtype.kind == "V" else block


def types_of(types: Mapping[str, str] | None) -> dict[str, np.dtype[Any]]:
    """Return the dtypes in the option ``types``, by column."""
    return {name: dtype_of(text) for name, text in (types or {}).items()}


def checked_columns(
    columns: Iterable[ArrayColumn], shown: str, types: Mapping[str, np.dtype[Any]]
) -> dict[str, ArrayColumn]:
    """Return the columns to read of a file by name, with the dtypes of the option ``types``."""
    typed = {one.name: _typed(one, types.get(one.name), shown) for one in columns}
    for name, column in typed.items():
        if refusal := _refusal_of(column.dtype):
            raise DataError(f"array {name!r} of {shown} holds {refusal}")
    return typed


def _refusal_of(dtype: np.dtype[Any]) -> str | None:
    """Return why a dtype cannot be stored and what to do, for a message; None if it can be."""
    if dtype.kind == "O":
        return (
            "Python objects, which only pickle could read: save it as an array of one dtype "
            "(text as astype('U'))"
        )
    if is_foreign(dtype):
        return None
    if dtype.kind == "V":
        return f"raw bytes ({dtype.str}) without a type: name it with --types, as data=bfloat16"
    if dtype.itemsize > _MAX_ITEM_BYTES.get(dtype.kind, dtype.itemsize):
        return f"{dtype.name}, which differs from machine to machine: cast it to a smaller type"
    if dtype.kind not in _PLAIN_KINDS:
        return f"values of dtype {dtype}: cast it to numbers or to astype('U') first"
    return None


def columns_of(array: StoredArray, fields: tuple[str, ...] = ()) -> Iterator[ArrayColumn]:
    """Yield the column of an array, or of each of its fields, of which `fields` leads to one."""
    dtype, shape = array.dtype, array.shape[1:]
    for field in fields:
        dtype = dtype[field]
        if dtype.subdtype is not None:
            dtype, inner = dtype.subdtype
            shape = (*shape, *inner)
    if dtype.names is not None:
        for name in dtype.names:
            yield from columns_of(array, (*fields, name))
    else:
        # The array of an .npy file has no name, so only the fields name the column.
        parts = fields if array.is_alone and fields else (array.name, *fields)
        yield ArrayColumn("/".join(parts), array.name, fields, little_endian(dtype), shape)


def _typed(column: ArrayColumn, dtype: np.dtype[Any] | None, shown: str) -> ArrayColumn:
    """Return a column with the dtype that the option ``types`` has for its raw bytes."""
    if dtype is None:
        return column
    if column.dtype.kind != "V" or column.dtype.itemsize != dtype.itemsize:
        raise UsageError(
            f"array {column.name!r} of {shown} has values of {column.dtype.str}, which "
            f"--types cannot make {dtype_name(dtype)}: --types applies only to raw bytes (V) of "
            "the same item size"
        )
    return dataclasses.replace(column, dtype=dtype)


def field_of(name: str, tensor: TensorType, *, store: str) -> pa.Field:
    """Return the Arrow field of a column."""
    dtype = tensor.dtype
    arrow = _scalar_type(dtype, store) if tensor.shape == () else None
    if arrow is None:
        as_values = store == "values" and tensor.is_number
        return Feature(name, tensor, store="values" if as_values else "auto").to_arrow()
    if pa.types.is_float64(arrow):
        kept = "auto" if store == "values" else "bytes"
        return Feature(name, arrow, store=kept).to_arrow()
    is_stated = not is_small_float(dtype) and (
        pa.types.is_temporal(arrow) if dtype.kind in "Mm" else dtype.kind not in "SU"
    )
    return Feature(name, arrow, dtype=None if is_stated else dtype_name(dtype)).to_arrow()


def _scalar_type(dtype: np.dtype[Any], store: str) -> pa.DataType | None:
    """Return the Arrow type of single values; None if only bytes represent them exactly."""
    if dtype.kind in _TEXTS:
        return _TEXTS[dtype.kind]
    if dtype.kind in "Mm":
        unit, step = np.datetime_data(dtype)
        if unit not in _UNITS or step != 1:
            return pa.int64()
        return pa.timestamp(unit) if dtype.kind == "M" else pa.duration(unit)
    if is_small_float(dtype):
        return pa.float32() if store == "values" else None
    has_bytes_alone = dtype.kind == "c" or (dtype == np.uint64 and store != "values")
    return None if is_foreign(dtype) or has_bytes_alone else pa.from_numpy_dtype(dtype)


def arrow_array(values: Array, arrow: pa.DataType) -> pa.Array:
    """Return rows of a column, shape ``[rows, …]``, as an Arrow array of a type."""
    if isinstance(arrow, TensorType):
        return _tensors(values, arrow)
    values = np.require(values, little_endian(values.dtype), ["C", "A"])
    match values.dtype.kind:
        # Arrow's own conversion of text ends at the first zero, even if other bytes follow.
        case "S":
            return pa.array(values.tolist(), arrow)
        case "U":
            # The encoder rejects the rows that are not valid Unicode.
            texts = [text.encode("utf-8", "surrogatepass") for text in values.tolist()]
            return pa.array(texts, pa.binary()).cast(arrow, safe=False)
        case "M" | "m":
            missing = np.isnat(values)
            stored = pa.array(values.view(np.int64), mask=missing if missing.any() else None)
            return stored.view(arrow)
    return pa.array(values.astype(np.float32) if is_small_float(values.dtype) else values)


def _tensors(block: Array, arrow: TensorType) -> pa.Array:
    """Return a column of type `arrow` with one row for each entry along an array's first axis.

    A block in C order with the dtype of `arrow` is not copied.
    """
    shape, rows = block.shape[1:], len(block)
    data = np.ascontiguousarray(block, arrow.dtype).reshape(-1).view(np.uint8)
    row_bytes = math.prod(shape) * arrow.dtype.itemsize
    if arrow.is_dense:
        storage = pa.Array.from_buffers(pa.binary(row_bytes), rows, [None, pa.py_buffer(data)])
    else:
        offsets = np.arange(rows + 1, dtype=np.int64) * row_bytes
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        values = pa.Array.from_buffers(pa.large_binary(), rows, buffers)
        storage = varying_storage(values, repeated_shape(shape, rows))
    return pa.ExtensionArray.from_storage(arrow, storage)


# A limit, because a tiny file can claim any number of zero-size rows, as in shape (n, 0).
MAX_EMPTY_ROWS = 2**24


def common_rows(arrays: Sequence[StoredArray], shown: str) -> int:
    """Return the common number of rows of arrays, the length of their first axes."""
    first = arrays[0]
    for array in arrays:
        problem = ""
        if not array.shape:
            problem = "is a single value and has no rows"
        elif array.shape[0] != first.shape[0]:
            rows = counted(array.shape[0], "row")
            problem = f"has {rows} but {first.name!r} has {first.shape[0]:,}"
        if problem:
            raise DataError(
                f"array {array.name!r} of {shown} {problem}: leave it out with --columns, "
                "or pass --example array"
            )
    if first.shape[0] > MAX_EMPTY_ROWS and not any(array.nbytes for array in arrays):
        raise DataError(
            f"array {first.name!r} of {shown} has shape {reprlib.repr(first.shape)}, more "
            f"than {MAX_EMPTY_ROWS:,} rows without bytes: correct it, or pass --example array"
        )
    return first.shape[0]
