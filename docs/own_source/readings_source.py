"""A source of binary files of a sensor, each of which is a table: a time and a value a record."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pyarrow as pa

from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.typed_files import OpenTable, Part, TypedFiles

RECORD = np.dtype([("time", "<i8"), ("value", "<f4")])
SCHEMA = pa.schema([("time", pa.timestamp("us")), ("value", pa.float32())])
PART_ROWS = 2**16


@dataclasses.dataclass(frozen=True)
class Readings(TypedFiles):
    """Records of 12 bytes; a part is some of them."""

    kind: ClassVar[str] = "readings"
    title: ClassVar[str] = "readings"  # In messages about damaged files.
    suffixes: ClassVar[tuple[str, ...]] = (".readings",)
    faults = (OSError, ValueError)  # What `open`, its parts and `read` raise for a damaged file.

    def open(self, raw: pa.NativeFile, file: InputFile) -> OpenTable:
        """Say which columns and parts a file has, and how parts are read."""
        if file.bytes % RECORD.itemsize:
            raise ValueError("its last record is cut off")
        rows = file.bytes // RECORD.itemsize
        return OpenTable(SCHEMA, parts_of(rows), functools.partial(read, raw))


def parts_of(rows: int) -> Iterator[Part]:
    """Yield the parts of a file."""
    for start in range(0, rows, PART_ROWS):
        stop = min(start + PART_ROWS, rows)
        nbytes = (stop - start) * RECORD.itemsize
        yield Part(start, stop, stop - start, nbytes, nbytes)


def read(
    raw: pa.NativeFile, start: int, stop: int, fields: pa.Schema, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield some columns of some parts of a file."""
    raw.seek(start * RECORD.itemsize)
    for first in range(start, stop, PART_ROWS):
        count = min(PART_ROWS, stop - first)
        records = np.frombuffer(raw.read(count * RECORD.itemsize), RECORD)
        columns = [pa.array(records[field.name]).view(field.type) for field in fields]
        yield pa.RecordBatch.from_arrays(columns, fields.names)
