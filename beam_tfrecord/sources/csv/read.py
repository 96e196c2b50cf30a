"""Reading of one unit of a CSV file: the kinds of its values, or its batches and rejects."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from beam_tfrecord.batch import Batch, Origin, Reject
from beam_tfrecord.errors import DataError
from beam_tfrecord.native._csv import Filler, Typer, count_lines
from beam_tfrecord.native.values import AS_WORDS, Fault, Target
from beam_tfrecord.sources.base import Unit, not_in_file
from beam_tfrecord.sources.csv.text import Dialect, is_cuttable, open_text, to_utf8
from beam_tfrecord.sources.csv.types import (
    CsvInference,
    Found,
    array_of,
    converter_of,
    keeps_text,
    target_of,
)
from beam_tfrecord.sources.hive import partition_texts, with_partitions

BLOCK_BYTES = 2**20
MAX_ROW_BYTES = 2**28
_SHOWN_CHARACTERS = 200
_SHOWN_IN_MESSAGE = 40


@dataclasses.dataclass(frozen=True)
class CsvUnit:
    """The part of a CSV unit beside its byte range.

    Attributes:
        names: Names of the file's columns.
        line: The line the range starts on, from 1.
    """

    names: tuple[str, ...]
    line: int


@dataclasses.dataclass(frozen=True)
class Reading:
    """The options of reading text.

    Attributes:
        dialect: How it is written.
        encoding: Its encoding.
        nulls: Words that are null where the column is not text.
        always: Words that are null in every column.
        block_bytes: Bytes to hold at once, unless a row is longer.
    """

    dialect: Dialect
    encoding: str
    nulls: tuple[bytes, ...]
    always: tuple[bytes, ...]
    block_bytes: int = BLOCK_BYTES

    def kernel_options(self, columns: int) -> dict[str, Any]:
        """Return the options that `Typer` and `Filler` share."""
        return {"keep_blank": columns == 1, "nulls": self.nulls, "always": self.always}


@dataclasses.dataclass
class _Window:
    """A piece of the unit's text in memory; `at` is where the next row starts, on `line`."""

    data: bytes
    at: int
    line: int
    final: bool

    def move(self, at: int) -> None:
        self.line += count_lines(self.data, self.at, at)
        self.at = at

    def line_of(self, at: int) -> int:
        lines: int = count_lines(self.data, self.at, at)
        return self.line + lines


def _windows(unit: Unit, how: Reading) -> Iterator[_Window]:
    """Yield windows that the consumer advances; the next one begins with what it did not use."""
    encoding = how.encoding if is_cuttable(how.encoding) else "utf-8"
    with open_text(unit.file, how.encoding, unit.start, unit.stop) as text:
        window = _Window(b"", 0, unit.detail.line, False)
        while not window.final:
            left = window.data[window.at :]
            if len(left) > MAX_ROW_BYTES:
                raise DataError(
                    f"the row in {unit.file.name}:{window.line} is longer than {MAX_ROW_BYTES} "
                    "bytes: a quote may never close there; correct it, or pass --quote"
                )
            # Reading as much as is left keeps a very long row from being copied again and again.
            piece = text.read(max(how.block_bytes, len(left)))
            data = left + to_utf8(piece, encoding) if left else to_utf8(piece, encoding)
            window = _Window(data, 0, window.line, not piece)
            yield window


def infer_unit(unit: Unit, how: Reading) -> CsvInference:
    """Return the kinds of all values of `unit`."""
    names = unit.detail.names
    typer = Typer(how.dialect.settings, len(names), **how.kernel_options(len(names)))
    kinds: list[list[Found]] = [[] for _ in names]
    for window in _windows(unit, how):
        behind = typer.feed(window.data, window.at, window.final)
        for column, kind, _, start, value in typer.take_sightings():
            text = value.decode("utf-8", "backslashreplace").strip(" \t")
            kinds[column].append(Found(kind, window.line_of(start), _shortened(text)))
        window.move(behind)
    return CsvInference(unit.file, names, tuple(map(tuple, kinds)), tuple(typer.words_seen()))


def read_unit(
    unit: Unit, schema: pa.Schema, how: Reading, *, batch_rows: int, union: bool = False
) -> Iterator[Batch]:
    """Yield the rows of `unit` as batches of exactly `schema`; at least one.

    Floats that `schema` notes to be stored as text have their text as `Batch.numbers`.

    Args:
        unit: What to read.
        schema: Types of the columns that are wanted, those of the path too.
        how: How the text is read.
        batch_rows: Rows a batch, rejected ones counted; the last one has fewer, and one of very
            long rows too.
        union: A column that the file lacks is null.

    Raises:
        DataError: The file lacks a column, or cannot be read.
        UsageError: Text cannot be read as a type of `schema`.
    """
    names = unit.detail.names
    known = {*names, *dict(unit.file.partitions)}
    if missing := [name for name in schema.names if name not in known and not union]:
        raise not_in_file(missing[0], unit.file)
    fields = [field for field in schema if field.name in names]
    targets = [target_of(field, names.index(field.name)) for field in fields]
    with_text = [field for field in fields if keeps_text(field)]
    texts = [Target(names.index(field.name), AS_WORDS) for field in with_text]
    filler = Filler(
        how.dialect.settings,
        len(names),
        [*targets, *texts],
        capacity=batch_rows,
        **how.kernel_options(len(names)),
    )
    collected = _Collected(unit, fields, with_text, [*targets, *texts], schema, how)
    for window in _windows(unit, how):
        while True:
            collected.remember(window, filler.rows)
            behind = filler.feed(window.data, window.at, window.final)
            for fault in filler.take_faults():
                collected.add_fault(fault, window.line_of(fault.start))
            window.move(behind)
            if not filler.is_full:
                break
            yield collected.batch(filler)
    if filler.rows or not collected.first_row:
        yield collected.batch(filler)


