# Fields into columns of values.
cdef class Filler(_Table):
    cdef readonly int64_t rows
    cdef readonly bint is_full
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
        number, side = nearest_double(self.value(row, self.columns[i].column))
        (<double *>self.columns[i].values)[self.rows + row] = number
        self.columns[i].sides[self.rows + row] = side
        if self.columns[i].as_ == CSV_AS_FLOAT:
            with np.errstate(over="ignore"):
                number = np.float32(beyond(number, side))
        if np.isinf(number) and not self.marks[row]:
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
        """Return a (values, valid, offsets, exact) of arrays for each target, and start anew."""
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
