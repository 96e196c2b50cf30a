/* The states of a CSV dialect, and where rows end in a piece of a file. */
#ifndef BT_CSV_SCAN_H
#define BT_CSV_SCAN_H

#include "wire.h"

typedef struct {
    uint8_t delimiter;
    uint8_t quote;
    uint8_t escape;
    bool quotes;  /* the dialect has a quote */
    bool escapes; /* the dialect has an escape */
    bool doubles; /* two quotes inside a quoted field mean one */
} CsvDialect;

/* What a byte may find itself in. A quote opens a field only at its start, so the first two differ
 * from CSV_UNQUOTED; after CSV_CR a line feed still belongs to the row end before it. */
enum {
    CSV_ROW_START,
    CSV_FIELD_START,
    CSV_UNQUOTED,
    CSV_QUOTED,
    CSV_QUOTE_SEEN, /* a quote inside a quoted field: its end, or the first of two */
    CSV_CR,
    CSV_ESCAPE,        /* an escape outside quotes */
    CSV_ESCAPE_QUOTED, /* an escape inside quotes */
    CSV_STATES
};

/* What a piece does to one state it may be entered in. */
typedef struct {
    int32_t exit;      /* state after the last byte */
    int64_t rows;      /* rows that end here, blank lines left out */
    int64_t line_ends; /* row ends, those of blank lines too */
    int64_t first;     /* where the first row of the piece starts; -1 where none does */
} CsvPassage;

/* Follows the dialect through `bytes` bytes from each of its states at once. */
void csv_scan(const CsvDialect *dialect, const uint8_t *data, size_t bytes,
              CsvPassage passages[CSV_STATES]);

/* Line ends (LF, CR or CRLF), quoted or not: for line numbers in messages. */
int64_t csv_count_lines(const uint8_t *data, size_t bytes);

/* Bit i tells whether byte i of the 64 at `at` is `byte`. */
#if defined(__SSE2__)
#include <emmintrin.h>
BT_INLINE uint64_t csv_mask64(const uint8_t *at, uint8_t byte) {
    __m128i wanted = _mm_set1_epi8((char)byte);
    uint64_t mask = 0;
    for (int i = 0; i < 4; i++) {
        __m128i lane = _mm_loadu_si128((const __m128i *)(at + 16 * i));
        mask |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(lane, wanted)) << (16 * i);
    }
    return mask;
}
#else
BT_INLINE uint64_t csv_mask64(const uint8_t *at, uint8_t byte) {
    uint64_t mask = 0;
    for (int i = 0; i < 8; i++) {
        uint64_t x = load64(at + 8 * i) ^ (0x0101010101010101u * byte);
        /* The high bit of each byte that is zero now; then the eight high bits side by side. */
        uint64_t low = x & 0x7f7f7f7f7f7f7f7fu;
        uint64_t zero = ~((low + 0x7f7f7f7f7f7f7f7fu) | x | 0x7f7f7f7f7f7f7f7fu);
        mask |= (((zero >> 7) * 0x0102040810204080u) >> 56) << (8 * i);
    }
    return mask;
}
#endif

#endif
