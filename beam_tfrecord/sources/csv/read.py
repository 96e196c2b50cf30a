"""Reads one unit (byte range) of a CSV file, to infer the types of columns or to yield batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.batch import Batch, Origin, Reject
from beam_tfrecord.errors import DataError
from beam_tfrecord.features.arrow_types import type_name
from beam_tfrecord.native._csv import Filler, Typer, count_lines, first_row
from beam_tfrecord.native.values import (
    AS_BYTES,
    AS_TEXT,
    AS_WORDS,
    BIG_INT,
    BOOL,
    BROKEN_ROWS,
    EMPTY,
    INT,
    WORD,
    Dialect,
    Fault,
    Target,
)
from beam_tfrecord.sizes import counted
from beam_tfrecord.sources.base import Unit, not_in_file
from beam_tfrecord.sources.csv.formats import (
    Format,
    Formats,
    lines_of,
    parse_texts,
    typer_of_texts,
)
from beam_tfrecord.sources.csv.text import CLOSE_QUOTE, NULL_WORDS, to_utf8
from beam_tfrecord.sources.csv.types import (
    CsvInference,
    Found,
    array_of,
    converter_of,
    keeps_text,
    target_of,
)
from beam_tfrecord.sources.hive import partition_texts, with_partitions
from beam_tfrecord.sources.text_files import BLOCK_BYTES, MAX_ROW_BYTES, open_text

_INFERRED_ROWS = 4096
# Kinds of values that formats of dates and numbers do not change.
_INTEGERS = {BOOL, INT, BIG_INT, EMPTY}
_SHOWN_CHARACTERS = 200
_OR_SKIP = ", --skip-lines or --comment"
_SHOWN_IN_MESSAGE = 40


@dataclasses.dataclass(frozen=True)
class CsvUnit:
    """The detail of a CSV unit: the data besides its byte range that reading it needs."""

    names: tuple[str, ...]
    line: int
    rows_are_lines: bool


@dataclasses.dataclass(frozen=True)
class Reading:
    """The options of reading text."""

    dialect: Dialect
    encoding: str
    always: tuple[bytes, ...]
    block_bytes: int = BLOCK_BYTES
    formats: Formats = Formats()

    def formats_of(self, names: Sequence[str]) -> dict[str, Format]:
        """Return the formats of the columns that have one."""
        found = {name: self.formats.of(name, names) for name in names}
        return {name: one for name, one in found.items() if one is not None}

    def typer(self, columns: int) -> Typer:
        """Return an object of the native kernel that infers the types of the columns."""
        return Typer(self.dialect, columns, **self._options(columns))

    def filler(self, columns: int, targets: list[Target], capacity: int) -> Filler:
        """Return an object of the native kernel that reads up to `capacity` rows into columns."""
        options = self._options(columns)
        return Filler(self.dialect, columns, targets, capacity=capacity, **options)

    def _options(self, columns: int) -> dict[str, Any]:
        return {"keep_blank": columns == 1, "nulls": NULL_WORDS, "always": self.always}


@dataclasses.dataclass
class _Window:
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


def _windows(unit: Unit, how: Reading) -> Iterator[_Window]:
    """Yield windows, in which the caller moves `at`; the unread rest begins the next window."""
    with open_text(unit.file, how.encoding, unit.start, unit.stop) as text:
        window = _Window(b"", 0, unit.detail.line, False)
        while not window.final:
            left = window.data[window.at :]
            if len(left) > MAX_ROW_BYTES:
                raise DataError(
                    f"the row in {unit.file.name}:{window.line} is longer than {MAX_ROW_BYTES} "
                    f"bytes: a quote may never close there: {CLOSE_QUOTE}"
                )
            # A read as long as the rest limits the copies of a very long row.
            piece = text.read(max(how.block_bytes, len(left)))
            window = _Window(left + to_utf8(piece, text.encoding), 0, window.line, not piece)
            yield window


def infer_unit(unit: Unit, how: Reading) -> CsvInference:
    """Return the kinds (such as integer, date or text) of all values of `unit`, by column."""
    names = unit.detail.names
    typer = how.typer(len(names))
    kinds: list[list[Found]] = [[] for _ in names]
    for window in _windows(unit, how):
        next_at = typer.feed(window.data, window.at, window.final)
        for column, kind, _, start, value in typer.take_sightings():
            text = value.decode("utf-8", "backslashreplace").strip(" \t")
            kinds[column].append(Found(kind, window.line_of(start), _shortened(text)))
        window.move(next_at)
    formats = how.formats_of(names)
    columns = [
        column
        for column, name in enumerate(names)
        if name in formats
        and not (formats[name].keeps_integers and {one.kind for one in kinds[column]} <= _INTEGERS)
    ]
    found = _infer_formatted(unit, how, columns, formats) if columns else []
    for column, of_texts in zip(columns, found, strict=True):
        # Whether a blank field is quoted, and which words for null there are, only fields show.
        nulls = formats[names[column]].nulls
        of_fields = [
            one for one in kinds[column] if one.kind & (EMPTY | WORD) and one.text not in nulls
        ]
        kinds[column] = [*of_texts, *of_fields]
    return CsvInference(unit.file, names, tuple(map(tuple, kinds)))


def _infer_formatted(
    unit: Unit, how: Reading, columns: Sequence[int], formats: Mapping[str, Format]
) -> list[list[Found]]:
    """Return the kinds of the values of some columns, as their formats rewrite them."""
    names = unit.detail.names
    words = [Target(column, AS_WORDS) for column in columns]
    filler = how.filler(len(names), words, _INFERRED_ROWS)
    typers = [typer_of_texts() for _ in columns]
    kinds: list[list[Found]] = [[] for _ in columns]
    for window in _windows(unit, how):
        is_full = True
        while is_full:
            next_at = filler.feed(window.data, window.at, window.final)
            is_full = filler.is_full
            # Rows with too few or too many fields take no part.
            bad = [fault.row for fault in filler.take_faults() if fault.target < 0]
            for typer, column, seen, buffers in zip(
                typers, columns, kinds, filler.take(), strict=True
            ):
                buffers[1][bad] = 0
                texts = array_of(words[0], pa.string(), buffers)
                first = typer.rows
                typer.feed(lines_of(formats[names[column]].plain(texts)), 0, True)
                for sighting in typer.take_sightings():
                    row = sighting.row - first
                    line = _line_of(row, window, how, len(names))
                    seen.append(Found(sighting.kind, line, _shortened(texts[row].as_py())))
            window.move(next_at)
    return kinds


def _line_of(row: int, window: _Window, how: Reading, columns: int) -> int:
    """Return the line of a row, which is counted from where `window` is, and parsed again."""
    at = window.at
    if row:
        at = how.filler(columns, [], row).feed(window.data, at, window.final)
    # Blank lines and comments may come before it.
    found = first_row(window.data[at:], how.dialect, window.final)
    return window.line_of(at + (found.start if found else 0))


def read_unit(
    unit: Unit, schema: pa.Schema, how: Reading, *, batch_rows: int, union: bool = False
) -> Iterator[Batch]:
    """Yield the rows of `unit` as at least one batch of exactly `schema`.

    `Batch.numbers` contains the text of floats that `schema` stores as text.
    """
    names = unit.detail.names
    known = [*names, *dict(unit.file.partitions)]
    if missing := [name for name in schema.names if name not in known and not union]:
        raise not_in_file(missing[0], unit.file, known)
    reader = _UnitReader(unit, schema, how, batch_rows)
    for window in _windows(unit, how):
        while reader.feed(window):
            yield reader.batch()
    if reader.filler.rows or not reader.first_row:
        yield reader.batch()


class _UnitReader:
    """Collects the rows of a unit into batches, and turns faulty rows into rejects."""

    def __init__(self, unit: Unit, schema: pa.Schema, how: Reading, batch_rows: int) -> None:
        self._names = unit.detail.names
        fields = [field for field in schema if field.name in self._names]
        # Columns with the texts of floats come after all other columns.
        with_text = [field for field in fields if keeps_text(field)]
        self._fields, self._columns = [*fields, *with_text], len(fields)
        formats = how.formats_of(self._names)
        needed = {
            field.name: formats[field.name].needed_for(field.type)
            for field in fields
            if field.name in formats
        }
        self._formats = {name: one for name, one in needed.items() if one is not None}
        self._targets = [
            *map(self._target_of, fields),
            *(Target(self._names.index(field.name), AS_WORDS) for field in with_text),
        ]
        self._unit, self._schema, self._how = unit, schema, how
        self.filler = how.filler(len(self._names), self._targets, batch_rows)
        self.first_row = 0
        self._rejects: dict[int, Reject] = {}
        self._converts = bool(self._formats) or any(converter_of(field.type) for field in fields)
        self._windows: list[tuple[int, _Window]] = []

    def _target_of(self, field: pa.Field) -> Target:
        column = self._names.index(field.name)
        target = target_of(field, column)
        is_formatted = field.name in self._formats and target.kind not in (AS_TEXT, AS_BYTES)
        return Target(column, AS_WORDS) if is_formatted else target

    def feed(self, window: _Window) -> bool:
        """Read rows of `window`; return whether the batch is full before the window's end."""
        if self._converts:
            # Needed to find the lines of values that `_converted` cannot convert.
            self._windows.append((self.filler.rows, dataclasses.replace(window)))
        next_at = self.filler.feed(window.data, window.at, window.final)
        for fault in self.filler.take_faults():
            self._add_fault(fault, window)
        window.move(next_at)
        return self.filler.is_full

    def _add_fault(self, fault: Fault, window: _Window) -> None:
        line = window.line_of(fault.start)
        if fault.target >= 0:
            text = fault.value.decode("utf-8", "backslashreplace")
            self._reject_value(fault.row, self._fields[fault.target], text, line)
            return
        # The last line of a file may lack its end.
        ends = window.data[fault.stop - 1 : fault.stop] in (b"\n", b"\r")
        lines = count_lines(window.data, fault.start, fault.stop) + (not ends)
        where = f"{self._unit.file.name}:{line}{f'-{line + lines - 1}' if lines > 1 else ''}"
        message = (
            f"the row in {where} has {BROKEN_ROWS[fault.fields]}: {CLOSE_QUOTE}"
            if fault.fields < 0
            else f"the row in {where} has {counted(fault.fields, 'field')} but "
            f"the first line has {len(self._names)}: correct one of them, or pass --delimiter"
            f"{_OR_SKIP if len(self._names) == 1 else ''}"
        )
        begin = window.data[fault.start : fault.start + _SHOWN_CHARACTERS].splitlines()[0]
        self._rejects[fault.row] = Reject(
            unit=self._unit.name,
            row=self.first_row + fault.row,
            column="",
            code="bad-row",
            message=message,
            value=begin.decode("utf-8", "backslashreplace"),
            address=where,
            lines=lines,
        )

    def _reject_value(self, row: int, field: pa.Field, text: str, line: int) -> None:
        where = f"{self._unit.file.name}:{line}"
        problem = (
            f"{type_name(field.type)}: correct it, or choose another type by --types or --schema"
        )
        if field.type == pa.string():
            problem = "text in utf-8: correct it, or pass --encoding"
        self._rejects[row] = Reject(
            unit=self._unit.name,
            row=self.first_row + row,
            column=field.name,
            code="bad-value",
            message=f"column {field.name!r} is {_quoted(text)} in {where}, which is not {problem}",
            value=text[:_SHOWN_CHARACTERS],
            address=where,
        )

    def batch(self) -> Batch:
        """Return the rows read since the last batch, without those that have a fault."""
        rows, file = self.filler.rows, self._unit.file
        columns = list(zip(self._fields, self._targets, self.filler.take(), strict=True))
        made = [self._array(*column) for column in columns[: self._columns]]
        arrays = [array for array, _ in made]
        exact_numbers = {
            field.name: exact
            for field, (_, exact) in zip(self._fields, made, strict=False)
            if exact is not None
        }
        for field, target, buffers in columns[self._columns :]:
            texts = array_of(target, pa.string(), buffers)
            found = self._formats.get(field.name)
            exact_numbers[field.name] = texts if found is None else found.plain(texts)
        exact_numbers |= partition_texts(file, self._schema, rows, inside=self._names)
        numbers = pa.RecordBatch.from_pydict(exact_numbers) if exact_numbers else None
        # A column without name keeps the number of rows if there is no other column.
        fields = [*self._fields[: self._columns], pa.field("", pa.null())]
        data = pa.RecordBatch.from_arrays([*arrays, pa.nulls(rows)], schema=pa.schema(fields))
        data = data.select(list(range(len(arrays))))
        row_numbers: Any = self.first_row
        if self._rejects:
            keep = np.ones(rows, bool)
            keep[list(self._rejects)] = False
            data = data.filter(pa.array(keep))
            numbers = None if numbers is None else numbers.filter(pa.array(keep))
            row_numbers = self.first_row + np.flatnonzero(keep)
        # By unit, not by batch: the messages of rejects must not depend on the size of batches.
        detail = self._unit.detail
        address = (f"{file.name}:", detail.line) if detail.rows_are_lines else None
        origin = Origin(self._unit.name, self._unit.index, row_numbers, address=address)
        rejects = tuple(self._rejects[row] for row in sorted(self._rejects))
        self.first_row += rows
        self._rejects, self._windows = {}, []
        data = with_partitions(data, file, self._schema)
        return Batch(data, origin, rejects=rejects, numbers=numbers)

    def _array(
        self, field: pa.Field, target: Target, buffers: Any
    ) -> tuple[pa.Array, pa.Array | None]:
        """Return the values of a column, and the exact numbers if they differ from its floats."""
        found = self._formats.get(field.name)
        if found is None:
            return self._converted(field, array_of(target, field.type, buffers)), _exact(buffers)
        plain_type = pa.binary() if target.kind == AS_BYTES else pa.string()
        texts = array_of(target, plain_type, buffers)
        if target.kind != AS_WORDS:
            is_null = pc.is_null(found.without_nulls(texts))
            buffers[1][is_null.to_numpy(zero_copy_only=False)] = 0
            return array_of(target, field.type, buffers), None
        plain, parsed = found.plain(texts), target_of(field, 0)
        if parsed.kind == AS_WORDS:
            return self._converted(field, plain, texts), None
        values, faults = parse_texts(plain, parsed)
        for row in faults:
            if row not in self._rejects:
                self._reject_value(row, field, texts[row].as_py(), self._line_of(row))
        return array_of(parsed, field.type, values), _exact(values)

    def _converted(
        self, field: pa.Field, array: pa.Array, shown: pa.Array | None = None
    ) -> pa.Array:
        """Return the values of texts of a type that the kernel does not know."""
        convert = converter_of(field.type)
        if convert is None:
            return array
        shown = array if shown is None else shown
        scalars: list[Any] = []
        for row, text in enumerate(array.to_pylist()):
            scalar = None
            if text is not None and row not in self._rejects:
                try:
                    scalar = convert(text)
                except (ValueError, pa.ArrowException):
                    self._reject_value(row, field, shown[row].as_py(), self._line_of(row))
            scalars.append(scalar)
        return pa.array(scalars, field.type)

    def _line_of(self, row: int) -> int:
        """Return the line of a row of this batch, for which its window is parsed again."""
        before, window = next(pair for pair in reversed(self._windows) if pair[0] <= row)
        return _line_of(row - before, window, self._how, len(self._names))


def _exact(buffers: Any) -> pa.Array | None:
    _, valid, _, exact = buffers
    return None if exact is None else pa.array(exact, mask=valid == 0)


def _quoted(text: str) -> str:
    r"""Return a text in quotes, on one line; a byte that is not UTF-8 is shown like ``\xe9``."""
    return repr(_shortened(text)).replace("\\\\", "\\")


def _shortened(text: str) -> str:
    """Return a text, cut if it is too long for a message."""
    return text if len(text) <= _SHOWN_IN_MESSAGE else text[:_SHOWN_IN_MESSAGE] + "…"
