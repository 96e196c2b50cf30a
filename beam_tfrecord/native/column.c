#include "column.h"

#include <stdlib.h>

static int int_type(char format, ValueType *type) {
    static const char formats[] = "bcsilCSIL";
    const char *found = strchr(formats, format);
    if (!found) return BT_NO_KIND;
    *type = (ValueType)(T_BOOL + (found - formats));
    return BT_INTS;
}

/* Kind, type and width of values from a format string of the Arrow C data interface. */
static int value_type(Column *column, const char *format) {
    char first = format[0];
    if (!first) return BT_MALFORMED;
    column->kind = BT_NO_KIND;
    if (!format[1]) {
        column->kind = int_type(first, &column->type);
        if (first == 'e' || first == 'f' || first == 'g') {
            column->kind = BT_FLOATS;
            column->type = first == 'e' ? T_HALF : first == 'f' ? T_FLOAT : T_DOUBLE;
        } else if (first == 'u' || first == 'z' || first == 'U' || first == 'Z') {
            column->kind = BT_BYTES;
            column->type = first == 'u' || first == 'z' ? T_BINARY32 : T_BINARY64;
            column->text = first == 'u' || first == 'U';
        }
    } else if (!strcmp(format, "vu") || !strcmp(format, "vz")) {
        column->kind = BT_BYTES;
        column->type = T_VIEW;
        column->text = format[1] == 'u';
    } else if (first == 'w' && format[1] == ':') {
        column->kind = BT_BYTES;
        column->type = T_FIXED;
        column->value_bytes = strtoll(format + 2, NULL, 10);
    }
    return column->kind == BT_NO_KIND ? BT_MALFORMED : BT_OK;
}

static void use_values(Column *column, const struct ArrowArray *array, int64_t extra_offset) {
    const void **buffers = array->buffers;
    int64_t stop = array->offset + extra_offset + array->length;
    column->value_validity = array->null_count == 0 ? NULL : buffers[0];
    column->value_offset = array->offset + extra_offset;
    column->values = buffers[1];
    if (column->kind != BT_BYTES) return;
    if (column->type == T_VIEW) {
        column->view_buffers = (const uint8_t *const *)(buffers + 2);
    } else if (column->type == T_FIXED) {
        if (column->values)
            column->safe_end = (const uint8_t *)column->values + stop * column->value_bytes;
    } else {
        column->value_offsets = buffers[1];
        column->values = buffers[2];
        if (!column->values || !column->value_offsets || !array->length) return;
        int64_t end = column->type == T_BINARY32 ? ((const int32_t *)buffers[1])[stop]
                                                 : ((const int64_t *)buffers[1])[stop];
        column->safe_end = (const uint8_t *)column->values + end;
    }
}

/* Tag, size and key of the map entry; what follows in an entry depends on the row. */
static bool make_header(Column *column, Span name) {
    size_t name_bytes = span_bytes(name);
    column->header = calloc(1, name_bytes + 32 + BT_SLACK);
    if (!column->header) return false;
    uint8_t *at = column->header;
    *at++ = 0x0a;
    at = put_varint(at, name_bytes);
    if (name_bytes) memcpy(at, name.at, name_bytes);
    column->header_bytes = (size_t)(at - column->header) + name_bytes;
    return true;
}

static bool make_prefixes(Column *column) {
    column->prefix_stride = column->header_bytes + 32 + BT_SLACK;
    column->prefixes = calloc(MAX_VARINT + 1, column->prefix_stride);
    if (!column->prefixes) return false;
    for (unsigned bytes = 1; bytes <= MAX_VARINT; bytes++) {
        uint64_t feature, entry;
        column->entry_bytes[bytes] =
            (uint32_t)entry_size(column->header_bytes, 2 + bytes, &feature, &entry);
        uint8_t *prefix = column->prefixes + bytes * column->prefix_stride, *at = prefix;
        *at++ = 0x0a;
        at = put_varint(at, entry);
        memcpy(at, column->header, column->header_bytes);
        at += column->header_bytes;
        *at++ = 0x12;
        *at++ = (uint8_t)feature;
        *at++ = (uint8_t)(column->kind << 3 | 2);
        *at++ = (uint8_t)(2 + bytes);
        *at++ = 0x0a;
        *at++ = (uint8_t)bytes;
        column->prefix_bytes[bytes] = (uint32_t)(at - prefix);
    }
    return true;
}

int bt_column_open(Column *column, const struct ArrowSchema *schema, const struct ArrowArray *batch,
                   int64_t index, Span name) {
    memset(column, 0, sizeof *column);
    column->batch_column = index;
    const struct ArrowSchema *field = schema->children[index];
    const struct ArrowArray *array = batch->children[index];
    const char *format = field->format;
    if (field->dictionary) return BT_MALFORMED;
    column->offset = array->offset + batch->offset;
    column->validity = array->null_count == 0 ? NULL : array->buffers[0];
    if (format[0] != '+') {
        column->layout = L_SCALAR;
        if (value_type(column, format) != BT_OK) return BT_MALFORMED;
        use_values(column, array, batch->offset);
    } else {
        if (format[1] == 'l') column->layout = L_LIST32;
        else if (format[1] == 'L') column->layout = L_LIST64;
        else if (format[1] == 'w' && format[2] == ':') column->layout = L_FIXED_LIST;
        else return BT_MALFORMED;
        if (field->n_children != 1 || field->children[0]->dictionary) return BT_MALFORMED;
        if (value_type(column, field->children[0]->format) != BT_OK) return BT_MALFORMED;
        if (column->layout == L_FIXED_LIST) column->list_values = strtoll(format + 3, NULL, 10);
        else column->list_offsets = array->buffers[1];
        use_values(column, array->children[0], 0);
    }
    if (!make_header(column, name)) return BT_NO_MEMORY;
    return make_prefixes(column) ? BT_OK : BT_NO_MEMORY;
}

void bt_column_close(Column *column) {
    free(column->header);
    free(column->prefixes);
    column->header = column->prefixes = NULL;
}
