"""Finds the header in the text of a CSV file, and where the file can be split between rows.

Quoted fields may contain newlines, so whether a newline ends a row depends on all preceding bytes.
`scan_chunk` therefore scans each chunk once for *every* state in which the parser may begin it, and
`cut` follows the true state from chunk to chunk.
"""

from __future__ import annotations

import codecs
import dataclasses
import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from beam_tfrecord.base.text import counted, repeated
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.native._csv import count_lines, first_row, scan
from beam_tfrecord.native.kernel_types import COMMENT, CR, ROW_START, Dialect, Row
from beam_tfrecord.options.sources import CsvOptions
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.damaged_files import incomplete
from beam_tfrecord.sources.files import has_suffix
from beam_tfrecord.sources.text_files import BLOCK_BYTES, Text

# Words that are null in a column of numbers, booleans, dates or times, but are ordinary text in a
# text column.
NULL_WORDS = (
    *(b"NA", b"N/A", b"n/a", b"#N/A", b"#NA", b"<NA>"),
    *(b"NULL", b"Null", b"null", b"None", b"none", b"NaT"),
)


def delimiter_of(options: CsvOptions, path: str) -> str:
    """Return the delimiter of a file: the option, or that of its suffix."""
    of_suffix = "\t" if has_suffix(path, (".tsv",)) else ","
    return of_suffix if options.delimiter is None else options.delimiter


def dialect_of(options: CsvOptions, path: str) -> Dialect:
    """Check the characters of the CSV dialect of a file, and return it for the native kernel."""
    characters = {
        "delimiter": delimiter_of(options, path),
        "quote": options.quote,
        "escape": options.escape,
        "comment": options.comment,
    }
    used: dict[str, str] = {}
    for name, character in characters.items():
        if character is None:
            continue
        if len(character) != 1 or not 0 < ord(character) < 128 or character in "\r\n":
            raise UsageError(
                f"{name} {character!r} must be a single ASCII character other than NUL, CR and LF"
            )
        if character in used:
            raise UsageError(
                f"{name} and {used[character]} are both {character!r}: pass two different ones"
            )
        used[character] = name
    code = {name: ord(character) for character, name in used.items()}
    quote, escape, comment = (code.get(name) for name in ("quote", "escape", "comment"))
    return code["delimiter"], quote, escape, options.double_quote, comment


MAX_HEADER_BYTES = 2**24
CLOSE_QUOTE = (
    'correct it ("" stands for a quote inside quotes), or pass --quote none if quotes have no '
    "meaning in the file"
)
_LINE_END = re.compile(rb"\r\n?|\n")
# Byte order marks as they are without --encoding, or after a wrong one; that of UTF-32 is longer.
_MARKS = {
    **dict.fromkeys((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE), "utf-32"),
    **dict.fromkeys((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, "\ufffe".encode()), "utf-16"),
    codecs.BOM_UTF8.decode("latin-1").encode(): "utf-8",
}


@dataclasses.dataclass(frozen=True)
class Header:
    """The column names of a file, and the position of its first row, with the lines before it."""

    names: tuple[str, ...]
    stop: int
    lines: int = 0


def read_header(text: Text, file: InputFile, options: CsvOptions) -> Header:
    """Read the first row of a file."""
    names, skip_lines = options.names, options.skip_lines
    head, begin, row = _read_head(text, file, dialect_of(options, file.path), skip_lines)
    if row is None:
        return Header((), len(head))
    line, stop = head[begin : begin + row.stop], begin + row.stop
    count = len(row.values)
    if b"\0" in line:
        reason = "it has NUL bytes, as compressed files and UTF-16 have (--encoding utf-16-le)"
        raise incomplete(file, "CSV", ValueError(reason))
    if names is not None and len(names) != count:
        raise DataError(
            f"{file.name} has {counted(count, 'column')} but --names has {len(names)}: "
            "pass one name for each column"
        )
    if not options.header:
        made = tuple(names or (f"f{i}" for i in range(count)))
        return Header(made, begin, skip_lines)
    if names is None and _is_json(line):
        raise DataError(
            f"{file.name}:{skip_lines + 1} is JSON, and not names of columns: give the file the "
            "suffix .json, or pass --from json"
        )
    found = names if names is not None else _names_of(row, file)
    return Header(tuple(found), stop, skip_lines + count_lines(line))


def _is_json(line: bytes) -> bool:
    """Return whether a line begins a JSON object, or an array of objects."""
    text = b"".join(line.split())
    return text.startswith((b"{", b"[{")) or text == b"["


