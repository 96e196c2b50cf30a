#include "utf8.h"

static const uint64_t HIGH_BITS = 0x8080808080808080u;

bool bt_is_ascii(const uint8_t *at, size_t bytes) {
    for (; bytes >= 32; at += 32, bytes -= 32)
        if ((load64(at) | load64(at + 8) | load64(at + 16) | load64(at + 24)) & HIGH_BITS)
            return false;
    for (; bytes >= 8; at += 8, bytes -= 8)
        if (load64(at) & HIGH_BITS) return false;
    uint8_t seen = 0;
    while (bytes--) seen |= *at++;
    return seen < 0x80;
}

BT_INLINE bool is_tail(uint8_t byte) { return (byte & 0xc0) == 0x80; }

/* Bytes of the character of two or more bytes at `at`; 0 if it is not a good one. */
BT_INLINE size_t long_character(const uint8_t *at, size_t bytes) {
    uint8_t first = at[0];
    if (first < 0xc2 || first > 0xf4 || bytes < 2) return 0;
    if (first < 0xe0) return is_tail(at[1]) ? 2 : 0;
    /* The second byte alone tells overlong forms, surrogates and what is above U+10FFFF. */
    uint8_t low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    uint8_t high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (at[1] < low || at[1] > high || bytes < 3 || !is_tail(at[2])) return 0;
    if (first < 0xf0) return 3;
    return bytes >= 4 && is_tail(at[3]) ? 4 : 0;
}

bool bt_is_utf8(const uint8_t *at, size_t bytes) {
    while (bytes) {
        if (bytes >= 8 && !(load64(at) & HIGH_BITS)) {
            at += 8;
            bytes -= 8;
        } else if (*at < 0x80) {
            at++;
            bytes--;
        } else {
            size_t taken = long_character(at, bytes);
            if (!taken) return false;
            at += taken;
            bytes -= taken;
        }
    }
    return true;
}
