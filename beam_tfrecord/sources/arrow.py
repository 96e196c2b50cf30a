"""The Arrow source: Arrow IPC files and streams. Feather V2 is the format of Arrow files.

The first bytes of a file decide its format, because streams often have the suffix of files. A file
is read as the stream inside of it: pyarrow skips in silence what a damaged footer does not list.
"""

from __future__ import annotations

import dataclasses
import functools
import struct
import sys
from collections.abc import Iterator
from typing import ClassVar

import pyarrow as pa

from beam_tfrecord.errors import DataError
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.file_parts import PartOfFile, check_values
from beam_tfrecord.sources.typed_files import OpenTable, Part, TypedFiles, joined

_FILE_MAGIC, _FEATHER_V1_MAGIC = b"ARROW1", b"FEA1"
# The magic bytes, padded.
_FILE_HEAD_BYTES = 8
# A footer precedes its length and the magic bytes.
_TAIL = struct.Struct("<i6s")
# The first message is looked for in so many bytes.
_MOST_HEAD_BYTES = 2**20
# Messages since Arrow 0.15 begin with this mark.
_MARK = b"\xff\xff\xff\xff"


@dataclasses.dataclass(frozen=True)
class Arrow(TypedFiles):
    """Arrow IPC files and streams, and Feather V2 files; a part is some record batches."""

    kind: ClassVar[str] = "arrow"
    title: ClassVar[str] = "Arrow"
    suffixes: ClassVar[tuple[str, ...]] = (".arrow", ".feather", ".ipc", ".arrows")
    faults = (OSError, EOFError, pa.ArrowException, LookupError, ValueError, struct.error)

    def open(self, raw: pa.NativeFile, file: InputFile) -> OpenTable:
        magic = raw.read(len(_FILE_MAGIC))
        if magic.startswith(_FEATHER_V1_MAGIC):
            raise DataError(
                f"{file.name} is Feather V1, which is not read: write it again as Feather V2, such "
                "as by pyarrow.feather.write_feather(pyarrow.feather.read_table(old), new)"
            )
        raw.seek(0)
        head, stop = b"", raw.size()
        if magic == _FILE_MAGIC:
            head, stop = pa.ipc.open_file(raw).schema.serialize().to_pybytes(), _footer(raw)
            _seek_message(raw)
        start, message = raw.tell(), pa.ipc.read_message(raw)
        if message.type == "schema":
            head, start = message.serialize().to_pybytes(), raw.tell()
        schema = pa.ipc.open_stream(head).schema
        # Names that are not UTF-8 raise here.
        text, _ = str(schema.remove_metadata()), schema.names
        most = self.part_bytes
        if "dictionary<" in text:
            # The dictionaries of a batch are those before it, but polars writes them last.
            most = sys.maxsize
            head += _dictionaries(raw, start, stop) if magic == _FILE_MAGIC else b""
        parts = joined(_parts(raw, head, start, stop), most)
        return OpenTable(schema, parts, functools.partial(_read, raw, head))


def _footer(raw: pa.NativeFile) -> int:
    """Return the position of the footer of a file."""
    end = raw.size() - _TAIL.size
    raw.seek(end)
    length, _ = _TAIL.unpack(raw.read(_TAIL.size))
    return int(end - length)


def _seek_message(raw: pa.NativeFile) -> None:
    """Go to the first message of a file; before it, polars writes a schema that is no message."""
    raw.seek(_FILE_HEAD_BYTES)
    before = raw.read(_MOST_HEAD_BYTES).find(_MARK)
    raw.seek(_FILE_HEAD_BYTES + max(0, before))


def _dictionaries(raw: pa.NativeFile, start: int, stop: int) -> bytes:
    stream = pa.PythonFile(PartOfFile(b"", raw, start, stop), mode="r")
    messages = pa.ipc.MessageReader.open_stream(stream)
    return b"".join(
        message.serialize().to_pybytes() for message in messages if message.type == "dictionary"
    )


def _parts(raw: pa.NativeFile, head: bytes, start: int, stop: int) -> Iterator[Part]:
    """Yield the record batches, each with the dictionaries before it."""
    stream = PartOfFile(head, raw, start, stop)
    first = start
    for batch in pa.ipc.open_stream(pa.PythonFile(stream, mode="r")):
        end = first + stream.tell() - len(head)
        nbytes = end - start
        yield Part(start, end, batch.num_rows, nbytes, max(nbytes, batch.nbytes))
        start = end
    if rest := stop - first - (stream.tell() - len(head)):
        raise ValueError(f"{rest:,} bytes follow the end of its stream")


def _read(
    raw: pa.NativeFile, head: bytes, start: int, stop: int, fields: pa.Schema, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    stream = pa.PythonFile(PartOfFile(head, raw, start, stop), mode="r")
    names = pa.ipc.open_stream(head).schema.names
    options = pa.ipc.IpcReadOptions(
        included_fields=list(map(names.index, fields.names)), use_threads=False
    )
    yield from map(check_values, pa.ipc.open_stream(stream, options=options))
