#include "decode.h"

#include "example.h"
#include "xxh64.h"

/* Finds the column of a key: by its position in the record before, else by hash. */
typedef struct {
    const DecodedColumn *columns;
    int64_t *slots; /* column numbers by hash of the name; -1 is free */
    uint64_t mask;
} ColumnIndex;

static bool same_bytes(Span a, Span b) {
    size_t bytes = span_bytes(a);
    return bytes == span_bytes(b) && (!bytes || !memcmp(a.at, b.at, bytes));
}

static uint64_t hash_name(Span name) { return bt_xxh64(name.at, span_bytes(name), 0); }

static int64_t find_column(const ColumnIndex *index, Span key) {
    for (uint64_t slot = hash_name(key) & index->mask;; slot = (slot + 1) & index->mask) {
        int64_t column = index->slots[slot];
        if (column < 0 || same_bytes(index->columns[column].name, key)) return column;
    }
}

static bool make_index(ColumnIndex *index, const DecodedColumn *columns, int64_t count) {
    uint64_t size = 8;
    while (size < 2 * (uint64_t)count) size *= 2;
    index->columns = columns;
    index->mask = size - 1;
    index->slots = malloc(size * sizeof *index->slots);
    if (!index->slots) return false;
    for (uint64_t slot = 0; slot < size; slot++) index->slots[slot] = -1;
    for (int64_t column = 0; column < count; column++) {
        uint64_t slot = hash_name(columns[column].name) & index->mask;
        while (index->slots[slot] >= 0) slot = (slot + 1) & index->mask;
        index->slots[slot] = column;
    }
    return true;
}

static bool append_ints(Vec *values, Span chunk) {
    while (chunk.at < chunk.end) {
        uint64_t value;
        if (!take_varint(&chunk, &value)) return true;
        store64(values->data + values->size, value);
        values->size += 8;
    }
    return true;
}

static bool append_values(DecodedColumn *column, const FeatureView *feature) {
    ChunkWalk walk = bt_walk_chunks(feature);
    Span chunk;
    if (column->kind == BT_INTS && !vec_reserve(&column->values, 8 * (size_t)feature->values))
        return false;
    while (bt_next_chunk(&walk, &chunk)) {
        if (column->kind == BT_INTS) {
            append_ints(&column->values, chunk);
        } else {
            if (!vec_push(&column->values, chunk.at, span_bytes(chunk))) return false;
            if (column->kind == BT_BYTES &&
                !vec_push_int64(&column->value_ends, (int64_t)column->values.size))
                return false;
        }
    }
    column->value_count += feature->values;
    return true;
}

/* Leaves in `views[c]` the last entry of each wanted name; `seen[c]` is the record it is of. */
static bool read_record(const ColumnIndex *index, Span payload, int64_t record,
                        FeatureView *views, int64_t *seen) {
    EntryWalk walk = walk_entries(payload);
    Span entry;
    int found;
    while ((found = bt_next_entry(&walk, &entry)) == 1) {
        FeatureView feature;
        if (!bt_read_feature(entry, &feature)) return false;
        int64_t column = find_column(index, feature.key);
        if (column < 0) continue;
        views[column] = feature;
        seen[column] = record;
    }
    return found == 0;
}

static int decode_records(const uint8_t *data, size_t bytes, const int64_t *starts,
                          int64_t records, DecodedColumn *columns, int64_t column_count,
                          const ColumnIndex *index, FeatureView *views, int64_t *seen,
                          DecodeFault *fault) {
    for (int64_t r = 0; r < records; r++) {
        Span payload;
        fault->record = r;
        if (!frame_payload(data, bytes, starts[r], &payload)) return BT_MALFORMED;
        if (!read_record(index, payload, r, views, seen)) return BT_MALFORMED;
        for (int64_t c = 0; c < column_count; c++) {
            DecodedColumn *column = &columns[c];
            bool present = seen[c] == r && views[c].kind != BT_NO_KIND;
            column->present[r] = present;
            if (present && views[c].kind != column->kind) {
                fault->column = c;
                fault->found_kind = views[c].kind;
                return BT_WRONG_KIND;
            }
            if (present && !append_values(column, &views[c])) return BT_NO_MEMORY;
            column->row_offsets[r + 1] = column->value_count;
        }
    }
    return BT_OK;
}

int bt_decode(const uint8_t *data, size_t bytes, const int64_t *starts, int64_t records,
              DecodedColumn *columns, int64_t column_count, DecodeFault *fault) {
    ColumnIndex index = {0};
    FeatureView *views = malloc(((size_t)column_count + 1) * sizeof *views);
    int64_t *seen = malloc(((size_t)column_count + 1) * sizeof *seen);
    int result = views && seen && make_index(&index, columns, column_count) ? BT_OK : BT_NO_MEMORY;
    for (int64_t c = 0; c < column_count && result == BT_OK; c++) {
        seen[c] = -1;
        columns[c].row_offsets[0] = 0;
        if (columns[c].kind == BT_BYTES && !vec_push_int64(&columns[c].value_ends, 0))
            result = BT_NO_MEMORY;
    }
    if (result == BT_OK)
        result = decode_records(data, bytes, starts, records, columns, column_count, &index, views,
                                seen, fault);
    free(views);
    free(seen);
    free(index.slots);
    return result;
}
