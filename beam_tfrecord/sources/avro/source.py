"""The Avro source: object container files, which it cuts between blocks.

fastavro decodes the records. Their schema is rewritten for it to one with the same encoding, whose
values Arrow takes as they are: text and numbers as their bytes, dates and times as integers, maps
as arrays of pairs. So values are exact, and text that is not UTF-8 rejects only its row.
"""

from __future__ import annotations

import bz2
import contextlib
import dataclasses
import functools
import io
import itertools
import json
import lzma
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, ClassVar, NamedTuple, cast

import pyarrow as pa

from beam_tfrecord.errors import DataError
from beam_tfrecord.sources.avro.types import (
    DECIMAL,
    AvroType,
    has_no_bytes,
    may_be_null,
    raw_record,
    read_decimal,
    type_of,
)
from beam_tfrecord.sources.base import Chunk, InputFile, Scan, Unit
from beam_tfrecord.sources.file_parts import (
    MOST_BYTES,
    check_size,
    check_values,
    incomplete,
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
from beam_tfrecord.storage import is_in_zip, open_read

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
# Two varints, the number of records and the number of bytes, begin a block.
_COUNTS_BYTES = 20
_SEARCH_BYTES = 2**20
# Rows are decoded up to this number of bytes at a time.
_BATCH_BYTES = 2**24
# Compressed blocks are assumed to become so many times larger.
_EXPANSION = 3
_HEADER = {
    "type": "record",
    "name": "header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": len(_MAGIC)}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": _SYNC_BYTES}},
    ],
}
_HEADER_BYTES = 2**16


_FAULTS = (
    *(OSError, EOFError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError),
    *(pa.ArrowException, struct.error, zlib.error, lzma.LZMAError),
)


class _Header(NamedTuple):
    """The header of a file: its columns, codec and marker of the end of each block; its size."""

    columns: Mapping[str, AvroType]
    codec: str
    sync: bytes
    nbytes: int

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(
            [
                pa.field(name, of.arrow, nullable=may_be_null(of.raw))
                for name, of in self.columns.items()
                if not of.problem
            ]
        )


@dataclasses.dataclass(frozen=True)
class _AvroContents(Contents):
    """The contents of a chunk of a file, and the size of the header of the file."""

    header_bytes: int = 0


