#include "csv.h"

/* States are followed together: as soon as two of them agree they are one track from there on.
 * All of a dialect's states agree after a few fields, so the usual cost is that of one track. */
typedef struct {
    CsvPassage at;   /* exit is the state so far; rows and line_ends since the track began */
    bool found;      /* the first row start has been passed */
    uint32_t states; /* bit per entry state that follows this track */
} Track;

typedef struct {
    const uint8_t *data;
    size_t bytes;
    size_t base;      /* of this block */
    unsigned length;  /* of this block: 64, or less at the end */
    const uint8_t *block;
    uint64_t quote, cr, lf;
} Block;

/* Adds neighbours, then pairs, then fours: the instruction is not on every processor, and without
 * it the compiler calls a function that looks bytes up. */
BT_INLINE int64_t count_bits(uint64_t bits) {
    bits -= bits >> 1 & 0x5555555555555555;
    bits = (bits & 0x3333333333333333) + (bits >> 2 & 0x3333333333333333);
    bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0f;
    return (int64_t)(bits * 0x0101010101010101 >> 56);
}

BT_INLINE uint64_t from_bit(unsigned bit) { return bit >= 64 ? 0 : ~0ull << bit; }

BT_INLINE bool is_start(int state) {
    return state == CSV_ROW_START || state == CSV_FIELD_START || state == CSV_CR;
}

/* The state after a byte that stands for itself. */
BT_INLINE int state_after(const CsvDialect *dialect, uint8_t byte) {
    if (byte == dialect->delimiter) return CSV_FIELD_START;
    if (byte == '\n') return CSV_ROW_START;
    return byte == '\r' ? CSV_CR : CSV_UNQUOTED;
}

static int step(const CsvDialect *dialect, int state, uint8_t byte) {
    if (state == CSV_ESCAPE) return CSV_UNQUOTED;
    if (state == CSV_ESCAPE_QUOTED) return CSV_QUOTED;
    if (state == CSV_COMMENT && byte != '\n' && byte != '\r') return CSV_COMMENT;
    if (dialect->comments && byte == dialect->comment &&
        (state == CSV_ROW_START || state == CSV_CR))
        return CSV_COMMENT;
    if (state == CSV_QUOTED) {
        if (dialect->escapes && byte == dialect->escape) return CSV_ESCAPE_QUOTED;
        if (!dialect->quotes || byte != dialect->quote) return CSV_QUOTED;
        return dialect->doubles ? CSV_QUOTE_SEEN : CSV_UNQUOTED;
    }
    if (dialect->escapes && byte == dialect->escape) return CSV_ESCAPE;
    if (dialect->quotes && byte == dialect->quote && (is_start(state) || state == CSV_QUOTE_SEEN))
        return CSV_QUOTED;
    return state_after(dialect, byte);
}

/* The row that follows the line end at `at` starts here, if the piece holds its first byte. */
static void find_first(Track *track, const Block *block, size_t at) {
    size_t start = at + 1;
    if (block->data[at] == '\r' && start < block->bytes && block->data[start] == '\n') start++;
    if (start < block->bytes) track->at.first = (int64_t)start;
    track->found = true;
}

/* Line ends of an unquoted stretch [from, to) of the block that is entered in `state`. */
BT_INLINE void count_rows(Track *track, const Block *block, int state, unsigned from, unsigned to) {
    uint64_t stretch = from_bit(from) & ~from_bit(to);
    uint64_t ends = (block->cr | block->lf) & stretch;
    if (!ends) return;
    /* The first line end of a run of them ends a row; the others end blank lines. */
    uint64_t before = ends << 1, cr_before = (block->cr & stretch) << 1;
    if (state == CSV_ROW_START || state == CSV_CR) before |= 1ull << from;
    if (state == CSV_CR) cr_before |= 1ull << from;
    track->at.rows += count_bits(ends & ~before);
    track->at.line_ends += count_bits(ends & ~(block->lf & cr_before));
    if (!track->found) find_first(track, block, block->base + (size_t)__builtin_ctzll(ends));
}

