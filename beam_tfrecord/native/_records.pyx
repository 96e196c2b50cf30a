# cython: language_level=3, boundscheck=False, wraparound=False, binding=True, embedsignature=True
"""Binding of the C kernel: checks arguments, owns memory, and releases the GIL around the work.

``_records.pyi`` documents the functions, ``_records.pxd`` declares those of C.
"""

from cpython.dict cimport PyDict_Next
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.ref cimport PyObject
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

import numpy as np

from beam_tfrecord.native.kernel_types import DecodedFeature
from beam_tfrecord.native.kernel_types import FAULT_REASONS, KIND_NAMES
from beam_tfrecord.native.kernel_types import Encoded, Found, Frames, RunEntries

bt_crc32c_init()


include "memory.pxi"


cdef void *_zeroed(size_t count, size_t size) except NULL:
    cdef void *memory = calloc(count, size)
    if memory == NULL:
        raise MemoryError
    return memory


cdef int _check_record(int result, int64_t record, why="does not lie inside the data") except -1:
    if result == BT_MALFORMED:
        raise ValueError(f"record {record}: {why}")
    return _check(result, "read records")


# Checksums and hashes.
def crc32c(data):
    cdef _Bytes view = _Bytes(data)
    cdef uint32_t crc
    with nogil:
        crc = bt_crc32c(view.at, view.size)
    return crc


def crc32c_portable(data):
    """CRC-32C without the processor's instruction; the tests compare the two."""
    cdef _Bytes view = _Bytes(data)
    return bt_crc32c_portable(view.at, view.size)


def masked_crc32c(data):
    return bt_mask_crc(crc32c(data))


def xxh64(data, uint64_t seed=0):
    cdef _Bytes view = _Bytes(data)
    cdef uint64_t digest
    with nogil:
        digest = bt_xxh64(view.at, view.size, seed)
    return digest


cdef class XXH64:
    cdef Xxh64 state

    def __cinit__(self, uint64_t seed=0):
        bt_xxh64_begin(&self.state, seed)

    def update(self, data):
        cdef _Bytes view = _Bytes(data)
        with nogil:
            bt_xxh64_update(&self.state, view.at, view.size)

    def intdigest(self):
        return bt_xxh64_digest(&self.state)


ctypedef int (*HashPayloads)(const uint8_t *data, size_t data_bytes, const int64_t *starts,
                             int64_t records, uint64_t seed, uint64_t *hashes,
                             int64_t *bad_record) noexcept nogil


cdef object _hash_payloads(HashPayloads function, data, const int64_t[::1] starts, uint64_t seed):
    cdef _Bytes view = _Bytes(data)
    cdef int64_t records = starts.shape[0], bad = 0
    cdef int result
    hashes = np.empty(records, np.uint64)
    cdef uint64_t[::1] out = hashes
    with nogil:
        result = function(view.at, view.size, &starts[0], records, seed, &out[0], &bad)
    _check_record(result, bad)
    return hashes


def hash_records(data, starts, uint64_t seed):
    return _hash_payloads(bt_hash_records, data, starts, seed)


def canonical_hashes(data, starts, uint64_t seed):
    return _hash_payloads(bt_canonical_hashes, data, starts, seed)


def hash_origins(uint64_t unit_hash, const int64_t[::1] rows, const int64_t[::1] sub, uint64_t seed):
    cdef int64_t count = rows.shape[0], i
    if sub is not None and sub.shape[0] != count:
        raise ValueError(f"{sub.shape[0]} sub-indices for {count} rows")
    hashes = np.empty(count, np.uint64)
    cdef uint64_t[::1] out = hashes
    cdef bint has_sub = sub is not None
    with nogil:
        for i in range(count):
            out[i] = bt_hash_origin(unit_hash, <uint64_t>rows[i],
                                    <uint64_t>sub[i] if has_sub else 0, seed)
    return hashes


