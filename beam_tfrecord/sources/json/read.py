"""Reads one unit of a JSON file, to infer the types of columns or to yield batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.batch import Batch, Origin, Reject
from beam_tfrecord.features.arrow_arrays import BoolArray, with_nulls_at
from beam_tfrecord.features.arrow_types import is_list
from beam_tfrecord.features.convert_to_schema import NoConversion, convert
from beam_tfrecord.sources.base import Unit
from beam_tfrecord.sources.hive import partition_texts, with_partitions
from beam_tfrecord.sources.json.parse import Fault, fault_of, misfit_of, parse_rows
from beam_tfrecord.sources.json.text import LINES, Lines, read_lines
from beam_tfrecord.sources.json.types import Finder, JsonInference, not_readable, parsed_type

_SHOWN_CHARACTERS = 200
_SHOWN_IN_MESSAGE = 40


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
    reader = _UnitReader(unit, schema)
    first_row = 0
    for lines in read_lines(unit):
        address = _address(lines, unit, first_row)
        for start in range(0, len(lines), batch_rows):
            part = lines.slice(start, min(start + batch_rows, len(lines)))
            yield reader.batch(part, first_row, address)
            first_row += len(part)
    if not first_row:
        yield reader.batch(Lines.of([], np.empty(0, np.int64)), 0, None)


def _address(lines: Lines, unit: Unit, first_row: int) -> tuple[str, int] | None:
    """Return the address for `Origin` of some lines; None if a blank line is among them."""
    # Of all lines that were read as one, so that messages do not depend on the size of batches.
    if not len(lines) or lines.numbers[-1] - lines.numbers[0] >= len(lines):
        return None
    return address_of(unit), int(lines.numbers[0]) - first_row


def _has_lists_of_nulls(arrow: pa.DataType) -> bool:
    if pa.types.is_struct(arrow):
        return any(_has_lists_of_nulls(field.type) for field in arrow)
    if not is_list(arrow):
        return False
    return pa.types.is_null(arrow.value_type) or _has_lists_of_nulls(arrow.value_type)


def _cast(array: pa.Array, arrow: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(arrow):
        return pc.cast(array, arrow.value_type).dictionary_encode().cast(arrow)
    return pc.cast(array, arrow)


def _overflows(before: pa.Array, after: pa.Array) -> BoolArray:
    """Return which rows have a number that only a cast to float32 has made infinite."""
    bad_rows = np.zeros(len(after), bool)
    if _infinities(after) > _infinities(before):
        for row in range(len(after)):
            bad_rows[row] = _infinities(after.slice(row, 1)) > _infinities(before.slice(row, 1))
    return bad_rows


def _infinities(array: pa.Array) -> int:
    """Return the number of infinite numbers in an array and all arrays inside it."""
    if pa.types.is_struct(array.type):
        return sum(map(_infinities, array.flatten()))
    if is_list(array.type):
        return _infinities(array.flatten())
    is_number = pa.types.is_floating(array.type)
    return int(pc.sum(pc.is_inf(array)).as_py() or 0) if is_number else 0


class _UnitReader:
    """Makes batches of the lines of a unit."""

    def __init__(self, unit: Unit, schema: pa.Schema) -> None:
        self._unit, self._schema, self._address = unit, schema, address_of(unit)
        partitions = dict(unit.file.partitions)
        self._fields = [field for field in schema if field.name not in partitions]
        self._parsed = pa.schema(
            [(field.name, parsed_type(field.name, field.type)) for field in self._fields]
        )

    def batch(self, lines: Lines, first_row: int, address: tuple[str, int] | None) -> Batch:
        """Return the rows of some lines, of which the first is row `first_row` of the unit."""
        table, wrong = parse_rows(lines, self._parsed)
        right = np.delete(np.arange(len(lines)), wrong)
        faults = {row: fault_of(lines.line(row), self._parsed) for row in wrong}
        columns = [self._column(table, field) for field in self._fields]
        fits = np.ones(len(right), bool)
        for field, (_, bad_rows) in zip(self._fields, columns, strict=True):
            for at in np.flatnonzero(bad_rows).tolist():
                row = int(right[at])
                faults[row] = misfit_of(lines.line(row), field)
                fits[at] = False
        # A column without name has the number of rows if there is no other column.
        fields = pa.schema([*self._fields, pa.field("", pa.null())])
        arrays = [*(array for array, _ in columns), pa.nulls(len(right))]
        data = pa.RecordBatch.from_arrays(arrays, schema=fields)
        data = data.select(list(range(len(self._fields))))
        numbers = self._numbers(table)
        rows: Any = first_row
        if faults:
            data = data.filter(pa.array(fits))
            numbers = None if numbers is None else numbers.filter(pa.array(fits))
            rows = first_row + right[fits]
        data = with_partitions(data, self._unit.file, self._schema)
        rejects = tuple(self._reject(lines, row, first_row, faults[row]) for row in sorted(faults))
        origin = Origin(self._unit.name, self._unit.index, rows, address=address)
        return Batch(data, origin, rejects=rejects, numbers=numbers)

    def _column(self, table: pa.Table, field: pa.Field) -> tuple[pa.Array, BoolArray]:
        """Return a column in its own type, and which rows have a value that does not fit it."""
        parsed = table.column(field.name).combine_chunks()
        if parsed.type == field.type:
            return parsed, np.zeros(len(parsed), bool)
        try:
            if _has_lists_of_nulls(field.type):
                return pa.array(parsed.to_pylist(), field.type), np.zeros(len(parsed), bool)
            found = convert(parsed, field.type)
            fitting = with_nulls_at(found.array, found.bad_rows)
            array = _cast(fitting, field.type)
        except (NoConversion, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise not_readable(field.name, field.type) from error
        bad_rows = _overflows(fitting, array)
        return array, bad_rows if found.bad_rows is None else found.bad_rows | bad_rows

    def _numbers(self, table: pa.Table) -> pa.RecordBatch | None:
        """Return the more exact numbers of columns that are rounded to float32."""
        exact = {
            field.name: table.column(field.name).combine_chunks()
            for field in self._fields
            if pa.types.is_float32(field.type)
        }
        file, inside = self._unit.file, self._parsed.names
        exact |= partition_texts(file, self._schema, table.num_rows, inside=inside)
        return pa.RecordBatch.from_pydict(exact) if exact else None

    def _reject(self, lines: Lines, row: int, first_row: int, fault: Fault) -> Reject:
        where = f"{self._address}{lines.numbers[row]}"
        text = fault.value[:_SHOWN_IN_MESSAGE]
        text += "…" if len(fault.value) > len(text) else ""
        message = f"the row in {where} {fault.problem}: correct it, or leave it out"
        if fault.column:
            message = (
                f"column {fault.column!r} is {text} in {where}, which {fault.problem}: "
                "correct it, or choose another type by --types or --schema"
            )
        return Reject(
            unit=self._unit.name,
            row=first_row + row,
            column=fault.column,
            code="bad-value" if fault.column else "bad-row",
            message=message,
            value=fault.value[:_SHOWN_CHARACTERS],
            address=where,
        )
