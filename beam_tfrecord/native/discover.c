/* Names, kinds and value counts of all features that records have. */
#include "decode.h"
#include "example.h"
#include "xxh64.h"

static FoundFeature *feature_at(Discovery *discovery, int64_t number) {
    return (FoundFeature *)discovery->features.data + number;
}

static int64_t feature_count(const Discovery *discovery) {
    return (int64_t)(discovery->features.size / sizeof(FoundFeature));
}

/* Slot that holds the feature or is free for it. */
static int64_t *find_slot(Discovery *discovery, uint64_t hash, Span key) {
    int64_t *slots = (int64_t *)discovery->slots.data;
    uint64_t mask = discovery->slots.size / sizeof(int64_t) - 1;
    for (uint64_t slot = hash & mask;; slot = (slot + 1) & mask) {
        if (slots[slot] < 0) return &slots[slot];
        const FoundFeature *feature = feature_at(discovery, slots[slot]);
        if (feature->hash != hash || feature->name_bytes != span_bytes(key)) continue;
        /* Without any name but the empty one there is no memory of names to point into. */
        if (!span_bytes(key) ||
            !memcmp(discovery->names.data + feature->name_offset, key.at, span_bytes(key)))
            return &slots[slot];
    }
}

/* Keeps at least half of the slots free, so that every search ends soon. */
static bool grow_slots(Discovery *discovery) {
    size_t size = discovery->slots.size / sizeof(int64_t);
    if ((size_t)feature_count(discovery) * 2 < size) return true;
    size_t grown = size ? size * 2 : 64;
    if (!vec_reserve(&discovery->slots, (grown - size) * sizeof(int64_t))) return false;
    discovery->slots.size = grown * sizeof(int64_t);
    int64_t *slots = (int64_t *)discovery->slots.data;
    for (size_t slot = 0; slot < grown; slot++) slots[slot] = -1;
    for (int64_t number = 0; number < feature_count(discovery); number++) {
        size_t slot = feature_at(discovery, number)->hash & (grown - 1);
        while (slots[slot] >= 0) slot = (slot + 1) & (grown - 1);
        slots[slot] = number;
    }
    return true;
}

/* The feature of that name, made where it is new; NULL without memory. */
static FoundFeature *find_feature(Discovery *discovery, Span key) {
    if (!grow_slots(discovery)) return NULL;
    uint64_t hash = bt_xxh64(key.at, span_bytes(key), 0);
    int64_t *slot = find_slot(discovery, hash, key);
    if (*slot < 0) {
        FoundFeature made = {.name_offset = discovery->names.size,
                             .name_bytes = span_bytes(key),
                             .hash = hash,
                             .record = -1};
        int64_t number = feature_count(discovery);
        if (!vec_push(&discovery->names, key.at, span_bytes(key))) return NULL;
        if (!vec_push(&discovery->features, &made, sizeof made)) return NULL;
        *slot = number;
    }
    return feature_at(discovery, *slot);
}

/* Adds what the record has of the feature to the sums; false where it changes the kind. */
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
static int read_record(Discovery *discovery, Span payload, int64_t record) {
    EntryWalk walk = walk_entries(payload);
    Span entry;
    int found;
    discovery->touched.size = 0;
    while ((found = bt_next_entry(&walk, &entry)) == 1) {
        FeatureView view;
        if (!bt_read_feature(entry, &view)) return BT_MALFORMED;
        FoundFeature *feature = find_feature(discovery, view.key);
        if (!feature) return BT_NO_MEMORY;
        int64_t number = feature - feature_at(discovery, 0);
        if (feature->record != record && !vec_push_int64(&discovery->touched, number))
            return BT_NO_MEMORY;
        feature->record = record;
        feature->record_kind = view.kind;
        feature->values = view.values;
    }
    return found == 0 ? BT_OK : BT_MALFORMED;
}

int bt_discover(const uint8_t *data, size_t bytes, const int64_t *starts, int64_t records,
                Discovery *discovery, DecodeFault *fault) {
    for (int64_t r = 0; r < records; r++) {
        Span payload;
        fault->record = r;
        if (!frame_payload(data, bytes, starts[r], &payload)) return BT_MALFORMED;
        int result = read_record(discovery, payload, r);
        if (result != BT_OK) return result;
        const int64_t *touched = (const int64_t *)discovery->touched.data;
        for (size_t i = 0; i < discovery->touched.size / sizeof *touched; i++) {
            fault->column = touched[i];
            if (!settle(feature_at(discovery, touched[i]))) return BT_WRONG_KIND;
        }
    }
    return BT_OK;
}

void bt_discovery_free(Discovery *discovery) {
    vec_free(&discovery->features);
    vec_free(&discovery->names);
    vec_free(&discovery->slots);
    vec_free(&discovery->touched);
}
