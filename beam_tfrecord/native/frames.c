#include "frames.h"

#include "xxh64.h"

/* Records ahead whose bytes are asked for before they are copied: hides a memory access. */
enum { PREFETCH_RECORDS = 12, CACHE_LINE = 64, PREFETCH_LINES = 4, KEY_BYTES = 8 };

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

int bt_scan_run(const uint8_t *data, size_t bytes, Vec *starts, Vec *sort_keys, int64_t *position) {
    size_t at = 0;
    while (at < bytes) {
        Span payload;
        *position = (int64_t)at;
        if (bytes - at < KEY_BYTES) return BT_MALFORMED;
        if (!frame_payload(data, bytes, (int64_t)(at + KEY_BYTES), &payload)) return BT_MALFORMED;
        if (!vec_push(sort_keys, data + at, KEY_BYTES)) return BT_NO_MEMORY;
        if (!vec_push_int64(starts, (int64_t)(at + KEY_BYTES))) return BT_NO_MEMORY;
        at += KEY_BYTES + BT_FRAME_BYTES + span_bytes(payload);
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
              const uint64_t *sort_keys, const int64_t *order, int64_t order_count, uint8_t *out,
              size_t out_bytes, size_t *written, int64_t *bad_record) {
    size_t done = 0, extra = sort_keys ? KEY_BYTES : 0;
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
        if (sort_keys) store64(out + done, sort_keys[number]);
        memcpy(out + done + extra, data + starts[number], record_bytes);
        done += extra + record_bytes;
    }
    *written = done;
    return BT_OK;
}

/* Order of records: a radix sort from the lowest digit, then the bytes of those that tie. */

enum { DIGITS = 8, DIGIT_VALUES = 256 };

typedef struct {
    uint64_t key;
    int64_t number;
} Item;

/* Moves the items by one digit of their keys, keeping the order of equal ones. */
static void scatter(const Item *from, Item *to, int64_t count, int digit, const int64_t *counts) {
    int64_t next[DIGIT_VALUES], sum = 0;
    for (int value = 0; value < DIGIT_VALUES; value++) {
        next[value] = sum;
        sum += counts[value];
    }
    for (int64_t i = 0; i < count; i++) to[next[from[i].key >> (8 * digit) & 0xff]++] = from[i];
}

/* Sorts by key and returns whichever of the two arrays holds the result. Digits that are the
 * same in all keys (high ones of a narrow range, all of a constant) cost nothing. */
static Item *radix_sort(Item *items, Item *spare, int64_t count) {
    int64_t counts[DIGITS][DIGIT_VALUES] = {{0}};
    bool sorted = true;
    for (int64_t i = 0; i < count; i++) {
        uint64_t key = items[i].key;
        sorted &= i == 0 || items[i - 1].key <= key;
        for (int digit = 0; digit < DIGITS; digit++) counts[digit][key >> (8 * digit) & 0xff]++;
    }
    if (sorted) return items;
    for (int digit = 0; digit < DIGITS; digit++) {
        if (counts[digit][items[0].key >> (8 * digit) & 0xff] == count) continue;
        scatter(items, spare, count, digit, counts[digit]);
        Item *sorted_items = spare;
        spare = items;
        items = sorted_items;
    }
    return items;
}

/* Payload of a record that was found to lie inside the data. */
BT_INLINE Span checked_payload(const SortInput *input, int64_t number) {
    const uint8_t *record = input->data + input->starts[number];
    const uint8_t *at = record + BT_FRAME_HEAD;
    return (Span){at, at + load64(record)};
}

/* Payload bytes as unsigned numbers; if one is a prefix of the other, the shorter first. */
static int compare_payloads(const SortInput *input, int64_t a, int64_t b) {
    Span first = checked_payload(input, a), second = checked_payload(input, b);
    size_t first_bytes = span_bytes(first), second_bytes = span_bytes(second);
    int order = memcmp(first.at, second.at, first_bytes < second_bytes ? first_bytes : second_bytes);
    return order ? order : (first_bytes > second_bytes) - (first_bytes < second_bytes);
}

/* Stable merge sort of record numbers, bottom up; `spare` is as long as `order`. */
static void sort_by_bytes(const SortInput *input, int64_t *order, int64_t *spare, int64_t count) {
    for (int64_t width = 1; width < count; width *= 2) {
        for (int64_t low = 0; low < count; low += 2 * width) {
            int64_t middle = low + width < count ? low + width : count;
            int64_t high = middle + width < count ? middle + width : count;
            for (int64_t to = low, left = low, right = middle; to < high; to++) {
                bool take_left = right == high ||
                    (left < middle && compare_payloads(input, order[left], order[right]) <= 0);
                spare[to] = order[take_left ? left++ : right++];
            }
        }
        memcpy(order, spare, (size_t)count * sizeof *order);
    }
}

static bool same_position(const SortInput *input, int64_t a, int64_t b) {
    return input->sort_keys[a] == input->sort_keys[b] &&
           (!input->splits || input->splits[a] == input->splits[b]);
}

static int sort_ties(const SortInput *input, int64_t *order, int64_t *spare, int64_t *bad_record) {
    for (int64_t first = 0, last; first < input->records; first = last) {
        for (last = first + 1; last < input->records; last++)
            if (!same_position(input, order[first], order[last])) break;
        if (last - first == 1) continue;
        for (int64_t i = first; i < last; i++) {
            Span payload;
            *bad_record = order[i];
            if (!frame_payload(input->data, input->bytes, input->starts[order[i]], &payload))
                return BT_MALFORMED;
        }
        sort_by_bytes(input, order + first, spare, last - first);
    }
    return BT_OK;
}

int bt_sort_records(const SortInput *input, int64_t *order, int64_t *bad_record) {
    int64_t count = input->records;
    if (!count) return BT_OK;
    if ((uint64_t)count > SIZE_MAX / 4 / sizeof(Item)) return BT_NO_MEMORY;
    Item *memory = malloc(2 * (size_t)count * sizeof(Item));
    if (!memory) return BT_NO_MEMORY;
    for (int64_t i = 0; i < count; i++) memory[i] = (Item){input->sort_keys[i], i};
    Item *sorted = radix_sort(memory, memory + count, count);
    if (input->splits) {
        for (int64_t i = 0; i < count; i++) sorted[i].key = input->splits[sorted[i].number];
        sorted = radix_sort(sorted, sorted == memory ? memory + count : memory, count);
    }
    for (int64_t i = 0; i < count; i++) order[i] = sorted[i].number;
    int result = BT_OK;
    if (input->by_bytes) result = sort_ties(input, order, (int64_t *)memory, bad_record);
    free(memory);
    return result;
}
