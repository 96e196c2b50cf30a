"""The NumPy source: it reads .npy and .npz files, cut into units, which are ranges of rows."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS, Batch, Origin
from beam_tfrecord.errors import DataError, SchemaConflict, UsageError
from beam_tfrecord.features.tensors import (
    Array,
    TensorType,
    dtype_name,
    join_dtypes,
    join_shapes,
    join_tensor_types,
    tensor_block,
)
from beam_tfrecord.options.sources import NumpyOptions
from beam_tfrecord.sources.base import Chunk, InputFile, Scan, Unit
from beam_tfrecord.sources.files import FileSource, as_paths, list_files
from beam_tfrecord.sources.hive import with_partitions
from beam_tfrecord.sources.merging import ByFile, fields_inside, join_by_name
from beam_tfrecord.sources.numpy.columns import (
    Column,
    arrow_array,
    checked_columns,
    columns_of,
    common_rows,
    field_of,
    plain_field,
    types_of,
)
from beam_tfrecord.sources.numpy.files import (
    ArrayReader,
    StoredArray,
    as_data_errors,
    stored_arrays,
)
from beam_tfrecord.tables import not_found

SUFFIXES = (".npy", ".npz")

# Largest size of a batch in bytes, because rows of arrays can be large.
BATCH_BYTES = 16 * 2**20
# Estimated bytes of a feature in addition to its values: name, kind, lengths, shape and dtype.
_FEATURE_BYTES = 64
# Examples, with names and shapes, must be shorter than 2 GiB.
_MAX_ROW_BYTES = 2**31 - 2**16
_OF_PLAIN = ("shape", "data")
_CHOICES = {"example": ("row", "array"), "store": ("bytes", "values"), "layout": ("plain",)}


class _Contents(NamedTuple):
    """The result of the scan of a file; `names` includes the columns that are not read."""

    arrays: tuple[StoredArray, ...]
    columns: tuple[Column, ...]
    rows: int
    names: tuple[str, ...]

    @property
    def row_bytes(self) -> int:
        return sum(array.row_bytes for array in self.arrays)


@dataclasses.dataclass(frozen=True)
class Numpy(NumpyOptions, FileSource):
    """NumPy arrays in .npy and .npz files.

    The array of an .npy file becomes the column ``data``, and each array of an .npz file a column
    with the name of the array. Each field of a structured dtype becomes a column.
    """

    kind: ClassVar[str] = "numpy"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES
    detail_type: ClassVar[Any] = _Contents
    infers_from_scans: ClassVar[bool] = True
    quick_scans: ClassVar[int] = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        for option, known in _CHOICES.items():
            if (value := getattr(self, option)) not in (None, *known):
                raise UsageError(
                    f"--{option} {value!r} has no meaning for arrays: "
                    f"choose {' or '.join(known)}, or leave it out"
                )
        if self.layout == "plain" and self.store != "bytes":
            raise UsageError("--layout plain keeps bytes: leave out --store values")
        types_of(self.types)

    def files(self) -> Iterator[InputFile]:
        files = list(list_files(as_paths(self.paths), SUFFIXES))
        if len(files) > 1 and self.example is None:
            raise UsageError(
                f"{files[0].name} and {files[1].name} are several files of arrays: pass --example "
                "row for an example from each row, or --example array for one from each file"
            )
        return iter(files)

    def scan(self, chunk: Chunk) -> Scan:
        file, arrays = chunk.file, stored_arrays(chunk.file)
        if self.example == "array":
            arrays = [dataclasses.replace(array, shape=(1, *array.shape)) for array in arrays]
        known = [column for array in arrays for column in columns_of(array)]
        wanted = [one for one in known if self.columns is None or one.name in self.columns]
        columns = checked_columns(wanted, file.name, types_of(self.types))
        used = {column.array for column in columns}
        read = tuple(array for array in arrays if array.name in used)
        rows = common_rows(read or arrays, file.name)
        if self.layout == "plain" and len(columns) != 1:
            raise UsageError(
                f"--layout plain takes one array but {file.name} has {len(columns)} columns: "
                "choose one with --columns"
            )
        names = tuple(column.name for column in known)
        contents = _Contents(read, columns, rows, names)
        if contents.row_bytes > _MAX_ROW_BYTES:
            raise DataError(
                f"a row of {file.name} has {contents.row_bytes:,} bytes, more than an example can "
                "hold: cut its arrays into smaller rows, or leave some out with --columns"
            )
        return Scan(chunk, contents)

    def units(self, scans: Sequence[Scan]) -> list[Unit]:
        (scan,) = scans
        file, contents = scan.chunk.file, scan.detail
        rows, row_bytes = contents.rows, contents.row_bytes
        is_compressed = any(array.member is not None for array in contents.arrays)
        unit_rows = max(1, rows if is_compressed else self.unit_bytes // max(1, row_bytes))
        starts = range(0, max(1, rows), unit_rows)
        record_bytes = row_bytes + _FEATURE_BYTES * len(contents.columns)
        units = []
        for index, start in enumerate(starts):
            stop = min(rows, start + unit_rows)
            name, count = file.unit_name(index, len(starts)), stop - start
            nbytes = file.bytes if is_compressed else count * row_bytes
            size, detail = max(1, count * record_bytes), contents._replace(names=())
            units.append(Unit(name, file, index, start, stop, count, nbytes, size, detail))
        return units

    def merge(self, inferences: Iterable[Scan]) -> pa.Schema:
        scans = sorted(inferences, key=lambda scan: scan.chunk.file.name)
        names = dict.fromkeys(name for scan in scans for name in scan.detail.names)
        if unknown := [name for name in self.types or () if name not in names]:
            raise UsageError(not_found(unknown[0], names, of="--types"))
        found = [(scan.chunk.file, self._by_name(scan.detail)) for scan in scans]
        columns = self.columns
        if columns is not None and self.layout == "plain":
            columns = [*_OF_PLAIN, *(name for name in columns if name not in names)]
        return join_by_name(found, self._joined, columns=columns, union=self.union)

    def _by_name(self, contents: _Contents) -> dict[str, Any]:
        """Return the columns of a file; one that is not read is None."""
        if self.layout == "plain":
            return dict.fromkeys(_OF_PLAIN, contents.columns[0])
        return dict.fromkeys(contents.names) | {column.name: column for column in contents.columns}

    def _joined(self, name: str, having: ByFile[Column]) -> pa.Field:
        """Return the field of a column in many files; sizes that differ become None."""
        is_plain, (first, joined) = self.layout == "plain", having[0]
        for file, column in having[1:]:
            dtype = join_dtypes(joined.dtype, column.dtype)
            if dtype is None or (is_plain and column.dtype != joined.dtype):
                raise SchemaConflict(
                    f"column {column.name!r} is {dtype_name(column.dtype)} in {file.name} but "
                    f"{dtype_name(joined.dtype)} in {first.name}: save both with one dtype"
                )
            shape = join_shapes(joined.shape, column.shape)
            joined = dataclasses.replace(joined, dtype=dtype, shape=shape)
        return plain_field(name, joined) if is_plain else field_of(joined, store=self.store)

    def read(
        self, unit: Unit, schema: pa.Schema, *, batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Batch]:
        contents: _Contents = unit.detail
        origin = Origin(unit.name, unit.index, 0, address=(f"{unit.file.name} row ", unit.start))
        columns = self._wanted(unit, schema)
        step = max(1, min(batch_rows, BATCH_BYTES // max(1, contents.row_bytes)))
        with contextlib.ExitStack() as stack:
            readers = {
                array.name: stack.enter_context(contextlib.closing(ArrayReader(unit.file, array)))
                for array in contents.arrays
            }
            # A unit without rows has a batch, too.
            for start in range(unit.start, max(unit.stop, unit.start + 1), step):
                stop = min(unit.stop, start + step)
                blocks = {name: reader.rows(start, stop) for name, reader in readers.items()}
                # Without a column, the number of rows would be lost.
                arrays: dict[str, pa.Array] = {"\0rows": pa.nulls(stop - start)}
                for column in columns:
                    with as_data_errors(f"array {column.name!r} of {unit.file.name}"):
                        arrays |= self._arrays(column, blocks[column.array], schema)
                data = with_partitions(pa.RecordBatch.from_pydict(arrays), unit.file, schema)
                yield Batch(data, dataclasses.replace(origin, rows=start - unit.start))

    def _wanted(self, unit: Unit, schema: pa.Schema) -> list[Column]:
        """Return the columns of the file of a unit that are in `schema`."""
        inside: dict[str, Column] = {column.name: column for column in unit.detail.columns}
        if self.layout == "plain":
            return list(inside.values())
        fields = fields_inside(schema, inside, unit.file, union=self.union)
        for field in fields:
            column = inside[field.name]
            own = joined = field_of(column, store=self.store).type
            if isinstance(field.type, TensorType):
                joined = join_tensor_types(TensorType(column.dtype, column.shape), field.type)
            if joined != field.type:
                raise SchemaConflict(
                    f"column {field.name!r} is {own} in {unit.file.name} but {field.type} in the "
                    f"schema: change it to {own} there, or convert it with --map"
                )
        return [inside[field.name] for field in fields]

    def _arrays(self, column: Column, block: Array, schema: pa.Schema) -> dict[str, pa.Array]:
        """Return the Arrow columns of a column in a block of rows of its array."""
        values = column.of_block(block)
        if self.layout != "plain":
            return {column.name: arrow_array(values, schema.field(column.name).type)}
        tensor = tensor_block(values, TensorType(column.dtype, None)).storage
        return {name: tensor.field(name) for name in _OF_PLAIN}
