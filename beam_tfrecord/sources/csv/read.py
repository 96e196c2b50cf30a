"""Reads one unit (byte range) of a CSV file, to infer the types of columns or to yield batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from beam_tfrecord.base.text import counted
from beam_tfrecord.errors import DataError
from beam_tfrecord.features.arrow_types import type_name
from beam_tfrecord.native import kernel_types as kernel
from beam_tfrecord.native._csv import Filler, Typer, count_lines
from beam_tfrecord.native.kernel_types import BROKEN_ROWS, CsvRowError, Target
from beam_tfrecord.options.sources import CsvOptions
from beam_tfrecord.rows.batch import MAX_VALUE_CHARS, Batch, Reject, bad_value, shortened
from beam_tfrecord.sources.base import Unit
from beam_tfrecord.sources.csv.formats import Format, formats_of
from beam_tfrecord.sources.csv.text import CLOSE_QUOTE, NULL_WORDS, dialect_of
from beam_tfrecord.sources.csv.types import (
    Buffers,
    CsvInference,
    FirstValue,
    array_of,
    exact_of,
    keeps_text,
    kinds_of,
    target_of,
    values_of,
)
from beam_tfrecord.sources.merge_schemas import fields_inside
from beam_tfrecord.sources.text_files import BLOCK_BYTES, MAX_ROW_BYTES, batch_of, open_text

_INFERRED_ROWS = 4096
_OR_END = "; if rows end with it: --skip-lines 1 --no-header --names a,b,end --columns a,b"
_OR_SKIP = ", --skip-lines or --comment"


@dataclasses.dataclass(frozen=True)
class CsvUnit:
    """The detail of a CSV unit: the data besides its byte range that reading it needs."""

    names: tuple[str, ...]
    line: int
    rows_are_lines: bool


def _kernel_options(options: CsvOptions, columns: int) -> dict[str, Any]:
    """Return the options of objects of the kernel that read so many columns."""
    always = tuple(word.encode() for word in options.null_words if word)
    return {"keep_blank": columns == 1, "nulls": NULL_WORDS, "always": always}


@dataclasses.dataclass
class _Stretch:
    """A part of the unit's text in memory; the next row starts at byte `at`, on line `line`."""

    data: bytes
    at: int
    line: int
    final: bool

    def move(self, at: int) -> None:
        self.at, self.line = at, self.line_of(at)

    def line_of(self, at: int) -> int:
        lines: int = count_lines(self.data, self.at, at)
        return self.line + lines


def _stretches(unit: Unit, encoding: str) -> Iterator[_Stretch]:
    """Yield stretches, in which the caller moves `at`; the unread rest begins the next stretch."""
    with open_text(unit.file, encoding, unit.start, unit.stop) as text:
        stretch = _Stretch(b"", 0, unit.detail.line, False)
        while not stretch.final:
            left = stretch.data[stretch.at :]
            if len(left) > MAX_ROW_BYTES:
                raise DataError(
                    f"the row in {unit.file.name}:{stretch.line} is longer than {MAX_ROW_BYTES} "
                    f"bytes: a quote may never close there: {CLOSE_QUOTE}"
                )
            # A read as long as the rest limits the copies of a very long row.
            piece = text.read(max(BLOCK_BYTES, len(left)))
            stretch = _Stretch(left + piece, 0, stretch.line, not piece)
            yield stretch


def infer_unit(unit: Unit, options: CsvOptions) -> CsvInference:
    """Return the kinds (such as integer, date or text) of all values of `unit`, by column."""
    names = unit.detail.names
    dialect, of_kernel = dialect_of(options, unit.file.path), _kernel_options(options, len(names))
    typer = Typer(dialect, len(names), **of_kernel)
    formats = {names.index(name): form for name, form in formats_of(options, names).items()}
    words = [Target(column, kernel.AS_WORDS) for column in formats]
    filler = Filler(dialect, len(names), words, capacity=_INFERRED_ROWS, **of_kernel)
    kinds: list[dict[int, FirstValue]] = [{} for _ in names]
    for stretch in _stretches(unit, options.encoding):
        next_at = typer.feed(stretch.data, stretch.at, stretch.final)
        for column, kind, _, start, value in typer.take_sightings():
            text = value.decode("utf-8", "backslashreplace").strip(" \t")
            form = formats.get(column)
            # Only fields show whether a blank is quoted, and which words for null there are.
            if form is None or (kind in (kernel.EMPTY, kernel.WORD) and text not in form.nulls):
                found = FirstValue(kind, stretch.line_of(start), shortened(text))
                kinds[column].setdefault(kind, found)
        for column, found in _kinds_in_formats(stretch, filler, formats):
            kinds[column].setdefault(found.kind, found)
        stretch.move(next_at)
    return CsvInference(unit.file, names, tuple(tuple(found.values()) for found in kinds))


