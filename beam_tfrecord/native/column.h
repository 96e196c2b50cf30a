/* One Arrow column as the encoder sees it: where its values lie and what never varies. */
#ifndef BT_COLUMN_H
#define BT_COLUMN_H

#include "arrow_abi.h"
#include "wire.h"

typedef enum {
    T_BOOL, T_INT8, T_INT16, T_INT32, T_INT64, T_UINT8, T_UINT16, T_UINT32, T_UINT64,
    T_HALF, T_FLOAT, T_DOUBLE,
    T_BINARY32, T_BINARY64, T_VIEW, T_FIXED
} ValueType;

typedef enum { L_SCALAR, L_LIST32, L_LIST64, L_FIXED_LIST } Layout;

/* Longest varint of an int64, and so the number of its possible sizes. */
enum { MAX_VARINT = 10 };

/* Bytes the encoder may scribble after what it has written so far. */
enum { BT_SLACK = 16 };

typedef struct {
    ValueType type;
    Layout layout;
    int kind;                /* BT_BYTES, BT_FLOATS or BT_INTS */
    bool text;               /* must be UTF-8 */
    int64_t batch_column;    /* position in the batch, for rejects */
    const uint8_t *validity; /* of rows; NULL when none is null */
    int64_t offset;          /* of row 0 in validity and list_offsets */
    const void *list_offsets;
    int64_t list_values; /* of each row of a fixed-size list */
    const uint8_t *value_validity;
    int64_t value_offset; /* of value 0 in value_validity, values and value_offsets */
    const void *values;
    const void *value_offsets;
    int64_t value_bytes; /* of a fixed-size binary */
    const uint8_t *const *view_buffers;
    const uint8_t *safe_end; /* bytes before it may be read in whole words */
    /* Everything of a map entry before its value's size: tag, key size, key (and padding). */
    uint8_t *header;
    size_t header_bytes;
    /* All of an entry of one number but the number, one for each of its sizes. */
    uint8_t *prefixes;
    size_t prefix_stride;
    uint32_t prefix_bytes[MAX_VARINT + 1];
    uint32_t entry_bytes[MAX_VARINT + 1];
    double max_relative_error;
} Column;

/* Fills the column from child `index` of an exported batch. BT_MALFORMED: the type is not one
 * that the kernel encodes. The column must be released, also after an error. */
int bt_column_open(Column *column, const struct ArrowSchema *schema, const struct ArrowArray *batch,
                   int64_t index, Span name);
void bt_column_close(Column *column);

BT_INLINE bool get_bit(const uint8_t *bits, int64_t index) {
    return bits[index >> 3] >> (index & 7) & 1;
}

BT_INLINE bool row_is_null(const Column *column, int64_t row) {
    return column->validity && !get_bit(column->validity, column->offset + row);
}

/* Bytes of the map entry, its own tag and size too, whose list message holds `inner` bytes. */
BT_INLINE uint64_t entry_size(size_t header_bytes, uint64_t inner, uint64_t *feature,
                              uint64_t *entry) {
    *feature = 1 + varint_bytes(inner) + inner;
    *entry = header_bytes + 1 + varint_bytes(*feature) + *feature;
    return 1 + varint_bytes(*entry) + *entry;
}

typedef struct {
    int64_t first;
    int64_t last; /* not included */
} ValueRange;

/* Positions in the value buffers of the values of a row of a list column. */
BT_INLINE ValueRange list_range(const Column *column, int64_t row) {
    int64_t i = column->offset + row, base = column->value_offset;
    if (column->layout == L_LIST32) {
        const int32_t *offsets = column->list_offsets;
        return (ValueRange){base + offsets[i], base + offsets[i + 1]};
    }
    if (column->layout == L_LIST64) {
        const int64_t *offsets = column->list_offsets;
        return (ValueRange){base + offsets[i], base + offsets[i + 1]};
    }
    return (ValueRange){base + i * column->list_values, base + (i + 1) * column->list_values};
}

/* The value as an int64; an uint64 above that range comes out negative. */
BT_INLINE int64_t load_int(ValueType type, const void *values, int64_t i) {
    switch (type) {
    case T_BOOL: return get_bit(values, i);
    case T_INT8: return ((const int8_t *)values)[i];
    case T_INT16: return ((const int16_t *)values)[i];
    case T_INT32: return ((const int32_t *)values)[i];
    case T_UINT8: return ((const uint8_t *)values)[i];
    case T_UINT16: return ((const uint16_t *)values)[i];
    case T_UINT32: return ((const uint32_t *)values)[i];
    default: return ((const int64_t *)values)[i];
    }
}

BT_INLINE Span load_bytes(ValueType type, const Column *column, int64_t i) {
    const uint8_t *data = column->values;
    if (type == T_BINARY32) {
        const int32_t *offsets = column->value_offsets;
        return (Span){data + offsets[i], data + offsets[i + 1]};
    }
    if (type == T_BINARY64) {
        const int64_t *offsets = column->value_offsets;
        return (Span){data + offsets[i], data + offsets[i + 1]};
    }
    if (type == T_FIXED) {
        const uint8_t *at = data + i * column->value_bytes;
        return (Span){at, at + column->value_bytes};
    }
    /* A view: le32 size, then up to 12 bytes in place, or prefix, buffer number and offset. */
    const uint8_t *view = data + 16 * i;
    uint32_t bytes = load32(view);
    if (bytes <= 12) return (Span){view + 4, view + 4 + bytes};
    const uint8_t *at = column->view_buffers[load32(view + 8)] + load32(view + 12);
    return (Span){at, at + bytes};
}

#endif
