/* Bytes, varints and protobuf fields: what every file of the kernel rests on. */
#ifndef BT_WIRE_H
#define BT_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the native kernel reads and writes memory in little-endian order"
#endif

#define BT_INLINE static inline __attribute__((always_inline))
#define BT_LIKELY(x) __builtin_expect(!!(x), 1)
#define BT_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* TFRecord framing: le64 length, le32 masked crc of it, payload, le32 masked crc of that. */
enum { BT_FRAME_HEAD = 12, BT_FRAME_BYTES = 16 };

/* The three kinds of tf.train.Feature, numbered as its fields are. */
enum { BT_NO_KIND = 0, BT_BYTES = 1, BT_FLOATS = 2, BT_INTS = 3 };

/* Results shared by all functions that can fail. */
enum { BT_OK = 0, BT_NO_MEMORY = -1, BT_NO_ROOM = -2, BT_MALFORMED = -3, BT_WRONG_KIND = -4 };

/* Readable bytes from `at` up to, not including, `end`. */
typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} Span;

BT_INLINE size_t span_bytes(Span span) { return (size_t)(span.end - span.at); }

BT_INLINE uint64_t load64(const void *at) {
    uint64_t value;
    memcpy(&value, at, 8);
    return value;
}

BT_INLINE uint32_t load32(const void *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return value;
}

BT_INLINE void store64(void *at, uint64_t value) { memcpy(at, &value, 8); }
BT_INLINE void store32(void *at, uint32_t value) { memcpy(at, &value, 4); }

/* Bytes of the minimal varint of `value`: 1 to 10. */
BT_INLINE unsigned varint_bytes(uint64_t value) {
    return (unsigned)(64 - __builtin_clzll(value | 1) + 6) / 7;
}

/* Writes the minimal varint of `value` and returns the end of it. */
BT_INLINE uint8_t *put_varint(uint8_t *at, uint64_t value) {
    while (value >= 0x80) {
        *at++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *at++ = (uint8_t)value;
    return at;
}

/* Writes a varint of known length without a loop; may scribble on 8 bytes from `at`.
 * Spreads the 7-bit groups of the value over the bytes of one word in three halving steps. */
BT_INLINE uint8_t *put_varint_wide(uint8_t *at, uint64_t value, unsigned bytes) {
    if (BT_UNLIKELY(bytes > 8)) return put_varint(at, value);
    uint64_t x = ((value & 0x00fffffff0000000u) << 4) | (value & 0x000000000fffffffu);
    x = ((x & 0x0fffc0000fffc000u) << 2) | (x & 0x00003fff00003fffu);
    x = ((x & 0x3f803f803f803f80u) << 1) | (x & 0x007f007f007f007fu);
    x |= 0x8080808080808080u & ((1ull << (8 * (bytes - 1))) - 1);
    store64(at, x);
    return at + bytes;
}

/* Payload of the framed record at `start`; false if it does not lie inside the data. */
BT_INLINE bool frame_payload(const uint8_t *data, size_t data_bytes, int64_t start, Span *payload) {
    if (start < 0 || (uint64_t)start > data_bytes || data_bytes - (size_t)start < BT_FRAME_BYTES)
        return false;
    uint64_t length = load64(data + start);
    if (length > data_bytes - (size_t)start - BT_FRAME_BYTES) return false;
    payload->at = data + start + BT_FRAME_HEAD;
    payload->end = payload->at + length;
    return true;
}

#endif
