"""The NumPy source: it reads .npy and .npz files, cut into units, which are ranges of rows.

While the files are compared, every column is a `TensorType`, also one of single values. What a
column of the schema is follows from its dtype and shape in all files.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

import pyarrow as pa

from beam_tfrecord.base.text import not_found
from beam_tfrecord.errors import DataError, SchemaConflict, UsageError
from beam_tfrecord.features.tensors import TensorType, join_tensor_types
from beam_tfrecord.options.sources import NumpyOptions
from beam_tfrecord.sources.base import InputFile, Scan
from beam_tfrecord.sources.numpy.columns import (
    Column,
    arrow_array,
    checked_columns,
    columns_of,
    common_rows,
    field_of,
    types_of,
)
from beam_tfrecord.sources.numpy.files import FAULTS, ArrayReader, StoredArray, stored_arrays
from beam_tfrecord.sources.typed_files import OpenTable, Part, TypedFiles

# Largest size of a batch in bytes, because rows of arrays can be large.
BATCH_BYTES = 16 * 2**20
# Estimated bytes of a feature in addition to its values: name, kind, lengths, shape and dtype.
_FEATURE_BYTES = 64
# Examples, with names and shapes, must be shorter than 2 GiB.
_MAX_ROW_BYTES = 2**31 - 2**16
_CHOICES = {"example": ("row", "array"), "store": ("bytes", "values")}


@dataclasses.dataclass(frozen=True)
class Numpy(NumpyOptions, TypedFiles):
    """NumPy arrays in .npy and .npz files; a part is a range of rows.

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
        parts = self._parts(file, read, rows, row_bytes + _FEATURE_BYTES * len(columns))
        return OpenTable(
            pa.schema(schema), parts, functools.partial(self._read, raw, file, read, columns)
        )

    def _parts(
        self, file: InputFile, read: Sequence[StoredArray], rows: int, record_bytes: int
    ) -> Iterator[Part]:
        """Yield the units of a file."""
        row_bytes = sum(array.row_bytes for array in read)
        is_one = any(array.is_one_unit for array in read)
        step = max(1, rows if is_one else self.unit_bytes // max(1, row_bytes))
        for start in range(0, rows, step):
            count = min(step, rows - start)
            nbytes = file.bytes if is_one else count * row_bytes
            encoded = max(1, count * record_bytes)
            yield Part(start, start + count, count, nbytes, count * row_bytes, encoded)

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
        columns: Mapping[str, Column],
        start: int,
        stop: int,
        fields: pa.Schema,
        batch_rows: int,
    ) -> Iterator[pa.RecordBatch]:
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

    def _check_type(self, column: Column, field: pa.Field, file: InputFile) -> None:
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
