/* Feeds the readers of the kernel with broken bytes, and checks that their ways agree.
 *
 * Its inputs are those of broken_bytes.py: on stdin, or with libFuzzer (BT_LIBFUZZER) in a directory
 * of files, of which it mutates what covers new code. */
#include <stdio.h>
#include <stdlib.h>

#include "canonical.h"
#include "crc32c.h"
#include "csv.h"
#include "decode.h"
#include "fit.h"
#include "frames.h"
#include "index.h"
#include "xxh64.h"

enum { MOST_RECORDS = 8, COLUMNS = 4, MOST_INPUT = 1024 };

static long accepted; /* payloads that were Examples */
static long fitted;   /* those of them that the rules vouch for */

/* A copy that ends where its memory ends, so that a read behind it is caught. */
static uint8_t *copy_of(const uint8_t *bytes, size_t size) {
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy) abort();
    if (size) memcpy(copy, bytes, size);
    return copy;
}

static void must(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

typedef struct {
    DecodedColumn columns[COLUMNS];
    int64_t row_offsets[COLUMNS][MOST_RECORDS + 2];
    uint8_t present[COLUMNS][MOST_RECORDS + 2];
    int result;
} Decoded;

static void decode(Decoded *decoded, const uint8_t *data, size_t bytes, const int64_t *starts,
                   int64_t records) {
    static const char *const names[COLUMNS] = {"a", "i", "s", ""};
    static const int kinds[COLUMNS] = {BT_FLOATS, BT_INTS, BT_BYTES, BT_INTS};
    DecodeFault fault;
    memset(decoded, 0, sizeof *decoded);
    for (int c = 0; c < COLUMNS; c++) {
        const uint8_t *name = (const uint8_t *)names[c];
        decoded->columns[c].name = (Span){name, name + strlen(names[c])};
        decoded->columns[c].kind = kinds[c];
        decoded->columns[c].row_offsets = decoded->row_offsets[c];
        decoded->columns[c].present = decoded->present[c];
    }
    decoded->result =
        bt_decode(data, bytes, starts, records, decoded->columns, COLUMNS, &fault);
}

static void free_decoded(Decoded *decoded) {
    for (int c = 0; c < COLUMNS; c++) {
        vec_free(&decoded->columns[c].values);
        vec_free(&decoded->columns[c].value_ends);
    }
}

static bool same_vec(const Vec *a, const Vec *b) {
    return a->size == b->size && (!a->size || !memcmp(a->data, b->data, a->size));
}

static bool same_decoded(const Decoded *a, const Decoded *b) {
    for (int c = 0; c < COLUMNS; c++) {
        if (a->present[c][0] != b->present[c][0]) return false;
        if (a->row_offsets[c][1] != b->row_offsets[c][1]) return false;
        if (!same_vec(&a->columns[c].values, &b->columns[c].values)) return false;
        if (!same_vec(&a->columns[c].value_ends, &b->columns[c].value_ends)) return false;
    }
    return true;
}

#define NAME(text) {(const uint8_t *)(text), (const uint8_t *)(text) + sizeof(text) - 1}

/* How many records fit rules that the seeds of below mostly follow. */
static int64_t fitting(const uint8_t *data, size_t bytes, const int64_t *starts, int64_t records) {
    static const FitRule rules[] = {
        {NAME("a"), BT_FLOATS, false, false, 0, INT64_MAX, INT64_MIN, INT64_MAX, -1},
        {NAME("i"), BT_INTS, false, false, 0, 3, -1, 300, -1},
        {NAME("s"), BT_BYTES, false, true, 1, INT64_MAX, INT64_MIN, INT64_MAX, -1},
        {NAME("s!"), BT_BYTES, false, false, 0, 1, INT64_MIN, INT64_MAX, 2},
    };
    return bt_fitting_records(data, bytes, starts, records, rules, 4);
}

static uint8_t *framed(const uint8_t *payload, size_t bytes) {
    uint8_t *record = malloc(bytes + BT_FRAME_BYTES);
    if (!record) abort();
    if (bytes) memcpy(record + BT_FRAME_HEAD, payload, bytes);
    bt_seal(record, bytes);
    return record;
}

/* A payload hashes and decodes as its canonical form does, whichever way either is read. */
static void check_payload(const uint8_t *payload, size_t bytes) {
    uint8_t *record = framed(payload, bytes), *exact = copy_of(payload, bytes);
    int64_t start = 0, bad, offsets[] = {0, (int64_t)bytes}, ends[2];
    uint64_t hash, found_hash;
    uint8_t has_form;
    Vec canonical = {0};
    Discovery discovery = {0};
    DecodeFault fault;
    Decoded given, again;
    must(bt_canonicalize(exact, offsets, 1, &canonical, ends, &has_form) == BT_OK, "no memory");
    must(ends[1] == (int64_t)canonical.size, "a form of another size");
    must(bt_canonical_hashes(record, bytes + BT_FRAME_BYTES, &start, 1, 5, &hash, &bad) == BT_OK,
         "a framed payload has no hash");
    decode(&given, record, bytes + BT_FRAME_BYTES, &start, 1);
    int found = bt_discover(record, bytes + BT_FRAME_BYTES, &start, 1, &discovery, 5, &found_hash,
                            &fault);
    must((found == BT_OK) == has_form, "features are found in what has no canonical form");
    if (fitting(record, bytes + BT_FRAME_BYTES, &start, 1)) {
        must(has_form && canonical.size == bytes && !memcmp(canonical.data, exact, bytes),
             "what is not canonical fits");
        fitted++;
    }
    if (!has_form) {
        must(canonical.size == bytes && !memcmp(canonical.data, exact, bytes), "a changed payload");
        must(given.result != BT_MALFORMED || hash == bt_xxh64(exact, bytes, 5),
             "what is no Example is not hashed as it is");
    } else {
        accepted++;
        uint8_t *form = framed(canonical.data, canonical.size);
        must(hash == bt_xxh64(canonical.data, canonical.size, 5), "not the canonical hash");
        must(hash == found_hash, "another hash beside the features");
        decode(&again, form, canonical.size + BT_FRAME_BYTES, &start, 1);
        must(given.result == again.result, "the canonical form decodes otherwise");
        must(given.result != BT_OK || same_decoded(&given, &again), "other values");
        free_decoded(&again);
        free(form);
    }
    free_decoded(&given);
    bt_discovery_free(&discovery);
    vec_free(&canonical);
    free(record);
    free(exact);
}

/* The input as a stream of framed records and as a run; and one start that may be anything. */
static void read_stream(const uint8_t *data, size_t bytes) {
    int64_t starts[MOST_RECORDS + 1], order[MOST_RECORDS + 1], position, bad;
    uint64_t hashes[MOST_RECORDS + 1], sort_keys[MOST_RECORDS + 1] = {0};
    uint8_t out[2 * MOST_INPUT];
    size_t written;
    FrameScan scan = {0};
    Vec run_starts = {0}, run_places = {0};
    Discovery discovery = {0};
    DecodeFault fault;
    Decoded decoded;
    bt_scan_frames(data, bytes, bytes % 2, &scan);
    size_t next = bt_find_frame(data, bytes, bytes % 7);
    must(next == bytes || frame_payload(data, bytes, (int64_t)next, &(Span){0}),
         "what was found is no record");
    bt_scan_run(data, bytes, &run_starts, &run_places, &position);
    int64_t records = (int64_t)(scan.starts.size / 8);
    if (records > MOST_RECORDS) records = MOST_RECORDS;
    if (records) memcpy(starts, scan.starts.data, 8 * (size_t)records);
    if (bytes >= 8) starts[records++] = (int64_t)load64(data + bytes - 8);
    bt_hash_records(data, bytes, starts, records, 1, hashes, &bad);
    bt_canonical_hashes(data, bytes, starts, records, 1, hashes, &bad);
    bt_discover(data, bytes, starts, records, &discovery, 1, hashes, &fault);
    fitting(data, bytes, starts, records);
    decode(&decoded, data, bytes, starts, records);
    SortInput input = {data, bytes, starts, records, NULL, sort_keys, true};
    if (bt_sort_records(&input, order, &bad) == BT_OK)
        bt_gather(data, bytes, starts, records, sort_keys, order, records, out, sizeof out / 2,
                  &written, &bad);
    free_decoded(&decoded);
    bt_discovery_free(&discovery);
    vec_free(&scan.starts);
    vec_free(&run_starts);
    vec_free(&run_places);
}

/* Reads a record with an index; its bytes in the stream, or NULL if something is wrong. */
static const uint8_t *indexed(const uint8_t *data, size_t bytes, const ShardIndex *index,
                              int64_t wanted) {
    IndexBlock block;
    PickFault fault;
    Vec out = {0}, starts = {0};
    const uint8_t *found = NULL;
    if (bt_find_blocks(index, &wanted, 1, &block, &fault) == BT_OK &&
        bt_pick_records(data, bytes, &block.offset, &block, &wanted, 1, &out, &starts, &fault) ==
            BT_OK) {
        for (found = data + block.offset; memcmp(found, out.data, out.size);) found++;
    }
    vec_free(&out);
    vec_free(&starts);
    return found;
}

/* The input as a shard with its index, with an index that is wrong in one place, and as an index. */
static void read_indexed(const uint8_t *data, size_t bytes) {
    FrameScan scan = {0};
    Vec entries = {0};
    IndexState state = {0};
    bt_scan_frames(data, bytes, true, &scan);
    const int64_t *starts = (const int64_t *)scan.starts.data;
    int64_t records = (int64_t)(scan.starts.size / 8);
    bool indexed_all = bt_index_records(data, scan.consumed, starts, records, 0, 0, &state,
                                        &entries) == BT_OK;
    must(indexed_all, "the records are not indexed");
    if (records && !vec_push(&entries, &state.entry, sizeof state.entry)) abort();
    ShardIndex index = {(const IndexEntry *)entries.data, (int64_t)(entries.size / sizeof(IndexEntry)), records,
                        (int64_t)scan.consumed};
    for (int64_t i = 0; i < records; i++)
        must(indexed(data, scan.consumed, &index, i) != NULL, "a record is not found");
    if (records) {
        size_t at = bytes % (entries.size / 8) * 8;
        store64(entries.data + at, load64(entries.data + at) ^ load64(data + bytes - 8));
    }
    for (int64_t i = 0; i < records; i++) {
        const uint8_t *found = indexed(data, scan.consumed, &index, i);
        const uint8_t *right = data + starts[i];
        must(!found || !memcmp(found, right, load64(right) + BT_FRAME_BYTES), "another record");
    }
    vec_free(&scan.starts);
    vec_free(&entries);
    IndexEntry *any = malloc(bytes + 1);
    if (!any) abort();
    if (bytes) memcpy(any, data, bytes);
    index = (ShardIndex){any, (int64_t)(bytes / sizeof(IndexEntry)), INT64_MAX, INT64_MAX};
    for (size_t i = 0; i + 8 <= bytes; i += 8)
        indexed(data, bytes, &index, (int64_t)load64(data + i));
    free(any);
}

/* The input as CSV text: rows and lines are the same in number however they are found. */
static void read_csv(const uint8_t *data, size_t bytes) {
    static const uint8_t LETTERS[] = {',', ';', '"', '\'', '\\', '\n', '\n', '\r', 'x', 'y'};
    static const CsvDialect DIALECTS[] = {{',', '"', 0, true, false, true, false, 0},
                                          {';', '\'', '\\', true, true, false, false, 0},
                                          {',', 0, 0, false, false, false, false, 0},
                                          {',', '"', 0, true, false, true, true, 'y'}};
    CsvField fields[MOST_INPUT];
    uint32_t counts[MOST_INPUT], starts[MOST_INPUT], stops[MOST_INPUT];
    uint8_t *text = copy_of(data, bytes);
    int64_t lines = 0;
    for (size_t i = 0; i < bytes; i++) {
        text[i] = LETTERS[data[i] % sizeof LETTERS];
        lines += text[i] == '\r' || (text[i] == '\n' && !(i && text[i - 1] == '\r'));
    }
    must(csv_count_lines(text, bytes) == lines, "CSV has another number of lines");
    for (size_t d = 0; d < sizeof DIALECTS / sizeof DIALECTS[0]; d++) {
        CsvPassage passages[CSV_STATES];
        CsvRows rows = {fields, counts, starts, stops, 0, MOST_INPUT, 0, false};
        csv_scan(&DIALECTS[d], text, bytes, passages);
        const CsvPassage *all = &passages[CSV_ROW_START];
        bool is_open = all->exit != CSV_ROW_START && all->exit != CSV_CR &&
                       all->exit != CSV_COMMENT;
        must(csv_rows(&DIALECTS[d], text, bytes, 0, true, &rows) == bytes, "CSV is left over");
        must(rows.rows == all->rows + is_open, "CSV has another number of rows");
    }
    free(text);
}

/* Both ways of a checksum, at the edges of the lanes that only the processor's has. */
static void check_checksums(void) {
    static uint8_t bytes[7000];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * i >> 3);
    for (size_t size = 0; size < sizeof bytes; size += size < 70 ? 1 : 19)
        must(bt_crc32c(bytes, size) == bt_crc32c_portable(bytes, size), "another checksum");
    must(bt_crc32c((const uint8_t *)"123456789", 9) == 0xe3069283, "a wrong checksum");
}

