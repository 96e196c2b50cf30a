"""Cuts a CSV file at ends of rows, so that several workers can read it.

Quoted fields may contain newlines, so whether a newline ends a row depends on all preceding bytes.
`scan_chunk` therefore scans each chunk once for *every* state in which the parser may begin it, and
`cut` follows the true state from chunk to chunk.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from beam_tfrecord.native._csv import count_lines, scan
from beam_tfrecord.native.values import ROW_START, Dialect, Passage
from beam_tfrecord.sources.csv.text import BETWEEN_ROWS, ROW_STARTS, Header


class ChunkScan(NamedTuple):
    """The ends of rows and lines in a chunk, for each state of the parser at its start."""

    start: int
    stop: int
    passages: tuple[Passage, ...]
    line_ends_before: tuple[int, ...]
    line_ends: int
    begins_lf: bool
    ends_cr: bool


class Piece(NamedTuple):
    """A byte range of complete rows."""

    start: int
    stop: int
    rows: int
    line: int
    rows_are_lines: bool


def scan_chunk(data: bytes, start: int, dialect: Dialect) -> ChunkScan:
    """Scan `data`, the bytes of a file from position `start` on."""
    passages = scan(data, dialect)
    firsts = {first: count_lines(data, 0, max(first, 0)) for *_, first in passages}
    return ChunkScan(
        start=start,
        stop=start + len(data),
        passages=passages,
        line_ends_before=tuple(firsts[first] for *_, first in passages),
        line_ends=count_lines(data),
        begins_lf=data[:1] == b"\n",
        ends_cr=data[-1:] == b"\r",
    )


def join_scans(left: ChunkScan, right: ChunkScan) -> ChunkScan:
    """Return the scan of two adjacent chunks as one."""
    if left.start == left.stop:
        return right
    # Both scans count a CRLF across the edge of the chunks, but it is one line end.
    twice = int(left.ends_cr and right.begins_lf)
    passages, line_ends_before = [], []
    for (middle, rows, rows_with_blanks, first), before in zip(
        left.passages, left.line_ends_before, strict=True
    ):
        exit_state, more_rows, more_with_blanks, later = right.passages[middle]
        if first < 0 and later >= 0:
            first = right.start - left.start + later
            before = left.line_ends + right.line_ends_before[middle] - (twice if later else 0)
        passages.append((exit_state, rows + more_rows, rows_with_blanks + more_with_blanks, first))
        line_ends_before.append(before)
    return left._replace(
        stop=right.stop,
        passages=tuple(passages),
        line_ends_before=tuple(line_ends_before),
        line_ends=left.line_ends + right.line_ends - twice,
        ends_cr=right.ends_cr,
    )


class _Cut(NamedTuple):
    at: int
    rows: int
    # Lines before the cut; the last line of a file may lack its end.
    lines: int


def cut(chunks: Sequence[ChunkScan], header: Header) -> list[Piece]:
    """Cut a file into about one piece for each chunk, and at least one if the file has columns."""
    keep_blank = len(header.names) == 1
    rows = header.row_ends if keep_blank else header.row_ends > 0
    first = _Cut(header.stop, rows, header.line_ends)
    cuts = [first, *_cuts(chunks, header, keep_blank)]
    pieces = [
        Piece(
            here.at,
            there.at,
            there.rows - here.rows,
            here.lines + 1,
            there.rows - here.rows == there.lines - here.lines,
        )
        for here, there in itertools.pairwise(cuts)
    ]
    if not pieces and header.names:
        pieces = [Piece(header.stop, header.stop, 0, header.line_ends + 1, True)]
    # Pieces of blank lines need no unit, but a file without rows needs one for its columns.
    return [piece for piece in pieces if piece.rows] or pieces[:1]


def _cuts(chunks: Sequence[ChunkScan], header: Header, keep_blank: bool) -> Iterator[_Cut]:
    """Yield the places behind the header to cut at: first row starts of chunks, and the end."""
    for found in _row_starts(chunks, header.skipped, keep_blank):
        if found.at > header.stop:
            yield found


def _row_starts(chunks: Sequence[ChunkScan], line_ends: int, keep_blank: bool) -> Iterator[_Cut]:
    """Yield the first row start of every chunk that has one, then the end of the file."""
    state, rows, ends_cr = ROW_START, 0, False
    for chunk in chunks:
        twice = int(ends_cr and chunk.begins_lf)
        exit_state, rows_ended, rows_with_blanks, first = chunk.passages[state]
        if first >= 0:
            before = chunk.line_ends_before[state] - (twice if first else 0)
            begun = state not in BETWEEN_ROWS
            yield _Cut(chunk.start + first, rows + begun, line_ends + before)
        rows += rows_with_blanks if keep_blank else rows_ended
        line_ends += chunk.line_ends - twice
        state, ends_cr = exit_state, chunk.ends_cr
    if chunks:
        rows += state not in BETWEEN_ROWS
        yield _Cut(chunks[-1].stop, rows, line_ends + (state not in ROW_STARTS))
