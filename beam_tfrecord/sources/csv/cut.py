"""Cuts a CSV file at ends of rows, so that several workers can read it.

Quoted fields may contain newlines, so whether a newline ends a row depends on all preceding bytes.
`scan_chunk` therefore scans each chunk once for *every* state in which the parser may begin it, and
`cut` follows the true state from chunk to chunk.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from beam_tfrecord.native._csv import count_lines, scan
from beam_tfrecord.native.values import COMMENT, CR, ROW_START, Dialect
from beam_tfrecord.sources.csv.text import Header
from beam_tfrecord.sources.text_files import BLOCK_BYTES, Text

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


class Piece(NamedTuple):
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


def cut(chunks: Sequence[ChunkScan], header: Header) -> list[Piece]:
    """Cut a file into about one piece for each chunk, and at least one if the file has columns."""
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
    pieces = [
        Piece(
            *(here.at, there.at, there.rows - here.rows, here.lines + 1),
            rows_are_lines=there.rows - here.rows == there.lines - here.lines,
        )
        for here, there in itertools.pairwise(cuts)
    ]
    # Pieces of blank lines need no unit, but a file without rows needs one for its columns.
    with_rows = [piece for piece in pieces if piece.rows] or pieces[:1]
    if with_rows or not header.names:
        return with_rows
    return [Piece(header.stop, header.stop, 0, header.lines + 1, True)]
