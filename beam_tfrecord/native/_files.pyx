# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Binding of the reader of many small files: the GIL is released for all of them at once."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

import numpy as np


cdef extern from "files.h" nogil:
    enum:
        FILES_OTHER_SIZE
    void files_read(const char **paths, const int64_t *sizes, int64_t count, uint8_t *out,
                    int32_t *status)


OTHER_SIZE = FILES_OTHER_SIZE


def read_files(list paths, const int64_t[::1] sizes, uint8_t[::1] out):
    """Read files of known sizes side by side.

    Args:
        paths: Their names, as bytes.
        sizes: Bytes expected of each; int64, shape `[len(paths)]`.
        out: Room for all of them and one byte.

    Returns:
        The status of each, int32: 0 where it was read, `OTHER_SIZE` where it has more or fewer
        bytes, else the error number. Files that were not read leave no gap.

    Raises:
        ValueError: There is too little room, or the counts differ.
        MemoryError: There is no memory for the names.
    """
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
