/* Examples in the plain form that encoders write, read without looking at anything twice.
 *
 * Plain is: one Features message; map entries of a key and then a value; at most one list in each
 * value; numbers packed in one piece; every size in its shortest form; no unknown field. What is
 * not plain may still be an Example: `example.h` reads all of them. */
#ifndef BT_PLAIN_H
#define BT_PLAIN_H

#include "example.h"
#include "vec.h"

/* Tags of the fields with a span: number << 3 | 2. */
enum { TAG_1 = 0x0a, TAG_2 = 0x12, TAG_3 = 0x1a };

typedef struct {
    Span key; /* not known to be UTF-8 */
    int kind; /* BT_NO_KIND if none is set */
    Span values; /* varints, le32 words, or spans of bytes each with its tag and size */
} PlainEntry;

/* Takes a size in its shortest form and that many bytes. */
BT_INLINE bool take_plain_span(Span *from, Span *taken) {
    uint64_t bytes;
    if (BT_LIKELY(from->at < from->end && *from->at < 0x80)) bytes = *from->at++;
    else if (!take_varint(from, &bytes) || from->at[-1] == 0 || bytes > INT32_MAX) return false;
    if (bytes > span_bytes(*from)) return false;
    *taken = (Span){from->at, from->at + bytes};
    from->at = taken->end;
    return true;
}

BT_INLINE bool take_tagged_span(Span *from, uint8_t tag, Span *taken) {
    if (from->at == from->end || *from->at != tag) return false;
    from->at++;
    return take_plain_span(from, taken);
}

/* A message that is one field and nothing else. */
BT_INLINE bool take_only_span(Span message, uint8_t tag, Span *taken) {
    return take_tagged_span(&message, tag, taken) && message.at == message.end;
}

BT_INLINE bool plain_features(Span payload, Span *features) {
    return span_bytes(payload) <= INT32_MAX && take_only_span(payload, TAG_1, features);
}

/* Takes a map entry off the features; false if it is not plain. */
BT_INLINE bool take_plain_entry(Span *features, PlainEntry *entry) {
    Span message, value, list;
    if (!take_tagged_span(features, TAG_1, &message)) return false;
    if (!take_tagged_span(&message, TAG_1, &entry->key)) return false;
    if (!take_only_span(message, TAG_2, &value)) return false;
    entry->kind = BT_NO_KIND;
    entry->values = value;
    if (value.at == value.end) return true;
    uint8_t tag = *value.at;
    if (tag != TAG_1 && tag != TAG_2 && tag != TAG_3) return false;
    if (!take_only_span(value, tag, &list)) return false;
    entry->kind = tag >> 3;
    entry->values = list;
    if (list.at == list.end || entry->kind == BT_BYTES) return true;
    if (!take_only_span(list, TAG_1, &entry->values)) return false;
    size_t bytes = span_bytes(entry->values);
    return bytes != 0 && (entry->kind == BT_INTS || bytes % 4 == 0);
}

/* Bytes of the varint at the front; 0 if it is cut off, too long, or not the shortest of its
 * value. A tenth byte holds one bit. */
BT_INLINE size_t plain_varint_bytes(Span values) {
    const uint8_t *at = values.at;
    while (at < values.end && *at >= 0x80) at++;
    size_t bytes = (size_t)(at - values.at) + 1;
    if (at == values.end || bytes > 10 || (bytes > 1 && *at == 0)) return 0;
    return bytes == 10 && *at != 1 ? 0 : bytes;
}

/* Number of the values; -1 if they are not plain themselves. */
BT_INLINE int64_t plain_values(const PlainEntry *entry) {
    Span values = entry->values, value;
    int64_t count = 0;
    if (entry->kind == BT_FLOATS) return (int64_t)(span_bytes(values) / 4);
    for (; values.at < values.end; count++) {
        if (entry->kind == BT_BYTES) {
            if (!take_tagged_span(&values, TAG_1, &value)) return -1;
        } else {
            size_t bytes = plain_varint_bytes(values);
            if (!bytes) return -1;
            values.at += bytes;
        }
    }
    return count;
}

/* Keys in the order in which records have had them: the next key is mostly the next of these. */
typedef struct {
    Span key; /* in the data; good UTF-8 */
    int64_t column;
} KnownKey;

typedef struct {
    Vec keys;      /* of KnownKey */
    int64_t next;  /* where the next key is looked for */
} KeyOrder;

/* A record seldom lacks more features in a row than this. */
enum { LOOK_AHEAD = 4 };

BT_INLINE bool same_bytes(Span a, Span b) {
    size_t bytes = span_bytes(a);
    return bytes == span_bytes(b) && (!bytes || !memcmp(a.at, b.at, bytes));
}

/* The known key that equals this one, looked for from `next` on; NULL if it is not there. */
BT_INLINE const KnownKey *next_known_key(KeyOrder *order, Span key) {
    const KnownKey *keys = (const KnownKey *)order->keys.data;
    int64_t count = (int64_t)(order->keys.size / sizeof *keys);
    int64_t stop = count - order->next > LOOK_AHEAD ? order->next + LOOK_AHEAD : count;
    for (int64_t i = order->next; i < stop; i++) {
        if (!same_bytes(keys[i].key, key)) continue;
        order->next = i + 1;
        return &keys[i];
    }
    return NULL;
}

/* Puts the key where it was looked for, in place of the one that was there. */
static inline bool expect_key(KeyOrder *order, KnownKey known) {
    size_t at = (size_t)order->next++ * sizeof known;
    if (at == order->keys.size) return vec_push(&order->keys, &known, sizeof known);
    memcpy(order->keys.data + at, &known, sizeof known);
    return true;
}

#endif