# Rows and payloads into framed records.
cdef class _Columns:
    """The columns of a batch by name, over Arrow memory that the two capsules keep alive."""

    cdef Column *columns
    cdef int64_t count, opened, rows
    cdef object capsules

    def __cinit__(self, batch):
        names = [name.encode() for name in batch.schema.names]
        order = sorted(range(len(names)), key=names.__getitem__)
        for before, after in zip(order, order[1:]):
            if names[before] == names[after]:
                raise ValueError(f"column {batch.schema.names[after]!r} is there twice")
        self.count = len(names)
        self.rows = batch.num_rows
        self.columns = <Column *>_zeroed(self.count + 1, sizeof(Column))
        self.capsules = batch.__arrow_c_array__()
        cdef const ArrowSchema *schema = <const ArrowSchema *>PyCapsule_GetPointer(
            self.capsules[0], "arrow_schema")
        cdef const ArrowArray *array = <const ArrowArray *>PyCapsule_GetPointer(
            self.capsules[1], "arrow_array")
        cdef _Bytes key
        cdef Span span
        cdef int result
        for index in order:
            key = _Bytes(names[index])
            span.at, span.end = key.at, key.at + key.size
            result = bt_column_open(&self.columns[self.opened], schema, array, index, span)
            self.opened += 1
            if result == BT_MALFORMED:
                field = batch.schema.field(index)
                raise TypeError(f"column {field.name!r} is {field.type}, which has no encoding")
            _check(result, "encode")

    def __dealloc__(self):
        for i in range(self.opened):
            bt_column_close(&self.columns[i])
        free(self.columns)


def encode(batch, uint8_t[::1] out, size_t at, int64_t[::1] starts, int64_t[::1] rows, skip=None):
    cdef _Columns columns = _Columns(batch)
    cdef Encoding encoding
    cdef const uint8_t[::1] skip_view
    cdef int result
    if starts.shape[0] < columns.rows or rows.shape[0] < columns.rows:
        raise ValueError(f"starts and rows must have room for {columns.rows} rows")
    if at > <size_t>out.shape[0]:
        raise ValueError(f"position {at} is outside of out, which has {out.shape[0]} bytes")
    memset(&encoding, 0, sizeof(Encoding))
    if skip is not None and columns.rows:
        skip_view = skip.view(np.uint8)
        if skip_view.shape[0] != columns.rows:
            raise ValueError(f"{skip_view.shape[0]} skip marks for {columns.rows} rows")
        encoding.skip = &skip_view[0]
    encoding.columns, encoding.column_count = columns.columns, columns.count
    encoding.rows = columns.rows
    encoding.out, encoding.out_bytes, encoding.at = &out[0], out.shape[0], at
    encoding.starts, encoding.row_numbers = &starts[0], &rows[0]
    with nogil:
        result = bt_encode(&encoding)
    rejects = _take(&encoding.rejects, np.int64).reshape(-1, 3)
    if result == BT_NO_ROOM:
        raise BufferError("out is too short for the rows")
    _check(result, "encode")
    errors = np.zeros(columns.count, np.float64)
    for i in range(columns.count):
        errors[columns.columns[i].batch_column] = columns.columns[i].max_relative_error
    return Encoded(encoding.at - at, encoding.records, list(map(tuple, rejects.tolist())), errors)


def frame_bound(array):
    return array.nbytes + BT_FRAME_BYTES * len(array)


cdef class _Values:
    """The values of a binary or large_binary array, each up to the offset of the next."""

    cdef _Bytes memory
    cdef const int64_t[::1] offsets
    cdef int64_t count

    def __cinit__(self, array):
        if array.null_count:
            raise ValueError("a null cannot be framed as a record")
        offset_type = {"binary": np.int32, "large_binary": np.int64}.get(str(array.type))
        if offset_type is None:
            raise TypeError(f"records must be binary or large_binary, not {array.type}")
        self.count = len(array)
        _, offsets, memory = array.buffers()
        # An array without values may lack the buffers.
        self.memory = _Bytes(b"" if memory is None else memory)
        typed = np.frombuffer(offsets or bytes(8), offset_type)
        typed = typed[array.offset:array.offset + self.count + 1]
        self.offsets = np.ascontiguousarray(typed, np.int64)


