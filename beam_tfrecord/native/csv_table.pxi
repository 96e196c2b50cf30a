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
