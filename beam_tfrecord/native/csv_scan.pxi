# Where rows and lines end.
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
