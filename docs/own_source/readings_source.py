"""A source of binary files of a sensor, each of which is a table: a time and a value a record."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pyarrow as pa

from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.typed_files import OpenTable, Piece, TypedFiles

RECORD = np.dtype([("time", "<i8"), ("value", "<f4")])
SCHEMA = pa.schema([("time", pa.timestamp("us")), ("value", pa.float32())])
PIECE_ROWS = 2**16


@dataclasses.dataclass(frozen=True)
class Readings(TypedFiles):
    """Records of 12 bytes; a piece is some of them."""

    kind: ClassVar[str] = "readings"
    title: ClassVar[str] = "readings"  # In messages about damaged files.
    suffixes: ClassVar[tuple[str, ...]] = (".readings",)
    faults = (OSError, ValueError)  # What `open`, its pieces and `read` raise for a damaged file.

    def open(self, raw: pa.NativeFile, file: InputFile) -> OpenTable:
        """Say which columns and pieces a file has, and how pieces are read."""
        if file.bytes % RECORD.itemsize:
            raise ValueError("its last record is cut off")
        rows = file.bytes // RECORD.itemsize
        return OpenTable(SCHEMA, pieces_of(rows), functools.partial(read, raw))


def pieces_of(rows: int) -> Iterator[Piece]:
    """Yield the pieces of a file."""
    for start in range(0, rows, PIECE_ROWS):
        stop = min(start + PIECE_ROWS, rows)
        nbytes = (stop - start) * RECORD.itemsize
        yield Piece(start, stop, stop - start, nbytes, nbytes)


def read(
    raw: pa.NativeFile, start: int, stop: int, fields: pa.Schema, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield some columns of some pieces of a file."""
    raw.seek(start * RECORD.itemsize)
    for first in range(start, stop, PIECE_ROWS):
        count = min(PIECE_ROWS, stop - first)
        records = np.frombuffer(raw.read(count * RECORD.itemsize), RECORD)
        columns = [pa.array(records[field.name]).view(field.type) for field in fields]
        yield pa.RecordBatch.from_arrays(columns, fields.names)
