#include "frames.h"

#include "xxh64.h"

/* Records ahead whose bytes are asked for before they are copied: hides a memory access. */
enum { PREFETCH_RECORDS = 12, CACHE_LINE = 64, PREFETCH_LINES = 4, PLACE_BYTES = 8 };

static const uint64_t MAX_LENGTH = (uint64_t)INT64_MAX - BT_FRAME_BYTES;

int bt_scan_frames(const uint8_t *data, size_t bytes, bool verify, FrameScan *scan) {
    size_t at = 0;
    scan->fault = FAULT_NONE;
    scan->consumed = 0;
    while (bytes - at >= BT_FRAME_HEAD) {
        uint64_t length = load64(data + at);
        if (verify && load32(data + at + 8) != bt_masked_crc32c(data + at, 8)) {
            scan->fault = FAULT_LENGTH_CRC;
            break;
        }
        if (length > MAX_LENGTH) {
            scan->fault = FAULT_LENGTH;
            break;
        }
        if (length + BT_FRAME_BYTES > bytes - at) break;
        const uint8_t *payload = data + at + BT_FRAME_HEAD;
        if (verify && load32(payload + length) != bt_masked_crc32c(payload, length)) {
            scan->fault = FAULT_PAYLOAD_CRC;
            break;
        }
        if (!vec_push_int64(&scan->starts, (int64_t)at)) return BT_NO_MEMORY;
        at += length + BT_FRAME_BYTES;
        scan->consumed = at;
    }
    return BT_OK;
}

size_t bt_find_frame(const uint8_t *data, size_t bytes, size_t from) {
    for (size_t at = from; at < bytes && bytes - at >= BT_FRAME_BYTES; at++) {
        uint64_t length = load64(data + at);
        if (length > bytes - at - BT_FRAME_BYTES) continue;
        if (load32(data + at + 8) != bt_masked_crc32c(data + at, 8)) continue;
        const uint8_t *payload = data + at + BT_FRAME_HEAD;
        if (load32(payload + length) == bt_masked_crc32c(payload, length)) return at;
    }
    return bytes;
}

int bt_scan_run(const uint8_t *data, size_t bytes, Vec *starts, Vec *places, int64_t *position) {
    size_t at = 0;
    while (at < bytes) {
        Span payload;
        *position = (int64_t)at;
        if (bytes - at < PLACE_BYTES) return BT_MALFORMED;
        if (!frame_payload(data, bytes, (int64_t)(at + PLACE_BYTES), &payload)) return BT_MALFORMED;
        if (!vec_push(places, data + at, PLACE_BYTES)) return BT_NO_MEMORY;
        if (!vec_push_int64(starts, (int64_t)(at + PLACE_BYTES))) return BT_NO_MEMORY;
        at += PLACE_BYTES + BT_FRAME_BYTES + span_bytes(payload);
    }
    return BT_OK;
}

int bt_hash_records(const uint8_t *data, size_t bytes, const int64_t *starts, int64_t records,
                    uint64_t seed, uint64_t *hashes, int64_t *bad_record) {
    for (int64_t r = 0; r < records; r++) {
        Span payload;
        if (!frame_payload(data, bytes, starts[r], &payload)) {
            *bad_record = r;
            return BT_MALFORMED;
        }
        hashes[r] = bt_xxh64(payload.at, span_bytes(payload), seed);
    }
    return BT_OK;
}

BT_INLINE bool names_record(int64_t number, int64_t records) {
    return number >= 0 && number < records;
}

/* Only a hint: it reads nothing, so an address outside the data does no harm. */
BT_INLINE void prefetch_record(const uint8_t *data, int64_t start) {
    uintptr_t at = (uintptr_t)data + (uintptr_t)start;
    for (int line = 0; line < PREFETCH_LINES; line++)
        __builtin_prefetch((const void *)(at + (uintptr_t)(line * CACHE_LINE)));
}

int bt_gather(const uint8_t *data, size_t bytes, const int64_t *starts, int64_t records,
              const uint64_t *places, const int64_t *order, int64_t order_count, uint8_t *out,
              size_t out_bytes, size_t *written, int64_t *bad_record) {
    size_t done = 0, extra = places ? PLACE_BYTES : 0;
    for (int64_t k = 0; k < order_count; k++) {
        int64_t ahead = k + PREFETCH_RECORDS;
        if (ahead < order_count && names_record(order[ahead], records))
            prefetch_record(data, starts[order[ahead]]);
        int64_t number = order[k];
        Span payload;
        *bad_record = number;
        if (!names_record(number, records)) return BT_MALFORMED;
        if (!frame_payload(data, bytes, starts[number], &payload)) return BT_MALFORMED;
        size_t record_bytes = span_bytes(payload) + BT_FRAME_BYTES;
        size_t room = out_bytes - done;
        if (room < extra || room - extra < record_bytes) return BT_NO_ROOM;
        if (places) store64(out + done, places[number]);
        memcpy(out + done + extra, data + starts[number], record_bytes);
        done += extra + record_bytes;
    }
    *written = done;
    return BT_OK;
}
