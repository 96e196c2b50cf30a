/* The size pass of the encoder: bytes of every entry, and every check of values. */
#include <math.h>

#include "encode.h"
#include "utf8.h"

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

BT_INLINE void measure_floats(ValueType type, const Column *column, Block *block) {
    const double *values = (const double *)column->values + column->value_offset + block->row;
    for (int i = 0; i < block->rows; i++) {
        if (row_is_null(column, block->row + i)) continue;
        if (type == T_DOUBLE && BT_UNLIKELY(overflows_float(values[i])))
            note_fault(block, i, column, REJECT_FLOAT_OVERFLOW);
        block->features_bytes[i] += column->entry_bytes[4];
    }
}

BT_INLINE void measure_float_lists(ValueType type, const Column *column, Block *block) {
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

static void measure_scalars(const Column *column, Block *block, uint32_t *bodies) {
    switch (column->type) {
#define CASE(TYPE) case TYPE: measure_ints(TYPE, column, block, bodies); break;
        EACH_INT_TYPE(CASE)
#undef CASE
#define CASE(TYPE) case TYPE: measure_floats(TYPE, column, block); break;
        EACH_FLOAT_TYPE(CASE)
#undef CASE
#define CASE(TYPE) case TYPE: measure_bytes(TYPE, column, block, bodies); break;
        EACH_BYTES_TYPE(CASE)
#undef CASE
    }
}

static void measure_lists(const Column *column, Block *block, uint32_t *bodies) {
    switch (column->type) {
#define CASE(TYPE) case TYPE: measure_int_lists(TYPE, column, block, bodies); break;
        EACH_INT_TYPE(CASE)
#undef CASE
#define CASE(TYPE) case TYPE: measure_float_lists(TYPE, column, block); break;
        EACH_FLOAT_TYPE(CASE)
#undef CASE
#define CASE(TYPE) case TYPE: measure_bytes_lists(TYPE, column, block, bodies); break;
        EACH_BYTES_TYPE(CASE)
#undef CASE
    }
}

void bt_measure(const Column *column, Block *block, uint32_t *bodies) {
    if (column->layout == L_SCALAR) measure_scalars(column, block, bodies);
    else measure_lists(column, block, bodies);
}
