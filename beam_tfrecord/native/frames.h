/* Framed records: seal, scan, hash, sort and gather. */
#ifndef BT_FRAMES_H
#define BT_FRAMES_H

#include "crc32c.h"
#include "vec.h"

/* Writes head and checksums around a payload that already lies after the head. */
BT_INLINE void bt_seal(uint8_t *record, size_t payload_bytes) {
    store64(record, payload_bytes);
    store32(record + 8, bt_masked_crc32c(record, 8));
    store32(record + BT_FRAME_HEAD + payload_bytes,
            bt_masked_crc32c(record + BT_FRAME_HEAD, payload_bytes));
}

typedef enum {
    FAULT_NONE = 0,
    FAULT_LENGTH = 1,    /* a length that no data could have */
    FAULT_LENGTH_CRC = 2,
    FAULT_PAYLOAD_CRC = 3
} FrameFault;

typedef struct {
    Vec starts;      /* int64, one a good record */
    size_t consumed; /* bytes of the good records */
    FrameFault fault;
} FrameScan;

/* Indexes framed bytes up to the first fault or the first record that is not whole. */
int bt_scan_frames(const uint8_t *data, size_t bytes, bool verify, FrameScan *scan);

/* Position from `from` on of the first record that lies whole in the data with both checksums
 * right; `bytes` if there is none. Records are found again by it after a damaged length. */
size_t bt_find_frame(const uint8_t *data, size_t bytes, size_t from);

/* Entries of a run file, le64 sort key and a framed record each, that fill the data exactly;
 * otherwise BT_MALFORMED and `position` is that of the bad entry. `starts` and `sort_keys` grow by
 * int64 and uint64 values. */
int bt_scan_run(const uint8_t *data, size_t bytes, Vec *starts, Vec *sort_keys, int64_t *position);

/* XXH64 of each payload; on BT_MALFORMED `bad_record` does not lie inside the data. */
int bt_hash_records(const uint8_t *data, size_t bytes, const int64_t *starts, int64_t records,
                    uint64_t seed, uint64_t *hashes, int64_t *bad_record);

/* Copies framed records in the given order, each after its sort key if `sort_keys` is not NULL.
 * `written` gets the bytes. BT_MALFORMED: `bad_record` does not lie inside the data, or is no
 * record; BT_NO_ROOM: `out` is too short. */
int bt_gather(const uint8_t *data, size_t bytes, const int64_t *starts, int64_t records,
              const uint64_t *sort_keys, const int64_t *order, int64_t order_count, uint8_t *out,
              size_t out_bytes, size_t *written, int64_t *bad_record);

/* Numbers of the records in order of (split, sort key), then of payload bytes or of number. */
typedef struct {
    const uint8_t *data;
    size_t bytes;
    const int64_t *starts;
    int64_t records;
    const uint16_t *splits; /* or NULL */
    const uint64_t *sort_keys;
    bool by_bytes;
} SortInput;

int bt_sort_records(const SortInput *input, int64_t *order, int64_t *bad_record);

#endif
