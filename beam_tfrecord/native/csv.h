/* CSV text: where rows end, their fields, and the fields as columns or as kinds for inference. */
#ifndef BT_CSV_H
#define BT_CSV_H

#include "wire.h"

typedef struct {
    uint8_t delimiter;
    uint8_t quote;
    uint8_t escape;
    bool quotes;  /* the dialect has a quote */
    bool escapes; /* the dialect has an escape */
    bool doubles; /* two quotes inside a quoted field mean one */
    bool comments; /* the dialect has a comment: it begins a line that is not a row */
    uint8_t comment;
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
    CSV_COMMENT,       /* a comment, up to its line end */
    CSV_STATES
};

/* What a piece does to one state it may be entered in. */
typedef struct {
    int32_t exit;      /* state after the last byte */
    int64_t rows;      /* rows that end here, blank lines left out */
    int64_t line_ends; /* row ends, those of blank lines too, but not those of comments */
    int64_t first;     /* where the first row of the piece starts; -1 if none does */
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

/* The flags ride on the size, so a piece of text must stay below 2^30 bytes. */
enum { CSV_WAS_QUOTED = 1 << 30, CSV_SIZE = (1 << 30) - 1 };
#define CSV_NEEDS_CLEANING 0x80000000u /* doubled quotes or escapes: see csv_clean */
/* In place of a field count: a quote never closes; text follows a closing quote. */
#define CSV_UNCLOSED UINT32_MAX
#define CSV_TRAILING (UINT32_MAX - 1)

typedef struct {
    uint32_t at;
    uint32_t size; /* with flags */
} CsvField;

typedef struct {
    CsvField *fields; /* column c of row r is at c * capacity + r */
    uint32_t *counts; /* fields each row really has; missing ones are empty, others left out */
    uint32_t *starts; /* where each row starts */
    uint32_t *stops;  /* behind its line end */
    uint32_t columns;
    uint32_t capacity; /* in rows */
    uint32_t rows;     /* filled in */
    bool keep_blank;   /* a blank line is a row with one empty field */
} CsvRows;

/* Takes whole rows from `at` on until the table is full, and returns where the next one starts.
 * Unless the text is final, a row must be followed by its line end, and CR by one byte more. */
size_t csv_rows(const CsvDialect *dialect, const uint8_t *data, size_t bytes, size_t at,
                bool final, CsvRows *rows);

/* Writes the meaning of a field that needs cleaning, never longer than the field; returns its
 * size. */
size_t csv_clean(const CsvDialect *dialect, const uint8_t *data, CsvField field, uint8_t *out);

/* What a field can be; a column collects the kinds of its fields as a set of bits. */
enum {
    CSV_NOTHING = 0, /* blank: no evidence */
    CSV_BOOL = 1,
    CSV_INT = 2,     /* an integer that a double holds exactly: up to 2^53 */
    CSV_BIG_INT = 4, /* any other int64 */
    CSV_FLOAT = 8,
    CSV_DATE = 16,
    CSV_TIME = 32,       /* date and time without a zone, no finer than 1 us */
    CSV_ZONED_TIME = 64, /* the same with a zone */
    CSV_TEXT = 128,
    CSV_EMPTY = 256, /* blank, but quoted: the empty text, where the column turns out to be text */
    CSV_WORD = 512,  /* a word for null, where the column turns out not to be text */
    CSV_KINDS = 10
};

/* Results of parsing: a hard number needs arbitrary precision to be rounded correctly. */
enum { CSV_GOOD, CSV_BAD, CSV_HARD };

/* Words that stand for null. `first` has a bit per byte that begins one of them. */
typedef struct {
    const uint8_t *text; /* all words, one after the other */
    const uint32_t *ends;
    uint32_t count;
    uint32_t longest;
    uint64_t first[4];
} CsvWords;

typedef struct {
    int64_t seconds; /* since 1970-01-01, in UTC if zoned */
    int32_t nanos;
    bool dated; /* no time of day was given */
    bool zoned;
} CsvTime;

/* Whether a word begins with the byte. */
BT_INLINE bool csv_may_be_word(const CsvWords *words, uint8_t byte) {
    return words->first[byte >> 6] >> (byte & 63) & 1;
}
bool csv_is_word(const CsvWords *words, const uint8_t *at, size_t bytes);

/* An integer as sign and magnitude; leading zeros are allowed. */
int csv_parse_int(const uint8_t *at, size_t bytes, bool *negative, uint64_t *magnitude);
/* A decimal number, nan or inf, correctly rounded; a finite number that rounds to infinity is
 * CSV_BAD. `side` is set to 1 or -1 if the number is greater or less than the value and the
 * value does not stand for it: written with as many digits (but for zeros at
 * the end) it would be another number. It is set
 * to 2 or -2 if the value stands for it, but is halfway between two float32. */
int csv_parse_double(const uint8_t *at, size_t bytes, double *value, int8_t *side);
int csv_parse_bool(const uint8_t *at, size_t bytes, bool *value);
/* YYYY-MM-DD, or that, T or a space, HH:MM[:SS[.fraction]][Z|+HH[[:]MM]]. */
int csv_parse_time(const uint8_t *at, size_t bytes, CsvTime *value);

/* The kind of a field's text; blanks around it do not count. */
int csv_kind(const uint8_t *at, size_t bytes);

/* Takes blanks (space, tab) from both ends; tells whether there were any. */
bool csv_trim(const uint8_t **at, size_t *bytes);

/* The 128 leading bits (high, low) of 5^q for q from -342 to 308, 651 pairs, that must be given
 * once before any number is parsed. */
void csv_set_powers_of_five(const uint64_t *powers);

/* What a column is read as. */
enum {
    CSV_AS_NULL,
    CSV_AS_BOOL,   /* one byte per value */
    CSV_AS_INT,    /* `width` bytes per value */
    CSV_AS_FLOAT,  /* float64, within the range of float32 */
    CSV_AS_DOUBLE, /* float64 */
    CSV_AS_DATE,   /* int32 days */
    CSV_AS_TIME,   /* int64 ticks */
    CSV_AS_TEXT,   /* UTF-8 without NUL; int32 offsets */
    CSV_AS_BYTES,  /* any bytes; int32 offsets */
    CSV_AS_WORDS   /* text in which the words for null are null, to be converted further */
};

typedef struct {
    int32_t as;
    uint32_t column; /* in the file */
    int32_t width;
    bool zoned;
    int64_t low;   /* least integer */
    uint64_t high; /* greatest integer */
    int64_t ticks; /* a second */
    void *values;
    uint8_t *valid; /* one byte per row */
    int8_t *sides;  /* of floats: on which side of the value the number lies, else 0 */
    int32_t *offsets;
    uint8_t *text; /* holds all the fields of the rows to come and 16 bytes more */
} CsvColumn;

typedef struct {
    CsvDialect dialect;
    CsvWords nulls;  /* null if a value of the column's type is expected */
    CsvWords always; /* null in every column */
    const uint8_t *data;
    size_t bytes;
    uint8_t *scratch; /* as large as the largest field that needs cleaning */
    bool checked;     /* the text is known to be UTF-8 without NUL */
} CsvText;

/* Fills rows `at`, `at` + 1, … of a column from a table of fields. A field that does not fit sets
 * `faults[row]` to `mark` if that is 0 still; a number that is hard to round is listed in
 * `hard`. Returns how many are listed. */
uint32_t csv_fill(const CsvText *text, const CsvRows *rows, CsvColumn *column, size_t at,
                  uint32_t mark, uint32_t *faults, uint32_t *hard);

/* Joins the kinds of the values in one column of the table to those that were `seen`. `found[i]` is
 * the row where bit i of the kinds was seen first, if it is new. */
void csv_collect(const CsvText *text, const CsvRows *rows, uint32_t column, uint32_t *seen,
                 uint32_t found[CSV_KINDS]);

#endif
