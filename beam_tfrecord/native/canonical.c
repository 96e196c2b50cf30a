/* Any form of an Example into its one canonical form. */
#include "column.h"
#include "decode.h"
#include "plain.h"
#include "utf8.h"
#include "xxh64.h"

static int compare_bytes(Span a, Span b) {
    size_t a_bytes = span_bytes(a), b_bytes = span_bytes(b);
    size_t common = a_bytes < b_bytes ? a_bytes : b_bytes;
    int order = common ? memcmp(a.at, b.at, common) : 0;
    return order ? order : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

/* Equal keys keep their order in the payload, so that the last of them is the last. */
static int compare_keys(const void *left, const void *right) {
    const FeatureView *a = left, *b = right;
    int order = compare_bytes(a->key, b->key);
    return order ? order : (a->entry.at > b->entry.at) - (a->entry.at < b->entry.at);
}

/* Bytes of the list message. */
static uint64_t list_bytes(const FeatureView *feature) {
    uint64_t packed = (uint64_t)feature->packed_bytes;
    if (feature->kind != BT_BYTES) return packed ? 1 + varint_bytes(packed) + packed : 0;
    uint64_t sum = packed + (uint64_t)feature->values;
    ChunkWalk walk = bt_walk_chunks(feature);
    Span chunk;
    while (bt_next_chunk(&walk, &chunk)) sum += varint_bytes(span_bytes(chunk));
    return sum;
}

static uint64_t key_header_bytes(const FeatureView *feature) {
    return 1 + varint_bytes(span_bytes(feature->key)) + span_bytes(feature->key);
}

/* Bytes of the map entry with its own tag and size; a feature without a kind is empty. */
static uint64_t whole_entry_bytes(const FeatureView *feature, uint64_t inner, uint64_t *value,
                                  uint64_t *entry) {
    uint64_t header = key_header_bytes(feature);
    if (feature->kind != BT_NO_KIND) return entry_size(header, inner, value, entry);
    *value = 0;
    *entry = header + 2;
    return 1 + varint_bytes(*entry) + *entry;
}

static uint8_t *put_values(uint8_t *at, const FeatureView *feature) {
    ChunkWalk walk = bt_walk_chunks(feature);
    Span chunk;
    if (feature->kind != BT_BYTES && feature->packed_bytes) {
        *at++ = 0x0a;
        at = put_varint(at, (uint64_t)feature->packed_bytes);
    }
    while (bt_next_chunk(&walk, &chunk)) {
        uint64_t value;
        if (feature->kind == BT_INTS) {
            while (chunk.at < chunk.end && take_varint(&chunk, &value)) at = put_varint(at, value);
            continue;
        }
        if (feature->kind == BT_BYTES) {
            *at++ = 0x0a;
            at = put_varint(at, span_bytes(chunk));
        }
        memcpy(at, chunk.at, span_bytes(chunk));
        at += span_bytes(chunk);
    }
    return at;
}

static uint8_t *put_entry(uint8_t *at, const FeatureView *feature) {
    uint64_t value, entry, inner = list_bytes(feature);
    whole_entry_bytes(feature, inner, &value, &entry);
    *at++ = 0x0a;
    at = put_varint(at, entry);
    *at++ = 0x0a;
    at = put_varint(at, span_bytes(feature->key));
    memcpy(at, feature->key.at, span_bytes(feature->key));
    at += span_bytes(feature->key);
    *at++ = 0x12;
    at = put_varint(at, value);
    if (feature->kind == BT_NO_KIND) return at;
    *at++ = (uint8_t)(feature->kind << 3 | 2);
    at = put_varint(at, inner);
    return put_values(at, feature);
}

/* All entries of the payload by key, the last of equal ones only. */
static int read_sorted(Span payload, Vec *features) {
    EntryWalk walk = walk_entries(payload);
    Span entry;
    bool sorted = true;
    int found;
    while ((found = bt_next_entry(&walk, &entry)) == 1) {
        FeatureView feature;
        if (!bt_read_feature(entry, &feature)) return BT_MALFORMED;
        if (features->size) {
            const FeatureView *before = (FeatureView *)(features->data + features->size) - 1;
            sorted &= compare_bytes(before->key, feature.key) < 0;
        }
        if (!vec_push(features, &feature, sizeof feature)) return BT_NO_MEMORY;
    }
    if (found != 0) return BT_MALFORMED;
    if (sorted) return BT_OK;
    FeatureView *views = (FeatureView *)features->data;
    size_t count = features->size / sizeof *views, kept = 0;
    qsort(views, count, sizeof *views, compare_keys);
    for (size_t i = 0; i < count; i++)
        if (i + 1 == count || !same_bytes(views[i].key, views[i + 1].key)) views[kept++] = views[i];
    features->size = kept * sizeof *views;
    return BT_OK;
}

static int canonicalize_with(Span payload, Vec *features, Vec *out) {
    features->size = 0;
    int result = read_sorted(payload, features);
    if (result != BT_OK) return result;
    const FeatureView *views = (const FeatureView *)features->data;
    size_t count = features->size / sizeof *views;
    uint64_t sum = 0, value, entry;
    for (size_t i = 0; i < count; i++)
        sum += whole_entry_bytes(&views[i], list_bytes(&views[i]), &value, &entry);
    uint64_t total = 1 + varint_bytes(sum) + sum;
    if (!vec_reserve(out, total)) return BT_NO_MEMORY;
    uint8_t *at = out->data + out->size;
    *at++ = 0x0a;
    at = put_varint(at, sum);
    for (size_t i = 0; i < count; i++) at = put_entry(at, &views[i]);
    out->size += total;
    return BT_OK;
}

int bt_canonicalize(Span payload, Vec *out) {
    Vec features = {0};
    int result = canonicalize_with(payload, &features, out);
    vec_free(&features);
    return result;
}

/* Whether the payload is in canonical form already. A key of an earlier record is known to be
 * UTF-8. */
static bool is_canonical(Span payload, KeyOrder *order) {
    Span features, before = {0};
    PlainEntry entry;
    if (!plain_features(payload, &features)) return false;
    order->next = 0;
    while (features.at < features.end) {
        if (!take_plain_entry(&features, &entry) || !plain_values(&entry)) return false;
        if (before.at && compare_bytes(before, entry.key) >= 0) return false;
        if (!next_known_key(order, entry.key)) {
            if (!bt_is_utf8(entry.key.at, span_bytes(entry.key))) return false;
            if (!expect_key(order, (KnownKey){entry.key, 0})) return false;
        }
        before = entry.key;
    }
    return true;
}

int bt_canonical_hashes(const uint8_t *data, size_t bytes, const int64_t *starts, int64_t records,
                        uint64_t seed, uint64_t *hashes, int64_t *bad_record) {
    Vec features = {0}, canonical = {0};
    KeyOrder order = {0};
    int result = BT_OK;
    for (int64_t r = 0; r < records && result == BT_OK; r++) {
        Span payload;
        *bad_record = r;
        if (!frame_payload(data, bytes, starts[r], &payload)) {
            result = BT_MALFORMED;
            break;
        }
        Span hashed = payload;
        if (!is_canonical(payload, &order)) {
            canonical.size = 0;
            int parsed = canonicalize_with(payload, &features, &canonical);
            if (parsed == BT_NO_MEMORY) result = BT_NO_MEMORY;
            if (parsed == BT_OK) hashed = (Span){canonical.data, canonical.data + canonical.size};
        }
        hashes[r] = bt_xxh64(hashed.at, span_bytes(hashed), seed);
    }
    vec_free(&features);
    vec_free(&canonical);
    vec_free(&order.keys);
    return result;
}
