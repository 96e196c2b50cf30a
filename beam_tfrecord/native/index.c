/* pread is hidden by -std=c11. */
#define _POSIX_C_SOURCE 200809L

#include "index.h"

#include <errno.h>
#include <unistd.h>

/* A shard is divided into cells of 2^10 bytes. So no more records than these begin in one. */
enum { CELL_SHIFT = 10, MOST_RECORDS = (1 << CELL_SHIFT) / BT_FRAME_BYTES };

/* Hash of the payload checksums of records: each one multiplies it and is added. */
static uint64_t next_check(uint64_t check, const uint8_t *record_end) {
    return check * 0x9E3779B97F4A7C15u + load32(record_end - 4);
}

int bt_index_records(const uint8_t *data, size_t data_bytes, const int64_t *starts, int64_t count,
                     int64_t record, int64_t offset, IndexState *state, Vec *entries) {
    for (int64_t i = 0; i < count; i++) {
        int64_t at = starts[i], end = i + 1 < count ? starts[i + 1] : (int64_t)data_bytes;
        if (at < 0 || end - at < BT_FRAME_BYTES || (uint64_t)end > data_bytes) return BT_MALFORMED;
        uint64_t cells = ((uint64_t)(offset + at) >> CELL_SHIFT) + 1;
        if (BT_UNLIKELY(cells != state->cells)) {
            if (state->cells && !vec_push(entries, &state->entry, sizeof state->entry))
                return BT_NO_MEMORY;
            *state = (IndexState){cells, {(uint64_t)(record + i), (uint64_t)(offset + at), 0}};
        }
        state->entry.check = next_check(state->entry.check, data + end);
    }
    return BT_OK;
}

/* Number of the last entry whose record is not after `record`; -1 if there is none. */
static int64_t last_entry(const ShardIndex *index, uint64_t record) {
    int64_t low = 0, high = index->count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (index->entries[middle].record <= record) low = middle + 1;
        else high = middle;
    }
    return low - 1;
}

static int fail(PickFault *fault, PickReason reason, int64_t record, int64_t offset) {
    *fault = (PickFault){record, offset, reason, 0};
    return BT_MALFORMED;
}

static int find_block(const ShardIndex *index, int64_t wanted, IndexBlock *block,
                      PickFault *fault) {
    int64_t at = last_entry(index, (uint64_t)wanted);
    if (at < 0) return fail(fault, PICK_INDEX, wanted, 0);
    IndexEntry begin = index->entries[at];
    IndexEntry end = {(uint64_t)index->records, (uint64_t)index->bytes, 0};
    if (at + 1 < index->count) end = index->entries[at + 1];
    *block = (IndexBlock){(int64_t)begin.record, (int64_t)end.record, (int64_t)begin.offset,
                          (int64_t)end.offset, begin.check};
    /* Without a limit, an index that lacks entries would have much read for a single record. */
    bool is_sound = begin.record <= (uint64_t)wanted && (uint64_t)wanted < end.record &&
                    end.record <= (uint64_t)index->records &&
                    end.record - begin.record <= MOST_RECORDS && begin.offset < end.offset &&
                    end.offset <= (uint64_t)index->bytes;
    return is_sound ? BT_OK : fail(fault, PICK_INDEX, wanted, at * (int64_t)sizeof begin);
}

int bt_find_blocks(const ShardIndex *index, const int64_t *wanted, int64_t count,
                   IndexBlock *blocks, PickFault *fault) {
    for (int64_t i = 0; i < count; i++) {
        int result = find_block(index, wanted[i], &blocks[i], fault);
        if (result != BT_OK) return result;
        if (i && (blocks[i].offset < blocks[i - 1].offset || blocks[i].end < blocks[i - 1].end))
            return fail(fault, PICK_INDEX, wanted[i], 0);
    }
    return BT_OK;
}

/* A block whose records fit the index, and where each begins in it. */
typedef struct {
    IndexBlock block;
    size_t starts[MOST_RECORDS];
} Walked;

static bool has_payload(const uint8_t *record) {
    size_t length = load64(record);
    const uint8_t *payload = record + BT_FRAME_HEAD;
    return load32(payload + length) == bt_masked_crc32c(payload, length);
}

/* The payload checksums of a block are not those of the index: one was damaged, or this is the
 * block of another shard with records of equal sizes. */
static int other_payloads(const uint8_t *data, const Walked *walked, PickFault *fault) {
    const IndexBlock *block = &walked->block;
    for (int64_t i = 0; i < block->next - block->first; i++)
        if (!has_payload(data + walked->starts[i]))
            return fail(fault, PICK_PAYLOAD_CRC, block->first + i,
                        block->offset + (int64_t)walked->starts[i]);
    return fail(fault, PICK_OTHER_BLOCK, block->first, block->offset);
}

