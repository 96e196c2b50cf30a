#include "example.h"

#include "utf8.h"

/* Wire types of protobuf. */
enum { WIRE_VARINT = 0, WIRE_8 = 1, WIRE_SPAN = 2, WIRE_GROUP = 3, WIRE_GROUP_END = 4, WIRE_4 = 5 };

/* Nesting that protobuf allows by default; groups in unknown fields are all that can nest. */
enum { MAX_DEPTH = 100 };

/* A tag is a 32-bit number in at most five bytes, its field number above 0. */
static bool take_tag(Span *from, uint32_t *field, unsigned *wire) {
    const uint8_t *begin = from->at;
    uint64_t tag;
    if (!take_varint(from, &tag) || tag > UINT32_MAX || from->at - begin > 5) return false;
    *field = (uint32_t)(tag >> 3);
    *wire = tag & 7;
    return *field != 0;
}

static bool take_bytes(Span *from, uint64_t bytes, Span *taken) {
    if (bytes > span_bytes(*from)) return false;
    *taken = (Span){from->at, from->at + bytes};
    from->at += bytes;
    return true;
}

static bool take_span(Span *from, Span *taken) {
    uint64_t bytes;
    return take_varint(from, &bytes) && bytes <= INT32_MAX && take_bytes(from, bytes, taken);
}

/* Passes over the value of a field that is not known, with all groups inside it. */
static bool skip_value(Span *from, uint32_t field, unsigned wire) {
    uint32_t groups[MAX_DEPTH];
    int depth = 0;
    for (;;) {
        uint64_t number;
        Span taken;
        switch (wire) {
        case WIRE_VARINT:
            if (!take_varint(from, &number)) return false;
            break;
        case WIRE_8:
            if (!take_bytes(from, 8, &taken)) return false;
            break;
        case WIRE_4:
            if (!take_bytes(from, 4, &taken)) return false;
            break;
        case WIRE_SPAN:
            if (!take_span(from, &taken)) return false;
            break;
        case WIRE_GROUP:
            if (depth == MAX_DEPTH) return false;
            groups[depth++] = field;
            break;
        case WIRE_GROUP_END:
            if (depth == 0 || groups[--depth] != field) return false;
            break;
        default: return false;
        }
        if (depth == 0) return true;
        if (!take_tag(from, &field, &wire)) return false;
    }
}

/* Takes fields off the message up to the next one of the given number that has a span.
 * 1 and the span, 0 at the end, BT_MALFORMED. */
static int next_span(Span *message, uint32_t wanted, Span *span, bool *skipped) {
    while (message->at < message->end) {
        uint32_t field;
        unsigned wire;
        if (!take_tag(message, &field, &wire)) return BT_MALFORMED;
        if (field == wanted && wire == WIRE_SPAN)
            return take_span(message, span) ? 1 : BT_MALFORMED;
        if (!skip_value(message, field, wire)) return BT_MALFORMED;
        *skipped = true;
    }
    return 0;
}

int bt_next_entry(EntryWalk *walk, Span *entry) {
    for (;;) {
        int found = next_span(&walk->features, 1, entry, &walk->skipped);
        if (found) return found;
        found = next_span(&walk->example, 1, &walk->features, &walk->skipped);
        if (found != 1) return found;
    }
}

/* Next of the three lists of a Feature message; its field number is its kind. */
static int next_list(Span *value, int *kind, Span *list, bool *skipped) {
    while (value->at < value->end) {
        uint32_t field;
        unsigned wire;
        if (!take_tag(value, &field, &wire)) return BT_MALFORMED;
        if (field >= BT_BYTES && field <= BT_INTS && wire == WIRE_SPAN) {
            *kind = (int)field;
            return take_span(value, list) ? 1 : BT_MALFORMED;
        }
        if (!skip_value(value, field, wire)) return BT_MALFORMED;
        *skipped = true;
    }
    return 0;
}

