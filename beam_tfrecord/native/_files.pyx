# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Binding of the C functions for many small files; ``_files.pyi`` documents the functions."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

import numpy as np


cdef extern from "files.h" nogil:
    enum:
        FILES_OTHER_SIZE, FILES_DIGEST_BYTES
    ctypedef unsigned char *(*FilesHash)(const unsigned char *, size_t, unsigned char *)
    void files_read(const char **paths, const int64_t *sizes, int64_t count, uint8_t *out,
                    int32_t *status)
    bint files_hash(FilesHash hash, const uint8_t *data, const int64_t *starts,
                    const int64_t *sizes, int64_t count, uint8_t *digests)

cdef extern from "jpeg.h" nogil:
    enum:
        JPEG_NUMBERS
    bint jpeg_is_plain(const uint8_t *data, int64_t size, int64_t max_pixels, int32_t *numbers)


OTHER_SIZE = FILES_OTHER_SIZE


# Files of known sizes, read and hashed.
def read_files(list paths, const int64_t[::1] sizes, uint8_t[::1] out):
    cdef int64_t count = len(paths), total = 0, i
    if sizes.shape[0] != count:
        raise ValueError(f"{count} paths, but {sizes.shape[0]} sizes")
    for i in range(count):
        if sizes[i] < 0:
            raise ValueError("a size is negative")
        total += sizes[i]
    if out.shape[0] <= total:
        raise ValueError(f"{out.shape[0]} bytes are too few for files of {total} and one more")
    status = np.empty(count, np.int32)
    if not count:
        return status
    cdef int32_t[::1] told = status
    cdef const char **names = <const char **>malloc(count * sizeof(char *))
    if names == NULL:
        raise MemoryError("no memory for the names of files")
    try:
        for i in range(count):
            names[i] = paths[i]
        with nogil:
            files_read(names, &sizes[0], count, &out[0], &told[0])
    finally:
        free(names)
    return status


cdef int64_t check_ranges(const uint8_t[::1] data, const int64_t[::1] starts,
                          const int64_t[::1] sizes) except -1:
    """Return how many ranges of some data there are; ValueError where one lies outside of it."""
    cdef int64_t count = starts.shape[0], i
    if sizes.shape[0] != count:
        raise ValueError(f"{count} starts, but {sizes.shape[0]} sizes")
    for i in range(count):
        if starts[i] < 0 or sizes[i] < 0 or sizes[i] > data.shape[0] - starts[i]:
            raise ValueError(f"file {i} lies outside of the data")
    return count


def hash_files(size_t function, const uint8_t[::1] data, const int64_t[::1] starts,
               const int64_t[::1] sizes):
    cdef int64_t count = check_ranges(data, starts, sizes)
    digests = np.empty(count * FILES_DIGEST_BYTES, np.uint8)
    if not count or not data.shape[0]:
        # No byte can be pointed at, so nothing can be hashed.
        if count:
            raise ValueError("there is no data")
        return digests
    cdef uint8_t[::1] out = digests
    cdef bint done
    with nogil:
        done = files_hash(<FilesHash>function, &data[0], &starts[0], &sizes[0], count, &out[0])
    return digests if done else None


# The headers of plain JPEGs.
def describe_jpegs(const uint8_t[::1] data, const int64_t[::1] starts, const int64_t[::1] sizes,
                   int64_t max_pixels):
    cdef int64_t count = check_ranges(data, starts, sizes), i
    numbers = np.zeros((count, JPEG_NUMBERS), np.int32)
    if not count or not data.shape[0]:
        return numbers
    cdef int32_t[:, ::1] told = numbers
    with nogil:
        for i in range(count):
            if not jpeg_is_plain(&data[0] + starts[i], sizes[i], max_pixels, &told[i, 0]):
                told[i, 0] = told[i, 1] = told[i, 2] = 0
    return numbers