/* Once: the tables take longer to make than an input to read. */
static void begin(void) {
    static bool begun;
    if (begun) return;
    bt_crc32c_init();
    check_checksums();
    begun = true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes > MOST_INPUT) return 0;
    begin();
    uint8_t *exact = copy_of(data, bytes);
    read_stream(exact, bytes);
    read_indexed(exact, bytes);
    read_csv(exact, bytes);
    check_payload(exact, bytes);
    free(exact);
    return 0;
}

#ifdef BT_LIBFUZZER

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);

/* Seals one mutation of four again, so that the readers behind the checksums are reached. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed) {
    size = LLVMFuzzerMutate(data, size, room);
    begin();
    for (size_t at = 0; seed % 4 == 0 && size - at >= BT_FRAME_BYTES;) {
        uint64_t length = load64(data + at);
        if (length > size - at - BT_FRAME_BYTES) break;
        bt_seal(data + at, length);
        at += length + BT_FRAME_BYTES;
    }
    return size;
}

#else

int main(void) {
    uint8_t size[2], input[UINT16_MAX];
    long inputs = 0;
    for (; fread(size, 1, 2, stdin) == 2; inputs++) {
        size_t bytes = size[0] | (size_t)size[1] << 8;
        must(fread(input, 1, bytes, stdin) == bytes, "an input is cut off");
        LLVMFuzzerTestOneInput(input, bytes);
    }
    printf("%ld inputs, %ld of them Examples, %ld as the rules say\n", inputs, accepted, fitted);
    return 0;
}

#endif