def frame(array, uint8_t[::1] out, size_t at, int64_t[::1] starts):
    cdef _Values values = _Values(array)
    cdef const int64_t *offsets = &values.offsets[0]
    cdef int64_t count = values.count, i
    cdef size_t begin = at, size = out.shape[0], payload
    if starts.shape[0] < count:
        raise ValueError(f"starts must have room for {count} records")
    if at > size:
        raise ValueError(f"position {at} is outside of out, which has {size} bytes")
    if size - at < <size_t>(offsets[count] - offsets[0] + BT_FRAME_BYTES * count):
        raise ValueError("out is too short: frame_bound(array) tells the bytes it needs")
    with nogil:
        for i in range(count):
            payload = <size_t>(offsets[i + 1] - offsets[i])
            memcpy(&out[at] + 12, values.memory.at + offsets[i], payload)
            bt_seal(&out[at], payload)
            starts[i] = <int64_t>at
            at += payload + BT_FRAME_BYTES
    return at - begin


# Framed records: scan, sort and gather.
def sort_records(data, const int64_t[::1] starts, const uint16_t[::1] splits,
                 const uint64_t[::1] sort_keys, bint by_bytes):
    cdef _Bytes view = _Bytes(data)
    cdef int64_t count = sort_keys.shape[0], bad = 0
    if starts.shape[0] != count or (splits is not None and splits.shape[0] != count):
        raise ValueError("starts, splits and sort keys must have one length")
    order = np.empty(count, np.int64)
    cdef int64_t[::1] out = order
    cdef SortInput given
    cdef int result
    given.data, given.bytes, given.starts = view.at, view.size, &starts[0]
    given.records, given.sort_keys, given.by_bytes = count, &sort_keys[0], by_bytes
    given.splits = NULL
    if splits is not None:
        given.splits = &splits[0]
    with nogil:
        result = bt_sort_records(&given, &out[0], &bad)
    _check_record(result, bad)
    return order


def gather(data, const int64_t[::1] starts, const uint64_t[::1] sort_keys,
           const int64_t[::1] order, uint8_t[::1] out, size_t at):
    cdef _Bytes view = _Bytes(data)
    cdef int64_t records = starts.shape[0], count = order.shape[0], bad = 0
    cdef size_t written = 0, size = out.shape[0]
    cdef int result
    if sort_keys is not None and sort_keys.shape[0] != records:
        raise ValueError("starts and sort keys must have one length")
    if at > size:
        raise ValueError(f"position {at} is outside of out, which has {size} bytes")
    cdef const uint64_t *sort_key_data = NULL
    if sort_keys is not None:
        sort_key_data = &sort_keys[0]
    with nogil:
        result = bt_gather(view.at, view.size, &starts[0], records, sort_key_data, &order[0], count,
                           &out[0] + at, size - at, &written, &bad)
    if result == BT_NO_ROOM:
        raise ValueError("out is too short for the records")
    _check_record(result, bad)
    return written


def scan_run(data):
    cdef _Bytes view = _Bytes(data)
    cdef _Memory starts = _Memory(), sort_keys = _Memory()
    cdef int64_t position = 0
    cdef int result
    with nogil:
        result = bt_scan_run(view.at, view.size, &starts.vec, &sort_keys.vec, &position)
    if result == BT_MALFORMED:
        raise ValueError(f"run entry at byte {position} does not fit into the data")
    _check(result, "scan a run")
    return RunEntries(_take(&starts.vec, np.int64), _take(&sort_keys.vec, np.uint64))


