/* The encoder's loop over blocks of rows: measure, place, write, seal. */
#include "encode.h"

#include "frames.h"

static const uint64_t MAX_PAYLOAD_BYTES = 0x7fffffff;

/* Rows written by all columns before they are sealed: as much as a level-2 cache holds. */
static const size_t SEAL_BYTES = 128 << 10;

/* Sizes kept per column and row during a block: as much as stays in a level-1 cache. */
static const int64_t BODIES = 6 << 10;

uint64_t bt_encode_bound(const Column *columns, int64_t column_count, int64_t rows) {
    /* Tag and size of Features, at most 6 bytes, are all that a row has beside its entries. */
    uint64_t bound = BT_SLACK + (uint64_t)rows * (BT_FRAME_BYTES + 6);
    for (int64_t c = 0; c < column_count; c++) bound += bt_column_bound(&columns[c], rows);
    return bound;
}

static bool reject_row(Encoding *encoding, int64_t row, int64_t column, int code) {
    RowReject reject = {row, column, code};
    return vec_push(&encoding->rejects, &reject, sizeof reject);
}

/* Keeps the rows of the block that have no fault, and lists the others. */
static bool choose_active(Encoding *encoding, Block *block) {
    block->active_rows = 0;
    for (int i = 0; i < block->rows; i++) {
        int64_t row = block->row + i;
        uint64_t features = block->features_bytes[i];
        uint64_t payload = 1 + varint_bytes(features) + features;
        if (encoding->skip && encoding->skip[row]) continue;
        if (BT_UNLIKELY(block->fault_code[i])) {
            if (!reject_row(encoding, row, block->fault_column[i], block->fault_code[i]))
                return false;
        } else if (BT_UNLIKELY(payload > MAX_PAYLOAD_BYTES)) {
            if (!reject_row(encoding, row, WHOLE_ROW, REJECT_TOO_LARGE)) return false;
        } else {
            block->active[block->active_rows++] = i;
        }
    }
    return true;
}

/* Gives active rows from `first` on their places until SEAL_BYTES are full; returns the number
 * of the first that got none, or `first` itself when `out` has no room for it. */
static int place_rows(Encoding *encoding, Block *block, int first) {
    size_t begin = encoding->at;
    int k = first;
    for (; k < block->active_rows && (k == first || encoding->at - begin < SEAL_BYTES); k++) {
        uint64_t features = block->features_bytes[block->active[k]];
        uint64_t payload = 1 + varint_bytes(features) + features;
        uint64_t room = encoding->out_bytes - encoding->at;
        if (BT_UNLIKELY(payload + BT_FRAME_BYTES + BT_SLACK > room)) return first;
        uint8_t *record = encoding->out + encoding->at;
        encoding->starts[encoding->records] = (int64_t)encoding->at;
        encoding->row_numbers[encoding->records++] = block->row + block->active[k];
        encoding->at += payload + BT_FRAME_BYTES;
        uint8_t *body = record + BT_FRAME_HEAD;
        *body++ = 0x0a;
        block->cursor[k] = put_varint(body, features);
    }
    return k;
}

/* Writes heads and checksums, which the wide copies of the rows may have scribbled on. */
static void seal_rows(Encoding *encoding, int64_t first_record) {
    for (int64_t r = first_record; r < encoding->records; r++) {
        size_t start = (size_t)encoding->starts[r];
        size_t end = r + 1 < encoding->records ? (size_t)encoding->starts[r + 1] : encoding->at;
        bt_seal(encoding->out + start, end - start - BT_FRAME_BYTES);
    }
}

static int encode_block(Encoding *encoding, Block *block, uint32_t *bodies) {
    memset(block->features_bytes, 0, sizeof block->features_bytes);
    memset(block->fault_code, 0, sizeof block->fault_code);
    for (int64_t c = 0; c < encoding->column_count; c++)
        bt_measure(&encoding->columns[c], block, bodies + c * block->rows);
    if (!choose_active(encoding, block)) return BT_NO_MEMORY;
    for (int first = 0, last; first < block->active_rows; first = last) {
        int64_t first_record = encoding->records;
        last = place_rows(encoding, block, first);
        if (last == first) return BT_NO_ROOM;
        for (int64_t c = 0; c < encoding->column_count; c++)
            bt_write(&encoding->columns[c], block, bodies + c * block->rows, first, last);
        seal_rows(encoding, first_record);
    }
    return BT_OK;
}

int bt_encode(Encoding *encoding) {
    int64_t block_rows = encoding->column_count ? BODIES / encoding->column_count : MAX_BLOCK_ROWS;
    if (block_rows > MAX_BLOCK_ROWS) block_rows = MAX_BLOCK_ROWS;
    if (block_rows < 8) block_rows = 8;
    size_t bodies_bytes = sizeof(uint32_t) * (size_t)(block_rows * (encoding->column_count + 1));
    Block *block = malloc(sizeof *block);
    uint32_t *bodies = malloc(bodies_bytes);
    int result = block && bodies ? BT_OK : BT_NO_MEMORY;
    for (int64_t row = 0; result == BT_OK && row < encoding->rows; row += block_rows) {
        int64_t left = encoding->rows - row;
        block->row = row;
        block->rows = (int)(left < block_rows ? left : block_rows);
        result = encode_block(encoding, block, bodies);
    }
    free(block);
    free(bodies);
    return result;
}