def _kinds_in_formats(
    stretch: _Stretch, filler: Filler, formats: Mapping[int, Format]
) -> Iterator[tuple[int, FirstValue]]:
    """Yield column and kinds of values in the columns that have a format, which Arrow rewrites."""
    at, is_full = stretch.at, bool(formats)
    while is_full:
        at = filler.feed(stretch.data, at, stretch.final)
        is_full, starts = filler.is_full, filler.starts
        # Rows with too few or too many fields take no part.
        bad = [fault.row for fault in filler.take_faults() if fault.target < 0]
        for (column, form), buffers in zip(formats.items(), filler.take(), strict=True):
            buffers[1][bad] = 0
            texts = array_of(Target(column, kernel.AS_WORDS), pa.string(), buffers)
            for kind, row in kinds_of(form.plain(texts)):
                yield (
                    column,
                    FirstValue(kind, stretch.line_of(starts[row]), shortened(texts[row].as_py())),
                )


def read_unit(
    unit: Unit, schema: pa.Schema, options: CsvOptions, *, batch_rows: int
) -> Iterator[Batch]:
    """Yield the rows of `unit` as at least one batch of exactly `schema`.

    `Batch.numbers` contains the text of floats that `schema` stores as text.
    """
    fields_inside(schema, unit.detail.names, unit.file, union=options.union)
    reader = _UnitReader(unit, schema, options, batch_rows)
    for stretch in _stretches(unit, options.encoding):
        yield from reader.batches(stretch)


