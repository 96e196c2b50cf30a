#include "decode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "canonical.h"
#include "utf8.h"
#include "xxh64.h"

/* The slot that holds the key or is free for it. */
static KnownKey *find_key(const KeyTable *table, Span key) {
    KnownKey *slots = (KnownKey *)table->slots.data;
    uint64_t mask = table->slots.size / sizeof *slots - 1;
    for (uint64_t slot = bt_xxh64(key.at, span_bytes(key), 0) & mask;; slot = (slot + 1) & mask)
        if (slots[slot].column < 0 || same_bytes(slots[slot].key, key)) return &slots[slot];
}

static bool grow(KeyTable *table) {
    KeyTable grown = {.count = table->count};
    size_t size = table->slots.size ? 2 * table->slots.size : 64 * sizeof(KnownKey);
    if (!vec_reserve(&grown.slots, size)) return false;
    grown.slots.size = size;
    memset(grown.slots.data, 0xff, size);
    const KnownKey *slots = (const KnownKey *)table->slots.data;
    for (size_t slot = 0; slot < table->slots.size / sizeof *slots; slot++)
        if (slots[slot].column >= 0) *find_key(&grown, slots[slot].key) = slots[slot];
    vec_free(&table->slots);
    *table = grown;
    return true;
}

/* Number of the key, the next one if it is new; -1 without memory. */
static int64_t number_key(KeyTable *table, Span key) {
    bool full = 2 * ((size_t)table->count + 1) * sizeof(KnownKey) > table->slots.size;
    if (full && !grow(table)) return -1;
    KnownKey *slot = find_key(table, key);
    if (slot->column < 0) *slot = (KnownKey){key, table->count++};
    return slot->column;
}

