"""The Arrow source: files of the Arrow IPC formats (file and stream), which Feather V2 is, too.

pyarrow reads the rows. How many rows a record batch has is in a small flatbuffer before its data,
which this module parses, so that scanning reads no data. The first bytes of a file decide its
format, because streams often have the suffix of files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from beam_tfrecord.errors import DataError
from beam_tfrecord.sources.base import Chunk, InputFile, Scan, Unit
from beam_tfrecord.sources.exact_types import plain_field
from beam_tfrecord.sources.file_parts import (
    PartsOfFile,
    Ranges,
    check_size,
    check_values,
    incomplete,
    joined_ranges,
    open_input,
    sliced,
    unreadable,
)
from beam_tfrecord.sources.typed_files import (
    Block,
    Contents,
    Opened,
    TypedFiles,
    check_names,
    framing_bytes,
)

_FILE_MAGIC, _FEATHER_V1_MAGIC = b"ARROW1", b"FEA1"
# A footer precedes its length and the magic bytes.
_TAIL = struct.Struct("<i6s")
# Position, bytes of metadata, padding, bytes of data.
_PLACE = struct.Struct("<qi4xq")
# Messages since Arrow 0.15 begin with this mark, and then all with the length of their metadata.
_MARK = b"\xff\xff\xff\xff"
# The magic bytes, padded.
_FILE_HEAD_BYTES = 8
# No message is so short that this padding between messages could hold it.
_MOST_PADDING = 64
# Metadata of most messages are shorter, so that one request reads them.
_METADATA_BYTES = 4096
_DICTIONARY, _RECORD_BATCH = 2, 3
# Compressed buffers are assumed to become so many times larger.
_EXPANSION = 2
# Record batches are joined to blocks of this part of a unit, so that scans of many are small.
_BLOCKS_IN_UNIT = 16
_FAULTS = (OSError, EOFError, pa.ArrowException, LookupError, ValueError, struct.error)

_Read = Callable[[pa.NativeFile, Unit, pa.ipc.IpcReadOptions], Iterator[pa.RecordBatch]]


class _Message(NamedTuple):
    """A record batch or dictionary in a file."""

    kind: int
    start: int
    stop: int
    rows: int
    has_null: bytes
    is_compressed: bool


class ArrowUnit(NamedTuple):
    """A range of record batches."""

    ranges: Ranges
    first_row: int
    head: Ranges


@dataclasses.dataclass(frozen=True)
class _ArrowBlock(Block):
    """Some record batches, and the bytes that they have in the file."""

    ranges: Ranges = ()


@dataclasses.dataclass(frozen=True)
class _ArrowContents(Contents):
    """The contents of a file."""

    preface: Ranges = ()


@dataclasses.dataclass(frozen=True)
class Arrow(TypedFiles):
    """Arrow IPC files and streams, and Feather V2 files; units are ranges of record batches."""

    kind: ClassVar[str] = "arrow"
    suffixes: ClassVar[tuple[str, ...]] = (".arrow", ".feather", ".ipc", ".arrows")
    detail_type: ClassVar[Any] = ArrowUnit

    def scan(self, chunk: Chunk) -> Scan:
        file = chunk.file
        with open_input(file) as raw:
            try:
                is_file = _is_file_format(raw, file)
                schema = _schema_of(raw, is_file=is_file)
                messages = list(_in_footer(raw) if is_file else _in_stream(raw))
            except _FAULTS as error:
                raise incomplete(file, "Arrow", error) from error
        check_names(schema.names, file)
        batches = [message for message in messages if message.kind == _RECORD_BATCH]
        others = [(m.start, m.stop) for m in messages if m.kind != _RECORD_BATCH]
        fields = [f for f in schema if self.columns is None or f.name in self.columns]
        share = len(fields) / max(1, len(schema))
        for number, batch in enumerate(batches):
            check_size(int(share * (batch.stop - batch.start)), f"record batch {number}", file)
        first = min((message.start for message in messages), default=file.bytes)
        preface: Ranges = ()
        if not is_file:
            # A range of record batches includes the dictionaries between them.
            starts = [first, *(message.stop for message in batches)]
            batches = [m._replace(start=at) for m, at in zip(batches, starts, strict=False)]
            preface = ((0, first), *others)
        contents = _ArrowContents(
            schema=_with_nulls(schema, fields, batches),
            names=tuple(schema.names),
            blocks=_blocks(batches, framing_bytes(f.name for f in fields), share, self.unit_bytes),
            preface=preface,
        )
        return Scan(chunk, contents)

    def detail(self, found: Sequence[Contents], blocks: Sequence[Any], first_row: int) -> ArrowUnit:
        """Return the detail of the unit of some record batches."""
        (contents,) = found
        assert isinstance(contents, _ArrowContents)
        ranges = joined_ranges(part for block in blocks for part in block.ranges)
        head = [part for part in contents.preface if not ranges or part[1] <= ranges[0][0]]
        return ArrowUnit(ranges, first_row, joined_ranges(head))

    @contextlib.contextmanager
    def opened(self, unit: Unit) -> Iterator[Opened]:
        """Open the file of a unit."""
        detail: ArrowUnit = unit.detail
        with open_input(unit.file) as raw:
            try:
                is_file = _is_file_format(raw, unit.file)
                schema = _schema_of(raw, is_file=is_file)
            except _FAULTS as error:
                raise incomplete(unit.file, "Arrow", error) from error
            read = _from_file if is_file else _from_stream
            rows = functools.partial(_rows, read, raw, unit, schema)
            yield Opened(schema, detail.first_row, rows)


def _is_file_format(raw: pa.NativeFile, file: InputFile) -> bool:
    """Return whether a file has the format of Arrow files, and not that of streams."""
    raw.seek(0)
    magic = raw.read(len(_FILE_MAGIC))
    if magic.startswith(_FEATHER_V1_MAGIC):
        raise DataError(
            f"{file.name} is Feather V1, which is not read: write it again as Feather V2, such as "
            "by pyarrow.feather.write_feather(pyarrow.feather.read_table(old), new)"
        )
    return bool(magic == _FILE_MAGIC)


def _schema_of(raw: pa.NativeFile, *, is_file: bool) -> pa.Schema:
    raw.seek(0)
    schema = (pa.ipc.open_file(raw) if is_file else pa.ipc.open_stream(raw)).schema
    # Evaluated only to raise for names that are not UTF-8.
    str(schema.remove_metadata()), schema.names
    return schema


def _in_footer(raw: pa.NativeFile) -> Iterator[_Message]:
    """Yield the dictionaries and record batches of a file, in the order of its footer."""
    size = raw.size()
    raw.seek(size - _TAIL.size)
    length, _ = _TAIL.unpack(raw.read(_TAIL.size))
    end = size - _TAIL.size - length
    raw.seek(end)
    footer = raw.read(length)
    places = {kind: list(_places(footer, kind)) for kind in (_DICTIONARY, _RECORD_BATCH)}
    parts = [*sorted(itertools.chain(*places.values())), (end, 0, 0)]
    at = _schema_end(raw) or parts[0][0]
    for start, nbytes, body_bytes in parts:
        if not at <= start <= at + _MOST_PADDING:
            raise ValueError(f"its footer lists nothing of bytes {at:,} to {start:,}")
        at = start + nbytes + body_bytes
    for kind, of_kind in places.items():
        for start, nbytes, body_bytes in of_kind:
            found = _message(_metadata_at(raw, start)[0], start, start + nbytes + body_bytes)
            if found.kind != kind:
                raise ValueError(f"its footer has another kind of the message at byte {start:,}")
            yield found


def _schema_end(raw: pa.NativeFile) -> int:
    """Return where the message of the schema ends; 0 if there is none, as in files of polars."""
    raw.seek(_FILE_HEAD_BYTES)
    if raw.read(len(_MARK)) != _MARK:
        return 0
    metadata, end = _metadata_at(raw, _FILE_HEAD_BYTES)
    return end + _body_bytes(metadata)


def _places(footer: bytes, kind: int) -> Iterator[tuple[int, int, int]]:
    """Yield start, bytes of metadata and bytes of data of all messages of a kind in a footer."""
    # The fields of a footer have the numbers of the kinds.
    if at := _field(footer, _pointed(footer, 0), kind):
        vector = _pointed(footer, at)
        for index in range(_uint32(footer, vector)):
            yield _PLACE.unpack_from(footer, vector + 4 + index * _PLACE.size)


def _metadata_at(raw: pa.NativeFile, at: int) -> tuple[bytes, int]:
    """Return the metadata of the message at a position, and where they end; empty at the end."""
    raw.seek(at)
    data = raw.read(_METADATA_BYTES)
    before = 8 if data.startswith(_MARK) else 4
    (length,) = struct.unpack_from("<i", data, before - 4)
    end = at + before + length
    if length < 0 or end > raw.size():
        raise _cut_off(at)
    if before + length > len(data):
        data += raw.read(before + length - len(data))
    return data[before : before + length], end


def _cut_off(at: int) -> ValueError:
    return ValueError(f"it is cut off in the message at byte {at:,}")


def _in_stream(raw: pa.NativeFile) -> Iterator[_Message]:
    """Yield the dictionaries and record batches of a stream, in order."""
    size = raw.size()
    at = 0
    while at < size:
        metadata, end = _metadata_at(raw, at)
        if not metadata:
            break
        stop = end + _body_bytes(metadata)
        if not end <= stop <= size:
            raise _cut_off(at)
        # The first message is the schema.
        if at:
            yield _message(metadata, at, stop)
        at = stop
    if at + 8 < size:
        raise ValueError(f"{size - at - 8:,} bytes follow the end of its stream")


def _body_bytes(metadata: bytes) -> int:
    at = _field(metadata, _pointed(metadata, 0), 3)
    return int(struct.unpack_from("<q", metadata, at)[0]) if at else 0


def _message(metadata: bytes, start: int, stop: int) -> _Message:
    root = _pointed(metadata, 0)
    kind = metadata[_field(metadata, root, 1)]
    if kind == _DICTIONARY:
        return _Message(kind, start, stop, 0, b"", False)
    if kind != _RECORD_BATCH:
        raise ValueError(f"the message at byte {start:,} is of unknown kind {kind}")
    table = _pointed(metadata, _field(metadata, root, 2))
    rows = _field(metadata, table, 0)
    nodes = _pointed(metadata, _field(metadata, table, 1))
    # The number of values and the number of nulls of each array.
    counts = np.frombuffer(metadata, "<i8", 2 * _uint32(metadata, nodes), nodes + 4)
    return _Message(
        kind,
        start,
        stop,
        rows=struct.unpack_from("<q", metadata, rows)[0] if rows else 0,
        has_null=(counts[1::2] != 0).tobytes(),
        is_compressed=bool(_field(metadata, table, 3)),
    )


def _field(data: bytes, table: int, number: int) -> int:
    """Return the position of a field of a table in a flatbuffer; 0 if it has its default."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    entry = 4 + 2 * number
    if entry >= struct.unpack_from("<H", data, vtable)[0]:
        return 0
    offset: int = struct.unpack_from("<H", data, vtable + entry)[0]
    return offset and table + offset


