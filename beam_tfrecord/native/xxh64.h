/* XXH64, from the specification "XXH64 algorithm" (xxHash specification 0.1.1). */
#ifndef BT_XXH64_H
#define BT_XXH64_H

#include "wire.h"

typedef struct {
    uint64_t lanes[4];
    uint64_t total_bytes;
    uint64_t seed;
    uint8_t pending[32]; /* a stripe that is not full yet */
    size_t pending_bytes;
} Xxh64;

uint64_t bt_xxh64(const uint8_t *data, size_t bytes, uint64_t seed);

void bt_xxh64_begin(Xxh64 *state, uint64_t seed);
void bt_xxh64_update(Xxh64 *state, const uint8_t *data, size_t bytes);
uint64_t bt_xxh64_digest(const Xxh64 *state);

/* Hash of le64(unit) || le64(row) || le64(sub): the origin of a row. */
uint64_t bt_hash_origin(uint64_t unit, uint64_t row, uint64_t sub, uint64_t seed);

#endif
