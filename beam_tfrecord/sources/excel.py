"""Reads one sheet of each Excel workbook, unsplit; column types come from the values of its cells.

openpyxl streams the cells, and holds all different texts of the workbook in memory. It rounds times
to milliseconds and loses some escapes of texts, so these are read here. Values of formulas are
those that the workbook was saved with.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import itertools
import re
import warnings
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from beam_tfrecord.base.arguments import as_words
from beam_tfrecord.base.extras import require
from beam_tfrecord.base.text import listed
from beam_tfrecord.errors import BeamTFRecordError, DataError, SchemaConflict, UsageError, quoted
from beam_tfrecord.features.arrow_types import is_text, type_of_column
from beam_tfrecord.features.cast_to_schema import NoConversion, convert
from beam_tfrecord.features.type_join import can_cast
from beam_tfrecord.options.sources import ExcelOptions
from beam_tfrecord.sources.base import Chunk, InputFile, Scan
from beam_tfrecord.sources.damaged_files import check_size, incomplete, open_input
from beam_tfrecord.sources.typed_files import (
    Batches,
    Contents,
    OpenTable,
    Piece,
    TypedFiles,
    check_names,
    framing_bytes,
)

# Excel's own numbers are doubles, of which these integers are exact.
_EXACT = 2**53
_VALUE_BYTES = 8
_DATE, _TIMESTAMP = pa.date32(), pa.timestamp("us")
# The kinds of values, by the type that openpyxl makes of a cell.
_KINDS: dict[type, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    datetime.date: _DATE,
    datetime.datetime: _TIMESTAMP,
    datetime.time: pa.time64("us"),
    datetime.timedelta: pa.duration("us"),
}
# Kinds that a column may mix, and its type then.
_JOINED = {
    frozenset((pa.int64(), pa.float64())): pa.float64(),
    frozenset((_DATE, _TIMESTAMP)): _TIMESTAMP,
}
# The largest part of a workbook that openpyxl reads at once: the texts of all sheets, above all.
# In memory they take about four times as much, because a workbook is opened twice.
_MOST_PART_BYTES = 2**29
_SHEETS = "xl/worksheets/"
_DAY_MICROSECONDS = 86_400_000_000
# Not of surrogates, which are no text alone.
_ESCAPE = re.compile("_x(?![Dd][89A-Fa-f])([0-9A-Fa-f]{4})_")


@dataclasses.dataclass(frozen=True)
class Excel(ExcelOptions, TypedFiles):
    """Excel workbooks. A sheet is one unit, because it can only be read from its start."""

    kind: ClassVar[str] = "excel"
    suffixes: ClassVar[tuple[str, ...]] = (".xlsx", ".xlsm")
    schema_from_scan: ClassVar[bool] = True
    # The first row after the header.
    first_row: ClassVar[int] = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        types = {name: type_of_column(name, of) for name, of in self.typed.items()}
        object.__setattr__(self, "types", types)
        object.__setattr__(self, "null_words", as_words("null_words", self.null_words))

    def scan(self, chunk: Chunk) -> Scan:
        file = chunk.file
        with open_input(file) as raw, open_input(file) as again, _as_damage(file):
            workbook, formulas = open_workbook(raw, file), open_workbook(again, file, formulas=True)
            sheet = sheet_name(workbook, file, self.sheet)
            rows = itertools.zip_longest(
                rows_of(workbook[sheet]), rows_of(formulas[sheet]), fillvalue=()
            )
            names = self._header(next(rows, ((), ()))[0], _RowAddress(file.name, sheet, 1))
            check_names(filter(None, names), file)
            columns = [_SheetColumn(name) for name in names]
            wanted = [at for at, name in enumerate(names) if name and self.reads(name)]
            read = None if self.columns is None else wanted
            count = 0
            for count, (cells, before) in enumerate(rows, start=1):
                where = _RowAddress(file.name, sheet, count + 1)
                for at, value in enumerate(self._values(cells, where, read, before)):
                    if value is not None:
                        _column(columns, at, where).add(value, where, at)
        fields = [columns[at].field(count, self.typed.get(names[at]), file) for at in wanted]
        row_bytes = framing_bytes(names[at] for at in wanted) + _VALUE_BYTES * len(wanted)
        encoded = count * row_bytes + sum(columns[at].text_bytes for at in wanted)
        piece = Piece(0, 1, count, file.bytes, encoded, encoded)
        return Scan(chunk, Contents(pa.schema(fields), tuple(filter(None, names)), (piece,)))

    @property
    def chosen_types(self) -> Mapping[str, Any]:
        return self.typed

    def join(self, one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
        if pa.types.is_null(one) or one.equals(other):
            return other
        return one if pa.types.is_null(other) else _JOINED.get(frozenset((one, other)))

    def open(self, raw: pa.NativeFile, file: InputFile) -> OpenTable:
        with _as_damage(file):
            workbook = open_workbook(raw, file)
            sheet = sheet_name(workbook, file, self.sheet)
            rows = rows_of(workbook[sheet])
            header = self._header(next(rows, ()), _RowAddress(file.name, sheet, 1))
        numbered = enumerate(rows, self.first_row)

        def read(start: int, stop: int, fields: pa.Schema, batch_rows: int) -> Batches:
            wanted = [header.index(name) for name in fields.names]
            with _as_damage(file):
                while batch := list(itertools.islice(numbered, batch_rows)):
                    values = [
                        self._values(cells, _RowAddress(file.name, sheet, row), wanted)
                        for row, cells in batch
                    ]
                    columns = [[_at(row, at) for row in values] for at in wanted]
                    arrays = [_array(*pair) for pair in zip(columns, fields.types, strict=True)]
                    # One column more keeps the number of rows where there are no others.
                    arrays.append(pa.nulls(len(batch)))
                    yield pa.RecordBatch.from_arrays(arrays, [*fields.names, ""])

        return OpenTable(pa.schema([]), (), read)

    def _header(self, cells: Sequence[Any], where: _RowAddress) -> list[str]:
        """Return the names of the columns, each empty if its cell in the first row is."""
        names = ["" if value is None else _text(value) for value in self._values(cells, where)]
        if not any(names):
            raise DataError(
                f"sheet {where.sheet!r} in {where.file} has no names of columns in row 1: add them"
            )
        return names

    def _values(
        self,
        cells: Sequence[Any],
        where: _RowAddress,
        wanted: Collection[int] | None = None,
        formulas: Sequence[Any] = (),
    ) -> list[Any]:
        """Return the values of a row, None for an empty cell or an unwanted column."""
        values = []
        for at, (cell, formula) in enumerate(itertools.zip_longest(cells, formulas)):
            is_wanted = wanted is None or at in wanted
            value = value_of(cell) if is_wanted and cell is not None else None
            if value is None:
                if is_wanted and formula is not None and formula.data_type == "f":
                    raise DataError(
                        f"{where.cell(at)} is a formula without a value: open the file in Excel "
                        "and save it"
                    )
            elif isinstance(value, str) and value in self.null_words:
                value = None
            elif cell.data_type == "e":
                raise DataError(
                    f"{where.cell(at)} is the error {value}: correct it, or pass "
                    f"--null {quoted(value)}"
                )
            values.append(value)
        return values


class _RowAddress(NamedTuple):
    """The address of a row of a sheet, whose number is from 1."""

    file: str
    sheet: str
    row: int

    def cell(self, column: int) -> str:
        """Return the address of a cell, such as ``cell B7 of sheet 'x' in a.xlsx``."""
        from openpyxl.utils import get_column_letter

        letter = get_column_letter(column + 1)
        return f"cell {letter}{self.row} of sheet {self.sheet!r} in {self.file}"


@dataclasses.dataclass
class _SheetColumn:
    """What is known of the values of a column so far."""

    name: str
    first: dict[pa.DataType, str] = dataclasses.field(default_factory=dict)
    filled: int = 0
    text_bytes: int = 0
    largest: int = 0

    def add(self, value: Any, where: _RowAddress, at: int) -> None:
        """Take a value in."""
        kind = _KINDS[type(value)]
        if kind not in self.first:
            self.first[kind] = where.cell(at)
        self.filled += 1
        if isinstance(value, str):
            self.text_bytes += len(value.encode())
        elif isinstance(value, int):
            self.largest = max(self.largest, abs(value))

    def field(self, count: int, chosen: pa.DataType | None, file: InputFile) -> pa.Field:
        """Return the column with the type of its values, or one as which texts are parsed."""
        kinds = frozenset(self.first)
        arrow: pa.DataType = pa.string()
        if len(kinds) < 2:
            arrow = next(iter(kinds), pa.null())
        elif kinds in _JOINED and self.largest <= _EXACT:
            arrow = _JOINED[kinds]
        elif chosen is None:
            (one, here), (other, there), *_ = self.first.items()
            raise SchemaConflict(
                f"column {self.name!r} is {one} in {here} but {other} in {there}: correct one, "
                f"or pass --types {self.name}=string"
            )
        if chosen is not None and (is_text(chosen) or (is_text(arrow) and _is_parsed(chosen))):
            arrow = chosen
        if chosen is not None and not can_cast(arrow, chosen):
            raise SchemaConflict(
                f"column {self.name!r} of {file.name} is {arrow}, and not {chosen} without loss: "
                "leave it out of --types, or convert it with --map"
            )
        return pa.field(self.name, arrow, nullable=self.filled < count or not kinds)


def _is_parsed(arrow: pa.DataType) -> bool:
    """Return whether texts can be parsed as a type without rounding."""
    try:
        return bool(convert(pa.array([], pa.string()), arrow).array.type == arrow)
    except NoConversion:
        return False


def _column(columns: Sequence[_SheetColumn], at: int, where: _RowAddress) -> _SheetColumn:
    if at < len(columns) and columns[at].name:
        return columns[at]
    raise DataError(f"{where.cell(at)} has a value, but its column has no name in row 1: add one")


def _at(row: Sequence[Any], column: int) -> Any:
    return row[column] if column < len(row) else None


def _array(values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    """Return values as an array of a type if their kinds have it, else as texts to parse."""
    kinds = frozenset(_KINDS[type(value)] for value in values if value is not None)
    if not is_text(arrow) and (kinds <= {arrow} or _JOINED.get(kinds | {arrow}) == arrow):
        if arrow == _TIMESTAMP:
            values = [_midnight(v) if type(v) is datetime.date else v for v in values]
        with contextlib.suppress(pa.ArrowInvalid):
            return pa.array(values, arrow)
    return pa.array([None if value is None else _text(value) for value in values], pa.string())


def _midnight(day: datetime.date) -> datetime.datetime:
    return datetime.datetime.combine(day, datetime.time())


def _text(value: Any) -> str:
    """Return a value as text, as Excel shows it without a format."""
    return str(value).upper() if isinstance(value, bool) else str(value)


@contextlib.contextmanager
def _as_damage(file: InputFile) -> Iterator[None]:
    """Raise any error as damage of the file: the parsers of openpyxl raise errors of all kinds."""
    try:
        yield
    except BeamTFRecordError:
        raise
    except Exception as error:
        advice = "save it as .xlsx in Excel, without a password, or leave it out"
        raise incomplete(file, "xlsx", error, advice) from error


def open_workbook(raw: pa.NativeFile, file: InputFile, *, formulas: bool = False) -> Any:
    """Open a workbook for streaming, with the values of formulas or the formulas themselves."""
    require("excel", "an Excel workbook")
    from openpyxl.reader.excel import ExcelReader

    _check_parts(raw, file)
    with warnings.catch_warnings():
        # Of parts of a workbook that openpyxl does not read, such as charts.
        warnings.simplefilter("ignore")
        reader: Any = ExcelReader(raw, read_only=True, data_only=not formulas)
        reader.read_strings = functools.partial(_read_texts, reader)
        reader.read()
    workbook = reader.wb
    # openpyxl rounds moments to milliseconds.
    workbook.dates = workbook._date_formats
    workbook._date_formats = frozenset()
    return workbook


def _read_texts(reader: Any) -> None:
    """Read the texts of a workbook with their escapes, some of which openpyxl drops."""
    from openpyxl.cell.text import Text
    from openpyxl.xml.constants import SHARED_STRINGS, SHEET_MAIN_NS
    from openpyxl.xml.functions import iterparse

    if part := reader.package.find(SHARED_STRINGS):
        with reader.archive.open(part.PartName[1:]) as xml:
            for _, node in iterparse(xml):
                if node.tag == f"{{{SHEET_MAIN_NS}}}si":
                    reader.shared_strings.append(Text.from_tree(node).content)
                    node.clear()


def _check_parts(raw: Any, file: InputFile) -> None:
    """Check the sizes of the parts of a workbook that are not streamed."""
    with zipfile.ZipFile(raw) as parts:
        for part in parts.infolist():
            if part.filename.endswith(".xml") and not part.filename.startswith(_SHEETS):
                check_size(part.file_size, part.filename, file, _MOST_PART_BYTES)


def sheet_name(workbook: Any, file: InputFile, wanted: str | None) -> str:
    """Return the name of the sheet to read."""
    names = [sheet.title for sheet in workbook.worksheets]
    if wanted is not None and wanted not in names:
        raise UsageError(f"{file.name} has no sheet {wanted!r}: it has {listed(names)}")
    if wanted is not None:
        return wanted
    visible = [sheet.title for sheet in workbook.worksheets if sheet.sheet_state == "visible"]
    if len(visible) != 1:
        raise UsageError(
            f"{file.name} has {len(visible)} visible sheets: pass --sheet, one of {listed(names)}"
        )
    return str(visible[0])


def rows_of(sheet: Any) -> Iterator[Sequence[Any]]:
    """Yield the rows of a sheet, without empty ones at its end."""
    # Some programs write sizes of sheets that are too small.
    sheet.reset_dimensions()
    empty: list[Sequence[Any]] = []
    for cells in sheet.iter_rows():
        if all(cell.value is None for cell in cells):
            empty.append(())
        else:
            yield from empty
            empty.clear()
            yield cells


def _escaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 16))


def value_of(cell: Any) -> Any:
    """Return the value of a cell, of one of the kinds."""
    value = cell.value
    if isinstance(value, str):
        return _ESCAPE.sub(_escaped, value) if "_x" in value else value
    if cell.data_type == "n" and value is not None:
        workbook = cell.parent.parent
        if cell._style_id in workbook.dates:
            is_span = cell._style_id in workbook._timedelta_formats
            with contextlib.suppress(OverflowError):  # a number that is no date stays one
                value = _moment(value, workbook.epoch, is_span=is_span)
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return value.date()  # Excel stores a date as its midnight
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**63:
        return float(value)
    return value


def _moment(days: float, epoch: datetime.datetime, *, is_span: bool) -> Any:
    """Return the date and time, time of day or timedelta of a number of days.

    It is exact to the microsecond. A number of 15 digits (LibreOffice) or 16 (openpyxl) is not: if
    that of a whole millisecond is the same, it is meant.
    """
    whole, part = divmod(days, 1)
    microseconds = round(part * _DAY_MICROSECONDS)
    near = round(microseconds, -3)
    if near != microseconds:
        exact = whole + near / _DAY_MICROSECONDS
        if days in (float(f"{exact:.15g}"), float(f"{exact:.16g}")):
            microseconds = near
    after = datetime.timedelta(whole, microseconds=microseconds)
    if is_span:
        return after
    if 0 <= days < 1 and not after.days:
        return (datetime.datetime.min + after).time()
    # Excel has a day too many, 1900-02-29, of number 60.
    if 60 <= days < 61 and epoch.year < 1900:
        raise OverflowError
    is_before = 0 < days < 60 and epoch.year < 1900
    return epoch + after + datetime.timedelta(is_before)
