"""The names of a CSV file's columns, and where its rows begin."""

from __future__ import annotations

import codecs
import dataclasses
from collections.abc import Sequence

from beam_tfrecord.errors import DataError
from beam_tfrecord.native._csv import count_lines, first_row
from beam_tfrecord.native.values import Row
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.csv.dialect import Dialect, to_utf8
from beam_tfrecord.sources.csv.text import Text

MAX_HEADER_BYTES = 2**24
_WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclasses.dataclass(frozen=True)
class Header:
    """The head of a file.

    Attributes:
        names: Names of the columns; none where the file has no row at all.
        stop: Where the rows begin, in bytes from the start of the text.
        lines: Line ends before that.
        row_ends: Ends of rows and of blank lines before that.
    """

    names: tuple[str, ...]
    stop: int
    lines: int = 0
    row_ends: int = 0


def read_header(
    text: Text,
    file: InputFile,
    dialect: Dialect,
    *,
    encoding: str,
    has_header: bool,
    names: Sequence[str] | None,
) -> Header:
    """Read the first row of `text`, which stands at the beginning of `file`.

    Args:
        text: The beginning of the file.
        file: The file, for messages.
        dialect: How it is written.
        encoding: A cuttable encoding: that of `text`.
        has_header: The first row holds names; blank lines before it are skipped.
        names: Names to use instead, or for a file without header; else those are f0, f1 …

    Raises:
        DataError: The first row is damaged, or a name is empty or there twice.
    """
    beginning, row = _first_row(text, file, dialect)
    mark = _mark_bytes(beginning)
    if row is None:
        return Header((), len(beginning))
    if b"\0" in beginning[: row.stop + mark]:
        raise DataError(
            f"{file.name}:1 holds NUL bytes: it is no text; for UTF-16 pass --encoding utf-16"
        )
    if names is not None and len(names) != len(row.values):
        raise DataError(
            f"{file.name} has {len(row.values)} columns but {len(names)} names are given: "
            "pass one name for each column"
        )
    if not has_header:
        return Header(tuple(names or (f"f{i}" for i in range(len(row.values)))), mark)
    lines = count_lines(beginning, 0, mark + row.stop)
    row_ends = count_lines(beginning, 0, mark + row.start) + 1
    found = names if names is not None else _names_of(row, file, encoding)
    return Header(tuple(found), mark + row.stop, lines, row_ends)


def _mark_bytes(beginning: bytes) -> int:
    return len(codecs.BOM_UTF8) if beginning.startswith(codecs.BOM_UTF8) else 0


def _first_row(text: Text, file: InputFile, dialect: Dialect) -> tuple[bytes, Row | None]:
    beginning, wanted = b"", 2**16
    while True:
        piece = text.read(wanted)
        beginning += piece
        if beginning.startswith(_WIDE_MARKS):
            raise DataError(f"{file.name} looks like UTF-16: pass --encoding utf-16")
        body = beginning[_mark_bytes(beginning) :]
        try:
            row = first_row(body, dialect.settings, final=not piece)
        except ValueError as error:
            raise DataError(
                f"{file.name}:1 has a quote that never closes: pass --quote, or fix it"
            ) from error
        if row is not None or not piece:
            return beginning, row
        if len(beginning) > MAX_HEADER_BYTES:
            raise DataError(
                f"the first row of {file.name} is longer than {MAX_HEADER_BYTES} bytes: "
                "check that it is CSV, and --delimiter and --quote"
            )
        wanted = len(beginning)


def _names_of(row: Row, file: InputFile, encoding: str) -> list[str]:
    try:
        names = [to_utf8(value, encoding).decode() for value in row.values]
    except UnicodeDecodeError as error:
        raise DataError(f"the header of {file.name} is not {encoding}: pass --encoding") from error
    for place, name in enumerate(names, start=1):
        if not name:
            raise DataError(
                f"column {place} has no name in the header of {file.name}: pass --names"
            )
        if names.index(name) != place - 1:
            raise DataError(
                f"column {name!r} is there twice in the header of {file.name}: pass --names"
            )
    return names
