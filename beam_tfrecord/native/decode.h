/* Framed Examples back into columns, and what features they have. */
#ifndef BT_DECODE_H
#define BT_DECODE_H

#include "plain.h"

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

/* The double nearest to the shortest decimal that rounds to each float32. */
void bt_shortest_doubles(const float *values, int64_t count, double *out);

/* A feature seen in the records. */
typedef struct {
    Span name; /* in the data */
    int64_t record; /* last that has it, with these values of this kind */
    int64_t values;
    int64_t present;
    int64_t min_values;
    int64_t max_values;
    int kind;
    int record_kind;
} FoundFeature;

/* Numbers of keys, which lie in memory of others. */
typedef struct {
    Vec slots; /* of KnownKey: open addressing by hash; -1 is free, as at least half of them are */
    int64_t count;
} KeyTable;

typedef struct {
    Vec features; /* of FoundFeature, in order of appearance */
    KeyTable numbers; /* of `features` */
    Vec touched; /* int64: numbers of the features that the record has */
} Discovery;

/* Adds the features of the records, and sets the hash of the canonical form of each if `hashes` is
 * not NULL. BT_WRONG_KIND: one feature has two kinds. BT_MALFORMED also for a record with a field
 * that an Example lacks. */
int bt_discover(const uint8_t *data, size_t bytes, const int64_t *starts, int64_t records,
                Discovery *discovery, uint64_t seed, uint64_t *hashes, DecodeFault *fault);
void bt_discovery_free(Discovery *discovery);

#endif