@dataclasses.dataclass(frozen=True)
class Avro(TypedFiles):
    """Avro object container files; units are ranges of blocks."""

    kind: ClassVar[str] = "avro"
    suffixes: ClassVar[tuple[str, ...]] = (".avro",)

    def chunks(self, file: InputFile) -> Iterator[Chunk]:
        count = 1 if is_in_zip(file.path) else max(1, -(-file.bytes // self.unit_bytes))
        for index in range(count):
            ends = (file.bytes * at // count for at in (index, index + 1))
            yield Chunk(file, index, *ends)

    def scan(self, chunk: Chunk) -> Scan:
        file = chunk.file
        with open_read(file.path, version=file.version) as raw:
            header = _read_header(raw, file)
            chosen = [n for n in header.columns if self.columns is None or n in self.columns]
            for name in chosen:
                if problem := header.columns[name].problem:
                    raise DataError(
                        f"column {name!r} of {file.name} {problem}: leave it out with --columns"
                    )
            first = stop = _first_block(raw, chunk, header)
            rows = 0
            while stop < chunk.stop:
                at = stop
                count, _, stop = _block_at(raw, at, file)
                raw.seek(stop - _SYNC_BYTES)
                _check_sync(raw.read(_SYNC_BYTES), header, at, file)
                rows += count
        inside = header.schema
        schema = pa.schema([inside.field(name) for name in chosen])
        share = len(chosen) / max(1, len(header.columns))
        nbytes = stop - first
        decoded = int(share * nbytes) * (1 if header.codec == "null" else _EXPANSION)
        block = Block(
            first,
            stop,
            rows,
            compressed_bytes=nbytes,
            uncompressed_bytes=decoded,
            encoded_bytes=rows * framing_bytes(chosen) + decoded,
        )
        blocks = (block,) if nbytes else ()
        return Scan(chunk, _AvroContents(schema, tuple(header.columns), blocks, header.nbytes))

    def units(self, scans: Sequence[Scan]) -> list[Unit]:
        file = scans[0].chunk.file
        blocks = [block for scan in scans for block in scan.detail.blocks]
        at = scans[0].detail.header_bytes
        for block in blocks:
            if block.start != at:
                raise _damaged(file, at, "its end is not where another block begins")
            at = block.stop
        if at != file.bytes:
            raise _damaged(file, at, "nothing ends it")
        return super().units(scans)

    @contextlib.contextmanager
    def opened(self, unit: Unit) -> Iterator[Opened]:
        """Open the file of a unit."""
        with open_read(unit.file.path, version=unit.file.version) as raw:
            header = _read_header(raw, unit.file)
            rows = functools.partial(_rows, raw, unit, header)
            yield Opened(header.schema, unit.detail.first_row, rows)


def _read_header(raw: BinaryIO, file: InputFile) -> _Header:
    """Read the header of a file."""
    from fastavro.schema import expand_schema

    try:
        found, nbytes = _decoded_header(raw)
        schema: Any = expand_schema(json.loads(found["meta"]["avro.schema"]))
        codec = found["meta"].get("avro.codec", b"null").decode()
    except Exception as error:
        # fastavro raises errors of many types for a schema that makes no sense.
        raise incomplete(file, "Avro", error) from error
    if not isinstance(schema, dict) or schema["type"] not in ("record", "error"):
        raise DataError(
            f"{file.name} holds no records, but other values: write it again as records"
        )
    if codec not in _CODECS:
        raise DataError(
            f"{file.name} is compressed by {codec!r}, which is not read: write it again with "
            f"{', '.join(_CODECS)}"
        )
    check_names((field["name"] for field in schema["fields"]), file)
    numbers = itertools.count()
    columns = {field["name"]: type_of(field["type"], numbers) for field in schema["fields"]}
    if hopeless := [name for name, of in columns.items() if of.raw is None]:
        raise DataError(
            f"column {hopeless[0]!r} of {file.name} {columns[hopeless[0]].problem}: write the file "
            "again without it"
        )
    if all(has_no_bytes(of.raw) for of in columns.values()):
        raise DataError(f"{file.name} holds records without a value: leave it out")
    return _Header(columns, codec, found["sync"], nbytes)


def _decoded_header(raw: BinaryIO) -> tuple[dict[str, Any], int]:
    """Return the header record of a file, and its size."""
    from fastavro import parse_schema, schemaless_reader

    schema = parse_schema(_HEADER)
    size = _HEADER_BYTES
    while True:
        raw.seek(0)
        data = raw.read(size)
        if not data.startswith(_MAGIC):
            raise ValueError("it begins with other bytes")
        stream = io.BytesIO(data)
        try:
            return cast(dict[str, Any], schemaless_reader(stream, schema, None)), stream.tell()
        except EOFError:
            if len(data) < size:
                raise
            size *= 4


def _first_block(raw: BinaryIO, chunk: Chunk, header: _Header) -> int:
    """Return where the first block of a chunk begins, or the end of the chunk if none does."""
    if chunk.start <= header.nbytes:
        return header.nbytes
    at = chunk.start - _SYNC_BYTES
    while at < chunk.stop - _SYNC_BYTES:
        raw.seek(at)
        data = raw.read(_SEARCH_BYTES + _SYNC_BYTES - 1)
        if (found := data.find(header.sync)) >= 0:
            return min(at + found + _SYNC_BYTES, chunk.stop)
        at += _SEARCH_BYTES
    return chunk.stop


def _block_at(raw: BinaryIO, at: int, file: InputFile) -> tuple[int, int, int]:
    """Return the number of records of the block at a position, where its data begin, and its end.

    A sync marker, which is not read, precedes the end.
    """
    raw.seek(at)
    stream = io.BytesIO(raw.read(_COUNTS_BYTES))
    try:
        rows, size = _varint(stream), _varint(stream)
    except IndexError as error:
        raise _damaged(file, at, "it is cut off") from error
    start = at + stream.tell()
    stop = start + size + _SYNC_BYTES
    if rows < 0 or size < 0 or stop > file.bytes:
        raise _damaged(file, at, "it is cut off")
    check_size(size, f"the block at byte {at:,}", file)
    return rows, start, stop


def _check_sync(found: bytes, header: _Header, at: int, file: InputFile) -> None:
    if found != header.sync:
        raise _damaged(file, at, "no sync marker ends it")


def _varint(stream: io.BytesIO) -> int:
    value = shift = 0
    while (byte := stream.read(1)[0]) >= 128:
        value |= (byte & 127) << shift
        shift += 7
    value |= byte << shift
    return (value >> 1) ^ -(value & 1)


def _damaged(file: InputFile, at: int, why: str) -> DataError:
    return unreadable(file, f"the block at byte {at:,}", ValueError(why))


def _rows(
    raw: BinaryIO, unit: Unit, header: _Header, columns: Sequence[str], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield columns of a unit."""
    chosen = {name: header.columns[name] for name in columns}
    stored = pa.struct([(name, of.stored) for name, of in chosen.items()])
    arrow = pa.struct([(name, of.arrow) for name, of in chosen.items()])
    first = unit.detail.first_row
    for records in _records(raw, unit, header, batch_rows):
        try:
            batch = _batch(records, stored, arrow)
            check_values(batch)
        except _FAULTS as error:
            place = f"rows {first} to {first + len(records) - 1}"
            raise unreadable(unit.file, place, error) from error
        yield batch
        first += len(records)


def _batch(
    records: Sequence[Mapping[str, Any]], stored: pa.DataType, arrow: pa.DataType
) -> pa.RecordBatch:
    if not arrow.num_fields:
        # A struct without fields would lose the number of rows.
        return pa.record_batch([pa.nulls(len(records))], names=[""]).select([])
    return pa.RecordBatch.from_struct_array(pa.array(records, stored).view(arrow))


def _records(
    raw: BinaryIO, unit: Unit, header: _Header, batch_rows: int
) -> Iterator[list[dict[str, Any]]]:
    """Yield the decoded records of a unit, at most `batch_rows` or about `_BATCH_BYTES` each."""
    from fastavro import parse_schema, schemaless_reader
    from fastavro.read import LOGICAL_READERS

    LOGICAL_READERS.update({f"{kind}-{DECIMAL}": read_decimal for kind in ("bytes", "fixed")})
    fields = {name: of.raw for name, of in header.columns.items()}
    schema = parse_schema(raw_record(fields, itertools.count(start=-1)))
    found: list[Any] = []
    at, nbytes = unit.start, 0
    while at < unit.stop:
        rows, start, stop = _block_at(raw, at, unit.file)
        raw.seek(start)
        data = raw.read(stop - start)
        _check_sync(data[-_SYNC_BYTES:], header, at, unit.file)
        try:
            stream = io.BytesIO(_CODECS[header.codec](data[:-_SYNC_BYTES]))
            for _ in range(rows):
                before = stream.tell()
                found.append(schemaless_reader(stream, schema, None))
                nbytes += stream.tell() - before
                if len(found) == batch_rows or nbytes >= _BATCH_BYTES:
                    yield found
                    found, nbytes = [], 0
            if rest := len(stream.read()):
                raise ValueError(f"{rest:,} bytes follow its records")
        except _FAULTS as error:
            raise unreadable(unit.file, f"the block at byte {at:,}", error) from error
        at = stop
    if found:
        yield found


def _decompressed(decompressor: Any, data: bytes) -> bytes:
    # A few bytes can become many GB.
    found: bytes = decompressor.decompress(data, MOST_BYTES + 1)
    _check_decompressed(len(found))
    # Some writers leave a part of a checksum behind the data.
    if not decompressor.eof:
        raise ValueError("its compressed data do not end where it ends")
    return found


def _check_decompressed(nbytes: int) -> None:
    if nbytes > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES:,} bytes, which are read at once")


def _from_snappy(data: bytes) -> bytes:
    """Decompress a block, whose last bytes are a checksum."""
    size = shift = at = 0
    while True:
        byte = data[at]
        size |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            break
    _check_decompressed(size)
    found: bytes = pa.decompress(data[:-4], size, "snappy", asbytes=True)
    if zlib.crc32(found) != int.from_bytes(data[-4:], "big"):
        raise ValueError("its checksum differs")
    return found


def _from_zstandard(data: bytes) -> bytes:
    found = bytes(pa.CompressedInputStream(pa.BufferReader(data), "zstd").read(MOST_BYTES + 1))
    _check_decompressed(len(found))
    return found


_CODECS = {
    "null": lambda data: data,
    "deflate": lambda data: _decompressed(zlib.decompressobj(-zlib.MAX_WBITS), data),
    "snappy": _from_snappy,
    "bzip2": lambda data: _decompressed(bz2.BZ2Decompressor(), data),
    "xz": lambda data: _decompressed(lzma.LZMADecompressor(), data),
    "zstandard": _from_zstandard,
}
