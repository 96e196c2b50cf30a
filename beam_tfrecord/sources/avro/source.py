"""The Avro source: object container files, which it cuts between blocks.

fastavro decodes the records. Their schema is rewritten for it to one with the same encoding, whose
values Arrow takes as they are: text and numbers as their bytes, dates and times as integers, maps
as arrays of pairs. So values are exact, and text that is not UTF-8 rejects only its row.
"""

from __future__ import annotations

import bz2
import dataclasses
import functools
import io
import itertools
import json
import lzma
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from beam_tfrecord.errors import DataError
from beam_tfrecord.sources.avro.types import DECIMAL_READERS, AvroType, record_of, type_of
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.file_parts import MOST_BYTES, PartOfFile, check_values, incomplete
from beam_tfrecord.sources.typed_files import OpenTable, Part, TypedFiles, joined

_SYNC_BYTES = 16
# Rows are decoded up to about this number of bytes at a time.
_BATCH_BYTES = 2**24
# Compressed blocks are assumed to become so many times larger.
_EXPANSION = 3


@dataclasses.dataclass(frozen=True)
class Avro(TypedFiles):
    """Avro object container files; a part is some blocks."""

    kind: ClassVar[str] = "avro"
    title: ClassVar[str] = "Avro"
    suffixes: ClassVar[tuple[str, ...]] = (".avro",)
    faults = (
        *(OSError, EOFError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError),
        *(pa.ArrowException, struct.error, zlib.error, lzma.LZMAError),
    )

    def open(self, raw: pa.NativeFile, file: InputFile) -> OpenTable:
        header = _read_header(raw, file)
        for name, of in header.columns.items():
            if of.problem and self.reads(name):
                raise DataError(
                    f"column {name!r} of {file.name} {of.problem}: leave it out with --columns"
                )
        fields = [pa.field(name, of.arrow, of.is_nullable) for name, of in header.columns.items()]
        parts = joined(_parts(raw, header), self.part_bytes)
        return OpenTable(pa.schema(fields), parts, functools.partial(_read, raw, header))


class _Header(NamedTuple):
    """The columns and codec of a file; a header for fastavro that names no codec; its own size."""

    columns: Mapping[str, AvroType]
    codec: str
    uncompressed: bytes
    nbytes: int


def _read_header(raw: pa.NativeFile, file: InputFile) -> _Header:
    from fastavro import block_reader, writer
    from fastavro.schema import expand_schema

    stream: Any = PartOfFile(b"", raw, 0, file.bytes)
    try:
        reader = block_reader(stream)
        schema: Any = expand_schema(json.loads(reader.metadata["avro.schema"]))
    except Exception as error:
        # fastavro raises errors of many types for a schema that makes no sense.
        raise incomplete(file, "Avro", error) from error
    nbytes = stream.tell()
    if not isinstance(schema, dict) or schema["type"] not in ("record", "error"):
        raise DataError(
            f"{file.name} holds no records, but other values: write it again as records"
        )
    if reader.codec not in _CODECS:
        raise DataError(
            f"{file.name} is compressed by {reader.codec!r}, which is not read: write it again "
            f"with {', '.join(_CODECS)}"
        )
    numbers = itertools.count()
    columns = {field["name"]: type_of(field["type"], numbers) for field in schema["fields"]}
    record = record_of(columns, numbers)
    if not record.has_bytes:
        raise DataError(f"{file.name} holds records without a value: leave it out")
    raw.seek(nbytes - _SYNC_BYTES)
    uncompressed = io.BytesIO()
    writer(uncompressed, record.raw, [], sync_marker=raw.read(_SYNC_BYTES))
    return _Header(columns, reader.codec, uncompressed.getvalue(), nbytes)


def _blocks(raw: pa.NativeFile, header: _Header, start: int, stop: int) -> Iterator[Any]:
    """Yield the blocks between two positions, whose bytes are still compressed."""
    from fastavro import block_reader
    from fastavro.read import LOGICAL_READERS

    LOGICAL_READERS.update(DECIMAL_READERS)
    stream: Any = PartOfFile(header.uncompressed, raw, start, stop)
    yield from block_reader(stream)
    if rest := len(header.uncompressed) + stop - start - stream.tell():
        raise ValueError(f"it is cut off in its last {rest:,} bytes")


def _parts(raw: pa.NativeFile, header: _Header) -> Iterator[Part]:
    start = header.nbytes
    expansion = 1 if header.codec == "null" else _EXPANSION
    for block in _blocks(raw, header, start, raw.size()):
        stop = start + block.size
        yield Part(start, stop, block.num_records, block.size, block.size * expansion)
        start = stop


def _read(
    raw: pa.NativeFile, header: _Header, start: int, stop: int, fields: pa.Schema, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    chosen = {name: header.columns[name] for name in fields.names}
    stored = pa.struct([(name, of.stored) for name, of in chosen.items()])
    arrow = pa.struct([(name, of.arrow) for name, of in chosen.items()])
    for block in _blocks(raw, header, start, stop):
        data = _CODECS[header.codec](block.bytes_.read(), MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ValueError(f"a block has more than {MOST_BYTES:,} bytes, which are read at once")
        block.bytes_ = io.BytesIO(data)
        records = iter(block)
        count = max(1, block.num_records * _BATCH_BYTES // max(1, len(data)))
        while batch := list(itertools.islice(records, count)):
            structs = pa.array(batch, stored).view(arrow)
            yield check_values(pa.RecordBatch.from_struct_array(structs))
        if rest := len(block.bytes_.read()):
            raise ValueError(f"{rest:,} bytes follow the records of a block")


def _from_snappy(data: bytes, most: int) -> bytes:
    """Decompress a block, which begins with its size and ends with a checksum."""
    size = 0
    for place, byte in enumerate(data):
        size |= (byte & 127) << 7 * place
        if byte < 128:
            break
    found: bytes = pa.decompress(data[:-4], min(size, most), "snappy", asbytes=True)
    if zlib.crc32(found) != int.from_bytes(data[-4:], "big"):
        raise ValueError("the checksum of a block differs")
    return found


# Each decompresses a block, at most to a number of bytes: a few can become many GB.
_CODECS: dict[str, Callable[[bytes, int], bytes]] = {
    "null": lambda data, _: data,
    "deflate": lambda data, most: zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, most),
    "snappy": _from_snappy,
    "bzip2": lambda data, most: bz2.BZ2Decompressor().decompress(data, most),
    "xz": lambda data, most: lzma.LZMADecompressor().decompress(data, most),
    "zstandard": lambda data, most: pa.input_stream(pa.BufferReader(data), "zstd").read(most),
}
