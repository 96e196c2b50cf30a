/* Arrow columns into framed, canonical tf.train.Examples. */
#ifndef BT_ENCODE_H
#define BT_ENCODE_H

#include "column.h"
#include "vec.h"

/* Why a row was not written; the numbers are known to Python too. */
enum {
    REJECT_NONE = 0,
    REJECT_INTEGER_OVERFLOW = 1,
    REJECT_FLOAT_OVERFLOW = 2,
    REJECT_INVALID_UTF8 = 3,
    REJECT_NULL_IN_LIST = 4,
    REJECT_TOO_LARGE = 5
};

/* Column of a reject that is the whole row's fault. */
enum { WHOLE_ROW = -1 };

typedef struct {
    int64_t row;
    int64_t column; /* in the batch's order, or WHOLE_ROW */
    int64_t code;
} RowReject;

typedef struct {
    Column *columns; /* in byte order of their names */
    int64_t column_count;
    int64_t rows;
    const uint8_t *skip; /* rows to leave out, or NULL */
    uint8_t *out;
    size_t out_bytes;
    size_t at; /* where the first record goes; afterwards the end of the last */
    int64_t *starts;
    int64_t *row_numbers;
    int64_t records;
    Vec rejects; /* of RowReject */
} Encoding;

/* Encodes all rows. BT_NO_ROOM: `out` is too short for them and BT_SLACK bytes more. */
int bt_encode(Encoding *encoding);

#endif
