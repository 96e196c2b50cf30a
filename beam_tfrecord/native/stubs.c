#include "stubs.h"

#include "files.h"
#include "frames.h"
#include "plain.h"

/* The parts of a stub that was found to be whole. */
typedef struct {
    uint64_t payload_bytes, file_bytes;
    uint32_t payload_crc;
    Span before, path, behind;
} Stub;

/* The only value of a feature, in the form that our encoder writes; false where there is none. */
static bool find_value(Span payload, Span key, Span *value) {
    Span features;
    PlainEntry entry;
    if (!plain_features(payload, &features)) return false;
    while (features.at < features.end) {
        if (!take_plain_entry(&features, &entry)) return false;
        if (!same_bytes(entry.key, key)) continue;
        if (entry.kind != BT_BYTES || entry.values.at == entry.values.end) return false;
        return take_tagged_span(&entry.values, TAG_1, value) && entry.values.at == entry.values.end;
    }
    return false;
}

int bt_push_stub(const StubInput *input, size_t least_bytes, Vec *out) {
    Span payload = input->payload, value = {payload.end, payload.end};
    size_t path_bytes = 0;
    if (input->path && find_value(payload, input->key, &value) && span_bytes(value) >= least_bytes)
        path_bytes = strlen(input->path) + 1;
    else value = (Span){payload.end, payload.end};
    size_t before = (size_t)(value.at - payload.at), behind = (size_t)(payload.end - value.end);
    size_t bytes = STUB_HEAD + before + path_bytes + behind;
    if (before > UINT32_MAX || path_bytes > UINT32_MAX) return BT_MALFORMED;
    if (!vec_reserve(out, bytes + BT_FRAME_BYTES)) return BT_NO_MEMORY;
    uint8_t *record = out->data + out->size, *at = record + BT_FRAME_HEAD;
    store64(at, span_bytes(payload));
    store32(at + 8, load32(payload.end)); /* the record's own checksum lies behind its payload */
    store32(at + 12, (uint32_t)before);
    store32(at + 16, (uint32_t)path_bytes);
    store64(at + 20, span_bytes(value));
    at += STUB_HEAD;
    memcpy(at, payload.at, before);
    if (path_bytes) memcpy(at + before, input->path, path_bytes);
    if (behind) memcpy(at + before + path_bytes, value.end, behind);
    bt_seal(record, bytes);
    out->size += bytes + BT_FRAME_BYTES;
    return BT_OK;
}

static bool open_stub(Span payload, Stub *stub) {
    size_t bytes = span_bytes(payload);
    if (bytes < STUB_HEAD) return false;
    uint64_t before = load32(payload.at + 12), path = load32(payload.at + 16);
    if (before + path > bytes - STUB_HEAD) return false;
    stub->payload_bytes = load64(payload.at);
    stub->payload_crc = load32(payload.at + 8);
    stub->file_bytes = load64(payload.at + 20);
    stub->before = (Span){payload.at + STUB_HEAD, payload.at + STUB_HEAD + before};
    stub->path = (Span){stub->before.end, stub->before.end + path};
    stub->behind = (Span){stub->path.end, payload.end};
    if (path ? stub->path.end[-1] != 0 : stub->file_bytes != 0) return false;
    /* No Example is larger, so none of these numbers adds up to more than fits. */
    if (stub->file_bytes > INT32_MAX || stub->payload_bytes > INT32_MAX) return false;
    return stub->payload_bytes == before + stub->file_bytes + span_bytes(stub->behind);
}

size_t bt_whole_bytes(Span payload) {
    Stub stub;
    return open_stub(payload, &stub) ? stub.payload_bytes + BT_FRAME_BYTES : 0;
}

Span bt_stub_path(Span payload) {
    Stub stub;
    if (!open_stub(payload, &stub) || !span_bytes(stub.path)) return (Span){payload.at, payload.at};
    return (Span){stub.path.at, stub.path.end - 1};
}

static int32_t make_one(Span payload, uint8_t *out, bool *was_slow) {
    Stub stub;
    if (!open_stub(payload, &stub)) return STUB_MALFORMED;
    uint8_t *at = out + BT_FRAME_HEAD;
    memcpy(at, stub.before.at, span_bytes(stub.before));
    at += span_bytes(stub.before);
    if (span_bytes(stub.path)) {
        /* One byte more may be written: the checksum will lie there, if nothing else does. */
        int32_t status =
            files_read_one((const char *)stub.path.at, (int64_t)stub.file_bytes, at, was_slow);
        if (status) return status;
        at += stub.file_bytes;
    }
    memcpy(at, stub.behind.at, span_bytes(stub.behind));
    bt_seal(out, stub.payload_bytes);
    /* The checksum is that of the record as it was encoded: a file that changed does not pass. */
    uint32_t found = load32(out + BT_FRAME_HEAD + stub.payload_bytes);
    return found == stub.payload_crc ? STUB_GOOD : STUB_OTHER_BYTES;
}

static bool payload_at(const StubList *list, int64_t position, Span *payload) {
    return frame_payload(list->data, list->bytes, list->starts[list->order[position]], payload);
}

static void want(const StubList *list, int64_t position) {
    Span payload;
    if (!payload_at(list, position, &payload)) return;
    Span path = bt_stub_path(payload);
    if (span_bytes(path)) files_want((const char *)path.at);
}

int32_t bt_make_whole(const StubList *list, uint8_t *out, int64_t *bad) {
    bool was_slow = false;
    int64_t wanted = 0;
    for (int64_t i = 0; i < list->count; i++) {
        Span payload;
        *bad = i;
        if (!payload_at(list, i, &payload)) return STUB_MALFORMED;
        if (wanted <= i) wanted = i + 1;
        while (was_slow && wanted < list->count && wanted <= i + FILES_AHEAD) want(list, wanted++);
        int32_t fault = make_one(payload, out, &was_slow);
        if (fault) return fault;
        out += bt_whole_bytes(payload);
    }
    return STUB_GOOD;
}
