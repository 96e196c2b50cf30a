"""`TypedFiles`, the base of the sources whose files state the types of their columns.

They are Parquet, Arrow IPC, ORC and Avro. A *block* is the smallest part of a file that can be read
on its own: a row group, some record batches, a stripe, some data blocks. A format says which blocks
a file has (`scan`), and reads a range of them (`opened`); units, schema, partitions and exact types
are here.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeVar

import pyarrow as pa

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS, MAX_VALUE_CHARS, Batch, Origin, Reject
from beam_tfrecord.errors import DataError, SchemaConflict
from beam_tfrecord.features.converting import can_cast, cast_exactly, join_types, plain_field
from beam_tfrecord.options.sources import TypedOptions
from beam_tfrecord.sources.base import (
    Chunk,
    InputFile,
    Scan,
    Source,
    Unit,
    not_in_file,
)
from beam_tfrecord.sources.file_parts import (
    changed,
    check_size,
    incomplete,
    open_input,
    sliced,
    unreadable_from,
)
from beam_tfrecord.sources.files import FileSource
from beam_tfrecord.sources.hive import with_partitions
from beam_tfrecord.sources.merging import ByFile, join_by_name
from beam_tfrecord.sources.rejects import bad_value, without_rows
from beam_tfrecord.storage import is_in_zip
from beam_tfrecord.tables import repeated

# Estimated bytes of the framing of a record, and of the tags and lengths of one feature.
_RECORD_BYTES = 16
_FEATURE_BYTES = 8
# Number of sizes to try in the search for ranges of blocks of similar size.
_EVEN_STEPS = 16
_PARTS_IN_UNIT = 16


@dataclasses.dataclass(frozen=True)
class Block:
    """The smallest part of a file that can be read on its own."""

    start: int
    stop: int
    rows: int
    compressed_bytes: int
    uncompressed_bytes: int
    encoded_bytes: int
    is_pruned: bool = False


@dataclasses.dataclass(frozen=True)
class Contents:
    """What a scan finds in a file, or in a chunk of it."""

    schema: pa.Schema
    names: tuple[str, ...]
    blocks: tuple[Block, ...]


class Part(NamedTuple):
    """A part of a file that can be read on its own; `start` and `stop` are as its format counts."""

    start: int
    stop: int
    num_rows: int
    nbytes: int
    decoded_bytes: int


class OpenTable(NamedTuple):
    """An open file.

    Attributes:
        schema: The columns of the file.
        parts: The parts of the file, in order; only scans use them.
        read: Yields columns of the parts between a `start` and a `stop`; at least one is named.
    """

    schema: pa.Schema
    parts: Iterable[Part]
    read: Callable[[int, int, Sequence[str]], Iterator[pa.RecordBatch]]


_Rows = TypeVar("_Rows", Part, pa.RecordBatch)


class BlockUnit(NamedTuple):
    """The number of rows before a unit in its file."""

    first_row: int


class Fault(NamedTuple):
    """A value that is not of the type of its column; it is null in its batch."""

    row: int
    column: str
    name: str
    expected: str
    value: str


class Opened(NamedTuple):
    """An open unit."""

    schema: pa.Schema
    first_row: int
    batches: Callable[[Sequence[str], int], Iterator[pa.RecordBatch]]
    gaps: Mapping[int, int] = MappingProxyType({})
    faults: Sequence[Fault] = ()


@dataclasses.dataclass(frozen=True)
class TypedFiles(TypedOptions, FileSource):
    """Base of the sources whose files state the types of their columns."""

    infers_from_scans: ClassVar[bool] = True
    quick_scans: ClassVar[int] = 16
    detail_type: ClassVar[Any] = BlockUnit
    # The name of the format in messages, and what a library raises for damage.
    title: ClassVar[str]
    faults: ClassVar[tuple[type[Exception], ...]] = ()

    def open(self, raw: pa.NativeFile, file: InputFile) -> OpenTable:
        """Read what is needed of an open file to find its parts and to read them."""
        raise NotImplementedError

    def scan(self, chunk: Chunk) -> Scan:
        file = chunk.file
        with self._opened(file) as table:
            check_names(table.schema.names, file)
            fields = [plain_field(field) for field in table.schema if self.reads(field.name)]
            share = len(fields) / max(1, len(table.schema))
            per_row = framing_bytes(field.name for field in fields)
            blocks: list[Block] = []
            for part in self._guarded(table.parts, file, 0):
                nbytes, decoded = int(share * part.nbytes), int(share * part.decoded_bytes)
                check_size(nbytes, f"part {len(blocks)}", file)
                encoded = part.num_rows * per_row + decoded
                blocks.append(Block(part.start, part.stop, part.num_rows, nbytes, decoded, encoded))
        return Scan(chunk, Contents(pa.schema(fields), tuple(table.schema.names), tuple(blocks)))

    @property
    def part_bytes(self) -> int:
        """Size to which `joined` joins small parts, so that scans of many are small."""
        return self.unit_bytes // _PARTS_IN_UNIT

    def reads(self, column: str) -> bool:
        """Return whether a column is read."""
        return self.columns is None or column in self.columns

    @contextlib.contextmanager
    def _opened(self, file: InputFile) -> Iterator[OpenTable]:
        with open_input(file) as raw:
            try:
                table = self.open(raw, file)
            except self.faults as error:
                raise incomplete(file, self.title, error) from error
            yield table

    def _guarded(self, found: Iterable[_Rows], file: InputFile, row: int) -> Iterator[_Rows]:
        """Yield parts or batches of a file; an error names the row from which it is damaged."""
        try:
            for rows in found:
                yield rows
                row += rows.num_rows
        except self.faults as error:
            raise unreadable_from(file, row, error) from error

    @contextlib.contextmanager
    def opened(self, unit: Unit) -> Iterator[Opened]:
        """Open the file of a unit.

        Raises:
            DataError: The file is damaged; also while its rows are read.
        """
        with self._opened(unit.file) as table:
            rows = functools.partial(self._rows, table, unit)
            yield Opened(table.schema, unit.detail.first_row, rows)

    def _rows(
        self, table: OpenTable, unit: Unit, columns: Sequence[str], batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield columns of a unit."""
        # Without a column, a library would lose the number of rows.
        read = list(columns) or table.schema.names[:1]
        batches = table.read(unit.start, unit.stop, read)
        for batch in self._guarded(batches, unit.file, unit.detail.first_row):
            yield from sliced(batch.select(list(columns)), batch_rows)

    def detail(self, found: Sequence[Contents], blocks: Sequence[Block], first_row: int) -> Any:
        """Return the detail of the unit of some blocks, given the contents of its file."""
        return BlockUnit(first_row)

    def units(self, scans: Sequence[Scan]) -> list[Unit]:
        """Join neighbouring blocks up to `unit_bytes` of uncompressed data.

        A member of a zip file is one unit, because each unit copies it.
        """
        file = scans[0].chunk.file
        found: list[Contents] = [scan.detail for scan in scans]
        blocks = [block for contents in found for block in contents.blocks]
        spans = [(0, len(blocks))]
        if not is_in_zip(file.path):
            spans = block_spans(blocks, self.unit_bytes)
        units = []
        first_row = 0
        for index, (start, stop) in enumerate(spans):
            of_unit = blocks[start:stop]
            read = [block for block in of_unit if not block.is_pruned]
            rows = sum(block.rows for block in of_unit)
            unit = Unit(
                name=file.unit_name(index, len(spans)),
                file=file,
                index=index,
                start=of_unit[0].start if of_unit else 0,
                stop=of_unit[-1].stop if of_unit else 0,
                rows=rows,
                input_bytes=sum(block.compressed_bytes for block in read),
                # Also of what is not read, because it decides where one-pass jobs end a shard.
                encoded_bytes=sum(block.encoded_bytes for block in of_unit),
                detail=self.detail(found, of_unit, first_row),
                pruned_rows=rows - sum(block.rows for block in read),
                pruned_bytes=sum(b.compressed_bytes for b in of_unit if b.is_pruned),
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
        return join_by_name(found, self._joined, columns=self.columns, union=self.union)

    def _joined(self, name: str, having: ByFile[pa.Field]) -> pa.Field:
        joined: Any = having[0][1].type
        for file, field in having[1:]:
            wider = join_types(joined, field.type)
            if wider is None and self.settled is not None and name in self.settled.names:
                joined = self.settled.field(name).type
                break
            if wider is None:
                pairs = (pair for pair in having if join_types(pair[1].type, field.type) is None)
                first, before = next(pairs)
                raise SchemaConflict(
                    f"column {name!r} is {field.type} in {file.name} but {before.type} in "
                    f"{first.name}: pass --schema"
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
        with self.opened(unit) as found:
            wanted = _wanted(unit, found.schema, schema, self.union)
            address = (f"{unit.file.name} row ", found.first_row)
            rows = found.gaps.get(0, 0)
            is_read = False
            for data in found.batches(wanted.names, batch_rows):
                origin = Origin(unit.name, unit.index, rows, address=address)
                yield _batch(data, unit, origin, wanted, schema, found.faults)
                is_read = True
                rows += data.num_rows
                rows += found.gaps.get(rows, 0)
            if unit.rows is not None and rows != unit.rows:
                raise changed(unit.file)
            if not is_read:
                yield no_rows(unit, schema)


def joined(parts: Iterable[Part], nbytes: int) -> Iterator[Part]:
    """Join neighbouring parts up to a number of decoded bytes."""
    whole: Part | None = None
    for part in parts:
        sums = [sum(pair) for pair in zip(whole or (0,) * 5, part, strict=True)]
        whole = Part(whole.start if whole else part.start, part.stop, *sums[2:])
        if whole.decoded_bytes >= nbytes:
            yield whole
            whole = None
    if whole:
        yield whole


def settled_by(source: Source, schema: pa.Schema | None) -> Source:
    """Return a source whose files may have conflicting types for the columns of `schema`."""
    if schema is None or not isinstance(source, TypedFiles):
        return source
    settled = copy.copy(source)
    object.__setattr__(settled, "settled", schema)
    return settled


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


def block_spans(blocks: Sequence[Block], unit_bytes: int) -> list[tuple[int, int]]:
    """Cut blocks into ranges of at most `unit_bytes`; a larger block is a separate range.

    The number of ranges is the smallest possible. Their sizes are as even as the blocks allow,
    because some runners assign tasks to workers in advance.
    """
    sizes = [block.uncompressed_bytes for block in blocks]
    spans = _spans(sizes, unit_bytes)
    even = sum(sizes) // len(spans)
    for step in range(_EVEN_STEPS):
        evener = _spans(sizes, even + (unit_bytes - even) * step // _EVEN_STEPS)
        if len(evener) == len(spans):
            return evener
    return spans


def _spans(sizes: Sequence[int], most: int) -> list[tuple[int, int]]:
    spans = []
    start = total = 0
    for index, size in enumerate(sizes):
        if index > start and total + size > most:
            spans.append((start, index))
            start, total = index, 0
        total += size
    return [*spans, (start, len(sizes))]


def _wanted(unit: Unit, inside: pa.Schema, schema: pa.Schema, union: bool) -> pa.Schema:
    """Return the fields of `schema` that are columns inside the file, not in its path."""
    partitions = dict(unit.file.partitions)
    for field in schema:
        if field.name not in inside.names:
            if field.name not in partitions and not union:
                raise not_in_file(field.name, unit.file, [*inside.names, *partitions])
            continue
        of = inside.field(field.name).type
        if not can_cast(of, field.type):
            raise SchemaConflict(
                f"column {field.name!r} is {of} in {unit.file.name} but {field.type} in the "
                f"schema: change it to {of} there, or convert it with --map"
            )
    return pa.schema([field for field in schema if field.name in inside.names])


def _batch(
    data: pa.RecordBatch,
    unit: Unit,
    origin: Origin,
    wanted: pa.Schema,
    schema: pa.Schema,
    faults: Sequence[Fault],
) -> Batch:
    rejects: dict[int, Reject] = {}
    arrays = []
    for field in wanted:
        values = data.column(field.name)
        try:
            array, misfits = cast_exactly(values, field.type)
        except pa.ArrowNotImplementedError as error:
            raise DataError(
                f"column {field.name!r} of {unit.file.name} is {values.type}, which Arrow cannot "
                f"convert to {field.type}: leave it out with --columns"
            ) from error
        arrays.append(array)
        for row in misfits.tolist():
            rejects[row] = _reject(origin, row, field, values)
    for fault in faults:
        rejects[fault.row] = _reject_of(fault, origin, data.num_rows)
    if arrays:
        data = pa.RecordBatch.from_arrays(arrays, schema=wanted)
    data = with_partitions(data, unit.file, schema)
    return without_rows(Batch(data, origin), rejects)


def _reject(origin: Origin, index: int, field: pa.Field, values: pa.Array) -> Reject:
    row = int(origin.row_numbers(len(values))[index])
    value, problem = str(values[index].as_py()), f"is not {field.type} exactly: correct --schema"
    return bad_value(origin.unit, row, origin.address_of(row), field.name, value, problem)


def _reject_of(fault: Fault, origin: Origin, num_rows: int) -> Reject:
    row = int(origin.row_numbers(num_rows)[fault.row])
    where = origin.address_of(row)
    message = (
        f"{fault.name!r} in {where} is not {fault.expected}: correct it, or leave out the column "
        f"{fault.column!r} with --columns"
    )
    text = fault.value[:MAX_VALUE_CHARS]
    return Reject(origin.unit, row, fault.column, "bad-value", message, text, where)


def _fields_by_name(contents: Contents) -> dict[str, Any]:
    """Return the fields of the columns of a file; of a column that is not read it is None."""
    return dict.fromkeys(contents.names) | {field.name: field for field in contents.schema}