def scan_frames(data, bint verify=True):
    cdef _Bytes view = _Bytes(data)
    cdef _Memory holder = _Memory()
    cdef FrameScan scan
    cdef int result
    scan.starts = holder.vec
    with nogil:
        result = bt_scan_frames(view.at, view.size, verify, &scan)
    starts = _take(&scan.starts, np.int64)
    _check(result, "scan records")
    fault = (scan.consumed, FAULT_REASONS[scan.fault]) if scan.fault else None
    return Frames(starts, scan.consumed, fault)


def find_frame(data, size_t start):
    cdef _Bytes view = _Bytes(data)
    cdef size_t found
    with nogil:
        found = bt_find_frame(view.at, view.size, start)
    return found


# Framed Examples back into columns, their features, and their canonical form.
cdef class _Decoding:
    """The wanted columns with their memory."""

    cdef DecodedColumn *columns
    cdef int64_t count, records
    cdef list names, row_offsets, present

    def __cinit__(self, features, int64_t records):
        self.count = len(features)
        self.records = records
        self.columns = <DecodedColumn *>_zeroed(self.count + 1, sizeof(DecodedColumn))
        self.names = [_Bytes(bytes(name)) for name, _ in features]
        self.row_offsets = [np.zeros(records + 1, np.int64) for _ in features]
        self.present = [np.zeros(records + 1, np.uint8) for _ in features]
        cdef _Bytes key
        cdef int64_t[::1] offsets
        cdef uint8_t[::1] present
        for i, (_, kind) in enumerate(features):
            if kind not in KIND_NAMES:
                raise ValueError(f"feature {features[i][0]!r}: {kind} is no kind of feature")
            key, offsets, present = self.names[i], self.row_offsets[i], self.present[i]
            self.columns[i].name.at, self.columns[i].name.end = key.at, key.at + key.size
            self.columns[i].kind = kind
            self.columns[i].row_offsets, self.columns[i].present = &offsets[0], &present[0]

    def __dealloc__(self):
        if self.columns != NULL:
            for i in range(self.count):
                vec_free(&self.columns[i].values)
                vec_free(&self.columns[i].value_ends)
            free(self.columns)

    cdef object take(self, int64_t i):
        cdef DecodedColumn *column = &self.columns[i]
        dtype = (np.uint8, np.float32, np.int64)[column.kind - 1]
        value_offsets = _take(&column.value_ends, np.int64) if column.kind == BT_BYTES else None
        values = _take(&column.values, dtype)
        present = self.present[i][:self.records]
        return DecodedFeature(values, value_offsets, self.row_offsets[i], present)


def decode(data, const int64_t[::1] starts, features):
    if len({bytes(name) for name, _ in features}) != len(features):
        raise ValueError("a feature is asked for twice")
    cdef _Bytes view = _Bytes(data)
    cdef int64_t records = starts.shape[0]
    cdef _Decoding decoding = _Decoding(features, records)
    cdef DecodeFault fault
    cdef int result
    with nogil:
        result = bt_decode(view.at, view.size, &starts[0], records, decoding.columns,
                           decoding.count, &fault)
    if result == BT_WRONG_KIND:
        name, kind = features[fault.column]
        raise ValueError(f"record {fault.record}: feature {bytes(name).decode()!r} holds "
                         f"{KIND_NAMES[fault.found_kind]} values, not {KIND_NAMES[kind]}")
    _check_record(result, fault.record, "not a tf.train.Example")
    return [decoding.take(i) for i in range(decoding.count)]


def shortest_doubles(const float[::1] values):
    out = np.empty(values.shape[0], np.float64)
    cdef double[::1] doubles = out
    if out.size:
        with nogil:
            bt_shortest_doubles(&values[0], values.shape[0], &doubles[0])
    return out


cdef class _Discovering:
    cdef Discovery found

    def __dealloc__(self):
        bt_discovery_free(&self.found)


cdef bytes _name(const FoundFeature *feature):
    return <bytes>(<const char *>feature.name.at)[:feature.name.end - feature.name.at]


