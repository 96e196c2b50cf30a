/* Rows of a SQLite statement into Arrow's column buffers.
 *
 * Nothing is linked: the functions of the library that the process has loaded are handed over.
 * A value that is not of its column's kind stops the filling, so that the caller can look at it
 * while the statement still stands on its row.
 */
#ifndef BT_SQLITE_ROWS_H
#define BT_SQLITE_ROWS_H

#include "vec.h"

/* See sqlite3_step and sqlite3_column_* in SQLite's own documentation. */
typedef struct {
    int (*step)(void *);
    int (*column_type)(void *, int);
    int64_t (*column_int64)(void *, int);
    double (*column_double)(void *, int);
    const void *(*column_text)(void *, int);
    const void *(*column_blob)(void *, int);
    int (*column_bytes)(void *, int);
} SqliteCalls;

enum { SQLITE_AS_INTEGER, SQLITE_AS_REAL, SQLITE_AS_TEXT, SQLITE_AS_BLOB };

typedef struct {
    int32_t as;
    uint8_t *valid;   /* one bit per row, zero at first */
    int64_t *numbers; /* integers, or the bits of doubles */
    int32_t *offsets; /* of texts and blobs: one more than rows */
    Vec bytes;
    int64_t nulls;
} SqliteColumn;

typedef struct {
    SqliteCalls calls;
    void *statement;
    SqliteColumn *columns;
    int32_t count;
    int32_t column; /* where to go on in a row that was begun */
    int64_t row;
    int64_t capacity;
    size_t max_bytes;
    bool begun;
    int32_t status; /* of the last step; zero before the first */
} SqliteRows;

enum {
    SQLITE_FILL_FULL,
    SQLITE_FILL_END,
    SQLITE_FILL_MISFIT,
    SQLITE_FILL_NO_UTF8,
    SQLITE_FILL_NO_MEMORY
};

/* Begins an empty batch. */
void sqlite_rows_clear(SqliteRows *rows);

/* Fills the batch until it is full or no row is left; after a misfit, goes on after it. */
int sqlite_rows_fill(SqliteRows *rows);

#endif
