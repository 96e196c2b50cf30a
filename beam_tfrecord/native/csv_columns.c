#include "csv.h"

#include <math.h>

#include "utf8.h"

typedef struct {
    const uint8_t *at;
    size_t bytes;
} Text;

BT_INLINE Text text_of(const CsvText *text, CsvField field) {
    if (BT_UNLIKELY(field.size & CSV_NEEDS_CLEANING))
        return (Text){text->scratch, csv_clean(&text->dialect, text->data, field, text->scratch)};
    return (Text){text->data + field.at, field.size & CSV_SIZE};
}

static void store_int(void *values, size_t at, int width, uint64_t bits) {
    switch (width) {
        case 1: ((uint8_t *)values)[at] = (uint8_t)bits; break;
        case 2: ((uint16_t *)values)[at] = (uint16_t)bits; break;
        case 4: ((uint32_t *)values)[at] = (uint32_t)bits; break;
        default: ((uint64_t *)values)[at] = bits;
    }
}

BT_INLINE int put_int(const CsvColumn *column, size_t at, Text text) {
    bool negative;
    uint64_t magnitude;
    if (csv_parse_int(text.at, text.bytes, &negative, &magnitude) != CSV_GOOD) return CSV_BAD;
    if (negative ? magnitude > 0 - (uint64_t)column->low : magnitude > column->high)
        return CSV_BAD;
    uint64_t bits = negative ? 0 - magnitude : magnitude;
    if (BT_LIKELY(column->width == 8)) ((uint64_t *)column->values)[at] = bits;
    else store_int(column->values, at, column->width, bits);
    return CSV_GOOD;
}

BT_INLINE int put_time(const CsvColumn *column, size_t at, Text text) {
    CsvTime time;
    if (csv_parse_time(text.at, text.bytes, &time) != CSV_GOOD) return CSV_BAD;
    if (column->as == CSV_AS_DATE) {
        if (!time.dated) return CSV_BAD;
        ((int32_t *)column->values)[at] = (int32_t)(time.seconds / 86400);
        return CSV_GOOD;
    }
    int64_t fraction = time.nanos, step = 1000000000 / column->ticks, ticks;
    if (time.zoned != column->zoned || fraction % step) return CSV_BAD;
    int64_t seconds = time.seconds;
    if (seconds < 0 && fraction) {
        /* Count down from the next second, so that the product overflows only if the sum does. */
        seconds++;
        fraction -= 1000000000;
    }
    if (__builtin_mul_overflow(seconds, column->ticks, &ticks) ||
        __builtin_add_overflow(ticks, fraction / step, &ticks))
        return CSV_BAD;
    ((int64_t *)column->values)[at] = ticks;
    return CSV_GOOD;
}

/* What is greater rounds to an infinite float32; this itself does only from one side. */
static const double FLOAT_EDGE = 0x1.ffffffp127;

BT_INLINE int put_float(const CsvColumn *column, size_t at, Text text) {
    double *value = (double *)column->values + at;
    int result = csv_parse_double(text.at, text.bytes, value, &column->sides[at]);
    if (result != CSV_GOOD || column->as == CSV_AS_DOUBLE) return result;
    if (BT_LIKELY(!(fabs(*value) >= FLOAT_EDGE)) || isinf(*value)) return CSV_GOOD;
    return fabs(*value) == FLOAT_EDGE ? CSV_HARD : CSV_BAD;
}

BT_INLINE int put_value(const CsvColumn *column, size_t at, Text text) {
    bool flag;
    switch (column->as) {
        case CSV_AS_INT: return put_int(column, at, text);
        case CSV_AS_FLOAT:
        case CSV_AS_DOUBLE: return put_float(column, at, text);
        case CSV_AS_DATE:
        case CSV_AS_TIME: return put_time(column, at, text);
        case CSV_AS_BOOL:
            if (csv_parse_bool(text.at, text.bytes, &flag) != CSV_GOOD) return CSV_BAD;
            ((uint8_t *)column->values)[at] = flag;
            return CSV_GOOD;
        default: return CSV_BAD;
    }
}

static void put_zero(const CsvColumn *column, size_t at) {
    if (!column->width) return;
    memset((uint8_t *)column->values + at * (size_t)column->width, 0, (size_t)column->width);
}

/* A field that does not parse as it stands: blanks around it, a word for null, or a fault. */
static int put_unusual(const CsvText *all, const CsvColumn *column, size_t at, Text text) {
    if (csv_trim(&text.at, &text.bytes) && text.bytes &&
        !csv_is_word(&all->always, text.at, text.bytes)) {
        int result = put_value(column, at, text);
        if (result != CSV_BAD) return result;
    }
    put_zero(column, at);
    column->valid[at] = 0;
    bool null = !text.bytes || csv_is_word(&all->nulls, text.at, text.bytes) ||
                csv_is_word(&all->always, text.at, text.bytes);
    return null ? CSV_GOOD : CSV_BAD;
}

