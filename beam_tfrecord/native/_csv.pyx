# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Binding of the CSV kernel: the GIL is released around all work, memory is owned here only.

``_csv.pyi`` documents the functions, ``_csv.pxd`` declares those of C.
"""

import decimal
import math

from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.string cimport memchr, memset

import numpy as np

from beam_tfrecord.native.kernel_types import (
    BROKEN_ROWS, COLUMN_TEXT_BYTES, CsvRowError, Row, Sighting
)

# Rows tokenised at a time: few enough that their fields stay in the processor's cache.
cdef enum: TABLE_ROWS = 1024

# The mark of a row in which no single column is at fault.
cdef uint32_t WHOLE_ROW = 0xffffffff

# Decimal digits of any float64 written in full.
cdef enum: DOUBLE_DIGITS = 1100


# Where rows and lines end.
cdef CsvDialect dialect_of(tuple settings):
    cdef CsvDialect dialect
    delimiter, quote, escape, doubles, *comment = settings
    dialect.delimiter = delimiter
    dialect.quotes = quote is not None
    dialect.quote = quote or 0
    dialect.escapes = escape is not None
    dialect.escape = escape or 0
    dialect.doubles = doubles
    dialect.comments = any(comment)
    dialect.comment = comment[0] if any(comment) else 0
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


# Text into fields, a table of rows at a time.
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
        stops = np.zeros(TABLE_ROWS, np.uint32)
        self.owned = (fields, counts, starts, stops)
        self.table.fields = <CsvField *><size_t>fields.ctypes.data
        self.table.counts = <uint32_t *><size_t>counts.ctypes.data
        self.table.starts = <uint32_t *><size_t>starts.ctypes.data
        self.table.stops = <uint32_t *><size_t>stops.ctypes.data
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


def first_row(data, tuple dialect, bint final):
    cdef _Table table = _Table(dialect, 0, keep_blank=False, nulls=[], always=[])
    cdef size_t stop = table.next_rows(data, 0, final, 1)
    if not table.table.rows:
        return None
    start, fields = table.table.starts[0], table.table.counts[0]
    if fields >= CSV_TRAILING:
        raise ValueError(BROKEN_ROWS[<int32_t>fields])
    table = _Table(dialect, fields, keep_blank=False, nulls=[], always=[])
    table.next_rows(data, start, final, 1)
    return Row(start, stop, [table.value(0, column) for column in range(fields)])


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


# Fields into the kinds of values that each column has.
cdef class Typer(_Table):
    cdef readonly int64_t rows
    cdef uint32_t[::1] seen
    cdef list sightings

    def __init__(self, tuple dialect, uint32_t columns, *, bint keep_blank, nulls, always):
        _Table.__init__(
            self, dialect, columns, keep_blank=keep_blank, nulls=nulls, always=always
        )
        self.seen = np.zeros(columns, np.uint32)
        self.sightings = []

    def feed(self, const uint8_t[::1] data, Py_ssize_t at, bint final):
        cdef uint32_t column, before
        cdef uint32_t[CSV_KINDS] found
        cdef size_t behind
        while True:
            behind = self.next_rows(data, at, final, TABLE_ROWS)
            if not self.table.rows:
                return behind
            for column in range(self.table.columns):
                before = self.seen[column]
                with nogil:
                    csv_collect(&self.text, &self.table, column, &self.seen[column], found)
                if self.seen[column] != before:
                    for bit in range(CSV_KINDS):
                        if (self.seen[column] & ~before) >> bit & 1:
                            row = found[bit]
                            self.sightings.append(Sighting(
                                column, 1 << bit, self.rows + row, self.table.starts[row],
                                self.value(row, column)
                            ))
            self.rows += self.table.rows
            at = behind

    def take_sightings(self):
        taken, self.sightings = self.sightings, []
        return taken


# Fields into columns of values.
cdef class Filler(_Table):
    cdef readonly int64_t rows
    cdef readonly bint is_full
    cdef readonly object starts
    cdef int64_t capacity
    cdef tuple targets
    cdef object plan, values, valid, sides, offsets, faults
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
        self.starts = np.empty(capacity, np.uint32)
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
            made.width = 8 if target.kind == CSV_AS_FLOAT else target.width
            made.zoned = target.zoned
            made.low = target.low
            made.high = target.high
            made.ticks = target.ticks
        self._start()

    def _start(self):
        self.rows = 0
        self.values = []
        self.valid = []
        self.sides = []
        self.offsets = []
        for i, target in enumerate(self.targets):
            is_text = target.kind >= CSV_AS_TEXT
            is_float = target.kind in (CSV_AS_FLOAT, CSV_AS_DOUBLE)
            width = self.columns[i].width
            size = 16 * (self.capacity + 1) if is_text else width * self.capacity
            self.values.append(np.empty(size, np.uint8))
            self.valid.append(np.empty(self.capacity, np.uint8))
            self.sides.append(np.zeros(self.capacity if is_float else 1, np.int8))
            offsets = np.empty(self.capacity + 1 if is_text else 1, np.int32)
            offsets[0] = 0
            self.offsets.append(offsets)
            self._point(i)

    def _point(self, i):
        self.columns[i].values = <void *><size_t>self.values[i].ctypes.data
        self.columns[i].text = <uint8_t *><size_t>self.values[i].ctypes.data
        self.columns[i].valid = <uint8_t *><size_t>self.valid[i].ctypes.data
        self.columns[i].sides = <int8_t *><size_t>self.sides[i].ctypes.data
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
                    marks[row] = WHOLE_ROW
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
            self.starts[self.rows:self.rows + self.table.rows] = self.owned[2][:self.table.rows]
            self.rows += self.table.rows
            at = behind
        return at

    cdef round_hard(self, uint32_t i, uint32_t row):
        number, side = nearest_double(self.value(row, self.columns[i].column))
        (<double *>self.columns[i].values)[self.rows + row] = number
        self.columns[i].sides[self.rows + row] = side
        if self.columns[i].as_ == CSV_AS_FLOAT:
            with np.errstate(over="ignore"):
                number = np.float32(rounding_proxies(number, side))
        if np.isinf(number) and not self.marks[row]:
            self.marks[row] = i + 1

    cdef note_faults(self):
        cdef uint32_t row, mark
        for row in range(self.table.rows):
            mark = self.marks[row]
            if not mark:
                continue
            target, value = -1, b""
            if mark != WHOLE_ROW:
                target = <int>mark - 1
                value = self.value(row, self.columns[target].column)
            fields, start = <int32_t>self.table.counts[row], self.table.starts[row]
            stop = self.table.stops[row]
            self.faults.append(CsvRowError(self.rows + row, target, fields, start, stop, value))

    def take_faults(self):
        taken, self.faults = self.faults, []
        return taken

    def take(self):
        cdef int64_t rows = self.rows
        columns = []
        for i, target in enumerate(self.targets):
            offsets = exact = None
            if target.kind >= CSV_AS_TEXT:
                offsets = self.offsets[i][:rows + 1]
                values = self.values[i][:offsets[rows]]
            else:
                values = self.values[i][:self.columns[i].width * rows]
            if target.kind in (CSV_AS_FLOAT, CSV_AS_DOUBLE):
                values, exact = floats_of(target, values.view(np.float64), self.sides[i][:rows])
            columns.append((values, self.valid[i][:rows], offsets, exact))
        self._start()
        return columns


# Numbers that are hard to round.
def powers_of_five():
    """Return the 128 leading bits of 5^q, q from -342 to 308, as high and low words.

    Positive powers are cut off; negative ones are rounded up, as Eisel-Lemire wants them.
    """
    words = []
    for power in range(-342, 309):
        if power >= 0:
            exact = 5**power
            shift = exact.bit_length() - 128
            bits = exact >> shift if shift > 0 else exact << -shift
        else:
            divisor = 5**-power
            bits = (1 << (divisor.bit_length() + 127)) // divisor + 1
        words += [bits >> 64, bits & (2**64 - 1)]
    return np.array(words, np.uint64)


cdef nearest_double(bytes text):
    """Return the float64 nearest to the decimal number `text`, and the side the number lies on.

    The side is 1 or -1 if the number is greater or less than the float64, which may be infinite. It
    is 0 if the float64 stands for the number: written with as many digits (but for zeros at the
    end), it is that number. It is 2 or -2 if it does, but lies halfway between two float32.
    """
    text = text.strip(b" \t")
    value = float(text)
    if not math.isfinite(value):
        return value, 0
    if not value:
        # Its exponent may be beyond what a decimal can have.
        is_zero = not text.lower().partition(b"e")[0].strip(b"-0.")
        return value, 0 if is_zero else -1 if text.startswith(b"-") else 1
    number, exact = decimal.Decimal(text.decode()), decimal.Decimal(value)
    with decimal.localcontext() as context:
        context.prec = len(number.as_tuple().digits) + DOUBLE_DIGITS
        apart = number - exact
        last = int(number.normalize().as_tuple().exponent)
        stands = abs(apart) <= decimal.Decimal((0, (5,), last - 1))
    if not apart or (stands and halves(value) % 2 != 1):
        return value, 0
    return value, (2 if stands else 1) * (1 if apart > 0 else -1)


cdef halves(values):
    """Return float64 in units of half a float32 step, which is 2^-150 at the least."""
    steps = np.maximum(np.frexp(values)[1] - 25, -150)
    return np.ldexp(values, -steps)


cdef rounding_proxies(values, sides):
    """Return float64 that round to float32 as the decimal numbers behind `values` do.

    A value whose side is not 0 gets a neighbour on that side. The distance of the neighbour from
    the value, or from the float32, is the loss, to the last digit of a float64. If the value stands
    for the number, the neighbour is two steps away, which is no loss of the value.
    """
    values, sides = np.asarray(values, np.float64), np.asarray(sides)
    towards = np.nextafter(values, np.copysign(np.inf, sides))
    away = np.nextafter(values, np.copysign(np.inf, -sides))
    further = np.nextafter(towards, np.copysign(np.inf, sides))
    # The greatest float64 has no neighbour above. A neighbour that is a float32, or halfway between
    # two, would show no loss, or a wrong one.
    with np.errstate(invalid="ignore"):
        skipped = np.isinf(towards) | (halves(towards) % 1 == 0)
    beside = np.where(np.abs(sides) == 2, further, np.where(skipped, away, towards))
    return np.where(sides == 0, values, beside)


cdef floats_of(target, values, sides):
    """Return a column of floats as the bytes of its type, and its `rounding_proxies`.

    The latter are None if they equal the former.
    """
    exact = values
    if sides.any():
        exact = values.copy()
        beside = np.flatnonzero(sides)
        exact[beside] = rounding_proxies(values[beside], sides[beside])
    if target.kind == CSV_AS_DOUBLE:
        return values.view(np.uint8), None if exact is values else exact
    with np.errstate(over="ignore"):
        return exact.astype(np.float32).view(np.uint8), exact


cdef uint64_t[::1] POWERS = powers_of_five()
csv_set_powers_of_five(&POWERS[0])
