/* The encoder: measures, places, writes and seals blocks of rows. */
#include "encode.h"

#include <math.h>

#include "frames.h"
#include "utf8.h"

enum { MAX_BLOCK_ROWS = 256 };

/* Some neighbouring rows that go through every column together, while caches hold them. */
typedef struct {
    int64_t row; /* of the batch, the first of the block */
    int rows;
    int active_rows;
    uint64_t features_bytes[MAX_BLOCK_ROWS]; /* sum of the map entries */
    int64_t fault_column[MAX_BLOCK_ROWS];
    uint8_t fault_code[MAX_BLOCK_ROWS];
    int active[MAX_BLOCK_ROWS]; /* rows of the block that are written */
    uint8_t *cursor[MAX_BLOCK_ROWS]; /* where the next byte of each active row goes */
} Block;

/* The size pass: bytes of every entry, and every check of values. */

/* Of faults of one row the first in the batch's order of columns counts, not ours by name. */
static void note_fault(Block *block, int i, const Column *column, int code) {
    if (block->fault_code[i] && block->fault_column[i] <= column->batch_column) return;
    block->fault_code[i] = (uint8_t)code;
    block->fault_column[i] = column->batch_column;
}

BT_INLINE void add_entry(const Column *column, Block *block, int i, uint64_t inner) {
    uint64_t feature, entry;
    block->features_bytes[i] += entry_size(column->header_bytes, inner, &feature, &entry);
}

static bool has_null(const Column *column, ValueRange range) {
    if (!column->value_validity) return false;
    for (int64_t i = range.first; i < range.last; i++)
        if (!get_bit(column->value_validity, i)) return true;
    return false;
}

BT_INLINE bool overflows_float(double value) {
    return isinf((float)value) && !isinf(value);
}

/* Body of one number: the bytes of its varint. */
BT_INLINE void measure_ints(ValueType type, const Column *column, Block *block, uint32_t *bodies) {
    int64_t base = column->value_offset + block->row;
    for (int i = 0; i < block->rows; i++) {
        if (row_is_null(column, block->row + i)) continue;
        int64_t value = load_int(type, column->values, base + i);
        if (type == T_UINT64 && BT_UNLIKELY(value < 0))
            note_fault(block, i, column, REJECT_INTEGER_OVERFLOW);
        bodies[i] = varint_bytes((uint64_t)value);
        block->features_bytes[i] += column->entry_bytes[bodies[i]];
    }
}

/* Body of a list of numbers: the bytes of all of them. */
BT_INLINE void measure_int_lists(ValueType type, const Column *column, Block *block,
                                 uint32_t *bodies) {
    for (int i = 0; i < block->rows; i++) {
        if (row_is_null(column, block->row + i)) continue;
        ValueRange range = list_range(column, block->row + i);
        uint64_t packed = 0;
        bool overflow = false;
        for (int64_t j = range.first; j < range.last; j++) {
            int64_t value = load_int(type, column->values, j);
            if (type == T_UINT64) overflow |= value < 0;
            packed += varint_bytes((uint64_t)value);
        }
        if (has_null(column, range)) note_fault(block, i, column, REJECT_NULL_IN_LIST);
        else if (overflow) note_fault(block, i, column, REJECT_INTEGER_OVERFLOW);
        bodies[i] = (uint32_t)packed;
        add_entry(column, block, i, packed ? 1 + varint_bytes(packed) + packed : 0);
    }
}

BT_INLINE void measure_floats(ValueType type, const Column *column, Block *block,
                              uint32_t *bodies) {
    (void)bodies;
    const double *values = (const double *)column->values + column->value_offset + block->row;
    for (int i = 0; i < block->rows; i++) {
        if (row_is_null(column, block->row + i)) continue;
        if (type == T_DOUBLE && BT_UNLIKELY(overflows_float(values[i])))
            note_fault(block, i, column, REJECT_FLOAT_OVERFLOW);
        block->features_bytes[i] += column->entry_bytes[4];
    }
}

BT_INLINE void measure_float_lists(ValueType type, const Column *column, Block *block,
                                   uint32_t *bodies) {
    (void)bodies;
    const double *values = column->values;
    for (int i = 0; i < block->rows; i++) {
        if (row_is_null(column, block->row + i)) continue;
        ValueRange range = list_range(column, block->row + i);
        bool overflow = false;
        if (type == T_DOUBLE)
            for (int64_t j = range.first; j < range.last; j++) overflow |= overflows_float(values[j]);
        if (has_null(column, range)) note_fault(block, i, column, REJECT_NULL_IN_LIST);
        else if (overflow) note_fault(block, i, column, REJECT_FLOAT_OVERFLOW);
        uint64_t packed = 4 * (uint64_t)(range.last - range.first);
        add_entry(column, block, i, packed ? 1 + varint_bytes(packed) + packed : 0);
    }
}