class _Collected:
    """Makes batches of the rows in a filler, and rejects of its faults."""

    def __init__(
        self,
        unit: Unit,
        fields: Sequence[pa.Field],
        with_text: Sequence[pa.Field],
        targets: Sequence[Target],
        schema: pa.Schema,
        how: Reading,
    ) -> None:
        self.first_row = 0
        self._unit, self._schema, self._how = unit, schema, how
        # The texts of floats come behind all columns.
        self._fields, self._targets = (*fields, *with_text), targets
        self._columns = len(fields)
        self._rejects: dict[int, Reject] = {}
        self._converts = any(converter_of(field.type) for field in self._fields)
        self._windows: list[tuple[int, _Window]] = []

    def remember(self, window: _Window, rows: int) -> None:
        """Remember the window of rows from `rows` on, to find the line of a fault found later."""
        if self._converts:
            self._windows.append((rows, dataclasses.replace(window)))

    def add_fault(self, fault: Fault, line: int) -> None:
        file = self._unit.file
        if fault.target >= 0:
            text = fault.value.decode("utf-8", "backslashreplace")
            self._reject(fault.row, self._fields[fault.target], text, line)
            return
        message = (
            f"a quote in the row in {file.name}:{line} never closes: correct it, or pass --quote"
            if fault.fields < 0
            else f"the row in {file.name}:{line} has {_fields(fault.fields)} but "
            f"{len(self._unit.detail.names)} are expected: correct it, or pass --delimiter"
        )
        row = self.first_row + fault.row
        self._rejects[fault.row] = Reject(self._unit.name, row, "", "bad-row", message)

    def _reject(self, row: int, field: pa.Field, text: str, line: int) -> None:
        shown = _shortened(text)
        what = "text in utf-8" if field.type == pa.string() else str(field.type)
        self._rejects[row] = Reject(
            unit=self._unit.name,
            row=self.first_row + row,
            column=field.name,
            code="bad-value",
            message=f"column {field.name!r} is {shown!r} in {self._unit.file.name}:{line}, "
            f"which is not {what}: correct it, or pass --types or --schema",
            value=text[:_SHOWN_CHARACTERS],
        )

    def batch(self, filler: Any) -> Batch:
        """Return the rows of `filler` as a batch without those that have a fault, and empty it."""
        rows, buffers_of_columns = filler.rows, filler.take()
        columns = list(zip(self._fields, self._targets, buffers_of_columns, strict=True))
        arrays = [
            self._converted(field, array_of(target, field.type, buffers))
            for field, target, buffers in columns[: self._columns]
        ]
        more_exact = {
            field.name: pa.array(exact, mask=valid == 0)
            for field, _, (_, valid, _, exact) in columns
            if exact is not None
        }
        for field, target, buffers in columns[self._columns :]:
            more_exact[field.name] = array_of(target, pa.string(), buffers)
        inside = [field.name for field in self._fields]
        more_exact |= partition_texts(self._unit.file, self._schema, rows, but=inside)
        numbers = pa.RecordBatch.from_pydict(more_exact) if more_exact else None
        if arrays:
            schema = pa.schema(self._fields[: self._columns])
            data = pa.RecordBatch.from_arrays(arrays, schema=schema)
        else:
            # Only a struct array carries a number of rows without a column.
            data = pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
        row_numbers: Any = self.first_row
        if self._rejects:
            keep = np.ones(rows, bool)
            keep[list(self._rejects)] = False
            data = data.filter(pa.array(keep))
            numbers = None if numbers is None else numbers.filter(pa.array(keep))
            row_numbers = self.first_row + np.flatnonzero(keep)
        origin = Origin(self._unit.name, self._unit.index, row_numbers)
        rejects = tuple(self._rejects[row] for row in sorted(self._rejects))
        self.first_row += rows
        self._rejects, self._windows = {}, []
        data = with_partitions(data, self._unit.file, self._schema)
        return Batch(data, origin, rejects=rejects, numbers=numbers)

    def _converted(self, field: pa.Field, array: pa.Array) -> pa.Array:
        convert = converter_of(field.type)
        if convert is None:
            return array
        scalars: list[Any] = []
        for row, text in enumerate(array.to_pylist()):
            scalar = None
            if text is not None and row not in self._rejects:
                try:
                    scalar = convert(text)
                except (ValueError, pa.ArrowException):
                    self._reject(row, field, text, self._line_of(row))
            scalars.append(scalar)
        return pa.array(scalars, field.type)

    def _line_of(self, row: int) -> int:
        """Return the line of a row of an earlier window, by tokenising that window once more."""
        before, window = next(pair for pair in reversed(self._windows) if pair[0] <= row)
        columns, at = len(self._unit.detail.names), window.at
        if row > before:
            skip = Filler(
                self._how.dialect.settings,
                columns,
                [],
                capacity=row - before,
                **self._how.kernel_options(columns),
            )
            at = skip.feed(window.data, at, window.final)
        while columns > 1 and window.data[at : at + 1] in (b"\r", b"\n"):
            at += 1
        return window.line_of(at)


def _shortened(text: str) -> str:
    """Return a text, or its beginning if it is too long for a message."""
    return text if len(text) <= _SHOWN_IN_MESSAGE else text[:_SHOWN_IN_MESSAGE] + "…"


def _fields(count: int) -> str:
    return "1 field" if count == 1 else f"{count} fields"
