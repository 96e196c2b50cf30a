#include "xxh64.h"

static const uint64_t PRIME_1 = 0x9E3779B185EBCA87u;
static const uint64_t PRIME_2 = 0xC2B2AE3D27D4EB4Fu;
static const uint64_t PRIME_3 = 0x165667B19E3779F9u;
static const uint64_t PRIME_4 = 0x85EBCA77C2B2AE63u;
static const uint64_t PRIME_5 = 0x27D4EB2F165667C5u;

enum { STRIPE = 32 };

BT_INLINE uint64_t rotate(uint64_t x, int bits) { return (x << bits) | (x >> (64 - bits)); }

BT_INLINE uint64_t round_lane(uint64_t lane, uint64_t word) {
    return rotate(lane + word * PRIME_2, 31) * PRIME_1;
}

BT_INLINE void start_lanes(uint64_t lanes[4], uint64_t seed) {
    lanes[0] = seed + PRIME_1 + PRIME_2;
    lanes[1] = seed + PRIME_2;
    lanes[2] = seed;
    lanes[3] = seed - PRIME_1;
}

/* Takes whole stripes only; returns the first byte not taken. */
BT_INLINE const uint8_t *take_stripes(uint64_t lanes[4], const uint8_t *at, size_t bytes) {
    uint64_t a = lanes[0], b = lanes[1], c = lanes[2], d = lanes[3];
    for (; bytes >= STRIPE; at += STRIPE, bytes -= STRIPE) {
        a = round_lane(a, load64(at));
        b = round_lane(b, load64(at + 8));
        c = round_lane(c, load64(at + 16));
        d = round_lane(d, load64(at + 24));
    }
    lanes[0] = a;
    lanes[1] = b;
    lanes[2] = c;
    lanes[3] = d;
    return at;
}

BT_INLINE uint64_t merge_lanes(const uint64_t lanes[4]) {
    uint64_t hash = rotate(lanes[0], 1) + rotate(lanes[1], 7) + rotate(lanes[2], 12) +
                    rotate(lanes[3], 18);
    for (int i = 0; i < 4; i++) hash = (hash ^ round_lane(0, lanes[i])) * PRIME_1 + PRIME_4;
    return hash;
}

BT_INLINE uint64_t mix_word(uint64_t hash, uint64_t word) {
    return rotate(hash ^ round_lane(0, word), 27) * PRIME_1 + PRIME_4;
}

BT_INLINE uint64_t avalanche(uint64_t hash) {
    hash = (hash ^ (hash >> 33)) * PRIME_2;
    hash = (hash ^ (hash >> 29)) * PRIME_3;
    return hash ^ (hash >> 32);
}

/* Mixes in the last bytes, fewer than a stripe. */
BT_INLINE uint64_t finish(uint64_t hash, const uint8_t *at, size_t bytes) {
    for (; bytes >= 8; at += 8, bytes -= 8) hash = mix_word(hash, load64(at));
    if (bytes >= 4) {
        hash = rotate(hash ^ load32(at) * PRIME_1, 23) * PRIME_2 + PRIME_3;
        at += 4;
        bytes -= 4;
    }
    while (bytes--) hash = rotate(hash ^ *at++ * PRIME_5, 11) * PRIME_1;
    return avalanche(hash);
}

uint64_t bt_xxh64(const uint8_t *data, size_t bytes, uint64_t seed) {
    if (bytes < STRIPE) return finish(seed + PRIME_5 + bytes, data, bytes);
    uint64_t lanes[4];
    start_lanes(lanes, seed);
    const uint8_t *rest = take_stripes(lanes, data, bytes);
    return finish(merge_lanes(lanes) + bytes, rest, bytes % STRIPE);
}

void bt_xxh64_begin(Xxh64 *state, uint64_t seed) {
    memset(state, 0, sizeof *state);
    state->seed = seed;
    start_lanes(state->lanes, seed);
}

void bt_xxh64_update(Xxh64 *state, const uint8_t *data, size_t bytes) {
    if (!bytes) return;
    state->total_bytes += bytes;
    if (state->pending_bytes) {
        size_t missing = STRIPE - state->pending_bytes;
        size_t taken = bytes < missing ? bytes : missing;
        memcpy(state->pending + state->pending_bytes, data, taken);
        state->pending_bytes += taken;
        data += taken;
        bytes -= taken;
        if (state->pending_bytes < STRIPE) return;
        take_stripes(state->lanes, state->pending, STRIPE);
    }
    const uint8_t *rest = take_stripes(state->lanes, data, bytes);
    state->pending_bytes = bytes % STRIPE;
    memcpy(state->pending, rest, state->pending_bytes);
}

uint64_t bt_xxh64_digest(const Xxh64 *state) {
    uint64_t hash = state->total_bytes < STRIPE ? state->seed + PRIME_5 : merge_lanes(state->lanes);
    return finish(hash + state->total_bytes, state->pending, state->pending_bytes);
}

uint64_t bt_hash_origin(uint64_t unit, uint64_t row, uint64_t sub, uint64_t seed) {
    uint64_t hash = seed + PRIME_5 + 24;
    return avalanche(mix_word(mix_word(mix_word(hash, unit), row), sub));
}
