#include "sqlite_rows.h"

#include "utf8.h"

/* SQLite's own numbers: results of a step, and fundamental types. */
enum { STEP_ROW = 100 };
enum { TYPE_INTEGER = 1, TYPE_FLOAT, TYPE_TEXT, TYPE_BLOB, TYPE_NULL };

static const double TWO_63 = 9223372036854775808.0;

void sqlite_rows_clear(SqliteRows *rows) {
    rows->row = 0;
    rows->column = 0;
    for (int32_t i = 0; i < rows->count; i++) {
        SqliteColumn *column = &rows->columns[i];
        memset(column->valid, 0, (size_t)(rows->capacity + 7) / 8);
        column->bytes.size = 0;
        column->nulls = 0;
        if (column->offsets) column->offsets[0] = 0;
    }
}

static void put_valid(SqliteColumn *column, int64_t row) {
    column->valid[row >> 3] |= (uint8_t)(1u << (row & 7));
}

static void put_null(SqliteColumn *column, int64_t row) {
    column->nulls++;
    if (column->numbers) column->numbers[row] = 0;
    if (column->offsets) column->offsets[row + 1] = column->offsets[row];
}

static bool put_real(SqliteColumn *column, int64_t row, double value) {
    memcpy(&column->numbers[row], &value, sizeof value);
    put_valid(column, row);
    return true;
}

static bool put_integer_as_real(SqliteColumn *column, int64_t row, int64_t value) {
    double real = (double)value;
    /* Rounding can carry the largest integers to 2^63, which no int64 is. */
    if (real >= TWO_63 || (int64_t)real != value) return false;
    return put_real(column, row, real);
}

/* SQLITE_FILL_FULL stands for: the value was put. */
static int put_bytes(SqliteRows *rows, SqliteColumn *column, bool is_text) {
    const SqliteCalls *calls = &rows->calls;
    int index = rows->column;
    /* The pointer first: asking for the size alone could convert the value. */
    const void *at = is_text ? calls->column_text(rows->statement, index)
                             : calls->column_blob(rows->statement, index);
    int size = calls->column_bytes(rows->statement, index);
    if (!at && size) return SQLITE_FILL_NO_MEMORY;
    if (is_text && !bt_is_utf8(at, (size_t)size)) return SQLITE_FILL_NO_UTF8;
    if (!vec_push(&column->bytes, at, (size_t)size)) return SQLITE_FILL_NO_MEMORY;
    if (column->bytes.size > INT32_MAX) return SQLITE_FILL_NO_MEMORY;
    column->offsets[rows->row + 1] = (int32_t)column->bytes.size;
    put_valid(column, rows->row);
    return SQLITE_FILL_FULL;
}

/* Puts one value; SQLITE_FILL_FULL stands for: go on. */
static int put_value(SqliteRows *rows) {
    SqliteColumn *column = &rows->columns[rows->column];
    const SqliteCalls *calls = &rows->calls;
    int type = calls->column_type(rows->statement, rows->column);
    if (type == TYPE_NULL) {
        put_null(column, rows->row);
        return SQLITE_FILL_FULL;
    }
    if (column->as == SQLITE_AS_INTEGER && type == TYPE_INTEGER) {
        column->numbers[rows->row] = calls->column_int64(rows->statement, rows->column);
        put_valid(column, rows->row);
        return SQLITE_FILL_FULL;
    }
    if (column->as == SQLITE_AS_REAL && type == TYPE_FLOAT) {
        put_real(column, rows->row, calls->column_double(rows->statement, rows->column));
        return SQLITE_FILL_FULL;
    }
    if (column->as == SQLITE_AS_REAL && type == TYPE_INTEGER) {
        int64_t value = calls->column_int64(rows->statement, rows->column);
        if (put_integer_as_real(column, rows->row, value)) return SQLITE_FILL_FULL;
    }
    if (column->as == SQLITE_AS_TEXT && type == TYPE_TEXT) return put_bytes(rows, column, true);
    if (column->as == SQLITE_AS_BLOB && type == TYPE_BLOB) return put_bytes(rows, column, false);
    put_null(column, rows->row);
    return SQLITE_FILL_MISFIT;
}

/* Tells whether a column has as many bytes as a batch should have. */
static bool is_heavy(const SqliteRows *rows) {
    size_t most = 0;
    for (int32_t i = 0; i < rows->count; i++) {
        size_t size = rows->columns[i].bytes.size;
        most = size > most ? size : most;
    }
    return most >= rows->max_bytes;
}

int sqlite_rows_fill(SqliteRows *rows) {
    while (rows->row < rows->capacity) {
        if (!rows->begun) {
            /* A step after the last one would start the statement anew. */
            if (rows->status && rows->status != STEP_ROW) return SQLITE_FILL_END;
            rows->status = rows->calls.step(rows->statement);
            if (rows->status != STEP_ROW) return SQLITE_FILL_END;
            rows->begun = true;
            rows->column = 0;
        }
        while (rows->column < rows->count) {
            int done = put_value(rows);
            /* A misfit is skipped; after any other failure nothing goes on. */
            if (done == SQLITE_FILL_FULL || done == SQLITE_FILL_MISFIT) rows->column++;
            if (done != SQLITE_FILL_FULL) return done;
        }
        rows->begun = false;
        rows->row++;
        if (is_heavy(rows)) break;
    }
    return SQLITE_FILL_FULL;
}
