#include "fit.h"

#include "plain.h"
#include "utf8.h"

BT_INLINE bool value_fits(Span value, const FitRule *rule) {
    if (rule->value_bytes >= 0 && (uint64_t)rule->value_bytes != span_bytes(value)) return false;
    return !rule->is_text || bt_is_utf8(value.at, span_bytes(value));
}

static bool bytes_fit(Span values, const FitRule *rule, int64_t *count) {
    Span value;
    for (; values.at < values.end; ++*count) {
        if (!take_tagged_span(&values, TAG_1, &value)) return false;
        if (!value_fits(value, rule)) return false;
    }
    return true;
}

BT_INLINE bool ints_fit(Span values, const FitRule *rule, int64_t *count) {
    bool any = rule->low == INT64_MIN && rule->high == INT64_MAX;
    for (uint64_t value = 0; values.at < values.end; ++*count) {
        size_t bytes = plain_varint_bytes(values);
        if (!bytes) return false;
        if (any) {
            values.at += bytes;
            continue;
        }
        take_varint(&values, &value);
        if ((int64_t)value < rule->low || (int64_t)value > rule->high) return false;
    }
    return true;
}

BT_INLINE bool count_fits(int64_t count, const FitRule *rule) {
    return count >= rule->min_values && count <= rule->max_values;
}

static bool entry_fits(const PlainEntry *entry, const FitRule *rule) {
    int64_t count = 0;
    if (entry->kind != rule->kind) return false;
    if (entry->kind == BT_FLOATS) count = (int64_t)(span_bytes(entry->values) / 4);
    else if (entry->kind == BT_INTS && !ints_fit(entry->values, rule, &count)) return false;
    else if (entry->kind == BT_BYTES && !bytes_fit(entry->values, rule, &count)) return false;
    return count_fits(count, rule);
}

/* Names ascend in both, so one walk over both meets every pair and every order that is wrong. */
static bool record_fits(Span payload, const FitRule *rule, const FitRule *end) {
    Span features;
    PlainEntry entry;
    if (!plain_features(payload, &features)) return false;
    for (; features.at < features.end; rule++) {
        if (!take_plain_entry(&features, &entry)) return false;
        for (; rule < end && !same_bytes(rule->name, entry.key); rule++)
            if (rule->required) return false;
        if (rule == end || !entry_fits(&entry, rule)) return false;
    }
    for (; rule < end; rule++)
        if (rule->required) return false;
    return true;
}

int64_t bt_fitting_records(const uint8_t *data, size_t bytes, const int64_t *starts,
                           int64_t records, const FitRule *rules, int64_t rule_count) {
    int64_t record = 0;
    for (Span payload; record < records; record++) {
        if (!frame_payload(data, bytes, starts[record], &payload)) break;
        if (!record_fits(payload, rules, rules + rule_count)) break;
    }
    return record;
}
