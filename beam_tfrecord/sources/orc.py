"""The ORC source: it cuts files into ranges of stripes, and takes types from the footers.

pyarrow reads the rows. It does not return the places and rows of stripes, but it does return the
footer that holds them, a Protobuf message, which this module parses.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from beam_tfrecord.errors import DataError
from beam_tfrecord.sources.base import Chunk, InputFile, Scan, Unit
from beam_tfrecord.sources.exact_types import plain_field
from beam_tfrecord.sources.file_parts import (
    check_size,
    check_values,
    incomplete,
    open_input,
    sliced,
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

# Fields of the messages of the footer, by their numbers.
_FOOTER = 2
_STRIPES, _TYPES, _STATISTICS = 3, 4, 7
_SUBTYPES = 2
_HAS_NULL = 10
# The statistics of texts and of binary values, and where in these the bytes of all values are.
_TEXT_BYTES = {4: 3, 8: 1}
_INDEX_BYTES, _DATA_BYTES, _FOOTER_BYTES, _ROWS = 2, 3, 4, 5
# Values are assumed to become so many times larger when they are decoded, and at least these bytes
# besides their texts.
_EXPANSION = 3
_VALUE_BYTES = 8
# Earlier releases read timestamps that nanoseconds cannot represent as other timestamps.
_EXACT_PYARROW = 25

_FAULTS = (OSError, pa.ArrowException, UnicodeDecodeError, LookupError, TypeError, ValueError)


@dataclasses.dataclass(frozen=True)
class Orc(TypedFiles):
    """ORC files; units are ranges of stripes."""

    kind: ClassVar[str] = "orc"
    suffixes: ClassVar[tuple[str, ...]] = (".orc",)

    def scan(self, chunk: Chunk) -> Scan:
        file = chunk.file
        with _reader(file) as orc:
            inside = orc.schema
            check_names(inside.names, file)
            fields = [f for f in inside if self.columns is None or f.name in self.columns]
            _check_timestamps(fields, file)
            share = len(fields) / max(1, len(inside))
            try:
                stripes, has_null, text_bytes = _parsed(orc)
                if (rows := sum(stripe.get(_ROWS, 0) for stripe in stripes)) != orc.nrows:
                    raise ValueError(f"its stripes have {rows:,} rows and not {orc.nrows:,}")
                per_row = sum(_VALUE_BYTES + text_bytes[f.name] / max(1, rows) for f in fields)
                blocks = [
                    _block(*numbered, fields, share, per_row) for numbered in enumerate(stripes)
                ]
            except _FAULTS as error:
                raise incomplete(file, "ORC", error) from error
        for index, block in enumerate(blocks):
            check_size(block.uncompressed_bytes, f"stripe {index}", file)
        schema = [plain_field(field).with_nullable(field.name in has_null) for field in fields]
        return Scan(chunk, Contents(pa.schema(schema), tuple(inside.names), tuple(blocks)))

    @contextlib.contextmanager
    def opened(self, unit: Unit) -> Iterator[Opened]:
        """Open the file of a unit."""
        with _reader(unit.file) as orc:
            yield Opened(orc.schema, unit.detail.first_row, functools.partial(_rows, orc, unit))


@contextlib.contextmanager
def _reader(file: InputFile) -> Iterator[Any]:
    """Open a file, and yield the `pyarrow.orc.ORCFile` that reads it."""
    from pyarrow.orc import ORCFile

    with open_input(file) as raw:
        try:
            orc = ORCFile(raw)
            # Evaluated only to raise for unsupported types and for names that are not UTF-8.
            str(orc.schema), orc.schema.names
        except _FAULTS as error:
            raise incomplete(file, "ORC", error) from error
        yield orc


def _check_timestamps(fields: Sequence[pa.Field], file: InputFile) -> None:
    """Check that pyarrow refuses timestamps that it cannot represent."""
    named = [field.name for field in fields if "timestamp[" in str(field.type)]
    if named and int(pa.__version__.partition(".")[0]) < _EXACT_PYARROW:
        raise DataError(
            f"column {named[0]!r} of {file.name} holds timestamps, which pyarrow {pa.__version__} "
            f"may read as others: install pyarrow {_EXACT_PYARROW}, or leave the column out with "
            "--columns"
        )


def _parsed(orc: Any) -> tuple[list[dict[int, Any]], set[str], dict[str, int]]:
    """Return what a footer says of a file."""
    (footer,) = (
        value for number, value in _fields(orc.reader.serialized_file_tail()) if number == _FOOTER
    )
    found: dict[int, list[dict[int, Any]]] = {_STRIPES: [], _TYPES: [], _STATISTICS: []}
    for number, value in _fields(footer):
        if number in found:
            found[number].append(dict(_fields(value)))
    # The first type is the row, a struct of the columns.
    numbers = list(_varints(found[_TYPES][0].get(_SUBTYPES, b"")))
    statistics = dict(enumerate(found[_STATISTICS]))
    has_null = {
        name
        for name, number in zip(orc.schema.names, numbers, strict=True)
        if statistics.get(number, {}).get(_HAS_NULL, True)
    }
    # The types inside of a column come before the next column.
    stops = [*numbers[1:], len(found[_TYPES])]
    text_bytes = {
        name: sum(_text_bytes_of(statistics.get(at, {})) for at in range(start, stop))
        for name, start, stop in zip(orc.schema.names, numbers, stops, strict=True)
    }
    return found[_STRIPES], has_null, text_bytes


def _text_bytes_of(statistics: dict[int, Any]) -> int:
    """Return the bytes of all texts or binary values of a type; 0 if it has others."""
    for kind, place in _TEXT_BYTES.items():
        if kind in statistics:
            value = dict(_fields(statistics[kind])).get(place, 0)
            return int(value >> 1 ^ -(value & 1))
    return 0


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the numbers and values of the fields of a Protobuf message: integers and bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        size, at = _varint(message, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
        yield key >> 3, message[at : at + size]
        at += size


def _varints(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        yield value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the varint at a position, and where it ends."""
    value = shift = 0
    while data[at] >= 128:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1


def _block(
    index: int, stripe: dict[int, int], fields: Sequence[pa.Field], share: float, per_row: float
) -> Block:
    """Return a stripe, given the share of its columns that is read, and decoded bytes of a row."""
    rows = stripe.get(_ROWS, 0)
    size = sum(stripe.get(part, 0) for part in (_INDEX_BYTES, _DATA_BYTES, _FOOTER_BYTES))
    read = int(share * size)
    decoded = max(read * _EXPANSION, int(rows * per_row))
    return Block(
        index,
        index + 1,
        rows,
        compressed_bytes=read,
        uncompressed_bytes=decoded,
        encoded_bytes=rows * framing_bytes(field.name for field in fields) + decoded,
    )


def _rows(
    orc: Any, unit: Unit, columns: Sequence[str], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield columns of a unit."""
    # Without a column, pyarrow would lose the number of rows.
    included = list(columns) or orc.schema.names[:1]
    for stripe in range(unit.start, unit.stop):
        try:
            batch = orc.read_stripe(stripe, columns=included)
            check_values(batch)
        except _FAULTS as error:
            raise unreadable(unit.file, f"stripe {stripe}", error) from error
        yield from sliced(batch.select(list(columns)), batch_rows)
