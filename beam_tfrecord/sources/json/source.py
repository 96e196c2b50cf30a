"""The JSON source: it cuts JSON Lines, infers types from all rows, and rejects rows one by one.

All files follow the same rules:

* A row is an object. Its keys are columns, and a key that a row lacks is null. Blank lines are not
  rows.
* Text is text, even if it looks like a time or a number.
* Integers are int64; larger ones are rejects. Numbers with a fraction or an exponent, ``NaN``,
  ``Infinity`` and ``-Infinity`` are the nearest float64; one too large for it is a reject.
* A column of integers and fractions is float64, unless an integer is beyond 2^53 and so may not be
  exact.
* Arrays are lists, and objects are structs. Values that differ in kind are refused.
* A row that has a key twice, half of a surrogate pair or invalid UTF-8 is a reject.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from beam_tfrecord.features.arrow_types import type_of_column
from beam_tfrecord.features.convert_to_schema import NoConversion
from beam_tfrecord.options.sources import JsonOptions
from beam_tfrecord.rows.batch import DEFAULT_BATCH_ROWS, MAX_VALUE_CHARS, Batch, Reject, bad_value
from beam_tfrecord.sources.base import Chunk, Scan, Unit
from beam_tfrecord.sources.json.parse import Fault, fault_of, misfit_of, parse_rows
from beam_tfrecord.sources.json.text import LINES, JsonUnit, Lines, form_of, read_lines
from beam_tfrecord.sources.json.types import (
    Finder,
    JsonInference,
    infer_schema,
    not_readable,
    parsed_type,
)
from beam_tfrecord.sources.text_files import (
    BLOCK_BYTES,
    TextFiles,
    batch_of,
    converted,
    is_stream,
    open_text,
    text_bytes_of,
)

SUFFIXES = (".json", ".jsonl", ".ndjson")


class _ScanDetail(NamedTuple):
    form: str | None  # in the first scan of a file
    newlines: int
    second_line: int  # position after the first newline; -1 if there is none


@dataclasses.dataclass(frozen=True)
class Json(JsonOptions, TextFiles):
    """JSON Lines and JSON files, plain or compressed (``.gz .bz2 .zst .lz4 .xz``)."""

    kind: ClassVar[str] = "json"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES
    detail_type: ClassVar[Any] = JsonUnit

    def __post_init__(self) -> None:
        super().__post_init__()
        typed = {name: type_of_column(name, arrow) for name, arrow in self.typed.items()}
        for name, arrow in typed.items():
            parsed_type(name, arrow)
        object.__setattr__(self, "types", typed)

    def scan(self, chunk: Chunk) -> Scan:
        form = form_of(chunk.file) if chunk.index == 0 else None
        if is_stream(chunk.file, "utf-8"):
            return Scan(chunk, _ScanDetail(form, 0, -1))
        newlines, second_line, at = 0, -1, chunk.start
        with open_text(chunk.file, "utf-8", chunk.start, chunk.stop) as text:
            while data := text.read(BLOCK_BYTES):
                if second_line < 0 and (found := data.find(b"\n")) >= 0:
                    second_line = at + found + 1
                newlines += data.count(b"\n")
                at += len(data)
        return Scan(chunk, _ScanDetail(form, newlines, second_line))

    def units(self, scans: Sequence[Scan]) -> list[Unit]:
        file, form = scans[0].chunk.file, scans[0].detail.form
        starts = [(0, 1)]
        if form == LINES:
            line = 1
            for scan in scans:
                second: int = scan.detail.second_line
                if scan.chunk.index and 0 <= second < file.bytes:
                    starts.append((second, line + 1))
                line += scan.detail.newlines
        stops = [*(start for start, _ in starts[1:]), file.bytes]
        # The names of columns are in the records, too, so records are about as long as the text.
        ratio = text_bytes_of(file) // max(1, file.bytes)
        return [
            Unit(
                *(file.unit_name(index, len(starts)), file, index, start, stop),
                rows=None,
                input_bytes=stop - start,
                encoded_bytes=max(1, ratio * (stop - start)),
                detail=JsonUnit(form, line),
            )
            for index, ((start, line), stop) in enumerate(zip(starts, stops, strict=True))
        ]

    def infer(self, of: Unit) -> JsonInference:
        """Return the kinds (such as text or double) of all values of a unit, by column."""
        finder = Finder(_address_of(of))
        for lines in read_lines(of):
            finder.add(lines)
        return JsonInference(of.file, of.index, finder.row, finder.fault)

    def merge(self, inferences: Iterable[JsonInference]) -> pa.Schema:
        return infer_schema(inferences, types=self.typed, columns=self.columns)

    def read(
        self, unit: Unit, schema: pa.Schema, *, batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Batch]:
        """Yield the rows of `unit` as at least one batch of exactly `schema`.

        A key that a row lacks is null. A row that does not fit the schema becomes a reject.
        """
        first_row = 0
        for lines in read_lines(unit):
            address = _address(lines, unit, first_row)
            for start in range(0, len(lines), batch_rows):
                part = lines.part(start, start + batch_rows)
                yield _batch(unit, schema, part, first_row, address)
                first_row += len(part)
        if not first_row:
            yield _batch(unit, schema, Lines(b"", []), 0, None)


def _address_of(unit: Unit) -> str:
    """Return the text before the number of a line, or of a row of an array, in messages."""
    return f"{unit.file.name}{':' if unit.detail.form == LINES else ' row '}"


def _address(lines: Lines, unit: Unit, first_row: int) -> tuple[str, int] | None:
    """Return the address for `Origin` of some lines; None if a blank line is among them."""
    # Of all lines that were read as one, so that messages do not depend on the size of batches.
    first, last = lines.numbers[0], lines.numbers[-1]
    return None if last - first >= len(lines) else (_address_of(unit), first - first_row)


def _batch(
    unit: Unit,
    schema: pa.Schema,
    lines: Lines,
    first_row: int,
    address: tuple[str, int] | None,
) -> Batch:
    """Return the rows of some lines, of which the first is row `first_row` of the unit."""
    partitions = dict(unit.file.partitions)
    fields = [field for field in schema if field.name not in partitions]
    parsed = pa.schema([(field.name, parsed_type(field.name, field.type)) for field in fields])
    table, wrong = parse_rows(lines, parsed)
    faults = {row: fault_of(lines.part(row, row + 1).text, parsed) for row in wrong}
    columns, numbers = {}, {}
    for field in fields:
        values = table.column(field.name).combine_chunks()
        columns[field.name], misfits = _column(values, field)
        faults |= {row: misfit_of(lines.part(row, row + 1).text, field) for row in misfits}
        if pa.types.is_float32(field.type):
            numbers[field.name] = values
    rejects = {
        row: _reject(unit, first_row + row, lines.numbers[row], fault)
        for row, fault in faults.items()
    }
    return batch_of(
        *(unit, schema, columns, first_row, len(lines)),
        address=address,
        numbers=numbers,
        rejects=rejects,
    )


def _column(values: pa.Array, field: pa.Field) -> tuple[pa.Array, list[int]]:
    """Return a column in its own type, and the rows with a value that does not fit it."""
    try:
        return converted(values, field.type)
    except NoConversion as error:
        with contextlib.suppress(pa.ArrowException, TypeError, ValueError):
            # Arrow converts nothing to lists of nulls alone, but Python does.
            if pa.types.is_nested(field.type):
                return pa.array(values.to_pylist(), field.type), []
        raise not_readable(field.name, field.type) from error


def _reject(unit: Unit, row: int, number: int, fault: Fault) -> Reject:
    where = f"{_address_of(unit)}{number}"
    if fault.column:
        cure = "correct it, or choose another type by --types or --schema"
        problem = f"{fault.problem}: {cure}"
        return bad_value(unit.name, row, where, fault.column, fault.value, problem)
    message = f"the row in {where} {fault.problem}: correct it, or leave it out"
    return Reject(unit.name, row, "", "bad-row", message, fault.value[:MAX_VALUE_CHARS], where)