/* Appends the varints of a chunk that has been checked, to values with room for them. */
static void append_ints(Vec *values, Span chunk) {
    uint64_t value;
    while (chunk.at < chunk.end && take_varint(&chunk, &value)) {
        store64(values->data + values->size, value);
        values->size += 8;
    }
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

/* What decoding has of its own beside the columns. */
typedef struct {
    DecodedColumn *columns;
    int64_t column_count;
    KeyTable index; /* of the columns */
    KeyOrder order;
    FeatureView *views; /* last entry of each wanted name */
    int64_t *seen;      /* record that the column has last been seen in */
} Decoder;

/* At least as many as there are varints: counted if a guess could cost much memory. */
BT_INLINE size_t most_varints(Span values) {
    size_t bytes = span_bytes(values), ends = 0;
    if (bytes <= 64) return bytes;
    for (size_t i = 0; i < bytes; i++) ends += values.at[i] < 0x80;
    /* A last varint that is cut off has no end. */
    return ends + 1;
}

/* Appends the values of an entry that is plain; false if they are not good or not plain. */
BT_INLINE bool append_plain(DecodedColumn *column, const PlainEntry *entry) {
    Span values = entry->values, value;
    Vec *into = &column->values;
    if (values.at == values.end) return true;
    if (column->kind == BT_INTS) {
        if (!vec_reserve(into, 8 * most_varints(values))) return false;
        uint8_t *begin = into->data + into->size, *at = begin;
        for (uint64_t number; values.at < values.end; at += 8) {
            if (!take_varint(&values, &number)) return false;
            store64(at, number);
        }
        into->size += (size_t)(at - begin);
        column->value_count += (at - begin) / 8;
    } else if (column->kind == BT_FLOATS) {
        size_t bytes = span_bytes(values);
        if (!vec_reserve(into, bytes)) return false;
        if (bytes == 4) store32(into->data + into->size, load32(values.at));
        else memcpy(into->data + into->size, values.at, bytes);
        into->size += bytes;
        column->value_count += (int64_t)(bytes / 4);
    } else {
        while (values.at < values.end) {
            if (!take_tagged_span(&values, TAG_1, &value)) return false;
            if (!vec_push(into, value.at, span_bytes(value))) return false;
            if (!vec_push_int64(&column->value_ends, (int64_t)into->size)) return false;
            column->value_count++;
        }
    }
    return true;
}

/* Column of the key, -1 if it is not wanted, -2 if the key is not UTF-8. */
BT_INLINE int64_t column_of_key(Decoder *decoder, Span key) {
    const KnownKey *known = next_known_key(&decoder->order, key);
    if (BT_LIKELY(known != NULL)) return known->column;
    if (!bt_is_utf8(key.at, span_bytes(key))) return -2;
    KnownKey found = {key, find_key(&decoder->index, key)->column};
    return expect_key(&decoder->order, found) ? found.column : -2;
}

/* Appends a record that is plain. False: it may be anything else, and some of its values may have
 * been appended; so also if memory runs out, which the slow path then reports. */
static bool decode_plain(Decoder *decoder, Span payload, int64_t record) {
    Span features;
    PlainEntry entry;
    if (!plain_features(payload, &features)) return false;
    decoder->order.next = 0;
    while (features.at < features.end) {
        if (!take_plain_entry(&features, &entry)) return false;
        int64_t c = column_of_key(decoder, entry.key);
        if (c < -1) return false;
        if (c < 0) {
            if (plain_values(&entry) < 0) return false;
            continue;
        }
        DecodedColumn *column = &decoder->columns[c];
        if (decoder->seen[c] == record) return false;
        decoder->seen[c] = record;
        if (entry.kind == BT_NO_KIND) continue;
        if (entry.kind != column->kind || !append_plain(column, &entry)) return false;
        column->present[record] = 1;
    }
    return true;
}

/* Takes back what has been appended of the record. */
static void take_back(Decoder *decoder, int64_t record) {
    for (int64_t c = 0; c < decoder->column_count; c++) {
        DecodedColumn *column = &decoder->columns[c];
        int64_t count = column->row_offsets[record];
        decoder->seen[c] = -1;
        column->present[record] = 0;
        column->value_count = count;
        if (column->kind == BT_BYTES) {
            column->value_ends.size = (size_t)(count + 1) * 8;
            column->values.size = load64(column->value_ends.data + 8 * count);
        } else {
            column->values.size = (size_t)count * (column->kind == BT_INTS ? 8 : 4);
        }
    }
}

/* Leaves in `views[c]` the last entry of each wanted name. */
static bool read_record(Decoder *decoder, Span payload, int64_t record) {
    EntryWalk walk = walk_entries(payload);
    Span entry;
    int found;
    while ((found = bt_next_entry(&walk, &entry)) == 1) {
        FeatureView feature;
        if (!bt_read_feature(entry, &feature)) return false;
        int64_t column = find_key(&decoder->index, feature.key)->column;
        if (column < 0) continue;
        decoder->views[column] = feature;
        decoder->seen[column] = record;
    }
    return found == 0;
}

/* Appends a record of any form. */
static int decode_any(Decoder *decoder, Span payload, int64_t record, DecodeFault *fault) {
    if (!read_record(decoder, payload, record)) return BT_MALFORMED;
    for (int64_t c = 0; c < decoder->column_count; c++) {
        DecodedColumn *column = &decoder->columns[c];
        const FeatureView *view = &decoder->views[c];
        if (decoder->seen[c] != record || view->kind == BT_NO_KIND) continue;
        if (view->kind != column->kind) {
            fault->column = c;
            fault->found_kind = view->kind;
            return BT_WRONG_KIND;
        }
        if (!append_values(column, view)) return BT_NO_MEMORY;
        column->present[record] = 1;
    }
    return BT_OK;
}

static int decode_records(Decoder *decoder, const uint8_t *data, size_t bytes,
                          const int64_t *starts, int64_t records, DecodeFault *fault) {
    for (int64_t r = 0; r < records; r++) {
        Span payload;
        fault->record = r;
        if (!frame_payload(data, bytes, starts[r], &payload)) return BT_MALFORMED;
        if (!decode_plain(decoder, payload, r)) {
            take_back(decoder, r);
            int result = decode_any(decoder, payload, r, fault);
            if (result != BT_OK) return result;
        }
        for (int64_t c = 0; c < decoder->column_count; c++)
            decoder->columns[c].row_offsets[r + 1] = decoder->columns[c].value_count;
    }
    return BT_OK;
}

static bool begin_column(DecodedColumn *column, int64_t records) {
    column->row_offsets[0] = 0;
    memset(column->present, 0, (size_t)records);
    return column->kind != BT_BYTES || vec_push_int64(&column->value_ends, 0);
}

int bt_decode(const uint8_t *data, size_t bytes, const int64_t *starts, int64_t records,
              DecodedColumn *columns, int64_t column_count, DecodeFault *fault) {
    Decoder decoder = {.columns = columns, .column_count = column_count};
    decoder.views = malloc(((size_t)column_count + 1) * sizeof *decoder.views);
    decoder.seen = malloc(((size_t)column_count + 1) * sizeof *decoder.seen);
    bool ready = decoder.views && decoder.seen && grow(&decoder.index);
    for (int64_t c = 0; c < column_count && ready; c++) {
        decoder.seen[c] = -1;
        ready = number_key(&decoder.index, columns[c].name) == c &&
                begin_column(&columns[c], records);
    }
    int result = ready ? decode_records(&decoder, data, bytes, starts, records, fault)
                       : BT_NO_MEMORY;
    free(decoder.views);
    free(decoder.seen);
    vec_free(&decoder.index.slots);
    vec_free(&decoder.order.keys);
    return result;
}

/* Doubles that were rounded to float32. */

/* Those up to 10^22 are exact. */
static const double POWERS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,
                                1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17,
                                1e18, 1e19, 1e20, 1e21, 1e22, 1e23, 1e24};