def _pointed(data: bytes, at: int) -> int:
    """Return the position that the offset at a position of a flatbuffer points to."""
    return at + _uint32(data, at)


def _uint32(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])


def _with_nulls(
    inside: pa.Schema, fields: Sequence[pa.Field], batches: Sequence[_Message]
) -> pa.Schema:
    """Return the schema of some fields of a file; a field without nulls is not nullable."""
    first_node: dict[str, int] = {}
    count = 0
    for field in inside:
        first_node[field.name] = count
        count += _node_count(field.type)

    def is_nullable(field: pa.Field) -> bool:
        node, arrow = first_node[field.name], field.type
        # The nulls of these are in their values.
        is_indirect = pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow)
        if is_indirect or pa.types.is_union(arrow) or pa.types.is_null(arrow):
            return True
        return field.nullable and any(batch.has_null[node : node + 1] != b"\0" for batch in batches)

    return pa.schema([plain_field(field).with_nullable(is_nullable(field)) for field in fields])


def _node_count(arrow: pa.DataType) -> int:
    """Return the number of arrays of a column, nested ones included."""
    if isinstance(arrow, pa.BaseExtensionType):
        return _node_count(arrow.storage_type)
    return 1 + sum(_node_count(arrow.field(index).type) for index in range(arrow.num_fields))


