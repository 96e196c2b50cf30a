"""The CSV kernel in Python, row by row: the reference that tests compare it with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from beam_tfrecord.native.values import (
    AS_BOOL,
    AS_BYTES,
    AS_DATE,
    AS_DOUBLE,
    AS_FLOAT,
    AS_INT,
    AS_TEXT,
    AS_WORDS,
    COLUMN_TEXT_BYTES,
    EMPTY,
    TEXT,
    WORD,
    Dialect,
    Fault,
    Sighting,
    Target,
)
from tests.native.reference.csv_rows import count_lines, first_row, rows_of, scan
from tests.native.reference.csv_values import check_text, floats_of, kind_of, parse

__all__ = ["Filler", "Typer", "count_lines", "first_row", "scan"]


class _Table:
    def __init__(
        self,
        dialect,
        columns,
        *,
        keep_blank,
        nulls,
        always,
    ):
        self.rows = 0
        self.dialect, self.columns, self.keep_blank = dialect, columns, keep_blank
        self.nulls, self.always = frozenset(nulls), frozenset(always)

    def _rows(self, data, at, final):
        return rows_of(bytes(data), at, self.dialect, final=final, keep_blank=self.keep_blank)


class Typer(_Table):
    """Collects the kinds of the values in every column."""

    def __init__(self, dialect: Dialect, columns: int, **options: Any) -> None:
        super().__init__(dialect, columns, **options)
        self._seen = [0] * columns
        self._sightings = []

    def feed(self, data, at, final):
        """Take whole rows from `at` on; returns where the first one left starts.

        Of a column that is ordinary text, further kinds may be missing. Rows with a wrong number of
        fields take no part.
        """
        for row in self._rows(data, at, final):
            at = row.stop
            if not row.broken and len(row.fields) == self.columns:
                for column, (value, quoted) in enumerate(row.fields):
                    self._see(column, value, quoted, row.start)
            self.rows += 1
        return at

    def _see(self, column: int, value: bytes, quoted: bool, start: int) -> None:
        seen, trimmed = self._seen[column], value.strip(b" \t")
        if seen & TEXT and value and value[:1] not in {word[:1] for word in self.nulls}:
            return
        kind = 0 if {value, trimmed} & self.always else kind_of(value) or (EMPTY if quoted else 0)
        if kind == TEXT and trimmed in self.nulls:
            kind = WORD
        if kind & ~seen:
            self._seen[column] |= kind
            self._sightings.append(Sighting(column, kind, self.rows, start, value))

    def take_sightings(self):
        """Return the kinds seen for the first time since the last call."""
        taken, self._sightings = self._sightings, []
        return taken


_FORMATS = {AS_BOOL: "u1", AS_DATE: "i4"}


class Filler(_Table):
    """Reads rows into columns."""

    def __init__(
        self,
        dialect: Dialect,
        columns: int,
        targets: Sequence[Target],
        *,
        capacity: int,
        **options: Any,
    ) -> None:
        super().__init__(dialect, columns, **options)
        self.targets, self.capacity = tuple(targets), capacity
        self._faults = []
        self.is_full = False
        self._start()

    def _start(self):
        self.rows = 0
        self._cells = [[] for _ in self.targets]
        self._text_bytes = 0

    def feed(self, data, at, final):
        """Take whole rows from `at` on until full; returns where the first one left starts."""
        self.is_full = True
        for row in self._rows(data, at, final):
            size = row.stop - row.start
            if self.rows == self.capacity or (
                self.rows and self._text_bytes + size > COLUMN_TEXT_BYTES
            ):
                return at
            fields = row.broken or len(row.fields)
            faulty = fields != self.columns
            if faulty:
                self._faults.append(Fault(self.rows, -1, fields, row.start, row.stop, b""))
            for index, target in enumerate(self.targets):
                cell = None
                if fields == self.columns:
                    value, quoted = row.fields[target.column]
                    try:
                        cell = self._cell(target, value, quoted)
                    except ValueError:
                        if not faulty:
                            faulty = True
                            where = (row.start, row.stop)
                            self._faults.append(Fault(self.rows, index, fields, *where, value))
                self._cells[index].append(cell)
            self.rows += 1
            self._text_bytes += size
            at = row.stop
        self.is_full = self.rows == self.capacity
        return at

    def _cell(self, target: Target, value: bytes, quoted: bool) -> Any:
        if value in self.always:
            return None
        if target.kind in (AS_TEXT, AS_BYTES):
            if target.kind == AS_TEXT:
                check_text(value)
            return value if value or quoted else None
        value = value.strip(b" \t")
        if not value or value in self.always:
            return None
        if target.kind == AS_WORDS:
            if value in self.nulls:
                return None
            check_text(value)
            return value
        try:
            return parse(target, value)
        except ValueError:
            if value in self.nulls:
                return None
            raise

    def take_faults(self):
        """Return the faults found since the last call."""
        taken, self._faults = self._faults, []
        return taken

    def take(self) -> list[tuple[Any, Any, Any, Any]]:
        """Return arrays a target, and start anew.

        They are the values as bytes, a valid byte a row, the offsets of text, and of floats what
        they are exactly: see `floats_of`; None where there are no such.
        """
        columns = []
        for target, cells in zip(self.targets, self._cells, strict=True):
            valid = np.array([cell is not None for cell in cells], np.uint8)
            if target.kind >= AS_TEXT:
                offsets = np.cumsum([0, *(len(cell or b"") for cell in cells)]).astype(np.int32)
                joined = np.frombuffer(b"".join(cell or b"" for cell in cells), np.uint8)
                columns.append((joined, valid, offsets, None))
                continue
            if target.kind in (AS_FLOAT, AS_DOUBLE):
                pairs = np.array([cell or (0, 0) for cell in cells], np.float64).reshape(-1, 2)
                numbers, sides = pairs[:, 0].copy(), pairs[:, 1].astype(np.int8)
                stored, exact = floats_of(target, numbers, sides)
                columns.append((stored, valid, None, exact))
                continue
            kind = "u" if target.low == 0 and target.kind == AS_INT else "i"
            form = _FORMATS.get(target.kind, f"{kind}{target.width or 1}")
            filled = [0 if cell is None else cell for cell in cells]
            values = np.array(filled, form).view(np.uint8)
            columns.append((values[: len(cells) * target.width], valid, None, None))
        self._start()
        return columns
