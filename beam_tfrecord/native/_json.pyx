# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Binding of the check of JSON rows; ``_json.pyi`` documents it."""

from libc.stdint cimport int32_t, int64_t, uint8_t


cdef extern from "json_kinds.h" nogil:
    enum:
        JSON_BOOL, JSON_INT, JSON_BIG, JSON_DOUBLE, JSON_TEXT, JSON_LIST, JSON_OBJECT
    ctypedef struct JsonPlaces:
        pass
    bint json_places_begin(JsonPlaces *places)
    void json_places_free(JsonPlaces *places)
    int32_t json_places_add(JsonPlaces *places, int32_t above, const uint8_t *key, size_t size,
                            int kinds)
    bint json_line_fits(JsonPlaces *places, const uint8_t *line, size_t size)


BOOL, INT, BIG, DOUBLE = JSON_BOOL, JSON_INT, JSON_BIG, JSON_DOUBLE
TEXT, LIST, OBJECT = JSON_TEXT, JSON_LIST, JSON_OBJECT

cdef uint8_t NEWLINE = 10


cdef class Places:
    cdef JsonPlaces places

    def __cinit__(self):
        if not json_places_begin(&self.places):
            raise MemoryError("no memory for the keys of JSON")

    def __dealloc__(self):
        json_places_free(&self.places)

    def add(self, tuple path, int kinds):
        cdef int32_t place = 0
        cdef Py_ssize_t depth
        for depth in range(len(path)):
            last = depth == len(path) - 1
            key = path[depth]
            name = b"" if key is None else (<str>key).encode()
            place = json_places_add(
                &self.places, place, NULL if key is None else <const uint8_t *><char *>name,
                len(name), kinds if last else 0
            )
            if place < 0:
                raise MemoryError("no memory for the keys of JSON")

    def next_new(self, bytes data, const int64_t[::1] starts, int64_t row):
        cdef int64_t rows = starts.shape[0] - 1, size = len(data)
        cdef const uint8_t *at = data
        if row < 0:
            raise ValueError("the row is negative")
        with nogil:
            while row < rows:
                if not 0 <= starts[row] < starts[row + 1] <= size:
                    break
                if at[starts[row + 1] - 1] != NEWLINE:
                    break
                if not json_line_fits(&self.places, at + starts[row],
                                      <size_t>(starts[row + 1] - starts[row])):
                    break
                row += 1
        return row
