/* Rows of CSV text as spans of their fields. */
#ifndef BT_CSV_ROWS_H
#define BT_CSV_ROWS_H

#include "csv_scan.h"

/* The flags ride on the size, so a piece of text must stay below 2^30 bytes. */
enum { CSV_WAS_QUOTED = 1 << 30, CSV_SIZE = (1 << 30) - 1 };
#define CSV_NEEDS_CLEANING 0x80000000u /* doubled quotes or escapes: see csv_clean */
#define CSV_UNCLOSED UINT32_MAX        /* in place of a field count: a quote never closes */

typedef struct {
    uint32_t at;
    uint32_t size; /* with flags */
} CsvField;

typedef struct {
    CsvField *fields; /* column c of row r is at c * capacity + r */
    uint32_t *counts; /* fields each row really has; missing ones are empty, others left out */
    uint32_t *starts; /* where each row starts */
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

#endif
