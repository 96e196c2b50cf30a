# Fields into the kinds of values that each column has.
cdef class Typer(_Table):
    cdef readonly int64_t rows
    cdef CsvSeen *seen
    cdef uint64_t[:, ::1] nulls
    cdef tuple words
    cdef object plan
    cdef list sightings

    def __init__(self, tuple dialect, uint32_t columns, *, bint keep_blank, nulls, always):
        _Table.__init__(
            self, dialect, columns, keep_blank=keep_blank, nulls=nulls, always=always
        )
        self.words = tuple(nulls)
        self.nulls = np.zeros((max(1, columns), max(1, len(self.words))), np.uint64)
        self.plan = np.zeros(max(1, columns * sizeof(CsvSeen)), np.uint8)
        self.seen = <CsvSeen *><size_t>self.plan.ctypes.data
        for column in range(columns):
            self.seen[column].nulls = &self.nulls[column, 0]
        self.sightings = []

    def feed(self, const uint8_t[::1] data, Py_ssize_t at, bint final):
        cdef uint32_t column, before
        cdef uint32_t[9] found
        cdef size_t behind
        while True:
            behind = self.next_rows(data, at, final, TABLE_ROWS)
            if not self.table.rows:
                return behind
            for column in range(self.table.columns):
                before = self.seen[column].kinds
                with nogil:
                    csv_collect(&self.text, &self.table, column, &self.seen[column], found)
                if self.seen[column].kinds != before:
                    for bit in range(9):
                        if (self.seen[column].kinds & ~before) >> bit & 1:
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

    def words_seen(self):
        """Return the words in every column, of all that was fed."""
        cdef CsvSeen *seen
        found = []
        for column in range(self.table.columns):
            seen = &self.seen[column]
            strays = None
            if seen.strays <= CSV_STRAYS:
                strays = {
                    PyBytes_FromStringAndSize(<const char *>&seen.words[i][0], seen.bytes[i]):
                    seen.counts[i] for i in range(seen.strays)
                }
            nulls = {
                word: self.nulls[column, i]
                for i, word in enumerate(self.words) if self.nulls[column, i]
            }
            values = {1 << bit: seen.values[bit] for bit in range(7) if seen.values[bit]}
            found.append(WordsSeen(values, strays, nulls))
        return found