def _read_head(
    text: Text, file: InputFile, dialect: Dialect, skip_lines: int
) -> tuple[bytes, int, Row | None]:
    """Return the first bytes of a file, where rows begin in them, and from there the first row."""
    head = b""
    while True:
        piece = text.read(max(2**16, len(head)))
        head += piece
        if found := next((name for mark, name in _MARKS.items() if head.startswith(mark)), ""):
            raise DataError(f"{file.name} looks like {found.upper()}: pass --encoding {found}")
        begin = _begin_of_rows(head, skip_lines, final=not piece)
        row = None
        if begin is not None:
            try:
                row = first_row(head[begin:], dialect, final=not piece)
            except ValueError as error:
                where = f"{file.name}:{skip_lines + 1}"
                raise DataError(f"{where} has {error}: {CLOSE_QUOTE}") from error
        if begin is not None and (row is not None or not piece):
            return head, begin, row
        if not piece:
            lines = len(_LINE_END.findall(head))
            raise DataError(
                f"{file.name} has only {lines} line ends: correct --skip-lines {skip_lines}"
            )
        if len(head) > MAX_HEADER_BYTES:
            raise DataError(
                f"the first row of {file.name} does not end in {MAX_HEADER_BYTES} bytes: check "
                "that the file is CSV, and check --delimiter and --skip-lines"
            )


def _begin_of_rows(head: bytes, skip_lines: int, *, final: bool) -> int | None:
    """Return the position behind a byte order mark and some lines; None if these do not end."""
    at = len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0
    for _ in range(skip_lines):
        found = _LINE_END.search(head, at)
        # A CR at the end may be half of a CRLF.
        if found is None or (found.end() == len(head) and not final):
            return None
        at = found.end()
    return at


def _names_of(row: Row, file: InputFile) -> list[str]:
    try:
        names = [value.decode() for value in row.values]
    except UnicodeDecodeError as error:
        raise DataError(f"the header of {file.name} is not utf-8: pass --encoding") from error
    if "" in names:
        raise DataError(
            f"column {names.index('') + 1} has no name in the header of {file.name}: pass --names "
            "with a name for each column"
        )
    if doubled := repeated(names):
        raise DataError(
            f"column {doubled[0]!r} appears twice in the header of {file.name}: pass --names, or "
            "--no-header if the line is a row"
        )
    return names


# States of the parser in which no line is begun, and in which no row is.
_BETWEEN_LINES = (ROW_START, CR)
_BETWEEN_ROWS = (*_BETWEEN_LINES, COMMENT)


class Passage(NamedTuple):
    """What a chunk does to a parser that begins it in some state."""

    state: int  # at its end
    rows: int = 0
    rows_with_blanks: int = 0
    first: int = -1  # position of the first row that starts in the chunk
    lines: int = 0  # ends of lines before the first row


class ChunkScan(NamedTuple):
    """The passages from each state, and the number of ends of lines."""

    stop: int
    passages: tuple[Passage, ...]
    lines: int


class TextSlice(NamedTuple):
    """A byte range of complete rows."""

    start: int
    stop: int
    rows: int | None  # None if nobody has counted them
    line: int
    rows_are_lines: bool


def scan_chunk(text: Text, start: int, dialect: Dialect, *, after_cr: bool) -> ChunkScan:
    """Scan the text of a chunk from the position `start` on, which may follow a CR."""
    passages = [Passage(state) for state in range(COMMENT + 1)]
    lines = 0
    while data := text.read(BLOCK_BYTES):
        # A CRLF is one end of a line, and must not be cut.
        while data.endswith(b"\r") and (more := text.read(1)):
            data += more
        lines -= after_cr and data.startswith(b"\n")
        after_cr = False
        found = scan(data, dialect)
        for number, (middle, rows, rows_with_blanks, first, before) in enumerate(passages):
            state, more_rows, more_with_blanks, at = found[middle]
            if first < 0 <= at:
                first, before = start + at, lines + count_lines(data, 0, at)
            passages[number] = Passage(
                state, rows + more_rows, rows_with_blanks + more_with_blanks, first, before
            )
        lines += count_lines(data)
        start += len(data)
    return ChunkScan(start, tuple(passages), lines)


class _Cut(NamedTuple):
    at: int
    rows: int
    lines: int


def cut(chunks: Sequence[ChunkScan], header: Header) -> list[TextSlice]:
    """Cut a file into about one slice for each chunk, and at least one if the file has columns."""
    cuts, state, rows, lines = [], ROW_START, 0, header.lines
    for chunk in chunks:
        passage = chunk.passages[state]
        if passage.first >= 0:
            is_begun = state not in _BETWEEN_ROWS
            cuts.append(_Cut(passage.first, rows + is_begun, lines + passage.lines))
        rows += passage.rows_with_blanks if len(header.names) == 1 else passage.rows
        lines += chunk.lines
        state = passage.state
    # The last line of a file may lack its end.
    is_begun, is_line = state not in _BETWEEN_ROWS, state not in _BETWEEN_LINES
    cuts.append(_Cut(chunks[-1].stop, rows + is_begun, lines + is_line))
    slices = [
        TextSlice(
            *(here.at, there.at, there.rows - here.rows, here.lines + 1),
            rows_are_lines=there.rows - here.rows == there.lines - here.lines,
        )
        for here, there in itertools.pairwise(cuts)
    ]
    # Slices of blank lines need no unit, but a file without rows needs one for its columns.
    with_rows = [one for one in slices if one.rows] or slices[:1]
    if with_rows or not header.names:
        return with_rows
    return [TextSlice(header.stop, header.stop, 0, header.lines + 1, True)]
