# cython: language_level=3, boundscheck=False, wraparound=False, binding=True, embedsignature=True
"""Binding of the C functions for single records; ``_index.pyi`` documents the functions."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint64_t

import os

import numpy as np

from beam_tfrecord.native.kernel_types import PICK_REASONS, Picked


cdef extern from "vec.h" nogil:
    ctypedef struct Vec:
        uint8_t *data
        size_t size
    int BT_OK, BT_NO_MEMORY, BT_MALFORMED
    void vec_free(Vec *vec)

cdef extern from "crc32c.h" nogil:
    void bt_crc32c_init()

cdef extern from "index.h" nogil:
    ctypedef struct IndexEntry:
        pass
    ctypedef struct ShardIndex:
        const IndexEntry *entries
        int64_t count, records, bytes
    ctypedef struct IndexBlock:
        pass
    int PICK_INDEX
    ctypedef struct IndexState:
        pass
    ctypedef struct PickFault:
        int64_t record, offset
        int reason, error
    int bt_index_records(const uint8_t *data, size_t data_bytes, const int64_t *starts,
                         int64_t count, int64_t record, int64_t offset, IndexState *state,
                         Vec *entries)
    int bt_find_blocks(const ShardIndex *index, const int64_t *wanted, int64_t count,
                       IndexBlock *blocks, PickFault *fault)
    int bt_pick_records(const uint8_t *data, size_t data_bytes, const int64_t *positions,
                        const IndexBlock *blocks, const int64_t *wanted, int64_t count, Vec *out,
                        Vec *starts, PickFault *fault)
    int bt_read_records(int file, const ShardIndex *index, const int64_t *wanted, int64_t count,
                        Vec *out, Vec *starts, PickFault *fault)


include "memory.pxi"

bt_crc32c_init()


def index_records(data, const int64_t[::1] starts, int64_t record, int64_t offset,
                  uint64_t[::1] state):
    cdef _Bytes view = _Bytes(data)
    cdef _Memory entries = _Memory()
    cdef int64_t count = starts.shape[0]
    cdef int result = BT_OK
    if state.shape[0] != 4:
        raise ValueError("the state of an index has 4 numbers")
    if count:
        with nogil:
            result = bt_index_records(view.at, view.size, &starts[0], count, record, offset,
                                      <IndexState *>&state[0], &entries.vec)
    _check(result, "index records")
    return _take(&entries.vec, np.uint64).reshape(-1, 3)


cdef ShardIndex _index(const uint64_t[:, ::1] entries, int64_t records, int64_t nbytes):
    cdef ShardIndex index
    if entries.shape[1] != 3:
        raise ValueError("an entry of an index has 3 numbers")
    index.entries = <const IndexEntry *>&entries[0, 0] if entries.shape[0] else NULL
    index.count, index.records, index.bytes = entries.shape[0], records, nbytes
    return index


cdef int _check_index(PickFault fault) except -1:
    if fault.reason == PICK_INDEX:
        raise ValueError(f"at byte {fault.offset:,} (record {fault.record:,})")
    return 0


def find_blocks(const uint64_t[:, ::1] entries, int64_t records, int64_t nbytes,
                const int64_t[::1] wanted):
    cdef int64_t count = wanted.shape[0]
    cdef PickFault fault
    fault.reason = 0
    blocks = np.empty((count, 5), np.int64)
    cdef int64_t[:, ::1] out = blocks
    cdef ShardIndex index = _index(entries, records, nbytes)
    cdef int result = BT_OK
    if count:
        with nogil:
            result = bt_find_blocks(&index, &wanted[0], count, <IndexBlock *>&out[0, 0], &fault)
    _check_index(fault)
    return blocks


cdef object _picked(int result, _Memory out, _Memory starts, PickFault fault):
    _check_index(fault)
    if result != BT_MALFORMED:
        _check(result, "copy records")
    found = None
    if fault.reason:
        reason = os.strerror(fault.error) if fault.error else PICK_REASONS[fault.reason]
        found = fault.record, fault.offset, reason
    return Picked(_take(&out.vec, np.uint8), _take(&starts.vec, np.int64), found)


def pick_records(data, const int64_t[::1] positions, const int64_t[:, ::1] blocks,
                 const int64_t[::1] wanted):
    cdef _Bytes view = _Bytes(data)
    cdef _Memory out = _Memory(), starts = _Memory()
    cdef PickFault fault
    cdef int64_t count = wanted.shape[0]
    cdef int result = BT_OK
    if positions.shape[0] != count or blocks.shape[0] != count or blocks.shape[1] != 5:
        raise ValueError(f"positions and blocks must be those of the {count} records")
    fault.reason = 0
    if count:
        with nogil:
            result = bt_pick_records(view.at, view.size, &positions[0],
                                     <const IndexBlock *>&blocks[0, 0], &wanted[0], count,
                                     &out.vec, &starts.vec, &fault)
    return _picked(result, out, starts, fault)


def read_records(int file, const uint64_t[:, ::1] entries, int64_t records, int64_t nbytes,
                 const int64_t[::1] wanted):
    cdef _Memory out = _Memory(), starts = _Memory()
    cdef PickFault fault
    cdef int64_t count = wanted.shape[0]
    cdef ShardIndex index = _index(entries, records, nbytes)
    cdef int result = BT_OK
    fault.reason = 0
    if count:
        with nogil:
            result = bt_read_records(file, &index, &wanted[0], count, &out.vec, &starts.vec,
                                     &fault)
    return _picked(result, out, starts, fault)