/* The quote at or after `from` that opens a field, or the block's length. */
BT_INLINE unsigned opening_quote(const CsvDialect *dialect, const Block *block, int state,
                                 unsigned from) {
    for (uint64_t quotes = block->quote & from_bit(from); quotes; quotes &= quotes - 1) {
        unsigned at = (unsigned)__builtin_ctzll(quotes);
        if (at == from ? is_start(state)
                       : state_after(dialect, block->block[at - 1]) != CSV_UNQUOTED)
            return at;
    }
    return block->length;
}

/* A block without escapes and comments: jump from quote to quote. */
static void pass_block(const CsvDialect *dialect, const Block *block, Track *track) {
    int state = track->at.exit;
    unsigned at = 0;
    while (at < block->length) {
        if (state == CSV_QUOTED) {
            uint64_t quotes = block->quote & from_bit(at);
            if (!quotes) break;
            at = (unsigned)__builtin_ctzll(quotes) + 1;
            state = dialect->doubles ? CSV_QUOTE_SEEN : CSV_UNQUOTED;
        } else if (state == CSV_QUOTE_SEEN && (block->quote >> at & 1)) {
            at++;
            state = CSV_QUOTED;
        } else {
            unsigned open = opening_quote(dialect, block, state, at);
            count_rows(track, block, state, at, open);
            state = open < block->length ? CSV_QUOTED
                                         : state_after(dialect, block->block[open - 1]);
            at = open + 1;
        }
    }
    track->at.exit = state;
}

static void pass_bytes(const CsvDialect *dialect, const Block *block, Track *track) {
    for (unsigned i = 0; i < block->length; i++) {
        int state = track->at.exit, next = step(dialect, state, block->block[i]);
        bool line_end = next == CSV_CR || (next == CSV_ROW_START && state != CSV_CR);
        track->at.rows += line_end && state != CSV_ROW_START && state != CSV_CR &&
                          state != CSV_COMMENT;
        track->at.line_ends += line_end && state != CSV_COMMENT;
        if (line_end && !track->found) find_first(track, block, block->base + i);
        track->at.exit = next;
    }
}

static unsigned join_tracks(Track *tracks, unsigned count, CsvPassage behind[CSV_STATES]) {
    for (unsigned a = 0; a + 1 < count; a++) {
        for (unsigned b = a + 1; b < count;) {
            Track *kept = &tracks[a], *gone = &tracks[b];
            if (kept->at.exit != gone->at.exit || kept->found != gone->found) {
                b++;
                continue;
            }
            for (int state = 0; state < CSV_STATES; state++) {
                if (!(gone->states >> state & 1)) continue;
                /* Remember how far this state was ahead of the track it follows from now on. */
                behind[state].rows += gone->at.rows - kept->at.rows;
                behind[state].line_ends += gone->at.line_ends - kept->at.line_ends;
                if (gone->found && behind[state].first < 0) behind[state].first = gone->at.first;
                behind[state].exit |= gone->found;
            }
            kept->states |= gone->states;
            *gone = tracks[--count];
        }
    }
    return count;
}

