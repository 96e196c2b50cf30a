/* Any form of an Example into its one canonical form. */
#include "canonical.h"

#include "column.h"
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

static bool add_view(ExampleView *example, const FeatureView *feature) {
    Vec *views = &example->views;
    if (views->size) {
        const FeatureView *before = (FeatureView *)(views->data + views->size) - 1;
        example->sorted &= compare_bytes(before->key, feature->key) < 0;
    }
    example->skipped |= feature->skipped;
    return vec_push(views, feature, sizeof *feature);
}

/* Reads an Example that is plain. A key of an earlier one is known to be UTF-8. False: it may be
 * anything else; so also if memory runs out, which the slow path then reports. */
static bool read_plain(ExampleView *example, Span payload) {
    Span features;
    PlainEntry entry;
    if (!plain_features(payload, &features)) return false;
    example->order.next = 0;
    while (features.at < features.end) {
        const uint8_t *begin = features.at;
        if (!take_plain_entry(&features, &entry)) return false;
        int64_t values = plain_values(&entry);
        if (values < 0) return false;
        if (!next_known_key(&example->order, entry.key)) {
            if (!bt_is_utf8(entry.key.at, span_bytes(entry.key))) return false;
            if (!expect_key(&example->order, (KnownKey){entry.key, 0})) return false;
        }
        FeatureView feature = {
            .key = entry.key, .entry = {begin, features.at}, .kind = entry.kind, .values = values};
        if (!add_view(example, &feature)) return false;
    }
    return true;
}

static void clear(ExampleView *example) {
    example->views.size = 0;
    example->sorted = true;
    example->skipped = false;
}

int bt_read_example(ExampleView *example, Span payload) {
    clear(example);
    example->plain = read_plain(example, payload);
    if (example->plain) return BT_OK;
    clear(example);
    EntryWalk walk = walk_entries(payload);
    Span entry;
    int found;
    while ((found = bt_next_entry(&walk, &entry)) == 1) {
        FeatureView feature;
        if (!bt_read_feature(entry, &feature)) return BT_MALFORMED;
        if (!add_view(example, &feature)) return BT_NO_MEMORY;
    }
    example->skipped |= walk.skipped;
    return found == 0 ? BT_OK : BT_MALFORMED;
}

/* Leaves the entries in order of their keys, the last of equal ones only. */
static void sort_views(ExampleView *example) {
    FeatureView *views = (FeatureView *)example->views.data;
    size_t count = example->views.size / sizeof *views, kept = 0;
    if (example->sorted) return;
    qsort(views, count, sizeof *views, compare_keys);
    for (size_t i = 0; i < count; i++)
        if (i + 1 == count || !same_bytes(views[i].key, views[i + 1].key)) views[kept++] = views[i];
    example->views.size = kept * sizeof *views;
}

/* Appends the canonical form of the Example that was read; the entries of a plain one are in it. */
static bool append_form(ExampleView *example, Vec *out) {
    sort_views(example);
    const FeatureView *views = (const FeatureView *)example->views.data;
    size_t count = example->views.size / sizeof *views;
    uint64_t sum = 0, value, entry;
    for (size_t i = 0; i < count; i++)
        sum += example->plain ? span_bytes(views[i].entry)
                              : whole_entry_bytes(&views[i], list_bytes(&views[i]), &value, &entry);
    uint64_t total = 1 + varint_bytes(sum) + sum;
    if (!vec_reserve(out, total)) return false;
    uint8_t *at = out->data + out->size;
    *at++ = 0x0a;
    at = put_varint(at, sum);
    for (size_t i = 0; i < count; i++) {
        if (!example->plain) {
            at = put_entry(at, &views[i]);
            continue;
        }
        memcpy(at, views[i].entry.at, span_bytes(views[i].entry));
        at += span_bytes(views[i].entry);
    }
    out->size += total;
    return true;
}

int bt_hash_example(ExampleView *example, Span payload, uint64_t seed, uint64_t *hash) {
    if (!example->plain || !example->sorted) {
        example->form.size = 0;
        if (!append_form(example, &example->form)) return BT_NO_MEMORY;
        payload = (Span){example->form.data, example->form.data + example->form.size};
    }
    *hash = bt_xxh64(payload.at, span_bytes(payload), seed);
    return BT_OK;
}

void bt_example_free(ExampleView *example) {
    vec_free(&example->views);
    vec_free(&example->order.keys);
    vec_free(&example->form);
}

int bt_canonicalize(const uint8_t *values, const int64_t *offsets, int64_t count, Vec *out,
                    int64_t *out_offsets, uint8_t *has_form) {
    ExampleView example = {0};
    int result = BT_OK;
    if (count && !vec_reserve(out, (size_t)(offsets[count] - offsets[0]))) return BT_NO_MEMORY;
    for (int64_t i = 0; i < count && result != BT_NO_MEMORY; i++) {
        Span payload = {values + offsets[i], values + offsets[i + 1]};
        result = bt_read_example(&example, payload);
        has_form[i] = result == BT_OK && !example.skipped;
        bool added = has_form[i] ? append_form(&example, out)
                                 : vec_push(out, payload.at, span_bytes(payload));
        if (!added) result = BT_NO_MEMORY;
        out_offsets[i + 1] = (int64_t)out->size;
    }
    bt_example_free(&example);
    return result == BT_NO_MEMORY ? result : BT_OK;
}

int bt_canonical_hashes(const uint8_t *data, size_t bytes, const int64_t *starts, int64_t records,
                        uint64_t seed, uint64_t *hashes, int64_t *bad_record) {
    ExampleView example = {0};
    int result = BT_OK;
    for (int64_t r = 0; r < records && result == BT_OK; r++) {
        Span payload;
        *bad_record = r;
        if (!frame_payload(data, bytes, starts[r], &payload)) {
            result = BT_MALFORMED;
            break;
        }
        result = bt_read_example(&example, payload);
        if (result == BT_OK) result = bt_hash_example(&example, payload, seed, &hashes[r]);
        if (result != BT_MALFORMED) continue;
        hashes[r] = bt_xxh64(payload.at, span_bytes(payload), seed);
        result = BT_OK;
    }
    bt_example_free(&example);
    return result;
}