def _blocks(
    batches: Sequence[_Message], per_row: int, share: float, unit_bytes: int
) -> tuple[_ArrowBlock, ...]:
    """Join neighbouring record batches to blocks."""
    blocks = []
    start = size = 0
    for stop, batch in enumerate(batches, 1):
        size += (batch.stop - batch.start) * (_EXPANSION if batch.is_compressed else 1)
        if size * _BLOCKS_IN_UNIT < unit_bytes and stop < len(batches):
            continue
        joined = batches[start:stop]
        rows = sum(one.rows for one in joined)
        block = _ArrowBlock(
            start,
            stop,
            rows,
            compressed_bytes=int(share * sum(one.stop - one.start for one in joined)),
            uncompressed_bytes=int(share * size),
            encoded_bytes=rows * per_row + int(share * size),
            ranges=joined_ranges((one.start, one.stop) for one in joined),
        )
        blocks.append(block)
        start, size = stop, 0
    return tuple(blocks)


def _rows(
    read: _Read,
    raw: pa.NativeFile,
    unit: Unit,
    inside: pa.Schema,
    columns: Sequence[str],
    batch_rows: int,
) -> Iterator[pa.RecordBatch]:
    """Yield columns of a unit."""
    # No field at all would mean all of them.
    included = [inside.get_field_index(name) for name in columns] or [0][: len(inside)]
    options = pa.ipc.IpcReadOptions(included_fields=included, use_threads=False)
    number = unit.start
    try:
        for batch in read(raw, unit, options):
            # Nothing else checks the offsets of a damaged file, which would lead anywhere.
            check_values(batch)
            yield from sliced(batch.select(list(columns)), batch_rows)
            number += 1
    except pa.ArrowMemoryError as error:
        # Damage may state any size of a compressed buffer.
        raise unreadable(unit.file, f"record batch {number}", ValueError(str(error))) from error
    except _FAULTS as error:
        raise unreadable(unit.file, f"record batch {number}", error) from error


def _from_file(
    raw: pa.NativeFile, unit: Unit, options: pa.ipc.IpcReadOptions
) -> Iterator[pa.RecordBatch]:
    reader = pa.ipc.open_file(raw, options=options)
    for number in range(unit.start, unit.stop):
        yield reader.get_batch(number)


def _from_stream(
    raw: pa.NativeFile, unit: Unit, options: pa.ipc.IpcReadOptions
) -> Iterator[pa.RecordBatch]:
    detail: ArrowUnit = unit.detail
    parts = PartsOfFile(raw, joined_ranges([*detail.head, *detail.ranges]))
    yield from pa.ipc.open_stream(pa.PythonFile(parts, mode="r"), options=options)
