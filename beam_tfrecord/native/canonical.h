/* Examples of any form, and the one canonical form of each. */
#ifndef BT_CANONICAL_H
#define BT_CANONICAL_H

#include "plain.h"

/* What an Example holds; its memory serves one after the other. */
typedef struct {
    Vec views;      /* of FeatureView, for each map entry; that of a plain one has its tag and size */
    KeyOrder order; /* keys of plain Examples, in the data of those */
    Vec form;
    bool plain;
    bool sorted;  /* every key is above the one before */
    bool skipped; /* a field that an Example lacks, at any depth */
} ExampleView;

/* BT_MALFORMED: the payload is not an Example. */
int bt_read_example(ExampleView *example, Span payload);

/* XXH64 of the canonical form of the payload that was read, without fields that an Example lacks;
 * the views may be in another order afterwards. */
int bt_hash_example(ExampleView *example, Span payload, uint64_t seed, uint64_t *hash);
void bt_example_free(ExampleView *example);

/* Appends the canonical form of each value, or the value as it is if it has none: it is not an
 * Example, or has a field that an Example lacks. */
int bt_canonicalize(const uint8_t *values, const int64_t *offsets, int64_t count, Vec *out,
                    int64_t *out_offsets, uint8_t *has_form);

/* The hash of each payload as above, or of the payload as it is if it is not an Example. */
int bt_canonical_hashes(const uint8_t *data, size_t bytes, const int64_t *starts, int64_t records,
                        uint64_t seed, uint64_t *hashes, int64_t *bad_record);

#endif
