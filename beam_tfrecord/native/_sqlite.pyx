# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Binding of the SQLite row kernel; ``_sqlite.pyi`` documents it.

The functions and the statement are addresses in the library that Python's own `sqlite3` uses.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t
from libc.stdlib cimport calloc, free

import numpy as np


cdef extern from "vec.h" nogil:
    ctypedef struct Vec:
        uint8_t *data
        size_t size
    void vec_free(Vec *vec)


cdef extern from "sqlite_rows.h" nogil:
    ctypedef struct SqliteCalls:
        int (*step)(void *) noexcept
        int (*column_type)(void *, int) noexcept
        int64_t (*column_int64)(void *, int) noexcept
        double (*column_double)(void *, int) noexcept
        const void *(*column_text)(void *, int) noexcept
        const void *(*column_blob)(void *, int) noexcept
        int (*column_bytes)(void *, int) noexcept
    ctypedef struct SqliteColumn:
        int32_t as_ "as"
        uint8_t *valid
        int64_t *numbers
        int32_t *offsets
        Vec bytes
        int64_t nulls
    ctypedef struct SqliteRows:
        SqliteCalls calls
        void *statement
        SqliteColumn *columns
        int32_t count, column
        int64_t row, capacity
        size_t max_bytes
        bint begun
        int32_t status
    enum:
        SQLITE_FILL_FULL, SQLITE_FILL_END, SQLITE_FILL_MISFIT, SQLITE_FILL_NO_UTF8
    enum:
        SQLITE_AS_INTEGER, SQLITE_AS_REAL, SQLITE_AS_TEXT, SQLITE_AS_BLOB
    void sqlite_rows_clear(SqliteRows *rows)
    int sqlite_rows_fill(SqliteRows *rows)


AS_INTEGER, AS_REAL = SQLITE_AS_INTEGER, SQLITE_AS_REAL
AS_TEXT, AS_BLOB = SQLITE_AS_TEXT, SQLITE_AS_BLOB

# SQLite's own numbers of a value's type.
cdef enum: TYPE_INTEGER = 1, TYPE_FLOAT = 2, TYPE_TEXT = 3


class BadText(Exception):
    pass


cdef class Rows:
    cdef SqliteRows rows
    cdef list buffers

    def __cinit__(self, calls, statement, kinds, int64_t capacity, size_t max_bytes):
        cdef uintptr_t[7] addresses
        for index in range(7):
            addresses[index] = calls[index]
        cdef SqliteCalls *to = &self.rows.calls
        to.step = <int (*)(void *) noexcept nogil> addresses[0]
        to.column_type = <int (*)(void *, int) noexcept nogil> addresses[1]
        to.column_int64 = <int64_t (*)(void *, int) noexcept nogil> addresses[2]
        to.column_double = <double (*)(void *, int) noexcept nogil> addresses[3]
        to.column_text = <const void *(*)(void *, int) noexcept nogil> addresses[4]
        to.column_blob = <const void *(*)(void *, int) noexcept nogil> addresses[5]
        to.column_bytes = <int (*)(void *, int) noexcept nogil> addresses[6]
        self.rows.statement = <void *> <uintptr_t> statement
        self.rows.count = len(kinds)
        self.rows.capacity = capacity
        self.rows.max_bytes = max_bytes
        self.rows.columns = <SqliteColumn *> calloc(len(kinds) + 1, sizeof(SqliteColumn))
        if self.rows.columns == NULL:
            raise MemoryError
        for index, kind in enumerate(kinds):
            self.rows.columns[index].as_ = kind

    def __dealloc__(self):
        cdef int32_t index
        if self.rows.columns != NULL:
            for index in range(self.rows.count):
                vec_free(&self.rows.columns[index].bytes)
            free(self.rows.columns)

    @property
    def status(self):
        return self.rows.status

    def fill(self):
        cdef int done = SQLITE_FILL_MISFIT
        self._begin()
        misfits = []
        while done == SQLITE_FILL_MISFIT:
            with nogil:
                done = sqlite_rows_fill(&self.rows)
            if done == SQLITE_FILL_MISFIT:
                column = self.rows.column - 1
                misfits.append((self.rows.row, column, self._value(column)))
        if done == SQLITE_FILL_NO_UTF8:
            raise BadText(self.rows.column)
        if done not in (SQLITE_FILL_FULL, SQLITE_FILL_END):
            raise MemoryError
        return self.rows.row, [self._column(index) for index in range(self.rows.count)], misfits

    cdef _begin(self):
        cdef uint8_t[::1] valid
        cdef int64_t[::1] numbers
        cdef int32_t[::1] offsets
        cdef SqliteColumn *column
        self.buffers = []
        for index in range(self.rows.count):
            column = &self.rows.columns[index]
            bits = np.empty((self.rows.capacity + 7) // 8, np.uint8)
            valid = bits
            column.valid = &valid[0]
            if column.as_ in (SQLITE_AS_INTEGER, SQLITE_AS_REAL):
                values = np.empty(self.rows.capacity, np.int64)
                numbers = values
                column.numbers = &numbers[0]
            else:
                values = np.empty(self.rows.capacity + 1, np.int32)
                offsets = values
                column.offsets = &offsets[0]
            self.buffers.append((bits, values))
        sqlite_rows_clear(&self.rows)

    cdef _column(self, int index):
        cdef SqliteColumn *column = &self.rows.columns[index]
        bits, values = self.buffers[index]
        data = None
        if column.offsets != NULL:
            data = (<char *> column.bytes.data)[:column.bytes.size] if column.bytes.size else b""
        return bits, values, data, column.nulls

    cdef _value(self, int column):
        cdef SqliteCalls *calls = &self.rows.calls
        cdef void *statement = self.rows.statement
        cdef const void *at
        cdef int size
        kind = calls.column_type(statement, column)
        if kind == TYPE_INTEGER:
            return calls.column_int64(statement, column)
        if kind == TYPE_FLOAT:
            return calls.column_double(statement, column)
        at = calls.column_text(statement, column) if kind == TYPE_TEXT else calls.column_blob(
            statement, column
        )
        size = calls.column_bytes(statement, column)
        data = (<const char *> at)[:size] if size else b""
        return data.decode("utf-8", "replace") if kind == TYPE_TEXT else data