/* Next chunk of a list, packed or not. */
static int next_chunk_of_list(Span *list, int kind, Span *chunk, bool *skipped) {
    while (list->at < list->end) {
        uint32_t field;
        unsigned wire;
        if (!take_tag(list, &field, &wire)) return BT_MALFORMED;
        if (field == 1 && wire == WIRE_SPAN) {
            if (!take_span(list, chunk)) return BT_MALFORMED;
            return kind == BT_FLOATS && span_bytes(*chunk) % 4 ? BT_MALFORMED : 1;
        }
        const uint8_t *begin = list->at;
        if (!skip_value(list, field, wire)) return BT_MALFORMED;
        *chunk = (Span){begin, list->at};
        if (field == 1 && kind == BT_FLOATS && wire == WIRE_4) return 1;
        if (field == 1 && kind == BT_INTS && wire == WIRE_VARINT) return 1;
        *skipped = true;
    }
    return 0;
}

/* Adds what the list holds to the view. */
static bool count_list(Span list, FeatureView *feature) {
    Span chunk;
    int found;
    while ((found = next_chunk_of_list(&list, feature->kind, &chunk, &feature->skipped)) == 1) {
        if (feature->kind == BT_INTS) {
            while (chunk.at < chunk.end) {
                uint64_t value;
                if (!take_varint(&chunk, &value)) return false;
                feature->values++;
                feature->packed_bytes += varint_bytes(value);
            }
        } else {
            feature->values += feature->kind == BT_FLOATS ? (int64_t)(span_bytes(chunk) / 4) : 1;
            feature->packed_bytes += (int64_t)span_bytes(chunk);
        }
    }
    return found == 0;
}

/* Lists of one kind add up; one of another kind replaces all before it, as in any oneof. */
static bool count_value(Span value, FeatureView *feature, int64_t *lists) {
    Span list;
    int found, kind;
    while ((found = next_list(&value, &kind, &list, &feature->skipped)) == 1) {
        if (kind != feature->kind) {
            feature->kind = kind;
            feature->values = feature->packed_bytes = 0;
            feature->first_list = *lists;
        }
        (*lists)++;
        if (!count_list(list, feature)) return false;
    }
    return found == 0;
}

bool bt_read_feature(Span entry, FeatureView *feature) {
    int64_t lists = 0;
    *feature = (FeatureView){{entry.at, entry.at}, entry, BT_NO_KIND, 0, 0, 0, false};
    while (entry.at < entry.end) {
        uint32_t field;
        unsigned wire;
        Span value;
        if (!take_tag(&entry, &field, &wire)) return false;
        if (wire == WIRE_SPAN && field == 1) {
            if (!take_span(&entry, &feature->key)) return false;
            if (!bt_is_utf8(feature->key.at, span_bytes(feature->key))) return false;
        } else if (wire == WIRE_SPAN && field == 2) {
            if (!take_span(&entry, &value) || !count_value(value, feature, &lists)) return false;
        } else {
            if (!skip_value(&entry, field, wire)) return false;
            feature->skipped = true;
        }
    }
    return true;
}

ChunkWalk bt_walk_chunks(const FeatureView *feature) {
    const uint8_t *end = feature->entry.end;
    return (ChunkWalk){feature->entry, {end, end}, {end, end}, feature->kind, feature->first_list};
}

bool bt_next_chunk(ChunkWalk *walk, Span *chunk) {
    bool skipped;
    for (;;) {
        if (next_chunk_of_list(&walk->list, walk->kind, chunk, &skipped) == 1) return true;
        int kind;
        int found = next_list(&walk->value, &kind, &walk->list, &skipped);
        if (found != 1) {
            if (next_span(&walk->entry, 2, &walk->value, &skipped) != 1) return false;
            walk->list = (Span){walk->entry.end, walk->entry.end};
        } else if (walk->lists_to_skip > 0) {
            walk->lists_to_skip--;
            walk->list = (Span){walk->entry.end, walk->entry.end};
        }
    }
}
