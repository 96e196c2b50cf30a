/* Fields of CSV text as Arrow columns, and as kinds for inference. */
#ifndef BT_CSV_COLUMNS_H
#define BT_CSV_COLUMNS_H

#include "csv_rows.h"
#include "csv_values.h"

/* What a column is read as. */
enum {
    CSV_AS_NULL,
    CSV_AS_BOOL,   /* one byte a value */
    CSV_AS_INT,    /* `width` bytes a value */
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
    uint8_t *valid; /* one byte a row */
    int8_t *sides;  /* of floats: on which side of the value the number lies, else 0 */
    int32_t *offsets;
    uint8_t *text; /* holds all the fields of the rows to come and 16 bytes more */
} CsvColumn;

typedef struct {
    CsvDialect dialect;
    CsvWords nulls;  /* null where a value of the column's type is expected */
    CsvWords always; /* null in every column */
    const uint8_t *data;
    size_t bytes;
    uint8_t *scratch; /* as large as the largest field that needs cleaning */
    bool checked;     /* the text is known to be UTF-8 without NUL */
} CsvText;

/* Fills rows `at`, `at` + 1, … of a column from a table of fields. A field that does not fit sets
 * `faults[row]` to `mark` where that is 0 still; a number that is hard to round is listed in
 * `hard`. Returns how many are listed. */
uint32_t csv_fill(const CsvText *text, const CsvRows *rows, CsvColumn *column, size_t at,
                  uint32_t mark, uint32_t *faults, uint32_t *hard);

/* Texts that are counted, where most other values of a column are none. */
enum { CSV_STRAYS = 3, CSV_STRAY_BYTES = 64, CSV_STRAYS_AHEAD = 64 };

/* What the values of a column are. */
typedef struct {
    uint32_t kinds;     /* a set */
    uint32_t strays;    /* different texts; more than CSV_STRAYS: nothing is counted any more */
    uint64_t values[7]; /* how many are of each kind before CSV_TEXT */
    uint64_t stray_values;
    uint32_t bytes[CSV_STRAYS];
    uint8_t words[CSV_STRAYS][CSV_STRAY_BYTES];
    uint64_t counts[CSV_STRAYS];
    uint64_t *nulls; /* how often each word for null was seen */
} CsvSeen;

/* Joins the values of one column of the table to what was seen. `found[i]` is the row where bit i
 * of the kinds was seen first, where it is new. */
void csv_collect(const CsvText *text, const CsvRows *rows, uint32_t column, CsvSeen *seen,
                 uint32_t found[9]);

#endif
