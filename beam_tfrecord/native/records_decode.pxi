# Framed Examples back into columns, their features, and their canonical form.
cdef class _Decoding:
    """The wanted columns with their memory."""

    cdef DecodedColumn *columns
    cdef int64_t count, records
    cdef list names, row_offsets, present

    def __cinit__(self, features, int64_t records):
        self.count = len(features)
        self.records = records
        self.columns = <DecodedColumn *>calloc(self.count + 1, sizeof(DecodedColumn))
        if self.columns == NULL:
            raise MemoryError("no memory to decode")
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
        return DecodedValues(values, value_offsets, self.row_offsets[i], present)


def decode(data, const int64_t[::1] starts, features):
    if len({bytes(name) for name, _ in features}) != len(features):
        raise ValueError("a feature is asked for twice")
    cdef _Bytes view = _Bytes(data)
    cdef int64_t records = starts.shape[0]
    cdef _Decoding decoding = _Decoding(features, records)
    cdef DecodeFault fault
    cdef const int64_t *start_data = NULL
    cdef int result
    if records:
        start_data = &starts[0]
    with nogil:
        result = bt_decode(view.at, view.size, start_data, records, decoding.columns,
                           decoding.count, &fault)
    if result == BT_WRONG_KIND:
        name, kind = features[fault.column]
        raise ValueError(f"record {fault.record}: feature {bytes(name).decode()!r} holds "
                         f"{KIND_NAMES[fault.found_kind]} values, not {KIND_NAMES[kind]}")
    _check_record(result, fault.record, "not a tf.train.Example")
    return [decoding.take(i) for i in range(decoding.count)]


cdef class _Discovering:
    cdef Discovery found

    def __dealloc__(self):
        bt_discovery_free(&self.found)

    cdef bytes name(self, const FoundFeature *feature):
        if feature.name_bytes == 0:
            return b""
        return <bytes>(<const char *>self.found.names.data + feature.name_offset)[
            :feature.name_bytes]


def discover(data, const int64_t[::1] starts):
    cdef _Bytes view = _Bytes(data)
    cdef _Discovering discovering = _Discovering()
    cdef int64_t records = starts.shape[0]
    cdef DecodeFault fault
    cdef const FoundFeature *features
    cdef int result
    if records == 0:
        return {}
    with nogil:
        result = bt_discover(view.at, view.size, &starts[0], records, &discovering.found, &fault)
    features = <const FoundFeature *>discovering.found.features.data
    if result == BT_WRONG_KIND:
        name = discovering.name(&features[fault.column]).decode()
        raise ValueError(f"record {fault.record}: feature {name!r} is of another kind than before")
    _check_record(result, fault.record, "not a tf.train.Example")
    count = discovering.found.features.size // sizeof(FoundFeature)
    return {
        discovering.name(&features[i]): Found(features[i].kind, features[i].present,
                                              features[i].min_values, features[i].max_values)
        for i in range(count)
    }


def canonicalize(payload):
    cdef _Bytes view = _Bytes(payload)
    cdef _Memory out = _Memory()
    cdef Span span
    cdef int result
    span.at, span.end = view.at, view.at + view.size
    with nogil:
        result = bt_canonicalize(span, &out.vec)
    if result == BT_MALFORMED:
        return None
    _check(result, "canonicalize")
    return <bytes>(<const char *>out.vec.data)[:out.vec.size]


def canonical_hashes(data, const int64_t[::1] starts, uint64_t seed):
    cdef _Bytes view = _Bytes(data)
    cdef int64_t records = starts.shape[0], bad = 0
    hashes = np.empty(records, np.uint64)
    cdef uint64_t[::1] out = hashes
    cdef int result
    if records == 0:
        return hashes
    with nogil:
        result = bt_canonical_hashes(view.at, view.size, &starts[0], records, seed, &out[0], &bad)
    _check_record(result, bad, _OUTSIDE)
    return hashes
