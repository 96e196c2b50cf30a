/* The write pass of the encoder: every byte of an entry, sizes known. */
#include <math.h>

#include "encode.h"

/* Copies in words of 16 bytes, up to 15 more than asked: the caller knows both sides hold them.
 * Behind a row lie its checksum and the next head, 16 bytes that are written last of all. */
BT_INLINE uint8_t *copy_wide(uint8_t *to, const uint8_t *from, size_t bytes) {
    size_t done = 0;
    do {
        memcpy(to + done, from + done, 16);
        done += 16;
    } while (done < bytes);
    return to + bytes;
}

BT_INLINE uint8_t *copy_value(const Column *column, uint8_t *to, Span value) {
    size_t bytes = span_bytes(value);
    if (bytes <= 64 && column->safe_end && value.at + ((bytes + 15) & ~(size_t)15) <= column->safe_end)
        return bytes ? copy_wide(to, value.at, bytes) : to;
    if (bytes) memcpy(to, value.at, bytes);
    return to + bytes;
}

/* Everything of an entry up to and with the size of its list message. */
BT_INLINE uint8_t *put_head(const Column *column, uint8_t *at, uint64_t inner) {
    uint64_t feature, entry;
    entry_size(column->header_bytes, inner, &feature, &entry);
    *at++ = 0x0a;
    at = put_varint(at, entry);
    at = copy_wide(at, column->header, column->header_bytes);
    *at++ = 0x12;
    at = put_varint(at, feature);
    *at++ = (uint8_t)(column->kind << 3 | 2);
    return put_varint(at, inner);
}

/* Head of an entry and of its packed values; an empty list has no packed field at all. */
BT_INLINE uint8_t *put_packed_head(const Column *column, uint8_t *at, uint64_t packed) {
    if (!packed) return put_head(column, at, 0);
    at = put_head(column, at, 1 + varint_bytes(packed) + packed);
    *at++ = 0x0a;
    return put_varint(at, packed);
}

/* IEEE 754 binary16 to binary32; every value is exact, the payload of a NaN moves up 13 bits. */
BT_INLINE uint32_t widen_half(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 0x1f,
             fraction = half & 0x3ff;
    if (exponent == 0x1f) return sign | 0x7f800000u | fraction << 13;
    if (exponent) return sign | (exponent + 112) << 23 | fraction << 13;
    if (!fraction) return sign;
    int shift = __builtin_clz(fraction) - 21;
    return sign | (uint32_t)(113 - shift) << 23 | (fraction << shift & 0x3ff) << 13;
}

BT_INLINE uint32_t narrow_double(Column *column, double value) {
    float narrow = (float)value;
    double lost = fabs(value - (double)narrow);
    if (lost > 0 && !isinf(value)) {
        double relative = lost / fabs(value);
        if (relative > column->max_relative_error) column->max_relative_error = relative;
    }
    uint32_t bits;
    memcpy(&bits, &narrow, 4);
    return bits;
}

/* Bits of the value as a float32. */
BT_INLINE uint32_t float_bits(ValueType type, Column *column, int64_t i) {
    if (type == T_HALF) return widen_half(((const uint16_t *)column->values)[i]);
    if (type == T_FLOAT) return ((const uint32_t *)column->values)[i];
    return narrow_double(column, ((const double *)column->values)[i]);
}

/* Visits the active rows that have a value: `row` in the batch, `i` in the block, `at` to write
 * to, which is the cursor again afterwards. */
#define EACH_ACTIVE_ROW(BODY)                              \
    for (int k = first; k < last; k++) {                   \
        int i = block->active[k];                          \
        int64_t row = block->row + i;                      \
        if (row_is_null(column, row)) continue;            \
        uint8_t *at = block->cursor[k];                    \
        BODY                                               \
        block->cursor[k] = at;                             \
    }

BT_INLINE void write_ints(ValueType type, Column *column, Block *block, const uint32_t *bodies,
                          int first, int last) {
    EACH_ACTIVE_ROW({
        uint64_t value = (uint64_t)load_int(type, column->values, column->value_offset + row);
        unsigned bytes = bodies[i];
        at = copy_wide(at, column->prefixes + bytes * column->prefix_stride,
                       column->prefix_bytes[bytes]);
        at = put_varint_wide(at, value, bytes);
    })
}

