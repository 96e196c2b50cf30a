"""Reads Arrow IPC files (Feather V2) and streams, split by record batches.

The first bytes of a file decide its format, because streams often have the suffix of files. pyarrow
skips in silence what the footer of a damaged file does not list, so the footer is checked first.
"""

from __future__ import annotations

import dataclasses
import struct
import sys
from collections.abc import Iterator
from typing import ClassVar

import pyarrow as pa

from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.damaged_files import PartOfFile, check_values
from beam_tfrecord.sources.typed_files import Batches, OpenTable, Piece, TypedFiles, joined

_FILE_MAGIC = b"ARROW1"
# A footer precedes its length and the magic bytes.
_TAIL = struct.Struct("<i6s")
# Position, bytes of metadata, padding, bytes of data.
_BLOCK = struct.Struct("<qi4xq")
# The fields of a footer that list its dictionaries and record batches.
_DICTIONARIES, _RECORD_BATCHES = 2, 3
# Messages since Arrow 0.15 begin with this mark, and then all with the length of their metadata.
_MARK = b"\xff\xff\xff\xff"
# The magic bytes, padded.
_FILE_HEAD_BYTES = 8
# No message is so short that this padding between messages could hold it.
_MOST_PADDING = 64
# Compressed buffers are assumed to become so many times larger.
_EXPANSION = 2


@dataclasses.dataclass(frozen=True)
class Arrow(TypedFiles):
    """Arrow IPC files and streams, and Feather V2 files; a piece is some record batches."""

    kind: ClassVar[str] = "arrow"
    title: ClassVar[str] = "Arrow"
    suffixes: ClassVar[tuple[str, ...]] = (".arrow", ".feather", ".ipc", ".arrows")
    faults = (OSError, EOFError, pa.ArrowException, LookupError, ValueError, struct.error)

    def open(self, raw: pa.NativeFile, file: InputFile) -> OpenTable:
        is_file = raw.read(len(_FILE_MAGIC)) == _FILE_MAGIC
        raw.seek(0)
        schema = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(raw).schema
        # Names that are not UTF-8 raise here.
        text, _ = str(schema.remove_metadata()), schema.names
        head_bytes = 0 if is_file else raw.tell()
        raw.seek(0)
        head = raw.read(head_bytes)
        found = _in_file(raw) if is_file else _in_stream(raw)
        # The dictionaries of a stream are those before the batch.
        is_whole = not is_file and "dictionary<" in text
        pieces = joined(found, sys.maxsize if is_whole else self.piece_bytes)

        def read(start: int, stop: int, fields: pa.Schema, batch_rows: int) -> Batches:
            included = [schema.get_field_index(name) for name in fields.names]
            options = pa.ipc.IpcReadOptions(included_fields=included, use_threads=False)
            if is_file:
                batches = pa.ipc.open_file(raw, options=options)
                yield from map(check_values, map(batches.get_batch, range(start, stop)))
            else:
                stream = pa.PythonFile(PartOfFile(head, raw, start, stop), mode="r")
                yield from map(check_values, pa.ipc.open_stream(stream, options=options))

        return OpenTable(schema, pieces, read)


def _in_file(raw: pa.NativeFile) -> Iterator[Piece]:
    """Yield the record batches of a file."""
    for number, (start, metadata_bytes, body_bytes) in enumerate(_listed(raw)):
        raw.seek(start)
        metadata = raw.read(metadata_bytes)
        metadata = metadata[8 if metadata.startswith(_MARK) else 4 :]
        batch = _pointed(metadata, _field(metadata, _pointed(metadata, 0), 2))
        rows, is_compressed = (_field(metadata, batch, number) for number in (0, 3))
        num_rows = struct.unpack_from("<q", metadata, rows)[0] if rows else 0
        nbytes = metadata_bytes + body_bytes
        decoded = nbytes * (_EXPANSION if is_compressed else 1)
        yield Piece(number, number + 1, num_rows, nbytes, decoded)


def _listed(raw: pa.NativeFile) -> list[tuple[int, int, int]]:
    """Return the blocks of the record batches in a footer, which has to list all bytes."""
    end = raw.size() - _TAIL.size
    raw.seek(end)
    length, _ = _TAIL.unpack(raw.read(_TAIL.size))
    end -= length
    raw.seek(end)
    footer = raw.read(length)
    dictionaries, batches = (_blocks(footer, of) for of in (_DICTIONARIES, _RECORD_BATCHES))
    blocks = [*sorted(dictionaries + batches), (end, 0, 0)]
    at = blocks[0][0]
    raw.seek(_FILE_HEAD_BYTES)
    # Files of polars have no message of the schema.
    if raw.read(len(_MARK)) == _MARK:
        raw.seek(_FILE_HEAD_BYTES)
        pa.ipc.read_message(raw)
        at = raw.tell()
    for start, metadata_bytes, body_bytes in blocks:
        if not at <= start <= at + _MOST_PADDING:
            raise ValueError(f"its footer lists nothing of bytes {at:,} to {start:,}")
        at = start + metadata_bytes + body_bytes
    return batches


def _blocks(footer: bytes, field: int) -> list[tuple[int, int, int]]:
    """Return start, bytes of metadata and bytes of data of the messages in a field of a footer."""
    at = _field(footer, _pointed(footer, 0), field)
    if not at:
        return []
    vector = _pointed(footer, at)
    (count,) = struct.unpack_from("<I", footer, vector)
    first = vector + 4
    return list(_BLOCK.iter_unpack(footer[first : first + count * _BLOCK.size]))


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
    return at + int(struct.unpack_from("<I", data, at)[0])


def _in_stream(raw: pa.NativeFile) -> Iterator[Piece]:
    """Yield the record batches of a stream, each with the dictionaries before it."""
    raw.seek(0)
    reader = pa.ipc.open_stream(raw)
    start = raw.tell()
    for batch in reader:
        stop = raw.tell()
        nbytes = stop - start
        yield Piece(start, stop, batch.num_rows, nbytes, max(nbytes, batch.nbytes))
        start = stop
    if rest := raw.size() - raw.tell():
        raise ValueError(f"{rest:,} bytes follow the end of its stream")
