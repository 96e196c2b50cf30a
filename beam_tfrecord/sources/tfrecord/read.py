"""Cuts TFRecord files into units, and reads the records of a unit, with every checksum checked."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import numpy as np

from beam_tfrecord.errors import DataError
from beam_tfrecord.native.values import FAULT_REASONS
from beam_tfrecord.records.tfrecord import RecordBlock, RecordFault, detect_compression, read_part
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.file_parts import incomplete
from beam_tfrecord.sources.tfrecord.listing import ShardFile
from beam_tfrecord.storage import is_in_zip, open_read

# A record begins with its length and the checksum of that.
_HEADER_BYTES = 12
_LENGTH_BYTES = 8


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
            has_none = stream.read(_HEADER_BYTES)[_LENGTH_BYTES:] == bytes(4)
        reason = "it has no checksums" if has_none else "it does not begin with a record"
        return incomplete(file, "TFRecord", ValueError(reason))
    cure = "restore the file, or leave it out"
    if isinstance(file, ShardFile):
        cure = "restore the file, or save its intact records with repair"
    return DataError(f"{file.name} is damaged at {fault.where}: {fault.reason}: {cure}")


def split_rows(block: RecordBlock, batch_rows: int) -> Iterator[RecordBlock]:
    """Yield a block in blocks of at most `batch_rows` records, each with its own bytes."""
    ends = np.append(block.starts, len(block.data))
    for first in range(0, max(1, len(block.starts)), batch_rows):
        starts = ends[first : first + batch_rows + 1]
        begin = int(starts[0])
        yield RecordBlock(
            block.data[begin : int(starts[-1])],
            starts[:-1] - begin,
            block.position + begin,
            block.first_record + first,
        )