enum { EXACT_POWER = 22 };

BT_INLINE double scaled(double value, int power) {
    if (power > EXACT_POWER) value *= POWERS[EXACT_POWER], power -= EXACT_POWER;
    if (power < -EXACT_POWER) value /= POWERS[EXACT_POWER], power += EXACT_POWER;
    return power < 0 ? value / POWERS[-power] : value * POWERS[power];
}

/* The double nearest to `whole` times a power of ten. */
BT_INLINE double decimal(double whole, int power) {
    if (BT_LIKELY(-EXACT_POWER <= power && power <= EXACT_POWER)) return scaled(whole, power);
    char text[32];
    snprintf(text, sizeof text, "%.0fe%d", whole, power);
    return strtod(text, NULL);
}

/* The same as `shortest` for numbers with fewer bits than others. */
static double shortest_subnormal(float value) {
    char text[32];
    for (int digits = 0;; digits++) {
        snprintf(text, sizeof text, "%.*e", digits, value);
        double found = strtod(text, NULL);
        if ((float)found == value || digits == 8) return found;
    }
}

/* The double nearest to the decimal of fewest digits that rounds to `value`, and of several to the
 * one nearest to `value`. */
static double shortest(float value) {
    float size = fabsf(value);
    if (size < 0x1p24f && size == (float)(int32_t)size) return value;
    uint32_t bits;
    memcpy(&bits, &size, sizeof bits);
    int exponent = (int)(bits >> 23) - 127; /* size is from 2^exponent to 2^(exponent + 1) */
    if (exponent == 128) return value;
    if (exponent == -127) return shortest_subnormal(value);
    /* Above a power of two the next float32 is twice as far away as below: there, a decimal may be
     * near enough that is not the nearest one. */
    int more = (bits & 0x7fffff) == 0;
    /* Size times 10^power has six digits, so that trailing zeros stand for fewer. */
    int power = 5 - ((exponent * 1233) >> 12);
    if (scaled(size, power) >= 1e6) power--;
    for (int digits = 6; digits <= 9; digits++, power++) {
        double exact = scaled(size, power), reach = exact * 0x1.001p-24;
        double whole = exact + 0x1.8p52 - 0x1.8p52;
        for (double end = whole + more; whole <= end; whole++) {
            /* Half the distance to the next float32 is at most size / 2^24. */
            if (fabs(whole - exact) > reach) continue;
            double found = decimal(whole, -power);
            if ((float)found == size) return copysign(found, value);
        }
    }
    return value;
}