class _UnitReader:
    """Collects the rows of a unit into batches, and turns faulty rows into rejects."""

    def __init__(self, unit: Unit, schema: pa.Schema, options: CsvOptions, batch_rows: int) -> None:
        self._unit, self._schema = unit, schema
        self._names: Sequence[str] = unit.detail.names
        formats = formats_of(options, self._names)
        self._formats = {
            field.name: form
            for field in schema
            if field.name in formats and (form := formats[field.name].needed_for(field.type))
        }
        self._columns = [
            (field, self._target_of(field)) for field in schema if field.name in self._names
        ]
        # Columns with the texts of floats come after all other columns.
        self._with_text = [field for field, _ in self._columns if keeps_text(field)]
        words = [
            Target(self._names.index(field.name), kernel.AS_WORDS) for field in self._with_text
        ]
        targets = [target for _, target in self._columns]
        self._converts = any(target.kind == kernel.AS_WORDS for target in targets)
        dialect, count = dialect_of(options, unit.file.path), len(self._names)
        of_kernel = _kernel_options(options, count)
        self._filler = Filler(dialect, count, [*targets, *words], capacity=batch_rows, **of_kernel)
        self._first_row = 0
        self._rejects: dict[int, Reject] = {}

    def _target_of(self, field: pa.Field) -> Target:
        target = target_of(field, self._names.index(field.name))
        is_formatted = field.name in self._formats and target.kind not in (
            kernel.AS_TEXT,
            kernel.AS_BYTES,
        )
        return Target(target.column, kernel.AS_WORDS) if is_formatted else target

    def batches(self, stretch: _Stretch) -> Iterator[Batch]:
        """Yield the batches that are full within a stretch, and in the last stretch the rest."""
        is_full = True
        while is_full:
            next_at = self._filler.feed(stretch.data, stretch.at, stretch.final)
            for fault in self._filler.take_faults():
                self._add_fault(fault, stretch)
            is_full, rows = self._filler.is_full, self._filler.rows
            # Values that are converted need the stretch, for the lines of those that do not fit.
            is_needed = self._converts and rows
            if is_full or is_needed or (stretch.final and (rows or not self._first_row)):
                yield self._batch(stretch)
            stretch.move(next_at)

    def _batch(self, stretch: _Stretch) -> Batch:
        """Return the rows read since the last batch, without those that have a fault."""
        filler, unit = self._filler, self._unit
        rows, starts = filler.rows, filler.starts
        columns, numbers = {}, {}
        taken = filler.take()
        for (field, target), buffers in zip(self._columns, taken, strict=False):
            columns[field.name], exact = self._column(field, target, buffers, stretch, starts)
            if exact is not None:
                numbers[field.name] = exact
        for field, buffers in zip(self._with_text, taken[len(self._columns) :], strict=True):
            numbers[field.name] = self._plain(field, buffers)[1]
        # By unit, not by batch: the messages of rejects must not depend on the size of batches.
        detail = unit.detail
        address = (f"{unit.file.name}:", detail.line) if detail.rows_are_lines else None
        first_row, rejects = self._first_row, self._rejects
        self._first_row, self._rejects = first_row + rows, {}
        return batch_of(
            *(unit, self._schema, columns, first_row, rows),
            address=address,
            numbers=numbers,
            rejects=rejects,
        )

    def _plain(self, field: pa.Field, buffers: Buffers) -> tuple[pa.Array, pa.Array]:
        """Return the words of a column, and what its format makes of them."""
        texts = array_of(Target(0, kernel.AS_WORDS), pa.string(), buffers)
        form = self._formats.get(field.name)
        return texts, texts if form is None else form.plain(texts)

    def _column(
        self, field: pa.Field, target: Target, buffers: Buffers, stretch: _Stretch, starts: Any
    ) -> tuple[pa.Array, pa.Array | None]:
        """Return the values of a column, and the exact numbers if they differ from its floats."""
        if target.kind == kernel.AS_WORDS:
            texts, plain = self._plain(field, buffers)
            array, misfits, exact = values_of(plain, field)
            for row in misfits:
                if row not in self._rejects:
                    line = stretch.line_of(starts[row])
                    self._reject_value(row, field, texts[row].as_py(), line)
            return array, exact
        form = self._formats.get(field.name)
        if form is None:
            return array_of(target, field.type, buffers), exact_of(buffers)
        plain_type = pa.binary() if target.kind == kernel.AS_BYTES else pa.string()
        texts = form.without_nulls(array_of(target, plain_type, buffers))
        return texts.cast(field.type), None

    def _add_fault(self, fault: CsvRowError, stretch: _Stretch) -> None:
        line = stretch.line_of(fault.start)
        if fault.target >= 0:
            text = fault.value.decode("utf-8", "backslashreplace")
            self._reject_value(fault.row, self._columns[fault.target][0], text, line)
            return
        # The last line of a file may lack its end.
        ends = stretch.data[fault.stop - 1 : fault.stop] in (b"\n", b"\r")
        lines = count_lines(stretch.data, fault.start, fault.stop) + (not ends)
        where = f"{self._unit.file.name}:{line}{f'-{line + lines - 1}' if lines > 1 else ''}"
        message = (
            f"the row in {where} has {BROKEN_ROWS[fault.fields]}: {CLOSE_QUOTE}"
            if fault.fields < 0
            else f"the row in {where} has {counted(fault.fields, 'field')} but "
            f"the first line has {len(self._names)}: correct one of them, or pass --delimiter"
            f"{_OR_SKIP if len(self._names) == 1 else ''}"
            f"{_OR_END if fault.fields == len(self._names) + 1 else ''}"
        )
        begin = stretch.data[fault.start : fault.start + MAX_VALUE_CHARS].splitlines()[0]
        self._rejects[fault.row] = Reject(
            *(self._unit.name, self._first_row + fault.row, "", "bad-row", message),
            value=begin.decode("utf-8", "backslashreplace"),
            address=where,
            lines=lines,
        )

    def _reject_value(self, row: int, field: pa.Field, text: str, line: int) -> None:
        problem = (
            f"{type_name(field.type)}: correct it, or choose another type by --types or --schema"
        )
        if field.type == pa.string():
            problem = "text without NUL in the encoding of the file: correct it, or pass --encoding"
        where, number = f"{self._unit.file.name}:{line}", self._first_row + row
        problem = f"is not {problem}"
        self._rejects[row] = bad_value(
            self._unit.name, number, where, field.name, text, problem, shown=_quoted(text)
        )


def _quoted(text: str) -> str:
    r"""Return a text in quotes, on one line; a byte that is not UTF-8 is shown like ``\xe9``."""
    return repr(shortened(text)).replace("\\\\", "\\")
