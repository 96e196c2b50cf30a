/* tf.train.Example as it lies on the wire: any form that protobuf itself would accept. */
#ifndef BT_EXAMPLE_H
#define BT_EXAMPLE_H

#include "wire.h"

/* Map entries of all Features messages of an Example, in order. */
typedef struct {
    Span example;
    Span features;
    bool skipped; /* a field that an Example lacks, as of another message */
} EntryWalk;

BT_INLINE EntryWalk walk_entries(Span payload) {
    return (EntryWalk){payload, {payload.end, payload.end}, false};
}

/* 1 and the next map entry, 0 at the end, BT_MALFORMED. */
int bt_next_entry(EntryWalk *walk, Span *entry);

/* What one map entry holds. */
typedef struct {
    Span key;
    Span entry;
    int kind;             /* BT_NO_KIND if none is set */
    int64_t values;
    int64_t packed_bytes; /* ints: of their minimal varints; otherwise of the values themselves */
    int64_t first_list;   /* lists before it were replaced by one of another kind */
    bool skipped;         /* a field that a map entry lacks */
} FeatureView;

/* Reads and checks a whole map entry; false if it is malformed. */
bool bt_read_feature(Span entry, FeatureView *feature);

/* Values of a feature in chunks: for bytes one value, for floats any number of le32 words, for
 * ints any number of varints. */
typedef struct {
    Span entry;
    Span value;
    Span list;
    int kind;
    int64_t lists_to_skip;
} ChunkWalk;

ChunkWalk bt_walk_chunks(const FeatureView *feature);

/* False at the end. */
bool bt_next_chunk(ChunkWalk *walk, Span *chunk);

/* Takes a varint off the span; false if it is cut off or longer than ten bytes. */
BT_INLINE bool take_varint(Span *from, uint64_t *value) {
    if (BT_LIKELY(from->at < from->end && *from->at < 0x80)) {
        *value = *from->at++;
        return true;
    }
    uint64_t sum = 0;
    for (int i = 0; i < 10 && from->at < from->end; i++) {
        uint8_t byte = *from->at++;
        sum |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            *value = sum;
            return true;
        }
    }
    return false;
}

#endif