/* Whether the values need no check one by one: no text, or all of it plain ASCII. */
BT_INLINE bool known_good(ValueType type, const Column *column, ValueRange range) {
    if (!column->text) return true;
    if (type == T_VIEW || range.first >= range.last) return false;
    Span first = load_bytes(type, column, range.first);
    Span last = load_bytes(type, column, range.last - 1);
    return bt_is_ascii(first.at, (size_t)(last.end - first.at));
}

BT_INLINE void measure_bytes(ValueType type, const Column *column, Block *block, uint32_t *bodies) {
    int64_t base = column->value_offset + block->row;
    bool good = known_good(type, column, (ValueRange){base, base + block->rows});
    for (int i = 0; i < block->rows; i++) {
        if (row_is_null(column, block->row + i)) continue;
        Span value = load_bytes(type, column, base + i);
        uint64_t bytes = span_bytes(value);
        if (!good && !bt_is_utf8(value.at, bytes))
            note_fault(block, i, column, REJECT_INVALID_UTF8);
        bodies[i] = (uint32_t)bytes;
        add_entry(column, block, i, 1 + varint_bytes(bytes) + bytes);
    }
}

/* Body of a list of bytes: the bytes of the list message. */
BT_INLINE void measure_bytes_lists(ValueType type, const Column *column, Block *block,
                                   uint32_t *bodies) {
    ValueRange all = {list_range(column, block->row).first,
                      list_range(column, block->row + block->rows - 1).last};
    bool good = known_good(type, column, all);
    for (int i = 0; i < block->rows; i++) {
        if (row_is_null(column, block->row + i)) continue;
        ValueRange range = list_range(column, block->row + i);
        if (has_null(column, range)) {
            note_fault(block, i, column, REJECT_NULL_IN_LIST);
            continue;
        }
        uint64_t inner = 0;
        for (int64_t j = range.first; j < range.last; j++) {
            Span value = load_bytes(type, column, j);
            uint64_t bytes = span_bytes(value);
            if (!good && !bt_is_utf8(value.at, bytes))
                note_fault(block, i, column, REJECT_INVALID_UTF8);
            inner += 1 + varint_bytes(bytes) + bytes;
        }
        bodies[i] = (uint32_t)inner;
        add_entry(column, block, i, inner);
    }
}

/* Calls the function for the kind of the column's values; their type is a constant for it. */
#define CALL(TYPE, FUNCTION, ...) \
    case TYPE: FUNCTION(TYPE, column, block, __VA_ARGS__); break;
#define CALL_BY_TYPE(INTS, FLOATS, BYTES, ...) \
    switch (column->type) { \
        CALL(T_BOOL, INTS, __VA_ARGS__) CALL(T_INT8, INTS, __VA_ARGS__) \
        CALL(T_INT16, INTS, __VA_ARGS__) CALL(T_INT32, INTS, __VA_ARGS__) \
        CALL(T_INT64, INTS, __VA_ARGS__) CALL(T_UINT8, INTS, __VA_ARGS__) \
        CALL(T_UINT16, INTS, __VA_ARGS__) CALL(T_UINT32, INTS, __VA_ARGS__) \
        CALL(T_UINT64, INTS, __VA_ARGS__) CALL(T_HALF, FLOATS, __VA_ARGS__) \
        CALL(T_FLOAT, FLOATS, __VA_ARGS__) CALL(T_DOUBLE, FLOATS, __VA_ARGS__) \
        CALL(T_BINARY32, BYTES, __VA_ARGS__) CALL(T_BINARY64, BYTES, __VA_ARGS__) \
        CALL(T_VIEW, BYTES, __VA_ARGS__) CALL(T_FIXED, BYTES, __VA_ARGS__) \
    }

/* Adds the column's entry size to each row of the block and notes its faults. `bodies[i]` is
 * what writing needs to know of row i: see the functions. */
static void measure(const Column *column, Block *block, uint32_t *bodies) {
    if (column->layout == L_SCALAR)
        CALL_BY_TYPE(measure_ints, measure_floats, measure_bytes, bodies)
    else
        CALL_BY_TYPE(measure_int_lists, measure_float_lists, measure_bytes_lists, bodies)
}

/* The write pass: every byte of an entry, sizes known. */

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

BT_INLINE void write_floats(ValueType type, Column *column, Block *block, const uint32_t *bodies,
                            int first, int last) {
    (void)bodies;
    const uint8_t *prefix = column->prefixes + 4 * column->prefix_stride;
    size_t prefix_bytes = column->prefix_bytes[4];
    EACH_ACTIVE_ROW({
        at = copy_wide(at, prefix, prefix_bytes);
        store32(at, float_bits(type, column, column->value_offset + row));
        at += 4;
    })
}