static uint32_t fill_values(const CsvText *all, const CsvRows *rows, CsvColumn *column, size_t at,
                            uint32_t mark, uint32_t *faults, uint32_t *hard) {
    const CsvField *fields = rows->fields + (size_t)column->column * rows->capacity;
    uint32_t hards = 0;
    for (uint32_t row = 0; row < rows->rows; row++) {
        Text text = text_of(all, fields[row]);
        column->valid[at + row] = 1;
        int result = CSV_BAD;
        if (text.bytes && !csv_is_word(&all->always, text.at, text.bytes))
            result = put_value(column, at + row, text);
        if (BT_LIKELY(result == CSV_GOOD)) continue;
        if (result == CSV_BAD) result = put_unusual(all, column, at + row, text);
        if (result == CSV_HARD) hard[hards++] = row;
        if (result == CSV_BAD && !faults[row]) faults[row] = mark;
    }
    return hards;
}

BT_INLINE void copy_text(uint8_t *to, Text text, const uint8_t *readable) {
    /* Most text is short: one fixed copy beats a call. */
    if (text.bytes <= 16 && readable - text.at >= 16) memcpy(to, text.at, 16);
    else memcpy(to, text.at, text.bytes);
}

static void fill_text(const CsvText *all, const CsvRows *rows, CsvColumn *column, size_t at,
                      uint32_t mark, uint32_t *faults) {
    const CsvField *fields = rows->fields + (size_t)column->column * rows->capacity;
    int32_t *offsets = column->offsets + at;
    bool words = column->as == CSV_AS_WORDS, check = column->as != CSV_AS_BYTES && !all->checked;
    for (uint32_t row = 0; row < rows->rows; row++) {
        CsvField field = fields[row];
        Text text = text_of(all, field);
        bool present = text.bytes || (field.size & CSV_WAS_QUOTED && !words);
        present &= !csv_is_word(&all->always, text.at, text.bytes);
        if (words) {
            csv_trim(&text.at, &text.bytes);
            present &= text.bytes && !csv_is_word(&all->nulls, text.at, text.bytes) &&
                       !csv_is_word(&all->always, text.at, text.bytes);
        }
        if (check && text.bytes &&
            (memchr(text.at, 0, text.bytes) || !bt_is_utf8(text.at, text.bytes))) {
            present = false;
            if (!faults[row]) faults[row] = mark;
        }
        column->valid[at + row] = present;
        if (!present) text.bytes = 0;
        const uint8_t *readable = field.size & CSV_NEEDS_CLEANING ? text.at + text.bytes
                                                                  : all->data + all->bytes;
        copy_text(column->text + offsets[row], text, readable);
        offsets[row + 1] = offsets[row] + (int32_t)text.bytes;
    }
}

uint32_t csv_fill(const CsvText *text, const CsvRows *rows, CsvColumn *column, size_t at,
                  uint32_t mark, uint32_t *faults, uint32_t *hard) {
    if (column->as < CSV_AS_TEXT) return fill_values(text, rows, column, at, mark, faults, hard);
    fill_text(text, rows, column, at, mark, faults);
    return 0;
}

void csv_collect(const CsvText *text, const CsvRows *rows, uint32_t column, uint32_t *seen,
                 uint32_t found[CSV_KINDS]) {
    const CsvField *fields = rows->fields + (size_t)column * rows->capacity;
    for (uint32_t row = 0; row < rows->rows; row++) {
        if (BT_UNLIKELY(rows->counts[row] != rows->columns)) continue;
        Text value = text_of(text, fields[row]);
        /* In ordinary text, only words for null and quoted blanks say more. */
        if (*seen & CSV_TEXT && value.bytes && !csv_may_be_word(&text->nulls, *value.at)) continue;
        if (csv_is_word(&text->always, value.at, value.bytes)) continue;
        uint32_t kind = (uint32_t)csv_kind(value.at, value.bytes);
        if (BT_UNLIKELY(!kind)) {
            if (!(fields[row].size & CSV_WAS_QUOTED)) continue;
            kind = CSV_EMPTY;
        }
        if (BT_LIKELY(*seen & kind & ~(uint32_t)CSV_TEXT)) continue;
        /* Only what is no value at all can be a word for null, whatever words were given. */
        csv_trim(&value.at, &value.bytes);
        if (csv_is_word(&text->always, value.at, value.bytes)) continue;
        if (kind == CSV_TEXT && csv_is_word(&text->nulls, value.at, value.bytes)) kind = CSV_WORD;
        if (*seen & kind) continue;
        *seen |= kind;
        found[__builtin_ctz(kind)] = row;
    }
}
