#include "fit.h"

#include "plain.h"
#include "utf8.h"

/* Equal names of known length, without the call that memcmp is for so few bytes. */
BT_INLINE bool same_name(const uint8_t *a, const uint8_t *b, size_t bytes) {
    for (; bytes >= 8; a += 8, b += 8, bytes -= 8)
        if (load64(a) != load64(b)) return false;
    for (; bytes; bytes--)
        if (*a++ != *b++) return false;
    return true;
}

/* Takes the entry of the rule if it is shorter than 128 bytes and has one packed list, or one
 * value of bytes: then every tag and size follows from the entry's own size. False: it may be any
 * other, and nothing is taken. */
BT_INLINE bool take_short_entry(Span *features, const FitRule *rule, Span *values) {
    const uint8_t *at = features->at;
    size_t room = span_bytes(*features), name = span_bytes(rule->name);
    if (room < 4 || name > 0x7f) return false;
    uint32_t entry = at[1], tag = (uint32_t)rule->kind << 3 | 2;
    /* Key and value with their tags and sizes, and in the value those of list and values. */
    if (entry >= 0x80 || entry + 2 > room || entry < name + 8) return false;
    uint32_t value = entry - (uint32_t)name - 4;
    if (load32(at) != (TAG_1 | entry << 8 | (uint32_t)TAG_1 << 16 | (uint32_t)name << 24))
        return false;
    if (!same_name(at + 4, rule->name.at, name)) return false;
    const uint8_t *inside = at + 4 + name;
    if (load32(inside) != (TAG_2 | value << 8 | tag << 16 | (value - 2) << 24)) return false;
    if (inside[4] != TAG_1 || inside[5] != value - 4) return false;
    *values = (Span){inside + 6, at + 2 + entry};
    features->at = values->end;
    return true;
}

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

/* What `take_short_entry` took. */
BT_INLINE bool short_fits(Span values, const FitRule *rule) {
    int64_t count = 1;
    size_t bytes = span_bytes(values);
    if (rule->kind == BT_BYTES) return value_fits(values, rule) && count_fits(count, rule);
    if (!bytes) return false;
    if (rule->kind == BT_FLOATS) return bytes % 4 == 0 && count_fits((int64_t)(bytes / 4), rule);
    count = 0;
    return ints_fit(values, rule, &count) && count_fits(count, rule);
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
    Span features, values;
    PlainEntry entry;
    if (!plain_features(payload, &features)) return false;
    for (; features.at < features.end; rule++) {
        if (BT_LIKELY(rule < end && take_short_entry(&features, rule, &values))) {
            if (!short_fits(values, rule)) return false;
            continue;
        }
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