/* Walks all records of a block, which find_block found sound, and compares them with the index. So
 * neither a wrong index nor another shard can give another record. */
static int walk_block(const uint8_t *data, const IndexBlock *block, Walked *walked,
                      PickFault *fault) {
    size_t at = 0, bytes = (size_t)(block->end - block->offset);
    uint64_t check = 0;
    for (int64_t record = block->first; record < block->next; record++) {
        int64_t offset = block->offset + (int64_t)at;
        if (bytes - at < BT_FRAME_BYTES) return fail(fault, PICK_OTHER_BLOCK, record, offset);
        if (load32(data + at + 8) != bt_masked_crc32c(data + at, 8))
            return fail(fault, PICK_LENGTH_CRC, record, offset);
        uint64_t length = load64(data + at);
        if (length > bytes - at - BT_FRAME_BYTES)
            return fail(fault, PICK_OTHER_BLOCK, record, offset);
        walked->starts[record - block->first] = at;
        at += length + BT_FRAME_BYTES;
        check = next_check(check, data + at);
    }
    if (at != bytes) return fail(fault, PICK_OTHER_BLOCK, block->first, block->offset);
    walked->block = *block;
    return check == block->check ? BT_OK : other_payloads(data, walked, fault);
}

/* Appends one record of a block that lies at `data`. */
static int pick(const uint8_t *data, const Walked *walked, int64_t wanted, Vec *out, Vec *starts,
                PickFault *fault) {
    size_t found = walked->starts[wanted - walked->block.first];
    const uint8_t *record = data + found;
    if (!has_payload(record))
        return fail(fault, PICK_PAYLOAD_CRC, wanted, walked->block.offset + (int64_t)found);
    if (!vec_push_int64(starts, (int64_t)out->size)) return BT_NO_MEMORY;
    return vec_push(out, record, load64(record) + BT_FRAME_BYTES) ? BT_OK : BT_NO_MEMORY;
}

static bool is_in(const IndexBlock *block, int64_t wanted) {
    return wanted >= block->first && wanted < block->next;
}

int bt_pick_records(const uint8_t *data, size_t data_bytes, const int64_t *positions,
                    const IndexBlock *blocks, const int64_t *wanted, int64_t count, Vec *out,
                    Vec *starts, PickFault *fault) {
    Walked walked = {0};
    for (int64_t i = 0; i < count; i++) {
        const IndexBlock *block = &blocks[i];
        int64_t size = block->end - block->offset;
        bool is_inside = positions[i] >= 0 && size > 0 && (uint64_t)positions[i] <= data_bytes &&
                         (uint64_t)size <= data_bytes - (uint64_t)positions[i] &&
                         is_in(block, wanted[i]) && block->next - block->first <= MOST_RECORDS;
        if (!is_inside) return fail(fault, PICK_OTHER_BLOCK, wanted[i], block->offset);
        int result = BT_OK;
        if (!i || block->first != walked.block.first)
            result = walk_block(data + positions[i], block, &walked, fault);
        if (result == BT_OK)
            result = pick(data + positions[i], &walked, wanted[i], out, starts, fault);
        if (result != BT_OK) return result;
    }
    return BT_OK;
}

static int read_block(int file, const IndexBlock *block, Vec *data, PickFault *fault) {
    size_t size = (size_t)(block->end - block->offset);
    data->size = 0;
    if (!vec_reserve(data, size)) return BT_NO_MEMORY;
    while (data->size < size) {
        off_t at = (off_t)(block->offset + (int64_t)data->size);
        ssize_t got = pread(file, data->data + data->size, size - data->size, at);
        if (got == 0) return fail(fault, PICK_END, block->first, (int64_t)at);
        if (got > 0) data->size += (size_t)got;
        if (got < 0 && errno != EINTR) {
            *fault = (PickFault){block->first, block->offset, PICK_SYSTEM, errno};
            return BT_MALFORMED;
        }
    }
    return BT_OK;
}

int bt_read_records(int file, const ShardIndex *index, const int64_t *wanted, int64_t count,
                    Vec *out, Vec *starts, PickFault *fault) {
    Vec data = {0};
    Walked walked = {0};
    int result = BT_OK;
    for (int64_t i = 0; i < count && result == BT_OK; i++) {
        /* Of a slice, many records are in one block. */
        if (!is_in(&walked.block, wanted[i])) {
            IndexBlock block;
            result = find_block(index, wanted[i], &block, fault);
            if (result == BT_OK) result = read_block(file, &block, &data, fault);
            if (result == BT_OK) result = walk_block(data.data, &block, &walked, fault);
        }
        if (result == BT_OK) result = pick(data.data, &walked, wanted[i], out, starts, fault);
    }
    vec_free(&data);
    return result;
}
