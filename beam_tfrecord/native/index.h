/* Index of a shard: finds single records by number, and copies them out of the shard's blocks.
 * docs/format.md describes the index. */
#ifndef BT_INDEX_H
#define BT_INDEX_H

#include "crc32c.h"
#include "vec.h"

/* The first record of a cell, and a hash of the payload checksums of all records that begin in it.
 * A block has these records: it lies between the offset of its entry and that of the next one. */
typedef struct {
    uint64_t record, offset, check;
} IndexEntry;

/* The cell of the last record that was indexed, 0 if none; and its entry so far. */
typedef struct {
    uint64_t cells;
    IndexEntry entry;
} IndexState;

typedef struct {
    const IndexEntry *entries;
    int64_t count;
    int64_t records, bytes; /* of the shard */
} ShardIndex;

/* A block: its first record, the one after its last, where it lies in the shard, and its hash. */
typedef struct {
    int64_t first, next, offset, end;
    uint64_t check;
} IndexBlock;

/* Adds the entries of all cells that end before the last of these records; `state` has the entry of
 * its cell. BT_MALFORMED if the records do not follow each other in the data.
 *
 * starts: where the records begin in the data, which has nothing else.
 * record, offset: number of the first of them, and where the data begins in the shard.
 */
int bt_index_records(const uint8_t *data, size_t data_bytes, const int64_t *starts, int64_t count,
                     int64_t record, int64_t offset, IndexState *state, Vec *entries);

typedef enum {
    PICK_LENGTH_CRC = 1,  /* the checksum of a length does not match */
    PICK_PAYLOAD_CRC = 2, /* the checksum of a payload does not match */
    PICK_OTHER_BLOCK = 3, /* the block does not have the records that the index says */
    PICK_INDEX = 4,       /* the index is damaged; `offset` is that of an entry in it */
    PICK_END = 5,         /* the file ends within the block */
    PICK_SYSTEM = 6       /* the file cannot be read; `error` is the errno */
} PickReason;

typedef struct {
    int64_t record, offset; /* of the shard, and in it */
    PickReason reason;
    int error;
} PickFault;

/* Block of each wanted record; these ascend. BT_MALFORMED: `fault` says where the index is wrong. */
int bt_find_blocks(const ShardIndex *index, const int64_t *wanted, int64_t count,
                   IndexBlock *blocks, PickFault *fault);

/* Appends the wanted framed records to `out`, and where each begins there to `starts`.
 *
 * data: the blocks; that of wanted[i] begins at `positions[i]`.
 * BT_MALFORMED: `fault` says what is wrong.
 */
int bt_pick_records(const uint8_t *data, size_t data_bytes, const int64_t *positions,
                    const IndexBlock *blocks, const int64_t *wanted, int64_t count, Vec *out,
                    Vec *starts, PickFault *fault);

/* Reads the wanted records, which ascend, from an open file, and appends them likewise. */
int bt_read_records(int file, const ShardIndex *index, const int64_t *wanted, int64_t count,
                    Vec *out, Vec *starts, PickFault *fault);

#endif
