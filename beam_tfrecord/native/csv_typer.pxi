# Fields into the kinds of values that each column has.
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
        cdef uint32_t column, before
        cdef uint32_t[9] found
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
                    for bit in range(9):
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
