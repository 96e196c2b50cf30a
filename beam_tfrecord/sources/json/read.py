"""Reads one unit of a JSON file, to infer the types of columns or to yield batches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from beam_tfrecord.batch import MAX_VALUE_CHARS, Batch, Reject
from beam_tfrecord.features.convert_to_schema import NoConversion
from beam_tfrecord.sources.base import Unit
from beam_tfrecord.sources.json.parse import Fault, fault_of, misfit_of, parse_rows
from beam_tfrecord.sources.json.text import LINES, Lines, read_lines
from beam_tfrecord.sources.json.types import Finder, JsonInference, not_readable, parsed_type
from beam_tfrecord.sources.rejects import bad_value
from beam_tfrecord.sources.text_files import batch_of, converted


def address_of(unit: Unit) -> str:
    """Return the text before the number of a line, or of a row of an array, in messages."""
    return f"{unit.file.name}{':' if unit.detail.form == LINES else ' row '}"


def infer_unit(unit: Unit) -> JsonInference:
    """Return the kinds (such as text or double) of all values of a unit, by column."""
    address = address_of(unit)
    finder = Finder(address)
    for lines in read_lines(unit):
        finder.add(lines)
    return JsonInference(unit.file, unit.index, address, finder.kinds, finder.fault)


def read_unit(unit: Unit, schema: pa.Schema, *, batch_rows: int) -> Iterator[Batch]:
    """Yield the rows of `unit` as at least one batch of exactly `schema`.

    A key that a row lacks is null. A row that does not fit the schema becomes a reject.
    """
    first_row = 0
    for lines in read_lines(unit):
        address = _address(lines, unit, first_row)
        for start in range(0, len(lines), batch_rows):
            part = lines.slice(start, min(start + batch_rows, len(lines)))
            yield _batch(unit, schema, part, first_row, address)
            first_row += len(part)
    if not first_row:
        yield _batch(unit, schema, Lines.of([], np.empty(0, np.int64)), 0, None)


def _address(lines: Lines, unit: Unit, first_row: int) -> tuple[str, int] | None:
    """Return the address for `Origin` of some lines; None if a blank line is among them."""
    # Of all lines that were read as one, so that messages do not depend on the size of batches.
    if not len(lines) or lines.numbers[-1] - lines.numbers[0] >= len(lines):
        return None
    return address_of(unit), int(lines.numbers[0]) - first_row


def _batch(
    unit: Unit, schema: pa.Schema, lines: Lines, first_row: int, address: tuple[str, int] | None
) -> Batch:
    """Return the rows of some lines, of which the first is row `first_row` of the unit."""
    partitions = dict(unit.file.partitions)
    fields = [field for field in schema if field.name not in partitions]
    parsed = pa.schema([(field.name, parsed_type(field.name, field.type)) for field in fields])
    table, wrong = parse_rows(lines, parsed)
    faults = {row: fault_of(lines.line(row), parsed) for row in wrong}
    columns, numbers = {}, {}
    for field in fields:
        values = table.column(field.name).combine_chunks()
        columns[field.name], misfits = _column(values, field)
        faults |= {row: misfit_of(lines.line(row), field) for row in misfits}
        if pa.types.is_float32(field.type):
            numbers[field.name] = values
    rejects = {
        row: _reject(unit, first_row + row, int(lines.numbers[row]), fault)
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
    where = f"{address_of(unit)}{number}"
    if fault.column:
        cure = "correct it, or choose another type by --types or --schema"
        problem = f"{fault.problem}: {cure}"
        return bad_value(unit.name, row, where, fault.column, fault.value, problem)
    message = f"the row in {where} {fault.problem}: correct it, or leave it out"
    return Reject(unit.name, row, "", "bad-row", message, fault.value[:MAX_VALUE_CHARS], where)
