# Stubs: records without the bytes of a file that they hold.
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


STUB_FAULTS = {STUB_MALFORMED: "damaged", STUB_OTHER_SIZE: "size", STUB_OTHER_BYTES: "bytes"}


cdef int _outside(int64_t record) except -1:
    raise ValueError(f"record {record}: does not lie inside the data")


def make_stubs(const uint8_t[::1] data, const int64_t[::1] starts, bytes key, list paths,
               size_t least_bytes):
    """Take files out of framed records.

    Args:
        data: Records in the plain form of our encoder.
        starts: Where each begins; int64, shape `[n]`.
        key: Name of the feature whose only value is a whole file.
        paths: Of the file of each record, as bytes; None where there is none.
        least_bytes: Of a file that is taken out.

    Returns:
        The stubs, framed, uint8; and where each begins, int64, shape `[n]`.

    Raises:
        ValueError: A record does not lie inside the data, or the counts differ.
        MemoryError: There is no memory for the stubs.
    """
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
    """Return the bytes of the framed record that each stub stands for, int64, shape `[n]`.

    Raises:
        ValueError: One is no stub.
    """
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
    """Write the framed records that some stubs stand for, reading their files.

    Args:
        data: Framed stubs.
        starts: Where each begins; int64, shape `[n]`.
        order: Numbers of those to write, in order.
        out: Exactly as long as all of them are.

    Returns:
        None; or the number of the first that could not be made whole, and why: one of the values
        of `STUB_FAULTS`, or the number of an error of the system.

    Raises:
        ValueError: One is not in the data or no stub, or `out` has another length.
    """
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
    """Return the name of the file of a stub, as bytes; empty where it has none."""
    cdef Span payload, path
    if not frame_payload(&data[0], data.shape[0], start, &payload) or not bt_whole_bytes(payload):
        raise ValueError(f"at {start}: is no stub")
    path = bt_stub_path(payload)
    return (<const char *>path.at)[:path.end - path.at]