BT_INLINE void write_int_lists(ValueType type, Column *column, Block *block,
                               const uint32_t *bodies, int first, int last) {
    EACH_ACTIVE_ROW({
        ValueRange range = list_range(column, row);
        at = put_packed_head(column, at, bodies[i]);
        for (int64_t j = range.first; j < range.last; j++)
            at = put_varint(at, (uint64_t)load_int(type, column->values, j));
    })
}

BT_INLINE void write_floats(ValueType type, Column *column, Block *block, int first, int last) {
    const uint8_t *prefix = column->prefixes + 4 * column->prefix_stride;
    size_t prefix_bytes = column->prefix_bytes[4];
    EACH_ACTIVE_ROW({
        at = copy_wide(at, prefix, prefix_bytes);
        store32(at, float_bits(type, column, column->value_offset + row));
        at += 4;
    })
}

BT_INLINE void write_float_lists(ValueType type, Column *column, Block *block, int first,
                                 int last) {
    EACH_ACTIVE_ROW({
        ValueRange range = list_range(column, row);
        uint64_t packed = 4 * (uint64_t)(range.last - range.first);
        at = put_packed_head(column, at, packed);
        if (type == T_FLOAT && packed) {
            memcpy(at, (const float *)column->values + range.first, packed);
            at += packed;
        } else {
            for (int64_t j = range.first; j < range.last; j++, at += 4)
                store32(at, float_bits(type, column, j));
        }
    })
}

BT_INLINE void write_bytes(ValueType type, Column *column, Block *block, const uint32_t *bodies,
                           int first, int last) {
    EACH_ACTIVE_ROW({
        uint64_t bytes = bodies[i];
        at = put_head(column, at, 1 + varint_bytes(bytes) + bytes);
        *at++ = 0x0a;
        at = put_varint(at, bytes);
        at = copy_value(column, at, load_bytes(type, column, column->value_offset + row));
    })
}

BT_INLINE void write_bytes_lists(ValueType type, Column *column, Block *block,
                                 const uint32_t *bodies, int first, int last) {
    EACH_ACTIVE_ROW({
        ValueRange range = list_range(column, row);
        at = put_head(column, at, bodies[i]);
        for (int64_t j = range.first; j < range.last; j++) {
            Span value = load_bytes(type, column, j);
            *at++ = 0x0a;
            at = put_varint(at, span_bytes(value));
            at = copy_value(column, at, value);
        }
    })
}

static void write_scalars(Column *column, Block *block, const uint32_t *bodies, int first,
                          int last) {
    switch (column->type) {
#define CASE(TYPE) case TYPE: write_ints(TYPE, column, block, bodies, first, last); break;
        EACH_INT_TYPE(CASE)
#undef CASE
#define CASE(TYPE) case TYPE: write_floats(TYPE, column, block, first, last); break;
        EACH_FLOAT_TYPE(CASE)
#undef CASE
#define CASE(TYPE) case TYPE: write_bytes(TYPE, column, block, bodies, first, last); break;
        EACH_BYTES_TYPE(CASE)
#undef CASE
    }
}

static void write_lists(Column *column, Block *block, const uint32_t *bodies, int first, int last) {
    switch (column->type) {
#define CASE(TYPE) case TYPE: write_int_lists(TYPE, column, block, bodies, first, last); break;
        EACH_INT_TYPE(CASE)
#undef CASE
#define CASE(TYPE) case TYPE: write_float_lists(TYPE, column, block, first, last); break;
        EACH_FLOAT_TYPE(CASE)
#undef CASE
#define CASE(TYPE) case TYPE: write_bytes_lists(TYPE, column, block, bodies, first, last); break;
        EACH_BYTES_TYPE(CASE)
#undef CASE
    }
}

void bt_write(Column *column, Block *block, const uint32_t *bodies, int first, int last) {
    if (column->layout == L_SCALAR) write_scalars(column, block, bodies, first, last);
    else write_lists(column, block, bodies, first, last);
}