BT_INLINE void write_float_lists(ValueType type, Column *column, Block *block,
                                 const uint32_t *bodies, int first, int last) {
    (void)bodies;
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

/* Writes the column's entries of active rows from `first` to `last` (not included). */
static void write_entries(Column *column, Block *block, const uint32_t *bodies, int first, int last) {
    if (column->layout == L_SCALAR)
        CALL_BY_TYPE(write_ints, write_floats, write_bytes, bodies, first, last)
    else
        CALL_BY_TYPE(write_int_lists, write_float_lists, write_bytes_lists, bodies, first, last)
}

/* The loop over blocks of rows. */

static const uint64_t MAX_PAYLOAD_BYTES = 0x7fffffff;

/* Rows written by all columns before they are sealed: as much as a level-2 cache holds. */
static const size_t SEAL_BYTES = 128 << 10;

/* Sizes kept per column and row during a block: as much as stays in a level-1 cache. */
static const int64_t BODIES = 6 << 10;

static bool reject_row(Encoding *encoding, int64_t row, int64_t column, int code) {
    RowReject reject = {row, column, code};
    return vec_push(&encoding->rejects, &reject, sizeof reject);
}

/* Keeps the rows of the block that have no fault, and lists the others. */
static bool choose_active(Encoding *encoding, Block *block) {
    block->active_rows = 0;
    for (int i = 0; i < block->rows; i++) {
        int64_t row = block->row + i;
        uint64_t features = block->features_bytes[i];
        uint64_t payload = 1 + varint_bytes(features) + features;
        if (encoding->skip && encoding->skip[row]) continue;
        if (BT_UNLIKELY(block->fault_code[i])) {
            if (!reject_row(encoding, row, block->fault_column[i], block->fault_code[i]))
                return false;
        } else if (BT_UNLIKELY(payload > MAX_PAYLOAD_BYTES)) {
            if (!reject_row(encoding, row, WHOLE_ROW, REJECT_TOO_LARGE)) return false;
        } else {
            block->active[block->active_rows++] = i;
        }
    }
    return true;
}

/* Gives active rows from `first` on their addresses until SEAL_BYTES are full; returns the number
 * of the first that got none, or `first` itself when `out` has no room for it. */
static int place_rows(Encoding *encoding, Block *block, int first) {
    size_t begin = encoding->at;
    int k = first;
    for (; k < block->active_rows && (k == first || encoding->at - begin < SEAL_BYTES); k++) {
        uint64_t features = block->features_bytes[block->active[k]];
        uint64_t payload = 1 + varint_bytes(features) + features;
        uint64_t room = encoding->out_bytes - encoding->at;
        if (BT_UNLIKELY(payload + BT_FRAME_BYTES + BT_SLACK > room)) return first;
        uint8_t *record = encoding->out + encoding->at;
        encoding->starts[encoding->records] = (int64_t)encoding->at;
        encoding->row_numbers[encoding->records++] = block->row + block->active[k];
        encoding->at += payload + BT_FRAME_BYTES;
        uint8_t *body = record + BT_FRAME_HEAD;
        *body++ = 0x0a;
        block->cursor[k] = put_varint(body, features);
    }
    return k;
}

/* Writes heads and checksums, which the wide copies of the rows may have scribbled on. */
static void seal_rows(Encoding *encoding, int64_t first_record) {
    for (int64_t r = first_record; r < encoding->records; r++) {
        size_t start = (size_t)encoding->starts[r];
        size_t end = r + 1 < encoding->records ? (size_t)encoding->starts[r + 1] : encoding->at;
        bt_seal(encoding->out + start, end - start - BT_FRAME_BYTES);
    }
}

static int encode_block(Encoding *encoding, Block *block, uint32_t *bodies) {
    memset(block->features_bytes, 0, sizeof block->features_bytes);
    memset(block->fault_code, 0, sizeof block->fault_code);
    for (int64_t c = 0; c < encoding->column_count; c++)
        measure(&encoding->columns[c], block, bodies + c * block->rows);
    if (!choose_active(encoding, block)) return BT_NO_MEMORY;
    for (int first = 0, last; first < block->active_rows; first = last) {
        int64_t first_record = encoding->records;
        last = place_rows(encoding, block, first);
        if (last == first) return BT_NO_ROOM;
        for (int64_t c = 0; c < encoding->column_count; c++)
            write_entries(&encoding->columns[c], block, bodies + c * block->rows, first, last);
        seal_rows(encoding, first_record);
    }
    return BT_OK;
}

int bt_encode(Encoding *encoding) {
    int64_t block_rows = encoding->column_count ? BODIES / encoding->column_count : MAX_BLOCK_ROWS;
    if (block_rows > MAX_BLOCK_ROWS) block_rows = MAX_BLOCK_ROWS;
    if (block_rows < 8) block_rows = 8;
    size_t bodies_bytes = sizeof(uint32_t) * (size_t)(block_rows * (encoding->column_count + 1));
    Block *block = malloc(sizeof *block);
    uint32_t *bodies = malloc(bodies_bytes);
    int result = block && bodies ? BT_OK : BT_NO_MEMORY;
    for (int64_t row = 0; result == BT_OK && row < encoding->rows; row += block_rows) {
        int64_t left = encoding->rows - row;
        block->row = row;
        block->rows = (int)(left < block_rows ? left : block_rows);
        result = encode_block(encoding, block, bodies);
    }
    free(block);
    free(bodies);
    return result;
}