def discover(data, const int64_t[::1] starts, uint64_t[::1] hashes=None, uint64_t seed=0):
    cdef _Bytes view = _Bytes(data)
    cdef _Discovering discovering = _Discovering()
    cdef int64_t records = starts.shape[0]
    cdef DecodeFault fault
    cdef const FoundFeature *features
    cdef uint64_t *out = NULL
    cdef int result
    if hashes is not None:
        if hashes.shape[0] != records:
            raise ValueError(f"{hashes.shape[0]} hashes for {records} records")
        out = &hashes[0]
    with nogil:
        result = bt_discover(view.at, view.size, &starts[0], records, &discovering.found, seed, out,
                             &fault)
    features = <const FoundFeature *>discovering.found.features.data
    if result == BT_WRONG_KIND:
        name = _name(&features[fault.column]).decode()
        raise ValueError(f"record {fault.record}: feature {name!r} is of another kind than before")
    _check_record(result, fault.record,
                  "not a plain tf.train.Example (a SequenceExample, or another message)")
    return {
        _name(&features[i]): Found(features[i].kind, features[i].present, features[i].min_values,
                                   features[i].max_values)
        for i in range(discovering.found.features.size // sizeof(FoundFeature))
    }


def canonicalize(array):
    cdef _Values values = _Values(array)
    cdef _Memory out = _Memory()
    offsets = np.zeros(values.count + 1, np.int64)
    has_form = np.zeros(values.count, np.uint8)
    cdef int64_t[::1] out_offsets = offsets
    cdef uint8_t[::1] out_form = has_form
    cdef int result
    with nogil:
        result = bt_canonicalize(values.memory.at, &values.offsets[0], values.count, &out.vec,
                                 &out_offsets[0], &out_form[0])
    _check(result, "canonicalize")
    return _take(&out.vec, np.uint8), offsets, has_form.view(np.bool_)


# Whether records are what a schema says.
cdef class _Fitting:
    """The rules with their names' memory."""

    cdef FitRule *rules
    cdef int64_t count
    cdef list names

    def __cinit__(self, rules):
        cdef _Bytes name
        self.count = len(rules)
        self.rules = <FitRule *>_zeroed(self.count + 1, sizeof(FitRule))
        self.names = [_Bytes(rule.name) for rule in rules]
        for i, rule in enumerate(rules):
            name = self.names[i]
            self.rules[i].name.at, self.rules[i].name.end = name.at, name.at + name.size
            self.rules[i].kind, self.rules[i].required = rule.kind, rule.required
            self.rules[i].is_text, self.rules[i].value_bytes = rule.is_text, rule.value_bytes
            self.rules[i].min_values = rule.min_values
            self.rules[i].max_values = rule.max_values
            self.rules[i].low, self.rules[i].high = rule.low, rule.high

    def __dealloc__(self):
        free(self.rules)


def fitting_records(data, const int64_t[::1] starts, rules):
    cdef _Bytes view = _Bytes(data)
    cdef _Fitting fitting = _Fitting(rules)
    cdef int64_t records = starts.shape[0], fit
    with nogil:
        fit = bt_fitting_records(view.at, view.size, &starts[0], records, fitting.rules,
                                 fitting.count)
    return fit


# Holds the GIL.
def columns_of(list rows):
    cdef Py_ssize_t column, at, width
    cdef PyObject *key, *value
    if not rows or type(rows[0]) is not dict or not all(type(name) is str for name in rows[0]):
        return None
    cdef list names = list(rows[0]), columns = [[] for _ in names]
    cdef list kinds = [type(None)] * len(names)
    width = len(names)
    for row in rows:
        if type(row) is not dict or len(row) != width:
            return None
        at = 0
        for column in range(width):
            PyDict_Next(row, &at, &key, &value)
            name, one = <object>key, <object>value
            if name is not names[column] and (type(name) is not str or name != names[column]):
                return None
            (<list>columns[column]).append(one)
            if type(one) is not kinds[column] and one is not None:
                kinds[column] = type(one) if kinds[column] is type(None) else None
    return {name: (kind, values) for name, kind, values in zip(names, kinds, columns)}
