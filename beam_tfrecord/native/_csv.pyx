# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Binding of the CSV kernel: the GIL is released around all work, memory is owned here only.

`csv_reference` has the same functions in plain Python and says what they mean.
"""

from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memset

import numpy as np

from beam_tfrecord.native.csv_reference import (
    COLUMN_TEXT_BYTES, Fault, Sighting, powers_of_five, round_to_float32
)


cdef extern from "utf8.h" nogil:
    bint bt_is_ascii(const uint8_t *at, size_t size)


cdef extern from "csv_columns.h" nogil:
    ctypedef struct CsvDialect:
        uint8_t delimiter, quote, escape
        bint quotes, escapes, doubles
    ctypedef struct CsvPassage:
        int32_t exit
        int64_t rows, line_ends, first
    ctypedef struct CsvField:
        uint32_t at, size
    ctypedef struct CsvRows:
        CsvField *fields
        uint32_t *counts
        uint32_t *starts
        uint32_t columns, capacity, rows
        bint keep_blank
    ctypedef struct CsvWords:
        const uint8_t *text
        const uint32_t *ends
        uint32_t count, longest
        uint64_t first[4]
    ctypedef struct CsvColumn:
        int32_t as_ "as"
        uint32_t column
        int32_t width
        bint zoned
        int64_t low
        uint64_t high
        int64_t ticks
        void *values
        uint8_t *valid
        int32_t *offsets
        uint8_t *text
    ctypedef struct CsvText:
        CsvDialect dialect
        CsvWords nulls, always
        const uint8_t *data
        size_t bytes
        uint8_t *scratch
        bint checked
    enum: CSV_STATES, CSV_SIZE, CSV_NEEDS_CLEANING, CSV_UNCLOSED
    enum: CSV_AS_FLOAT, CSV_AS_TEXT
    void csv_scan(const CsvDialect *, const uint8_t *, size_t, CsvPassage *)
    int64_t csv_count_lines(const uint8_t *, size_t)
    size_t csv_rows(const CsvDialect *, const uint8_t *, size_t, size_t, bint, CsvRows *)
    size_t csv_clean(const CsvDialect *, const uint8_t *, CsvField, uint8_t *)
    uint32_t csv_fill(const CsvText *, const CsvRows *, CsvColumn *, size_t, uint32_t,
                      uint32_t *, uint32_t *)
    void csv_collect(const CsvText *, const CsvRows *, uint32_t, uint32_t *, uint32_t *)
    void csv_set_powers_of_five(const uint64_t *)


cdef uint64_t[::1] POWERS = powers_of_five()
csv_set_powers_of_five(&POWERS[0])

# Rows tokenised at a time: few enough that their fields stay in the processor's cache.
cdef enum: TABLE_ROWS = 1024


cdef CsvDialect dialect_of(tuple settings):
    cdef CsvDialect dialect
    delimiter, quote, escape, doubles = settings
    dialect.delimiter = delimiter
    dialect.quotes = quote is not None
    dialect.quote = quote or 0
    dialect.escapes = escape is not None
    dialect.escape = escape or 0
    dialect.doubles = doubles
    return dialect


def scan(const uint8_t[::1] data, tuple dialect):
    cdef CsvDialect settings = dialect_of(dialect)
    cdef CsvPassage passages[CSV_STATES]
    cdef size_t size = data.shape[0]
    cdef const uint8_t *at = &data[0] if size else NULL
    with nogil:
        csv_scan(&settings, at, size, passages)
    return tuple([(p.exit, p.rows, p.line_ends, p.first) for p in passages[:CSV_STATES]])


def count_lines(const uint8_t[::1] data, Py_ssize_t start=0, Py_ssize_t stop=-1):
    cdef int64_t lines
    stop = data.shape[0] if stop < 0 else min(stop, data.shape[0])
    if start >= stop:
        return 0
    with nogil:
        lines = csv_count_lines(&data[start], stop - start)
    return lines


cdef class _Table:
    """A table of fields, filled from one piece of text after the other."""

    cdef CsvText text
    cdef CsvRows table
    cdef bytes null_text, always_text
    cdef object owned
    cdef uint32_t[::1] null_ends, always_ends
    cdef uint8_t[::1] scratch

    def __init__(self, tuple dialect, uint32_t columns, *, bint keep_blank, nulls, always):
        memset(&self.text, 0, sizeof(CsvText))
        self.text.dialect = dialect_of(dialect)
        self.null_text, self.null_ends = _joined(nulls)
        self.always_text, self.always_ends = _joined(always)
        self.text.nulls = _words(self.null_text, self.null_ends, nulls)
        self.text.always = _words(self.always_text, self.always_ends, always)
        fields = np.zeros(max(1, 2 * columns * TABLE_ROWS), np.uint32)
        counts = np.zeros(TABLE_ROWS, np.uint32)
        starts = np.zeros(TABLE_ROWS, np.uint32)
        self.owned = (fields, counts, starts)
        self.table.fields = <CsvField *><size_t>fields.ctypes.data
        self.table.counts = <uint32_t *><size_t>counts.ctypes.data
        self.table.starts = <uint32_t *><size_t>starts.ctypes.data
        self.table.columns = columns
        self.table.keep_blank = keep_blank
        self.scratch = np.empty(0, np.uint8)

    cdef size_t next_rows(self, const uint8_t[::1] data, size_t at, bint final, uint32_t limit):
        """Tokenise up to `limit` rows; returns the position behind them."""
        cdef size_t size = data.shape[0], behind
        if size >= CSV_SIZE:
            raise ValueError("a piece of text must be below 2**30 bytes")
        if size == 0:
            self.table.rows = 0
            return at
        self.text.data = &data[0]
        self.text.bytes = size
        self.table.capacity = min(limit, TABLE_ROWS)
        with nogil:
            behind = csv_rows(&self.text.dialect, &data[0], size, at, final, &self.table)
        if behind - at > <size_t>self.scratch.shape[0]:
            self.scratch = np.empty(2 * (behind - at), np.uint8)
        self.text.scratch = &self.scratch[0] if self.scratch.shape[0] else NULL
        return behind

    cdef bytes value(self, uint32_t row, uint32_t column):
        cdef CsvField field = self.table.fields[<size_t>column * self.table.capacity + row]
        cdef size_t size = field.size & CSV_SIZE
        cdef const uint8_t *at = self.text.data + field.at
        if field.size & CSV_NEEDS_CLEANING:
            size = csv_clean(&self.text.dialect, self.text.data, field, self.text.scratch)
            at = self.text.scratch
        return PyBytes_FromStringAndSize(<const char *>at, size)


def _joined(words):
    return b"".join(words), np.cumsum([len(w) for w in words] or [0]).astype(np.uint32)


cdef CsvWords _words(bytes text, uint32_t[::1] ends, words):
    cdef CsvWords made
    memset(&made, 0, sizeof(CsvWords))
    made.text = <const uint8_t *>PyBytes_AsString(text)
    made.ends = &ends[0]
    made.count = len(words)
    for word in words:
        made.longest = max(made.longest, len(word))
        made.first[word[0] >> 6] |= <uint64_t>1 << (word[0] & 63)
    return made


cdef class Typer(_Table):
    cdef readonly int64_t rows
    cdef uint32_t[::1] kinds
    cdef list sightings

    def __init__(self, tuple dialect, uint32_t columns, *, bint keep_blank, nulls, always):
        _Table.__init__(
            self, dialect, columns, keep_blank=keep_blank, nulls=nulls, always=always
        )
        self.kinds = np.zeros(max(1, columns), np.uint32)
        self.sightings = []

    def feed(self, const uint8_t[::1] data, Py_ssize_t at, bint final):
        cdef uint32_t column, before, found[8]
        cdef size_t behind
        while True:
            behind = self.next_rows(data, at, final, TABLE_ROWS)
            if not self.table.rows:
                return behind
            for column in range(self.table.columns):
                before = self.kinds[column]
                with nogil:
                    csv_collect(&self.text, &self.table, column, &self.kinds[column], found)
                if self.kinds[column] != before:
                    for bit in range(8):
                        if (self.kinds[column] & ~before) >> bit & 1:
                            row = found[bit]
                            self.sightings.append(Sighting(
                                column, 1 << bit, self.rows + row, self.table.starts[row]
                            ))
            self.rows += self.table.rows
            at = behind

    def take_sightings(self):
        taken, self.sightings = self.sightings, []
        return taken


cdef class Filler(_Table):
    cdef readonly int64_t rows
    cdef readonly bint is_full
    cdef int64_t capacity
    cdef tuple targets
    cdef object plan, values, valid, offsets, faults
    cdef CsvColumn *columns
    cdef uint32_t[::1] marks, hard

    def __init__(
        self, tuple dialect, uint32_t columns, targets, *, bint keep_blank, nulls, always,
        int64_t capacity
    ):
        _Table.__init__(
            self, dialect, columns, keep_blank=keep_blank, nulls=nulls, always=always
        )
        self.targets = tuple(targets)
        self.capacity = capacity
        self.faults = []
        self.plan = np.zeros(max(1, len(self.targets) * sizeof(CsvColumn)), np.uint8)
        self.columns = <CsvColumn *><size_t>self.plan.ctypes.data
        self.marks = np.zeros(TABLE_ROWS, np.uint32)
        self.hard = np.zeros(TABLE_ROWS, np.uint32)
        cdef CsvColumn *made
        for i, target in enumerate(self.targets):
            if not 0 <= target.column < max(1, columns):
                raise ValueError(f"no column {target.column} in {columns} columns")
            made = &self.columns[i]
            made.as_ = target.kind
            made.column = target.column
            made.width = target.width
            made.zoned = target.zoned
            made.low = target.low
            made.high = target.high
            made.ticks = target.ticks
        self._start()

    def _start(self):
        self.rows = 0
        self.values = []
        self.valid = []
        self.offsets = []
        for i, target in enumerate(self.targets):
            is_text = target.kind >= CSV_AS_TEXT
            size = 16 * (self.capacity + 1) if is_text else target.width * self.capacity
            self.values.append(np.empty(size, np.uint8))
            self.valid.append(np.empty(self.capacity, np.uint8))
            offsets = np.empty(self.capacity + 1 if is_text else 1, np.int32)
            offsets[0] = 0
            self.offsets.append(offsets)
            self._point(i)

    def _point(self, i):
        self.columns[i].values = <void *><size_t>self.values[i].ctypes.data
        self.columns[i].text = <uint8_t *><size_t>self.values[i].ctypes.data
        self.columns[i].valid = <uint8_t *><size_t>self.valid[i].ctypes.data
        self.columns[i].offsets = <int32_t *><size_t>self.offsets[i].ctypes.data

    cdef bint make_room(self, size_t more):
        """Let every column of text take `more` bytes; false where one has enough already."""
        cdef size_t used, size
        for i in range(len(self.targets)):
            if self.columns[i].as_ < CSV_AS_TEXT:
                continue
            used = self.columns[i].offsets[self.rows]
            if used and used + more > COLUMN_TEXT_BYTES:
                return False
            size = self.values[i].shape[0]
            if used + more + 16 > size:
                grown = np.empty(2 * (used + more) + 16, np.uint8)
                grown[:used] = self.values[i][:used]
                self.values[i] = grown
                self._point(i)
        return True

    def feed(self, const uint8_t[::1] data, Py_ssize_t at, bint final):
        cdef size_t behind
        cdef uint32_t i, hards, row, found
        cdef uint32_t *marks = &self.marks[0]
        cdef uint32_t *hard = &self.hard[0]
        cdef uint32_t count = len(self.targets)
        self.is_full = True
        while self.rows < self.capacity:
            behind = self.next_rows(data, at, final, min(TABLE_ROWS, self.capacity - self.rows))
            if not self.table.rows:
                self.is_full = False
                return behind
            if not self.make_room(behind - at):
                break
            self.text.checked = (
                bt_is_ascii(&data[at], behind - at) and not memchr(&data[at], 0, behind - at)
            )
            found = 0
            for row in range(self.table.rows):
                marks[row] = 0
                if self.table.counts[row] != self.table.columns:
                    marks[row] = CSV_UNCLOSED
            for i in range(count):
                with nogil:
                    hards = csv_fill(
                        &self.text, &self.table, &self.columns[i], self.rows, i + 1, marks, hard
                    )
                for row in range(hards):
                    self.round_hard(i, hard[row])
            for row in range(self.table.rows):
                found |= marks[row]
            if found:
                self.note_faults()
            self.rows += self.table.rows
            at = behind
        return at

    cdef round_hard(self, uint32_t i, uint32_t row):
        text = self.value(row, self.columns[i].column)
        if self.columns[i].as_ == CSV_AS_FLOAT:
            number = round_to_float32(text)
            (<float *>self.columns[i].values)[self.rows + row] = number
        else:
            number = float(text)
            (<double *>self.columns[i].values)[self.rows + row] = number
        if number in (float("inf"), float("-inf")) and not self.marks[row]:
            self.marks[row] = i + 1

    cdef note_faults(self):
        cdef uint32_t row, mark
        for row in range(self.table.rows):
            mark = self.marks[row]
            if not mark:
                continue
            fields, target, value = self.table.counts[row], -1, b""
            if mark != CSV_UNCLOSED:
                target = <int>mark - 1
                value = self.value(row, self.columns[target].column)
            elif fields == CSV_UNCLOSED:
                fields = -1
            self.faults.append(
                Fault(self.rows + row, target, fields, self.table.starts[row], value)
            )

    def take_faults(self):
        taken, self.faults = self.faults, []
        return taken

    def take(self):
        """Return a (values, valid, offsets) of arrays for each target, and start anew."""
        cdef int64_t rows = self.rows
        columns = []
        for i, target in enumerate(self.targets):
            if target.kind >= CSV_AS_TEXT:
                offsets = self.offsets[i][:rows + 1]
                values = self.values[i][:offsets[rows]]
            else:
                offsets = None
                values = self.values[i][:target.width * rows]
            columns.append((values, self.valid[i][:rows], offsets))
        self._start()
        return columns
