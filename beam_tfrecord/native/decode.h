/* Framed Examples back into columns, and what features they have. */
#ifndef BT_DECODE_H
#define BT_DECODE_H

#include "vec.h"

/* One wanted feature and, afterwards, all that the records hold of it. */
typedef struct {
    Span name;
    int kind;
    Vec values;       /* int64, float32 bits, or the bytes of all values */
    Vec value_ends;   /* int64, of bytes values only */
    int64_t *row_offsets; /* records + 1 of them, in values */
    uint8_t *present;     /* one per record */
    int64_t value_count;
} DecodedColumn;

typedef struct {
    int64_t record;
    int64_t column; /* if the kind is wrong */
    int found_kind;
} DecodeFault;

int bt_decode(const uint8_t *data, size_t bytes, const int64_t *starts, int64_t records,
              DecodedColumn *columns, int64_t column_count, DecodeFault *fault);

/* A feature seen in the records. */
typedef struct {
    uint64_t name_offset; /* in the names of the discovery */
    uint64_t name_bytes;
    uint64_t hash;
    int64_t record; /* last that has it, with these values of this kind */
    int64_t values;
    int64_t present;
    int64_t min_values;
    int64_t max_values;
    int kind;
    int record_kind;
} FoundFeature;

typedef struct {
    Vec features; /* of FoundFeature, in order of appearance */
    Vec names;
    Vec slots; /* int64: open addressing over `features` by hash of the name; -1 is free */
    Vec touched; /* int64: numbers of the features that the record has */
} Discovery;

/* Adds the features of the records, and sets the hash of the canonical form of each if `hashes` is
 * not NULL. BT_WRONG_KIND: one feature has two kinds. BT_MALFORMED also for a record with a field
 * that an Example lacks. */
int bt_discover(const uint8_t *data, size_t bytes, const int64_t *starts, int64_t records,
                Discovery *discovery, uint64_t seed, uint64_t *hashes, DecodeFault *fault);
void bt_discovery_free(Discovery *discovery);

#endif
