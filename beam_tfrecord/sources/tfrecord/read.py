"""Cuts TFRecord files into units, and reads the records of a unit: checked, and as rows."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from beam_tfrecord.errors import DataError
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.manifest import Manifest
from beam_tfrecord.native.values import FAULT_REASONS
from beam_tfrecord.records.decoding import Decoder
from beam_tfrecord.records.tfrecord import (
    HEADER_BYTES,
    LENGTH_BYTES,
    RecordBlock,
    RecordFault,
    detect_compression,
    read_part,
)
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.file_parts import incomplete
from beam_tfrecord.sources.hive import with_partitions
from beam_tfrecord.sources.merging import fields_inside
from beam_tfrecord.sources.tfrecord.listing import ShardFile
from beam_tfrecord.storage import is_in_zip, open_read

_OF_RECORD = re.compile(r"record (\d+): (.*)", re.DOTALL)


class RecordUnit(NamedTuple):
    """How a unit is read."""

    compression: str
    first_record: int
    split: str


class Cuts(NamedTuple):
    """Where a file can be cut."""

    compression: str
    starts: tuple[int, ...]
    records: tuple[int, ...]


@contextlib.contextmanager
def opened(file: InputFile) -> Iterator[BinaryIO]:
    """Open a file; of an object, the version that was listed."""
    try:
        with open_read(file.path, version=file.version) as stream:
            yield stream
    except FileNotFoundError as error:
        raise file.removed() from error
    except OSError as error:
        raise incomplete(file, "TFRecord", error) from error


def cuts_of(file: InputFile, unit_bytes: int, most_bytes: int) -> Cuts:
    """Return where a file can be cut into units of about `unit_bytes`.

    A file of up to `most_bytes`, a compressed file and one in a zip file are single units. Others
    are walked through, record by record.
    """
    with opened(file) as stream:
        compression = detect_compression(stream)
    starts, records = [0], [0]
    if not compression and not is_in_zip(file.path) and file.bytes > most_bytes:
        # At damage the last unit begins, and reading it finds the damage.
        with contextlib.suppress(DataError):
            for block in blocks_of(file, 0, file.bytes, RecordUnit("", 0, "")):
                positions = block.starts + block.position
                while positions[-1] >= starts[-1] + unit_bytes:
                    index = int(np.searchsorted(positions, starts[-1] + unit_bytes))
                    starts.append(int(positions[index]))
                    records.append(block.first_record + index)
    return Cuts(compression, tuple(starts), tuple(records))


def blocks_of(file: InputFile, start: int, stop: int, unit: RecordUnit) -> Iterator[RecordBlock]:
    """Yield the records of a unit in blocks; numbers of records count within the file."""

    def fail(fault: RecordFault) -> None:
        raise _damaged(file, fault, unit.compression)

    with opened(file) as stream:
        yield from read_part(
            stream,
            start,
            stop,
            compression=unit.compression,
            first_record=unit.first_record,
            on_fault=fail,
        )


def _damaged(file: InputFile, fault: RecordFault, compression: str) -> DataError:
    if fault.reason == FAULT_REASONS[2] and not fault.position and not compression:
        with opened(file) as stream:
            has_none = stream.read(HEADER_BYTES)[LENGTH_BYTES:] == bytes(4)
        reason = "it has no checksums" if has_none else "it does not begin with a record"
        return incomplete(file, "TFRecord", ValueError(reason))
    cure = "restore the file, or leave it out"
    if isinstance(file, ShardFile):
        cure = "restore the file, or save its intact records with repair"
    return DataError(f"{file.name} is damaged at {fault.where}: {fault.reason}: {cure}")


class RowReader:
    """Decodes blocks of records of one file."""

    def __init__(self, file: InputFile, schema: pa.Schema, *, union: bool) -> None:
        inside = pa.schema([field for field in schema if field.name not in dict(file.partitions)])
        stored = Schema.from_arrow(inside)
        if isinstance(file, ShardFile):
            stored = Manifest.load(file.manifest).schema
            inside = pa.schema(fields_inside(schema, stored.names, file, union=union))
        self._file = file
        self._schema = schema
        self._inside = inside
        self._decoder = Decoder(stored, inside.names)

    def rows(self, block: RecordBlock) -> pa.RecordBatch:
        """Return the rows of a block."""
        try:
            found = self._decoder.decode(block.data, block.starts)
        except DataError as error:
            raise DataError(self._located(str(error), block)) from error
        for field, array in zip(self._inside, found.columns, strict=True):
            if array.null_count and not field.nullable:
                at = array.is_null().index(True).as_py()
                message = f"record {at}: a value of column {field.name!r} is missing"
                raise DataError(self._located(message, block))
        if len(self._inside):
            found = pa.RecordBatch.from_arrays(found.columns, schema=self._inside)
        return with_partitions(found, self._file, self._schema)

    def _located(self, message: str, block: RecordBlock) -> str:
        """Return a message with the number of the record within the file."""
        first, name = block.first_record, self._file.name
        if (found := _OF_RECORD.match(message)) is not None:
            return f"{name} record {first + int(found[1])}: {found[2]}"
        return f"{name}, in the records from {first} on: {message}"
