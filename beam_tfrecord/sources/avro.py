"""Reads Avro files, split by data blocks; column types come from the schemas of the files.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from beam_tfrecord.errors import DataError
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.damaged_files import MOST_BYTES, PartOfFile, check_values, incomplete
from beam_tfrecord.sources.typed_files import Batches, OpenTable, Piece, TypedFiles, joined

_SYNC_BYTES = 16
# Rows are decoded up to about this number of bytes at a time.
_BATCH_BYTES = 2**24
# Compressed blocks are assumed to become so many times larger.
_EXPANSION = 3
_MOST_DIGITS = 76
# A logical type of our own: fastavro would round decimals that have too many digits.
_DECIMAL = "beam_tfrecord-decimal"
# The types that values are decoded as (a number is the size of a ``fixed``), stored and viewed as.
_PRIMITIVES: dict[str, tuple[Any, pa.DataType, pa.DataType]] = {
    "null": ("null", pa.null(), pa.null()),
    "boolean": ("boolean", pa.bool_(), pa.bool_()),
    "int": ("int", pa.int32(), pa.int32()),
    "long": ("long", pa.int64(), pa.int64()),
    "float": (4, pa.binary(4), pa.float32()),
    "double": (8, pa.binary(8), pa.float64()),
    "bytes": ("bytes", pa.binary(), pa.binary()),
    "string": ("bytes", pa.binary(), pa.string()),
}
_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
_LOGICAL: dict[tuple[str, Any], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    **{("long", f"timestamp-{name}"): pa.timestamp(unit, "UTC") for name, unit in _UNITS.items()},
    **{("long", f"local-timestamp-{name}"): pa.timestamp(unit) for name, unit in _UNITS.items()},
}


@dataclasses.dataclass(frozen=True)
class Avro(TypedFiles):
    """Avro object container files; a piece is some blocks."""

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
        pieces = joined(_pieces(raw, header), self.piece_bytes)
        return OpenTable(pa.schema(fields), pieces, functools.partial(_read, raw, header))


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


def _pieces(raw: pa.NativeFile, header: _Header) -> Iterator[Piece]:
    start = header.nbytes
    expansion = 1 if header.codec == "null" else _EXPANSION
    for block in _blocks(raw, header, start, raw.size()):
        stop = start + block.size
        yield Piece(start, stop, block.num_records, block.size, block.size * expansion)
        start = stop


def _read(
    raw: pa.NativeFile, header: _Header, start: int, stop: int, fields: pa.Schema, batch_rows: int
) -> Batches:
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
    for position, byte in enumerate(data):
        size |= (byte & 127) << 7 * position
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


class AvroType(NamedTuple):
    """How values of an Avro type are decoded."""

    raw: Any
    stored: pa.DataType
    arrow: pa.DataType
    problem: str = ""
    has_bytes: bool = True
    is_nullable: bool = False


def type_of(avro: Any, numbers: Iterator[int]) -> AvroType:
    """Return how to decode values of an expanded Avro type."""
    match avro:
        case list():
            return _union([type_of(branch, numbers) for branch in avro])
        case str():
            return type_of({"type": avro}, numbers)
        case {"type": "record" | "error"}:
            fields = {field["name"]: type_of(field["type"], numbers) for field in avro["fields"]}
            return record_of(fields, numbers)
        case {"type": "array"}:
            return _list(type_of(avro["items"], numbers))
        case {"type": "map"}:
            key = AvroType("bytes", pa.binary(), pa.string())
            value = type_of(avro["values"], numbers)
            pairs = _list(record_of({"key": key, "value": value}, numbers))
            return pairs._replace(arrow=pa.map_(pa.string(), value.arrow))
        case {"type": "enum"}:
            raw = {"type": "enum", "name": f"t{next(numbers)}", "symbols": avro["symbols"]}
            return AvroType(raw, pa.string(), pa.string())
        case {"type": str(kind)} if kind in _PRIMITIVES or kind == "fixed":
            return _scalar(avro, numbers)
        case {"type": str(kind)}:
            raise ValueError(f"it holds records of type {kind} inside themselves")
    return type_of(avro["type"], numbers)


def _union(branches: Sequence[AvroType]) -> AvroType:
    values = [of for of in branches if of.raw != "null"] or [*branches]
    found = values[0]
    if len(values) > 1:
        found = found._replace(problem="holds values of several types")
    is_nullable = len(values) < len(branches) or found.is_nullable
    raw = [of.raw for of in branches]
    return found._replace(raw=raw, has_bytes=True, is_nullable=is_nullable)


def record_of(fields: Mapping[str, AvroType], numbers: Iterator[int]) -> AvroType:
    """Return how to decode records of some fields."""
    listed = [{"name": name, "type": of.raw} for name, of in fields.items()]
    return AvroType(
        {"type": "record", "name": f"t{next(numbers)}", "fields": listed},
        pa.struct([(name, of.stored) for name, of in fields.items()]),
        pa.struct([(name, of.arrow) for name, of in fields.items()]),
        next((of.problem for of in fields.values() if of.problem), ""),
        any(of.has_bytes for of in fields.values()),
    )


def _list(item: AvroType) -> AvroType:
    if not item.has_bytes:
        # Damage could state any number of them, and so fill the memory.
        raise ValueError("it holds lists of nothing")
    raw = {"type": "array", "items": item.raw}
    return AvroType(raw, pa.list_(item.stored), pa.list_(item.arrow), item.problem)


def _scalar(avro: Mapping[str, Any], numbers: Iterator[int]) -> AvroType:
    kind, logical = avro["type"], avro.get("logicalType")
    if kind == "fixed":
        raw, stored, arrow = avro["size"], pa.binary(avro["size"]), pa.binary(avro["size"])
    else:
        raw, stored, arrow = _PRIMITIVES[kind]
    has_bytes = raw not in ("null", 0)
    if isinstance(raw, int):
        raw = {"type": "fixed", "name": f"t{next(numbers)}", "size": raw}
    # Readers of Avro ignore a logical type that they do not know, or that does not fit.
    arrow = _LOGICAL.get((kind, logical), arrow)
    if logical == "uuid" and stored == pa.binary(16):
        arrow = pa.uuid()
    of = AvroType(raw, stored, arrow, has_bytes=has_bytes, is_nullable=kind == "null")
    if logical == "duration" and kind == "fixed":
        return of._replace(problem="holds durations in months, days and milliseconds")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return _decimal(avro.get("precision", 0), avro.get("scale", 0), of)
    return of


def _decimal(precision: int, scale: int, of: AvroType) -> AvroType:
    if not 0 <= scale <= precision <= _MOST_DIGITS or not precision:
        return of._replace(problem=f"holds decimals of precision {precision} and scale {scale}")
    size = _decimal_bytes(precision)
    make = pa.decimal128 if size == 16 else pa.decimal256
    plain = of.raw if isinstance(of.raw, dict) else {"type": of.raw}
    raw = {**plain, "logicalType": _DECIMAL, "precision": precision}
    return of._replace(raw=raw, stored=pa.binary(size), arrow=make(precision, scale))


def _decimal_bytes(precision: int) -> int:
    return 16 if precision <= 38 else 32


def _read_decimal(data: Any, avro: Any, _: Any) -> bytes:
    """Return a decimal in Arrow's form: little-endian and of a fixed size."""
    unscaled = int.from_bytes(data, "big", signed=True)
    return unscaled.to_bytes(_decimal_bytes(avro["precision"]), "little", signed=True)


DECIMAL_READERS = {f"{kind}-{_DECIMAL}": _read_decimal for kind in ("bytes", "fixed")}
