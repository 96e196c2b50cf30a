"""`TypedFiles`, the base of the sources whose files state the types of their columns.

A *piece* is the smallest piece of a file that can be read on its own: a row group, some record
batches, a stripe, some data blocks. A format opens a file (`open`), and says which pieces it has
and how a range of them is read; units, schema, partitions, exact types and rejects are here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from beam_tfrecord.base.text import repeated
from beam_tfrecord.errors import DataError, SchemaConflict
from beam_tfrecord.features.arrow_arrays import bare_array
from beam_tfrecord.features.arrow_types import is_binary, is_text
from beam_tfrecord.features.cast_to_schema import convert
from beam_tfrecord.features.type_join import can_cast, cast_exactly, join_types, plain_field
from beam_tfrecord.native.kernel_types import Int64Array
from beam_tfrecord.options.sources import TypedOptions
from beam_tfrecord.rows.batch import (
    DEFAULT_BATCH_ROWS,
    Batch,
    Origin,
    Reject,
    bad_value,
    without_rows,
)
from beam_tfrecord.sources.base import Chunk, InputFile, Scan, Source, Unit, altered
from beam_tfrecord.sources.damaged_files import (
    changed,
    check_size,
    incomplete,
    open_input,
    sliced,
    unreadable,
)
from beam_tfrecord.sources.files import FileSource
from beam_tfrecord.sources.merge_schemas import ByFile, fields_inside, join_by_name, with_partitions

# Estimated bytes of the framing of a record, and of the tags and lengths of one feature.
_RECORD_BYTES = 16
_FEATURE_BYTES = 8
# Number of sizes to try in the search for ranges of pieces of similar size.
_EVEN_STEPS = 16
_PARTS_IN_UNIT = 16


class Piece(NamedTuple):
    """A piece of a file that can be read on its own; `start` and `stop` are as its format counts.

    `encoded_bytes` estimates its size in records. A format leaves it to `TypedFiles`, or gives all
    sizes without those of columns that are not read.
    """

    start: int
    stop: int
    num_rows: int
    nbytes: int
    decoded_bytes: int
    encoded_bytes: int = 0
    is_pruned: bool = False


@dataclasses.dataclass(frozen=True)
class Contents:
    """What a scan finds in a file: the columns that are read, the names of all, and the pieces."""

    schema: pa.Schema
    names: tuple[str, ...]
    pieces: tuple[Piece, ...]


Batches = Iterator[pa.RecordBatch]


class OpenTable(NamedTuple):
    """An open file.

    Attributes:
        schema: The columns of the file.
        pieces: The pieces of the file, in order; only scans use them.
        read: Yields some columns, at least one, of the pieces between a `start` and a `stop`. Its
            batches may have more than `batch_rows` rows.
        reader: What a library opened, if scans of the format use it.
    """

    schema: pa.Schema
    pieces: Iterable[Piece]
    read: Callable[[int, int, pa.Schema, int], Batches]
    reader: Any = None


_Rows = TypeVar("_Rows", Piece, pa.RecordBatch)


class PieceRange(NamedTuple):
    """Neighbouring pieces of a unit that are read, and the rows of the unit before them."""

    start: int
    stop: int
    row: int
    rows: int


class PieceUnit(NamedTuple):
    """The rows before a unit in its file, what is read of it, and columns that only scans know."""

    first_row: int
    ranges: tuple[PieceRange, ...]
    schema: pa.Schema | None = None


@dataclasses.dataclass(frozen=True)
class TypedFiles(TypedOptions, FileSource):
    """Base of the sources whose files state the types of their columns."""

    infers_from_scans: ClassVar[bool] = True
    quick_scans: ClassVar[int] = 16
    is_shared: ClassVar[bool] = True
    detail_type: ClassVar[Any] = PieceUnit
    # Whether only a scan knows the columns of a file.
    schema_from_scan: ClassVar[bool] = False
    # Whether its pieces are read as the types of the schema, and not as those of the file.
    converts: ClassVar[bool] = False
    # What to do if the types of a column have no common type.
    if_types_differ: ClassVar[str] = "pass --schema"
    # The number of the first row of a file.
    first_row: ClassVar[int] = 0
    # The name of the format in messages, and what a library raises for damage.
    title: ClassVar[str]
    faults: ClassVar[tuple[type[Exception], ...]] = ()

    def open(self, raw: pa.NativeFile, file: InputFile) -> OpenTable:
        """Read what is needed of an open file to find its pieces and to read them."""
        raise NotImplementedError

    def scan(self, chunk: Chunk) -> Scan:
        file = chunk.file
        with self.opened(file) as table:
            check_names(table.schema.names, file)
            fields = [plain_field(field) for field in table.schema if self.reads(field.name)]
            share = len(fields) / max(1, len(table.schema))
            per_row = framing_bytes(field.name for field in fields)
            pieces: list[Piece] = []
            for piece in self._guarded(table.pieces, file, 0):
                if piece.encoded_bytes:
                    pieces.append(piece)
                    continue
                start, stop, rows, *sizes, _, _ = piece
                nbytes, decoded = (int(share * size) for size in sizes)
                check_size(nbytes, f"piece {len(pieces)}", file)
                pieces.append(Piece(start, stop, rows, nbytes, decoded, rows * per_row + decoded))
        return Scan(chunk, Contents(pa.schema(fields), tuple(table.schema.names), tuple(pieces)))

    @property
    def piece_bytes(self) -> int:
        """Size to which `joined` joins small pieces, so that scans of many are small."""
        return self.unit_bytes // _PARTS_IN_UNIT

    def reads(self, column: str) -> bool:
        """Return whether a column is read."""
        return self.columns is None or column in self.columns

    @contextlib.contextmanager
    def opened(self, file: InputFile) -> Iterator[OpenTable]:
        """Open a file."""
        with open_input(file) as raw:
            try:
                table = self.open(raw, file)
            except self.faults as error:
                raise incomplete(file, self.title, error) from error
            yield table

    def _guarded(self, found: Iterable[_Rows], file: InputFile, row: int) -> Iterator[_Rows]:
        """Yield pieces or batches of a file; an error names the row from which it is damaged."""
        try:
            for rows in found:
                yield rows
                row += rows.num_rows
        except self.faults as error:
            raise unreadable(file, row, error) from error

    def units(self, scans: Sequence[Scan]) -> list[Unit]:
        """Join neighbouring pieces up to `unit_bytes` of decoded data."""
        (scan,) = scans
        file, pieces = scan.chunk.file, scan.detail.pieces
        schema = scan.detail.schema if self.schema_from_scan else None
        spans = piece_spans(pieces, self.unit_bytes)
        units = []
        first_row = self.first_row
        for index, (start, stop) in enumerate(spans):
            of_unit = pieces[start:stop]
            read = [piece for piece in of_unit if not piece.is_pruned]
            rows = sum(piece.num_rows for piece in of_unit)
            unit = Unit(
                name=file.unit_name(index, len(spans)),
                file=file,
                index=index,
                start=of_unit[0].start if of_unit else 0,
                stop=of_unit[-1].stop if of_unit else 0,
                rows=rows,
                input_bytes=sum(piece.nbytes for piece in read),
                # Also of what is not read, because it decides where one-pass jobs end a shard.
                encoded_bytes=sum(piece.encoded_bytes for piece in of_unit),
                detail=PieceUnit(first_row, _ranges(of_unit), schema),
                pruned_rows=rows - sum(piece.num_rows for piece in read),
                pruned_bytes=sum(piece.nbytes for piece in of_unit if piece.is_pruned),
            )
            units.append(unit)
            first_row += rows
        return units

    def merge(self, inferences: Iterable[Scan]) -> pa.Schema:
        """Join the schemas of all files, by column name, in the order of the first file.

        Raises:
            SchemaConflict: The types of a column have no exact common type, or a file lacks a
                column.
            UsageError: No file has one of `columns`.
        """
        scans = sorted(inferences, key=lambda scan: scan.chunk.file.name)
        found = [(scan.chunk.file, _fields_by_name(scan.detail)) for scan in scans]
        return join_by_name(
            found, self._joined, columns=self.columns, union=self.union, types=self.chosen_types
        )

    @property
    def chosen_types(self) -> Mapping[str, Any]:
        """Types of columns that the user chose."""
        return {}

    def join(self, one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
        """Return the type for values of both types, if there is one."""
        return join_types(one, other)

    def _joined(self, name: str, having: ByFile[pa.Field]) -> pa.Field:
        joined: Any = having[0][1].type
        for file, field in having[1:]:
            wider = self.join(joined, field.type)
            if wider is None and self.settled is not None and name in self.settled.names:
                joined = self.settled.field(name).type
                break
            if wider is None:
                pairs = (pair for pair in having if self.join(pair[1].type, field.type) is None)
                first, before = next(pairs)
                raise SchemaConflict(
                    f"column {name!r} is {field.type} in {file.name} but {before.type} in "
                    f"{first.name}: {self.if_types_differ}"
                )
            joined = wider
        is_nullable = any(field.nullable for _, field in having)
        # Metadata of a column is kept only if it is the same in all files.
        metadata = having[0][1].metadata
        if any(field.metadata != metadata for _, field in having):
            metadata = None
        return pa.field(name, joined, nullable=is_nullable, metadata=metadata)

    def read(
        self, unit: Unit, schema: pa.Schema, *, batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Batch]:
        """Yield the rows of `unit` in order, as batches of exactly `schema`.

        A row with a value that does not fit the type in `schema` exactly becomes a reject.

        Raises:
            DataError: The file is damaged, or lacks a column.
            SchemaConflict: The type of a column cannot be converted to the type in `schema`.
        """
        detail: PieceUnit = unit.detail
        if detail.ranges:
            with self.opened(unit.file) as table:
                for pieces in detail.ranges:
                    yield from self._read_range(table, unit, pieces, schema, batch_rows)
        if not any(pieces.rows for pieces in detail.ranges):
            yield no_rows(unit, schema)

    def _read_range(
        self, table: OpenTable, unit: Unit, pieces: PieceRange, schema: pa.Schema, batch_rows: int
    ) -> Iterator[Batch]:
        first_row, _, inside = unit.detail
        inside = table.schema if inside is None else inside
        wanted = pa.schema(fields_inside(schema, inside.names, unit.file, union=self.union))
        fields = wanted
        if not self.converts:
            _check_casts(wanted, inside, unit.file)
            names = wanted.names or counted_column(inside)
            fields = pa.schema([inside.field(name) for name in names])
        address = (f"{unit.file.name} row ", first_row)
        rows = pieces.row
        batches = table.read(pieces.start, pieces.stop, fields, batch_rows)
        for whole in self._guarded(batches, unit.file, first_row + pieces.row):
            for data in sliced(whole.select(wanted.names), batch_rows):
                origin = Origin(unit.name, unit.index, rows, address=address)
                yield _batch(data, unit, origin, wanted, schema)
                rows += data.num_rows
        if rows != pieces.row + pieces.rows:
            raise changed(unit.file)


def counted_column(schema: pa.Schema) -> list[str]:
    """Return a column to read where only rows are counted: of numbers, if there is one."""
    fields = sorted(schema, key=lambda field: not pa.types.is_primitive(field.type))
    return [field.name for field in fields[:1]]


def _ranges(pieces: Iterable[Piece]) -> tuple[PieceRange, ...]:
    ranges = []
    row = 0
    for is_pruned, neighbours in itertools.groupby(pieces, key=lambda piece: piece.is_pruned):
        found = list(neighbours)
        rows = sum(piece.num_rows for piece in found)
        if not is_pruned:
            ranges.append(PieceRange(found[0].start, found[-1].stop, row, rows))
        row += rows
    return tuple(ranges)


def joined(pieces: Iterable[Piece], nbytes: int) -> Iterator[Piece]:
    """Join neighbouring pieces up to a number of decoded bytes."""
    start, rows, stored, decoded = None, 0, 0, 0
    for piece in pieces:
        start = piece.start if start is None else start
        rows, stored = rows + piece.num_rows, stored + piece.nbytes
        decoded += piece.decoded_bytes
        if decoded >= nbytes:
            yield Piece(start, piece.stop, rows, stored, decoded)
            start, rows, stored, decoded = None, 0, 0, 0
    if start is not None:
        yield Piece(start, piece.stop, rows, stored, decoded)


def settled_by(source: Source, schema: pa.Schema | None) -> Source:
    """Return a source whose files may have conflicting types for the columns of `schema`."""
    if schema is None or not isinstance(source, TypedFiles):
        return source
    return altered(source, settled=schema)


def check_names(names: Iterable[str], file: InputFile) -> None:
    """Check that no two columns of a file have the same name."""
    if doubled := repeated(names):
        raise DataError(f"{file.name} has two columns named {doubled[0]!r}: rename one of them")


def no_rows(unit: Unit, schema: pa.Schema) -> Batch:
    """Return the batch of a unit without rows."""
    empty = pa.RecordBatch.from_pylist([], schema=schema)
    return Batch(empty, Origin(unit.name, unit.index, 0))


def framing_bytes(names: Iterable[str], leaves: Callable[[str], int] = lambda _: 1) -> int:
    """Estimate the bytes of a record besides its values."""
    features = sum(leaves(name) * (len(name.encode()) + _FEATURE_BYTES) for name in names)
    return _RECORD_BYTES + features


def piece_spans(pieces: Sequence[Piece], unit_bytes: int) -> list[tuple[int, int]]:
    """Cut pieces into ranges of at most `unit_bytes`; a larger piece is a separate range.

    The number of ranges is the smallest possible. Their sizes are as even as the pieces allow,
    because some runners assign tasks to workers in advance.
    """
    sizes = [piece.decoded_bytes for piece in pieces]
    spans = _spans(sizes, unit_bytes)
    even = sum(sizes) // len(spans)
    tried = (even + (unit_bytes - even) * step // _EVEN_STEPS for step in range(_EVEN_STEPS))
    evener = (_spans(sizes, most) for most in tried)
    return next((found for found in evener if len(found) == len(spans)), spans)


def _spans(sizes: Sequence[int], most: int) -> list[tuple[int, int]]:
    spans = []
    start = total = 0
    for index, size in enumerate(sizes):
        if index > start and total + size > most:
            spans.append((start, index))
            start, total = index, 0
        total += size
    return [*spans, (start, len(sizes))]


def _check_casts(wanted: pa.Schema, inside: pa.Schema, file: InputFile) -> None:
    """Check that the columns of a file can become the `wanted` ones."""
    for field in wanted:
        of = inside.field(field.name).type
        if not can_cast(of, field.type):
            raise SchemaConflict(
                f"column {field.name!r} is {of} in {file.name} but {field.type} in the schema: "
                f"change it to {of} there, or convert it with --map"
            )


def _batch(
    data: pa.RecordBatch, unit: Unit, origin: Origin, wanted: pa.Schema, schema: pa.Schema
) -> Batch:
    rejects: dict[int, Reject] = {}
    arrays = []
    for field in wanted:
        values = data.column(field.name)
        if pa.types.is_run_end_encoded(values.type):
            # Arrow counts no nulls in such arrays.
            values = bare_array(values)
        try:
            array, misfits, problem = _converted(values, field.type)
        except pa.ArrowNotImplementedError as error:
            raise DataError(
                f"column {field.name!r} of {unit.file.name} is {values.type}, which Arrow cannot "
                f"convert to {field.type}: leave it out with --columns"
            ) from error
        arrays.append(array)
        for index in misfits.tolist():
            row = int(origin.row_numbers(len(values))[index])
            where, value = origin.address_of(row), _shown(values[index])
            rejects[index] = bad_value(origin.unit, row, where, field.name, value, problem)
    if arrays:
        data = pa.RecordBatch.from_arrays(arrays, schema=wanted)
    data = with_partitions(data, unit.file, schema)
    return without_rows(Batch(data, origin), rejects)


def _converted(values: pa.Array, to: pa.DataType) -> tuple[pa.Array, Int64Array, str]:
    """Return values as a type, the indices of those that do not fit, and why they do not."""
    if is_text(values.type) and not can_cast(values.type, to):
        # A format of texts alone, such as cells or members of an archive, whose column has a type.
        array, bad_rows, _ = convert(values, to)
        misfits = np.flatnonzero([] if bad_rows is None else bad_rows)
        return array.cast(to), misfits, f"is not {to}: correct it, or leave it out with --columns"
    if is_binary(values.type) and is_text(to):
        problem = "is not UTF-8: correct it, or leave it out with --columns"
    else:
        problem = f"is not {to} exactly: correct --schema"
    return *cast_exactly(values, to), problem


def _shown(value: pa.Scalar) -> str:
    if is_text(value.type) or is_binary(value.type):
        return bytes(value.as_buffer()).decode(errors="backslashreplace")
    return str(value.as_py())


def _fields_by_name(contents: Contents) -> dict[str, Any]:
    """Return the fields of the columns of a file; of a column that is not read it is None."""
    return dict.fromkeys(contents.names) | {field.name: field for field in contents.schema}
