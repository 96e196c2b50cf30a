#include "csv_rows.h"

/* First byte of [at, end) that is one of three, or end. */
#if defined(__SSE2__)
BT_INLINE const uint8_t *find3(const uint8_t *at, const uint8_t *end, uint8_t a, uint8_t b,
                               uint8_t c) {
    const __m128i as = _mm_set1_epi8((char)a), bs = _mm_set1_epi8((char)b),
                  cs = _mm_set1_epi8((char)c);
    for (; end - at >= 16; at += 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)at);
        __m128i hit = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(x, as), _mm_cmpeq_epi8(x, bs)),
                                   _mm_cmpeq_epi8(x, cs));
        unsigned mask = (unsigned)_mm_movemask_epi8(hit);
        if (mask) return at + __builtin_ctz(mask);
    }
    while (at < end && *at != a && *at != b && *at != c) at++;
    return at;
}
#else
BT_INLINE const uint8_t *find3(const uint8_t *at, const uint8_t *end, uint8_t a, uint8_t b,
                               uint8_t c) {
    while (at < end && *at != a && *at != b && *at != c) at++;
    return at;
}
#endif

BT_INLINE bool ends_field(const CsvDialect *dialect, uint8_t byte) {
    return byte == dialect->delimiter || byte == '\n' || byte == '\r';
}

/* End of the unquoted stretch at `at`. */
BT_INLINE const uint8_t *unquoted_end(const CsvDialect *dialect, const uint8_t *at,
                                      const uint8_t *end, uint32_t *flags) {
    if (BT_LIKELY(!dialect->escapes)) return find3(at, end, dialect->delimiter, '\n', '\r');
    while (at < end && !ends_field(dialect, *at)) {
        if (*at++ != dialect->escape) continue;
        *flags |= CSV_NEEDS_CLEANING;
        if (at < end) at++;
    }
    return at;
}

/* The closing quote of the field whose text starts at `at`, or end. */
BT_INLINE const uint8_t *closing_quote(const CsvDialect *dialect, const uint8_t *at,
                                       const uint8_t *end, uint32_t *flags) {
    uint8_t quote = dialect->quote, escape = dialect->escapes ? dialect->escape : quote;
    for (;;) {
        at = find3(at, end, quote, escape, quote);
        if (at == end) return end;
        if (*at != quote) {
            *flags |= CSV_NEEDS_CLEANING;
            at += end - at >= 2 ? 2 : 1;
        } else if (dialect->doubles && end - at >= 2 && at[1] == quote) {
            *flags |= CSV_NEEDS_CLEANING;
            at += 2;
        } else {
            return at;
        }
    }
}

size_t csv_rows(const CsvDialect *dialect, const uint8_t *data, size_t bytes, size_t at,
                bool final, CsvRows *rows) {
    const CsvDialect d = *dialect; /* stores below must not make the compiler reload it */
    const uint32_t columns = rows->columns, capacity = rows->capacity;
    const uint8_t *end = data + bytes;
    uint32_t row = 0;
    while (row < capacity && at < bytes) {
        const uint8_t *p = data + at;
        if (!rows->keep_blank && (*p == '\n' || *p == '\r')) {
            if (*p == '\r' && at + 1 == bytes && !final) break;
            at += *p == '\r' && at + 1 < bytes && p[1] == '\n' ? 2 : 1;
            continue;
        }
        CsvField *field = rows->fields + row;
        uint32_t count = 0;
        bool unclosed = false;
        for (;; p++) {
            const uint8_t *from = p, *to;
            uint32_t flags = 0;
            if (d.quotes && p < end && *p == d.quote) {
                flags = CSV_WAS_QUOTED;
                p = closing_quote(&d, p + 1, end, &flags);
                unclosed = p == end;
                to = p;
                if (!unclosed && (++p == end || ends_field(&d, *p))) {
                    /* The common case needs no cleaning once the quotes are off; otherwise
                     * csv_clean wants to see them. */
                    if (!(flags & CSV_NEEDS_CLEANING)) from++;
                    else to = p;
                } else if (!unclosed) {
                    flags |= CSV_NEEDS_CLEANING;
                    to = p = unquoted_end(&d, p, end, &flags);
                }
            } else {
                to = p = unquoted_end(&d, p, end, &flags);
            }
            if (count < columns) {
                *field = (CsvField){(uint32_t)(from - data), (uint32_t)(to - from) | flags};
                field += capacity;
            }
            count++;
            if (p == end || *p != d.delimiter) break;
        }
        if (p == end) {
            if (!final) break;
        } else if (*p == '\n') {
            p++;
        } else {
            if (p + 1 == end && !final) break;
            p += p + 1 < end && p[1] == '\n' ? 2 : 1;
        }
        for (uint32_t missing = count; missing < columns; missing++, field += capacity)
            *field = (CsvField){(uint32_t)at, 0};
        rows->counts[row] = unclosed ? CSV_UNCLOSED : count;
        rows->starts[row++] = (uint32_t)at;
        at = (size_t)(p - data);
    }
    rows->rows = row;
    return at;
}

size_t csv_clean(const CsvDialect *dialect, const uint8_t *data, CsvField field, uint8_t *out) {
    const uint8_t *at = data + field.at, *end = at + (field.size & CSV_SIZE);
    uint8_t *start = out;
    bool quoted = (field.size & CSV_WAS_QUOTED) && at < end;
    at += quoted;
    while (at < end) {
        if (dialect->escapes && *at == dialect->escape) {
            if (++at < end) *out++ = *at++;
        } else if (quoted && *at == dialect->quote) {
            quoted = dialect->doubles && end - at >= 2 && at[1] == dialect->quote;
            if (quoted) *out++ = *at++;
            at++;
        } else {
            *out++ = *at++;
        }
    }
    return (size_t)(out - start);
}