void csv_scan(const CsvDialect *dialect, const uint8_t *data, size_t bytes,
              CsvPassage passages[CSV_STATES]) {
    Track tracks[CSV_STATES];
    CsvPassage behind[CSV_STATES]; /* exit: the first row start was settled before joining */
    unsigned count = 0;
    passages[CSV_COMMENT] = (CsvPassage){CSV_COMMENT, 0, 0, -1};
    for (int state = 0; state < (dialect->comments ? CSV_STATES : CSV_COMMENT); state++) {
        Track track = {{state, 0, 0, -1}, false, 1u << state};
        if (bytes && (state == CSV_ROW_START || state == CSV_CR)) {
            size_t first = state == CSV_CR && data[0] == '\n';
            if (first < bytes) track.at.first = (int64_t)first;
            track.found = true;
        }
        tracks[count++] = track;
        behind[state] = (CsvPassage){0, 0, 0, -1};
    }
    uint8_t rest[64] = {0};
    for (size_t base = 0; base < bytes; base += 64) {
        Block block = {data, bytes, base, 64, data + base, 0, 0, 0};
        if (bytes - base < 64) {
            block.length = (unsigned)(bytes - base);
            block.block = memcpy(rest, data + base, block.length);
        }
        uint64_t inside = ~from_bit(block.length);
        block.lf = csv_mask64(block.block, '\n') & inside;
        block.cr = csv_mask64(block.block, '\r') & inside;
        if (dialect->quotes) block.quote = csv_mask64(block.block, dialect->quote) & inside;
        bool special = (dialect->escapes && (csv_mask64(block.block, dialect->escape) & inside)) ||
                       (dialect->comments && (csv_mask64(block.block, dialect->comment) & inside));
        for (unsigned i = 0; i < count; i++) {
            if (BT_UNLIKELY(special || tracks[i].at.exit >= CSV_ESCAPE))
                pass_bytes(dialect, &block, &tracks[i]);
            else
                pass_block(dialect, &block, &tracks[i]);
        }
        if (count > 1) count = join_tracks(tracks, count, behind);
    }
    for (unsigned i = 0; i < count; i++) {
        for (int state = 0; state < CSV_STATES; state++) {
            if (!(tracks[i].states >> state & 1)) continue;
            const CsvPassage *at = &tracks[i].at;
            int64_t first = behind[state].exit ? behind[state].first : at->first;
            passages[state] = (CsvPassage){at->exit, at->rows + behind[state].rows,
                                           at->line_ends + behind[state].line_ends, first};
        }
    }
}

int64_t csv_count_lines(const uint8_t *data, size_t bytes) {
    int64_t lines = 0;
    size_t at = 0;
    uint64_t after_cr = 0;
    for (; bytes - at >= 64; at += 64) {
        uint64_t lf = csv_mask64(data + at, '\n'), cr = csv_mask64(data + at, '\r');
        lines += count_bits(lf);
        if (BT_UNLIKELY(cr | after_cr)) {
            lines += count_bits(cr) - count_bits(lf & (cr << 1 | after_cr));
            after_cr = cr >> 63;
        }
    }
    for (; at < bytes; at++) {
        lines += data[at] == '\r' || (data[at] == '\n' && !after_cr);
        after_cr = data[at] == '\r';
    }
    return lines;
}

/* Rows as spans of their fields. */

/* First byte of [at, end) that is one of three, or end. */
BT_INLINE const uint8_t *find3(const uint8_t *at, const uint8_t *end, uint8_t a, uint8_t b,
                               uint8_t c) {
#if defined(__SSE2__)
    const __m128i as = _mm_set1_epi8((char)a), bs = _mm_set1_epi8((char)b),
                  cs = _mm_set1_epi8((char)c);
    for (; end - at >= 16; at += 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)at);
        __m128i hit = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(x, as), _mm_cmpeq_epi8(x, bs)),
                                   _mm_cmpeq_epi8(x, cs));
        unsigned mask = (unsigned)_mm_movemask_epi8(hit);
        if (mask) return at + __builtin_ctz(mask);
    }
#endif
    while (at < end && *at != a && *at != b && *at != c) at++;
    return at;
}

BT_INLINE bool ends_field(const CsvDialect *dialect, uint8_t byte) {
    return byte == dialect->delimiter || byte == '\n' || byte == '\r';
}

/* End of the unquoted stretch at `at`. */
BT_INLINE const uint8_t *unquoted_end(const CsvDialect *dialect, const uint8_t *at,
                                      const uint8_t *end, uint32_t *flags) {
    if (BT_LIKELY(!dialect->escapes)) return find3(at, end, dialect->delimiter, '\n', '\r');
    while (at < end && !ends_field(dialect, *at)) {
        if (*at++ != dialect->escape) continue;
        *flags |= CSV_NEEDS_CLEANING;
        if (at < end) at++;
    }
    return at;
}

