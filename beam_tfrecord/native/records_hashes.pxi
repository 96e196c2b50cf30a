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
    cdef _Bytes view = _Bytes(data)
    cdef uint32_t crc
    with nogil:
        crc = bt_masked_crc32c(view.at, view.size)
    return crc


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


def hash_records(data, const int64_t[::1] starts, uint64_t seed):
    cdef _Bytes view = _Bytes(data)
    cdef int64_t records = starts.shape[0], bad = 0
    hashes = np.empty(records, np.uint64)
    cdef uint64_t[::1] out = hashes
    cdef int result
    if records == 0:
        return hashes
    with nogil:
        result = bt_hash_records(view.at, view.size, &starts[0], records, seed, &out[0], &bad)
    _check_record(result, bad, _OUTSIDE)
    return hashes


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
