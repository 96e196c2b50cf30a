"""Where CSV rows and fields end, byte by byte."""

from __future__ import annotations

from typing import NamedTuple

from beam_tfrecord.native.values import (
    COMMENT,
    CR,
    ESCAPE,
    ESCAPE_QUOTED,
    FIELD_START,
    QUOTE_SEEN,
    QUOTED,
    ROW_START,
    UNQUOTED,
)


class FieldRow(NamedTuple):
    """A row as (value, was quoted) pairs; `broken` is a key of `BROKEN_ROWS`, or 0."""

    start: int
    stop: int
    fields: list[tuple[bytes, bool]]
    broken: int


def _step(dialect, state, byte):
    delimiter, quote, escape, doubles, *comment = dialect
    if state == COMMENT and byte not in b"\r\n":
        return COMMENT
    if byte in comment and state in (ROW_START, CR):
        return COMMENT
    if state in (ESCAPE, ESCAPE_QUOTED):
        return UNQUOTED if state == ESCAPE else QUOTED
    if state == QUOTED:
        if byte == escape:
            return ESCAPE_QUOTED
        if byte != quote:
            return QUOTED
        return QUOTE_SEEN if doubles else UNQUOTED
    if byte == escape:
        return ESCAPE
    if byte == quote and state != UNQUOTED:
        return QUOTED
    if byte == delimiter:
        return FIELD_START
    return {0x0A: ROW_START, 0x0D: CR}.get(byte, UNQUOTED)


def _passage(data, dialect, state):
    rows = line_ends = 0
    first = -1
    if data and state in (ROW_START, CR):
        first = int(state == CR and data[0] == 0x0A)
    settled = bool(data) and first >= 0
    for at, byte in enumerate(data):
        before, state = state, _step(dialect, state, byte)
        if not (state == CR or (state == ROW_START and before != CR)):
            continue
        line_ends += before != COMMENT
        rows += before not in (ROW_START, CR, COMMENT)
        if not settled:
            settled = True
            first = at + 1 + (data[at : at + 2] == b"\r\n")
    return state, rows, line_ends, first if first < len(data) else -1


def scan(data, dialect):
    """Return what a piece of a file does to each state it may be entered in."""
    text = bytes(data)
    passages = [_passage(text, dialect, state) for state in range(COMMENT)]
    has_comments = len(dialect) > 4 and dialect[4] is not None
    last = _passage(text, dialect, COMMENT) if has_comments else (COMMENT, 0, 0, -1)
    return (*passages, last)


def rows_of(text, at, dialect, *, final, keep_blank):
    """Yield the whole rows from `at` on; blank lines only where `keep_blank`."""
    quote, escape = dialect[1:3]
    while at < len(text):
        start, state = at, ROW_START
        if text[at] in dialect[4:]:
            while at < len(text) and text[at] not in b"\r\n":
                at += 1
            if not final and text[at:] in (b"", b"\r"):
                return
            at += 2 if text[at : at + 2] == b"\r\n" else 1
            continue
        fields = []
        value, was_quoted = bytearray(), False
        broken, closes = 0, False
        while at < len(text):
            byte = text[at]
            before, state = state, _step(dialect, state, byte)
            at += 1
            if closes and state not in (QUOTED, FIELD_START, ROW_START, CR):
                broken = -2
            if state in (FIELD_START, ROW_START, CR):
                fields.append((bytes(value), was_quoted))
                value, was_quoted = bytearray(), False
            if state in (ROW_START, CR):
                break
            opens = state == QUOTED and before in (ROW_START, FIELD_START)
            closes = before == QUOTED and byte == quote
            escapes = byte == escape and before not in (ESCAPE, ESCAPE_QUOTED)
            was_quoted |= opens
            if state != FIELD_START and not (opens or closes or escapes):
                value.append(byte)
        if state not in (ROW_START, CR):
            if not final:
                return
            fields.append((bytes(value), was_quoted))
        elif state == CR:
            if at == len(text) and not final:
                return
            at += text[at : at + 1] == b"\n"
        if keep_blank or text[start] not in b"\r\n":
            yield FieldRow(start, at, fields, -1 if state in (QUOTED, ESCAPE_QUOTED) else broken)
