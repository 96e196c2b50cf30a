# The C functions and structs that the binding uses.
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t


cdef extern from "utf8.h" nogil:
    bint bt_is_ascii(const uint8_t *at, size_t size)


cdef extern from "csv.h" nogil:
    ctypedef struct CsvDialect:
        uint8_t delimiter, quote, escape, comment
        bint quotes, escapes, doubles, comments
    ctypedef struct CsvPassage:
        int32_t exit
        int64_t rows, line_ends, first
    ctypedef struct CsvField:
        uint32_t at, size
    ctypedef struct CsvRows:
        CsvField *fields
        uint32_t *counts
        uint32_t *starts
        uint32_t *stops
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
        int8_t *sides
        int32_t *offsets
        uint8_t *text
    ctypedef struct CsvText:
        CsvDialect dialect
        CsvWords nulls, always
        const uint8_t *data
        size_t bytes
        uint8_t *scratch
        bint checked
    enum: CSV_KINDS
    enum: CSV_STATES, CSV_SIZE, CSV_NEEDS_CLEANING, CSV_TRAILING
    enum: CSV_AS_FLOAT, CSV_AS_DOUBLE, CSV_AS_TEXT
    void csv_scan(const CsvDialect *, const uint8_t *, size_t, CsvPassage *)
    int64_t csv_count_lines(const uint8_t *, size_t)
    size_t csv_rows(const CsvDialect *, const uint8_t *, size_t, size_t, bint, CsvRows *)
    size_t csv_clean(const CsvDialect *, const uint8_t *, CsvField, uint8_t *)
    uint32_t csv_fill(const CsvText *, const CsvRows *, CsvColumn *, size_t, uint32_t,
                      uint32_t *, uint32_t *)
    void csv_collect(const CsvText *, const CsvRows *, uint32_t, uint32_t *, uint32_t *)
    void csv_set_powers_of_five(const uint64_t *)
