# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Binding of the C functions for many small files; ``_files.pyi`` documents the functions."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

import numpy as np


cdef extern from "stubs.h" nogil:
    ctypedef struct Span:
        const uint8_t *at
        const uint8_t *end
    ctypedef struct Vec:
        uint8_t *data
        size_t size
    ctypedef struct StubInput:
        Span payload, key
        const char *path
    int BT_OK, BT_NO_MEMORY
    int STUB_MALFORMED, STUB_OTHER_SIZE, STUB_OTHER_BYTES
    bint frame_payload(const uint8_t *data, size_t data_bytes, int64_t start, Span *payload)
    void vec_free(Vec *vec)
    int bt_push_stub(const StubInput *input, size_t least_bytes, Vec *out)
    size_t bt_whole_bytes(Span stub)
    Span bt_stub_path(Span stub)
    ctypedef struct StubList:
        const uint8_t *data
        size_t bytes
        const int64_t *starts
        const int64_t *order
        int64_t count
    int32_t bt_make_whole(const StubList *list, uint8_t *out, int64_t *bad)

cdef extern from "crc32c.h" nogil:
    void bt_crc32c_init()

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


bt_crc32c_init()

OTHER_SIZE = FILES_OTHER_SIZE
STUB_FAULTS = {STUB_MALFORMED: "damaged", STUB_OTHER_SIZE: "size", STUB_OTHER_BYTES: "bytes"}


# Stubs: records without the bytes of a file that they hold.
cdef int _outside(int64_t record) except -1:
    raise ValueError(f"record {record}: does not lie inside the data")


def make_stubs(const uint8_t[::1] data, const int64_t[::1] starts, bytes key, list paths,
               size_t least_bytes):
    cdef int64_t count = starts.shape[0], record = 0
    cdef size_t size = data.shape[0]
    if len(paths) != count:
        raise ValueError(f"{count} records, but {len(paths)} paths")
    begins = np.empty(count, np.int64)
    if not count:
        return np.empty(0, np.uint8), begins
    if not size:
        _outside(0)
    cdef int64_t[::1] at = begins
    cdef Vec out
    out.data, out.size = NULL, 0
    vec_free(&out)
    cdef StubInput given
    given.key.at = <const uint8_t *><const char *>key
    given.key.end = given.key.at + len(key)
    cdef int result
    try:
        for record in range(count):
            path = paths[record]
            given.path = NULL
            if path is not None:
                given.path = path
            if not frame_payload(&data[0], size, starts[record], &given.payload):
                _outside(record)
            at[record] = <int64_t>out.size
            result = bt_push_stub(&given, least_bytes, &out)
            if result == BT_NO_MEMORY:
                raise MemoryError("no memory for stubs of records")
            if result != BT_OK:
                raise ValueError(f"record {record}: too much lies before its file")
        return np.array(<uint8_t[:out.size]>out.data), begins
    finally:
        vec_free(&out)


def whole_sizes(const uint8_t[::1] data, const int64_t[::1] starts):
    cdef int64_t count = starts.shape[0], record
    cdef Span payload
    sizes = np.empty(count, np.int64)
    cdef int64_t[::1] out = sizes
    for record in range(count):
        if not frame_payload(&data[0], data.shape[0], starts[record], &payload):
            _outside(record)
        out[record] = <int64_t>bt_whole_bytes(payload)
        if not out[record]:
            raise ValueError(f"record {record}: is no stub")
    return sizes


def make_whole(const uint8_t[::1] data, const int64_t[::1] starts, const int64_t[::1] order,
               uint8_t[::1] out):
    cdef int64_t count = order.shape[0], k, number, bad = 0
    cdef int32_t fault
    cdef size_t total = 0
    cdef Span payload
    for k in range(count):
        number = order[k]
        if number < 0 or number >= starts.shape[0]:
            _outside(number)
        if not frame_payload(&data[0], data.shape[0], starts[number], &payload):
            _outside(number)
        if not bt_whole_bytes(payload):
            raise ValueError(f"record {number}: is no stub")
        total += bt_whole_bytes(payload)
        if total > <size_t>out.shape[0]:
            break
    if total != <size_t>out.shape[0]:
        raise ValueError(f"out has {out.shape[0]} bytes, where the records have {total}")
    if not count:
        return None
    cdef StubList given
    given.data, given.bytes, given.starts = &data[0], data.shape[0], &starts[0]
    given.order, given.count = &order[0], count
    with nogil:
        fault = bt_make_whole(&given, &out[0], &bad)
    return (order[bad], STUB_FAULTS.get(fault, fault)) if fault else None


def stub_path(const uint8_t[::1] data, int64_t start):
    cdef Span payload, path
    if not frame_payload(&data[0], data.shape[0], start, &payload) or not bt_whole_bytes(payload):
        raise ValueError(f"at {start}: is no stub")
    path = bt_stub_path(payload)
    return (<const char *>path.at)[:path.end - path.at]


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
