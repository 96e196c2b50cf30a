# The C functions and structs that the binding uses.
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from "vec.h" nogil:
    ctypedef struct Span:
        const uint8_t *at
        const uint8_t *end
    ctypedef struct Vec:
        uint8_t *data
        size_t size
    int BT_OK, BT_NO_MEMORY, BT_NO_ROOM, BT_MALFORMED, BT_WRONG_KIND, BT_BYTES
    int BT_FRAME_BYTES
    void vec_free(Vec *vec)

cdef extern from "crc32c.h" nogil:
    void bt_crc32c_init()
    uint32_t bt_crc32c(const uint8_t *data, size_t data_bytes)
    uint32_t bt_crc32c_portable(const uint8_t *data, size_t data_bytes)
    uint32_t bt_mask_crc(uint32_t crc)

cdef extern from "xxh64.h" nogil:
    ctypedef struct Xxh64:
        pass
    uint64_t bt_xxh64(const uint8_t *data, size_t data_bytes, uint64_t seed)
    void bt_xxh64_begin(Xxh64 *state, uint64_t seed)
    void bt_xxh64_update(Xxh64 *state, const uint8_t *data, size_t data_bytes)
    uint64_t bt_xxh64_digest(const Xxh64 *state)
    uint64_t bt_hash_origin(uint64_t unit, uint64_t row, uint64_t sub, uint64_t seed)

cdef extern from "encode.h" nogil:
    struct ArrowSchema:
        pass
    struct ArrowArray:
        pass
    ctypedef struct Column:
        int64_t batch_column
        double max_relative_error
    ctypedef struct RowReject:
        int64_t row, column, code
    ctypedef struct Encoding:
        Column *columns
        int64_t column_count, rows
        const uint8_t *skip
        uint8_t *out
        size_t out_bytes, at
        int64_t *starts
        int64_t *row_numbers
        int64_t records
        Vec rejects
    int bt_column_open(Column *column, const ArrowSchema *schema, const ArrowArray *batch,
                       int64_t index, Span name)
    void bt_column_close(Column *column)
    int bt_encode(Encoding *encoding)

cdef extern from "frames.h" nogil:
    ctypedef struct FrameScan:
        Vec starts
        size_t consumed
        int fault
    ctypedef struct SortInput:
        const uint8_t *data
        size_t bytes
        const int64_t *starts
        int64_t records
        const uint16_t *splits
        const uint64_t *sort_keys
        bint by_bytes
    void bt_seal(uint8_t *record, size_t payload_bytes)
    int bt_scan_frames(const uint8_t *data, size_t data_bytes, bint verify, FrameScan *scan)
    size_t bt_find_frame(const uint8_t *data, size_t data_bytes, size_t start)
    int bt_scan_run(const uint8_t *data, size_t data_bytes, Vec *starts, Vec *sort_keys,
                    int64_t *position)
    int bt_hash_records(const uint8_t *data, size_t data_bytes, const int64_t *starts,
                        int64_t records, uint64_t seed, uint64_t *hashes, int64_t *bad_record)
    int bt_gather(const uint8_t *data, size_t data_bytes, const int64_t *starts, int64_t records,
                  const uint64_t *sort_keys, const int64_t *order, int64_t order_count, uint8_t *out,
                  size_t out_bytes, size_t *written, int64_t *bad_record)
    int bt_sort_records(const SortInput *input, int64_t *order, int64_t *bad_record)

cdef extern from "decode.h" nogil:
    ctypedef struct DecodedColumn:
        Span name
        int kind
        Vec values, value_ends
        int64_t *row_offsets
        uint8_t *present
    ctypedef struct DecodeFault:
        int64_t record, column
        int found_kind
    ctypedef struct FoundFeature:
        Span name
        int64_t present, min_values, max_values
        int kind
    ctypedef struct Discovery:
        Vec features
    int bt_decode(const uint8_t *data, size_t data_bytes, const int64_t *starts, int64_t records,
                  DecodedColumn *columns, int64_t column_count, DecodeFault *fault)
    void bt_shortest_doubles(const float *values, int64_t count, double *out)
    int bt_discover(const uint8_t *data, size_t data_bytes, const int64_t *starts, int64_t records,
                    Discovery *discovery, uint64_t seed, uint64_t *hashes, DecodeFault *fault)
    void bt_discovery_free(Discovery *discovery)

cdef extern from "canonical.h" nogil:
    int bt_canonicalize(const uint8_t *values, const int64_t *offsets, int64_t count, Vec *out,
                        int64_t *out_offsets, uint8_t *has_form)
    int bt_canonical_hashes(const uint8_t *data, size_t data_bytes, const int64_t *starts,
                            int64_t records, uint64_t seed, uint64_t *hashes, int64_t *bad_record)

cdef extern from "fit.h" nogil:
    ctypedef struct FitRule:
        Span name
        int kind
        bint required, is_text
        int64_t min_values, max_values, low, high, value_bytes
    int64_t bt_fitting_records(const uint8_t *data, size_t data_bytes, const int64_t *starts,
                               int64_t records, const FitRule *rules, int64_t rule_count)
