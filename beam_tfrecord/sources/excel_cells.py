"""Opens Excel workbooks with openpyxl, and returns the values of their cells.

openpyxl rounds times to milliseconds and loses some escapes of texts, so these are read here.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import re
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

from beam_tfrecord.base.extras import require
from beam_tfrecord.base.text import listed
from beam_tfrecord.errors import BeamTFRecordError, UsageError
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.file_parts import check_size, incomplete, open_input

# The largest part of a workbook that openpyxl reads at once: the texts of all sheets, above all.
# In memory they take about four times as much, because a workbook is opened twice.
_MOST_PART_BYTES = 2**29
_SHEETS = "xl/worksheets/"
_DAY_MICROSECONDS = 86_400_000_000
# Not of surrogates, which are no text alone.
_ESCAPE = re.compile("_x(?![Dd][89A-Fa-f])([0-9A-Fa-f]{4})_")


@contextlib.contextmanager
def opened_workbook(file: InputFile, *, computed: bool = True) -> Iterator[Any]:
    """Open a workbook for streaming, with values of formulas, or with the formulas themselves."""
    require("excel", "an Excel workbook")
    from openpyxl.reader.excel import ExcelReader

    with contextlib.ExitStack() as stack:
        raw = stack.enter_context(open_input(file))
        try:
            with warnings.catch_warnings():
                # Of parts of a workbook that openpyxl does not read, such as charts.
                warnings.simplefilter("ignore")
                _check_parts(raw, file)
                reader: Any = ExcelReader(raw, read_only=True, data_only=computed)
                reader.read_strings = functools.partial(_read_texts, reader)
                reader.read()
            workbook = reader.wb
            stack.callback(workbook.close)
            # openpyxl rounds moments to milliseconds.
            workbook.dates = workbook._date_formats
            workbook._date_formats = frozenset()
            yield workbook
        except BeamTFRecordError:
            raise
        # openpyxl has no class for damage: what fails is what its parsers meet.
        except Exception as error:
            advice = "save it as .xlsx in Excel, without a password, or leave it out"
            raise incomplete(file, "xlsx", error, advice) from error


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
    is_before = 0 < days < 60 and epoch.year < 1900
    return epoch + after + datetime.timedelta(is_before)
