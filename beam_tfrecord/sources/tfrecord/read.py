"""Cuts TFRecord files into units, and reads the records of a unit, with every checksum checked."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_tfrecord import native
from beam_tfrecord.errors import DataError
from beam_tfrecord.native.values import FAULT_REASONS
from beam_tfrecord.records.tfrecord import (
    FRAME_BYTES,
    RecordBlock,
    RecordFault,
    detect_compression,
    is_header,
    read_part,
)
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.file_parts import format_of, raise_infrastructure
from beam_tfrecord.sources.tfrecord.listing import ShardFile
from beam_tfrecord.storage import is_in_zip, is_remote, open_read

Int64Array = npt.NDArray[np.int64]

_WINDOW_BYTES = 2**20
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
    version = file.version if is_remote(file.path) else ""
    try:
        with open_read(file.path, version=version) as stream:
            yield stream
    except FileNotFoundError as error:
        raise file.removed() from error
    except OSError as error:
        raise_infrastructure(error)
        raise DataError(
            f"cannot read {file.name} ({error}): check that the file is complete"
        ) from error


def cuts_of(file: InputFile, unit_bytes: int, most_bytes: int) -> Cuts:
    """Return where a file can be cut into units of about `unit_bytes`.

    A file of up to `most_bytes`, a compressed file and one in a zip file are single units. Others
    are walked through, record by record. At a damaged record the last unit begins, so that reading
    it finds the damage.
    """
    with opened(file) as stream:
        compression = detect_compression(stream)
        if compression or is_in_zip(file.path) or file.bytes <= most_bytes:
            return Cuts(compression, (0,), (0,))
        starts, records = [0], [0]
        for first, positions in _records(stream, file.bytes):
            while positions[-1] >= starts[-1] + unit_bytes:
                index = int(np.searchsorted(positions, starts[-1] + unit_bytes))
                starts.append(int(positions[index]))
                records.append(first + index)
    return Cuts("", tuple(starts), tuple(records))


def _records(stream: BinaryIO, nbytes: int) -> Iterator[tuple[int, Int64Array]]:
    """Yield number and positions of consecutive records, one window of the file after the other.

    The bytes of a record larger than a window are skipped. At any damage the walk ends.
    """
    at, record, buffer = 0, 0, np.empty(_WINDOW_BYTES, np.uint8)
    while at < nbytes:
        stream.seek(at)
        count = stream.readinto(buffer.data)  # type: ignore[attr-defined]
        frames = native.scan_frames(buffer[:count], True)
        head, size = buffer[: min(count, _HEADER_BYTES)], frames.consumed
        if frames.fault is not None or len(head) < _HEADER_BYTES or not is_header(head):
            return
        starts = frames.starts
        if not size:
            starts = np.zeros(1, np.int64)
            size = FRAME_BYTES + int.from_bytes(head[:_LENGTH_BYTES].tobytes(), "little")
        yield record, starts + at
        at += size
        record += len(starts)


def blocks_of(file: InputFile, start: int, stop: int, unit: RecordUnit) -> Iterator[RecordBlock]:
    """Yield the records of a unit in blocks; numbers of records count within the file."""

    def fail(fault: RecordFault) -> None:
        raise DataError(_message(file, fault, unit.compression))

    with opened(file) as stream:
        yield from read_part(
            stream,
            start,
            stop,
            compression=unit.compression,
            first_record=unit.first_record,
            on_fault=fail,
        )


def _message(file: InputFile, fault: RecordFault, compression: str) -> str:
    if not fault.position and not compression and fault.reason == FAULT_REASONS[2]:
        with opened(file) as stream:
            head = stream.read(_HEADER_BYTES)
        if head[_LENGTH_BYTES:] == bytes(4):
            return (
                f"{file.name} has no checksums (those of record 0 are zero): write it again with a "
                "program that computes them"
            )
        if found := format_of(head):
            return (
                f"{file.name} begins as {found}, and not as a TFRecord file: give it the suffix of "
                "what it is"
            )
        return f"{file.name} is not a TFRecord file, or is damaged at byte 0: {fault.reason}"
    cure = "restore the file, or save its intact records with repair"
    if not isinstance(file, ShardFile):
        cure = "restore the file, or leave it out"
    return f"{file.name} is damaged at {fault.where}: {fault.reason}: {cure}"


def split_rows(block: RecordBlock, batch_rows: int) -> Iterator[RecordBlock]:
    """Yield a block in blocks of at most `batch_rows` records, each with its own bytes."""
    ends: Sequence[int] = [*block.starts[batch_rows::batch_rows].tolist(), len(block.data)]
    for number, end in enumerate(ends):
        first = number * batch_rows
        starts = block.starts[first : first + batch_rows]
        begin = int(starts[0]) if len(starts) else 0
        yield RecordBlock(
            block.data[begin:end],
            starts - begin,
            block.position + begin,
            block.first_record + first,
        )
