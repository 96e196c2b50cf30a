"""The NumPy source: it reads .npy and .npz files, cut into units, which are ranges of rows."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS, Batch, Origin
from beam_tfrecord.errors import DataError, SchemaConflict, UsageError
from beam_tfrecord.sources.base import (
    Chunk,
    InputFile,
    Scan,
    Source,
    Unit,
    not_in_file,
    wanted_columns,
)
from beam_tfrecord.sources.files import as_paths, list_files
from beam_tfrecord.sources.hive import with_partitions
from beam_tfrecord.sources.merging import ByFile, join_by_name, joined_schema
from beam_tfrecord.sources.numpy.columns import (
    Column,
    arrow_array,
    can_read_as,
    check_typed,
    columns_of,
    common_rows,
    field_of,
    joined_column,
    names_of,
    plain_arrays,
    plain_fields,
    too_large,
    types_of,
)
from beam_tfrecord.sources.numpy.files import ArrayReader, StoredArray, shown_file, stored_arrays

SUFFIXES = (".npy", ".npz")

# Largest size of a batch in bytes, because rows of arrays can be large.
BATCH_BYTES = 16 * 2**20
# Estimated bytes of a feature in addition to its values: name, kind, lengths, shape and dtype.
_FEATURE_BYTES = 64
# Examples, with names and shapes, must be shorter than 2 GiB.
_MAX_ROW_BYTES = 2**31 - 2**16
_CHOICES = {"example": ("row", "array"), "store": ("bytes", "values"), "layout": ("plain",)}


class _Contents(NamedTuple):
    """The result of the scan of a file; `names` includes the columns that are not read."""

    arrays: tuple[StoredArray, ...]
    columns: tuple[Column, ...]
    rows: int
    row_bytes: int
    names: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Numpy(Source):
    """NumPy arrays in .npy and .npz files.

    The array of an .npy file becomes the column ``data``, and each array of an .npz file a column
    with the name of the array. Each field of a structured dtype becomes a column.
    """

    kind: ClassVar[str] = "numpy"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES
    detail_type: ClassVar[Any] = _Contents
    infers_from_scans: ClassVar[bool] = True
    quick_scans: ClassVar[int] = 16

    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
    _: dataclasses.KW_ONLY
    columns: Sequence[str] | None = None
    example: str | None = None
    store: str = "bytes"
    layout: str | None = None
    types: Mapping[str, str] | None = None
    union: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "paths", as_paths(self.paths))
        for option, known in _CHOICES.items():
            if (value := getattr(self, option)) not in (None, *known):
                raise UsageError(
                    f"--{option} {value!r} has no meaning for arrays: "
                    f"choose {' or '.join(known)}, or leave it out"
                )
        if self.layout == "plain" and self.store != "bytes":
            raise UsageError("--layout plain keeps bytes: leave out --store values")
        types_of(self.types)
        object.__setattr__(self, "columns", wanted_columns(self.columns))

    def files(self) -> Iterator[InputFile]:
        files = list_files(as_paths(self.paths), SUFFIXES)
        first = next(files)
        for second in files:
            if self.example is None:
                raise UsageError(
                    f"{first.name} and {second.name} are several files of arrays: pass --example "
                    "row for an example from each row, or --example array for one from each file"
                )
            yield first
            first = second
        yield first

    def scan(self, chunk: Chunk) -> Scan:
        file = chunk.file
        arrays = stored_arrays(file)
        columns = columns_of(
            arrays,
            shown_file(file),
            types=types_of(self.types),
            as_row=self._as_row,
            wanted=self.columns,
        )
        names = names_of(arrays)
        used = {column.array for column in columns}
        arrays = [array for array in arrays if array.name in used]
        rows = 1 if self._as_row else common_rows(arrays, file)
        row_bytes = sum(
            math.prod(array.shape if self._as_row else array.shape[1:]) * array.dtype.itemsize
            for array in arrays
        )
        return Scan(chunk, _Contents(tuple(arrays), columns, rows, row_bytes, names))

    @property
    def _as_row(self) -> bool:
        return self.example == "array"

    def units(self, scans: Sequence[Scan]) -> list[Unit]:
        (scan,) = scans
        file, contents = scan.chunk.file, scan.detail
        rows, row_bytes = contents.rows, contents.row_bytes
        is_compressed = any(array.member is not None for array in contents.arrays)
        unit_rows = max(1, rows if is_compressed else self.unit_bytes // max(1, row_bytes))
        spans = [(at, min(rows, at + unit_rows)) for at in range(0, max(1, rows), unit_rows)]
        record_bytes = row_bytes + _FEATURE_BYTES * len(contents.columns)
        return [
            Unit(
                name=file.unit_name(index, len(spans)),
                file=file,
                index=index,
                start=start,
                stop=stop,
                rows=stop - start,
                input_bytes=file.bytes if is_compressed else (stop - start) * row_bytes,
                encoded_bytes=max(1, (stop - start) * record_bytes),
                detail=contents._replace(names=()),
            )
            for index, (start, stop) in enumerate(spans)
        ]

    def merge(self, inferences: Iterable[Scan]) -> pa.Schema:
        scans = sorted(inferences, key=lambda scan: scan.chunk.file.name)
        files = [scan.chunk.file for scan in scans]
        check_typed(self.types, dict.fromkeys(n for scan in scans for n in scan.detail.names))
        found = [(scan.chunk.file, _columns_by_name(scan.detail)) for scan in scans]
        schema = join_by_name(found, self._joined, columns=self.columns, union=self.union)
        return schema if self.layout != "plain" else self._plain(schema, files)

    def _joined(self, name: str, having: ByFile[Column]) -> pa.Field:
        column = joined_column(name, having, widen=self.layout != "plain")
        return field_of(column, store=self.store)

    def _plain(self, schema: pa.Schema, files: Sequence[InputFile]) -> pa.Schema:
        """Return the schema of ``--layout plain`` for the schema of one array."""
        in_paths = {name for file in files for name, _ in file.partitions}
        arrays = [field for field in schema if field.name not in in_paths]
        if len(arrays) != 1:
            raise UsageError(
                f"--layout plain takes one array but the input has {len(arrays)} columns: "
                "choose one with --columns"
            )
        plain = {field.name: field for field in plain_fields(arrays[0].type)}
        columns = [*plain, *(name for name in schema.names if name in in_paths)]
        return joined_schema(plain, plain.__getitem__, files, columns=columns, union=self.union)

    def read(
        self, unit: Unit, schema: pa.Schema, *, batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Batch]:
        """Yield the rows of `unit` in order, as batches of exactly `schema`.

        Rows that are too large for an example are rejected, and not read.
        """
        contents: _Contents = unit.detail
        row_bytes = contents.row_bytes
        origin = Origin(unit.name, unit.index, 0, address=(f"{unit.file.name} row ", unit.start))
        wanted = self._wanted(unit, contents, schema)
        if unit.start == unit.stop or row_bytes > _MAX_ROW_BYTES:
            rows = range(unit.stop - unit.start)
            rejects = tuple(too_large(origin, row, row_bytes) for row in rows)
            nothing = pa.RecordBatch.from_pylist([], schema=schema)
            yield Batch(nothing, origin, rejects=rejects)
            return
        step = max(1, min(batch_rows, BATCH_BYTES // max(1, row_bytes)))
        with contextlib.ExitStack() as stack:
            readers = {}
            for array in contents.arrays:
                reader = ArrayReader(unit.file, array, as_row=self._as_row)
                readers[array.name] = stack.enter_context(contextlib.closing(reader))
            for start in range(unit.start, unit.stop, step):
                stop = min(unit.stop, start + step)
                data = self._record_batch(unit, readers, wanted, schema, start, stop)
                yield Batch(data, dataclasses.replace(origin, rows=start - unit.start))

    def _wanted(self, unit: Unit, contents: _Contents, schema: pa.Schema) -> dict[str, Column]:
        """Return the columns of the file that are in `schema`, by name."""
        inside = {column.name: column for column in contents.columns}
        if self.layout == "plain":
            return inside
        for field in schema:
            if field.name not in inside:
                if field.name not in dict(unit.file.partitions) and not self.union:
                    raise not_in_file(field.name, unit.file, [*inside, *dict(unit.file.partitions)])
                continue
            column = inside[field.name]
            own = field_of(column, store=self.store).type
            if not can_read_as(field.type, column, own):
                raise SchemaConflict(
                    f"column {field.name!r} is {own} in {unit.file.name} but {field.type} in the "
                    f"schema: change it to {own} there, or convert it with --map"
                )
        return {name: column for name, column in inside.items() if name in schema.names}

    def _record_batch(
        self,
        unit: Unit,
        readers: Mapping[str, ArrayReader],
        wanted: Mapping[str, Column],
        schema: pa.Schema,
        start: int,
        stop: int,
    ) -> pa.RecordBatch:
        blocks = {name: reader.rows(start, stop) for name, reader in readers.items()}
        arrays: dict[str, pa.Array] = {}
        for name, column in wanted.items():
            values = column.of_block(blocks[column.array])
            try:
                if self.layout == "plain":
                    arrays |= plain_arrays(values, column.dtype)
                else:
                    arrays[name] = arrow_array(values, schema.field(name))
            except ValueError as error:
                raise DataError(
                    f"array {name!r} of {shown_file(unit.file).name} holds {error}: correct it"
                ) from error
        if arrays:
            data = pa.RecordBatch.from_pydict(arrays)
        else:
            data = pa.RecordBatch.from_struct_array(pa.array([{}] * (stop - start), pa.struct([])))
        return with_partitions(data, unit.file, schema)


def _columns_by_name(contents: _Contents) -> dict[str, Any]:
    """Return the columns of a file; one that is not read is None."""
    return dict.fromkeys(contents.names) | {column.name: column for column in contents.columns}