/* The closing quote of the field whose text starts at `at`, or end. */
BT_INLINE const uint8_t *closing_quote(const CsvDialect *dialect, const uint8_t *at,
                                       const uint8_t *end, uint32_t *flags) {
    uint8_t quote = dialect->quote, escape = dialect->escapes ? dialect->escape : quote;
    for (;;) {
        at = find3(at, end, quote, escape, quote);
        if (at == end) return end;
        if (*at != quote) {
            *flags |= CSV_NEEDS_CLEANING;
            at += end - at >= 2 ? 2 : 1;
        } else if (dialect->doubles && end - at >= 2 && at[1] == quote) {
            *flags |= CSV_NEEDS_CLEANING;
            at += 2;
        } else {
            return at;
        }
    }
}

/* Bytes of the comment at `at` with its line end; 0 if more text has to show where that is. */
__attribute__((noinline, cold)) static size_t comment_end(const uint8_t *at, const uint8_t *end,
                                                          bool final) {
    const uint8_t *p = at;
    while (p < end && *p != '\n' && *p != '\r') p++;
    if (!final && (p == end || (*p == '\r' && p + 1 == end))) return 0;
    if (p < end) p += *p == '\r' && p + 1 < end && p[1] == '\n' ? 2 : 1;
    return (size_t)(p - at);
}

size_t csv_rows(const CsvDialect *dialect, const uint8_t *data, size_t bytes, size_t at,
                bool final, CsvRows *rows) {
    const CsvDialect d = *dialect; /* stores below must not make the compiler reload it */
    const uint32_t columns = rows->columns, capacity = rows->capacity;
    const int comment = d.comments ? d.comment : -1;
    const uint8_t *end = data + bytes;
    uint32_t row = 0;
    while (row < capacity && at < bytes) {
        const uint8_t *p = data + at;
        if (BT_UNLIKELY(*p == comment)) {
            size_t behind = comment_end(p, end, final);
            if (!behind) break;
            at += behind;
            continue;
        }
        if (!rows->keep_blank && (*p == '\n' || *p == '\r')) {
            if (*p == '\r' && at + 1 == bytes && !final) break;
            at += *p == '\r' && at + 1 < bytes && p[1] == '\n' ? 2 : 1;
            continue;
        }
        CsvField *field = rows->fields + row;
        uint32_t count = 0;
        uint32_t fault = 0;
        for (;; p++) {
            const uint8_t *from = p, *to;
            uint32_t flags = 0;
            if (d.quotes && p < end && *p == d.quote) {
                flags = CSV_WAS_QUOTED;
                to = p = closing_quote(&d, ++from, end, &flags);
                if (p == end) {
                    fault = CSV_UNCLOSED;
                } else if (++p < end && !ends_field(&d, *p)) {
                    fault = CSV_TRAILING;
                    p = unquoted_end(&d, p, end, &flags);
                }
            } else {
                to = p = unquoted_end(&d, p, end, &flags);
            }
            if (count < columns) {
                *field = (CsvField){(uint32_t)(from - data), (uint32_t)(to - from) | flags};
                field += capacity;
            }
            count++;
            if (p == end || *p != d.delimiter) break;
        }
        if (p == end) {
            if (!final) break;
        } else if (*p == '\n') {
            p++;
        } else {
            if (p + 1 == end && !final) break;
            p += p + 1 < end && p[1] == '\n' ? 2 : 1;
        }
        for (uint32_t missing = count; missing < columns; missing++, field += capacity)
            *field = (CsvField){(uint32_t)at, 0};
        rows->counts[row] = fault ? fault : count;
        rows->starts[row] = (uint32_t)at;
        at = (size_t)(p - data);
        rows->stops[row++] = (uint32_t)at;
    }
    rows->rows = row;
    return at;
}

size_t csv_clean(const CsvDialect *dialect, const uint8_t *data, CsvField field, uint8_t *out) {
    const uint8_t *at = data + field.at, *end = at + (field.size & CSV_SIZE);
    uint8_t *start = out;
    const int escape = dialect->escapes ? dialect->escape : -1;
    const int quote = field.size & CSV_WAS_QUOTED ? dialect->quote : escape;
    while (at < end) {
        if (BT_UNLIKELY((*at == quote || *at == escape) && ++at == end)) break;
        *out++ = *at++;
    }
    return (size_t)(out - start);
}