void bt_shortest_doubles(const float *values, int64_t count, double *out) {
    for (int64_t i = 0; i < count; i++) out[i] = shortest(values[i]);
}

/* Names, kinds and value counts of all features that records have. */

static FoundFeature *feature_at(Discovery *discovery, int64_t number) {
    return (FoundFeature *)discovery->features.data + number;
}

/* The feature of that name, made if it is new; NULL without memory. */
static FoundFeature *find_feature(Discovery *discovery, Span key) {
    int64_t before = discovery->numbers.count, number = number_key(&discovery->numbers, key);
    FoundFeature made = {.name = key, .record = -1};
    if (number < 0) return NULL;
    if (number == before && !vec_push(&discovery->features, &made, sizeof made)) return NULL;
    return feature_at(discovery, number);
}

/* Adds what the record has of the feature to the sums; false if it changes the kind. */
static bool settle(FoundFeature *feature) {
    int kind = feature->record_kind;
    if (kind == BT_NO_KIND) return true;
    if (feature->kind != BT_NO_KIND && feature->kind != kind) return false;
    feature->kind = kind;
    if (!feature->present || feature->values < feature->min_values)
        feature->min_values = feature->values;
    if (feature->values > feature->max_values) feature->max_values = feature->values;
    feature->present++;
    return true;
}

/* Notes what the record has of each feature; of one name twice in a record the last counts. */
static int note_record(Discovery *discovery, const ExampleView *example, DecodeFault *fault) {
    const FeatureView *views = (const FeatureView *)example->views.data;
    discovery->touched.size = 0;
    for (size_t i = 0; i < example->views.size / sizeof *views; i++) {
        FoundFeature *feature = find_feature(discovery, views[i].key);
        if (!feature) return BT_NO_MEMORY;
        int64_t number = feature - feature_at(discovery, 0);
        if (feature->record != fault->record && !vec_push_int64(&discovery->touched, number))
            return BT_NO_MEMORY;
        feature->record = fault->record;
        feature->record_kind = views[i].kind;
        feature->values = views[i].values;
    }
    const int64_t *touched = (const int64_t *)discovery->touched.data;
    for (size_t i = 0; i < discovery->touched.size / sizeof *touched; i++) {
        fault->column = touched[i];
        if (!settle(feature_at(discovery, touched[i]))) return BT_WRONG_KIND;
    }
    return BT_OK;
}

int bt_discover(const uint8_t *data, size_t bytes, const int64_t *starts, int64_t records,
                Discovery *discovery, uint64_t seed, uint64_t *hashes, DecodeFault *fault) {
    ExampleView example = {0};
    int result = BT_OK;
    for (int64_t r = 0; r < records && result == BT_OK; r++) {
        Span payload;
        fault->record = r;
        result = BT_MALFORMED;
        if (!frame_payload(data, bytes, starts[r], &payload)) break;
        result = bt_read_example(&example, payload);
        if (result == BT_OK && example.skipped) result = BT_MALFORMED;
        if (result == BT_OK) result = note_record(discovery, &example, fault);
        if (result == BT_OK && hashes) result = bt_hash_example(&example, payload, seed, &hashes[r]);
    }
    bt_example_free(&example);
    return result;
}

void bt_discovery_free(Discovery *discovery) {
    vec_free(&discovery->features);
    vec_free(&discovery->numbers.slots);
    vec_free(&discovery->touched);
}
