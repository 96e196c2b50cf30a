#include "jpeg.h"

#include <string.h>

enum { START = 0xD8, END = 0xD9, SCAN = 0xDA, APP1 = 0xE1, TEM = 0x01, FILL = 0xFF };

/* A segment: FF, its marker, two bytes of its length, which counts itself. */
enum { SEGMENT_HEAD = 4, LEAST_LENGTH = 2, FRAME_BYTES = 10, MOST_CHANNELS = 3 };

static const uint8_t EXIF[6] = {'E', 'x', 'i', 'f', 0, 0};

static int32_t big_endian_16(const uint8_t *at) { return at[0] << 8 | at[1]; }

/* SOF0 to SOF15 without DHT, JPG and DAC, which lie between them. */
static bool is_frame(uint8_t marker) {
    return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

static bool has_no_length(uint8_t marker) {
    return marker == TEM || (marker >= 0xD0 && marker <= 0xD7);
}

/* Where there is more than one frame before the first scan, the last one is told. */
static bool find_frame(const uint8_t *data, int64_t size, int32_t *numbers) {
    bool found = false;
    for (int64_t at = 2; size - at >= SEGMENT_HEAD;) {
        const uint8_t *here = data + at;
        uint8_t marker = here[1];
        if (here[0] != 0xFF || marker == END) return false;
        if (marker == FILL || has_no_length(marker)) {
            at += marker == FILL ? 1 : 2;
            continue;
        }
        if (marker == SCAN) return found;
        int32_t length = big_endian_16(here + 2);
        if (length < LEAST_LENGTH) return false;
        if (is_frame(marker)) {
            if (size - at < FRAME_BYTES) return false;
            numbers[0] = big_endian_16(here + 7);
            numbers[1] = big_endian_16(here + 5);
            numbers[2] = here[9] < MOST_CHANNELS ? here[9] : MOST_CHANNELS;
            found = true;
        } else if (marker == APP1) {
            if (size - at < SEGMENT_HEAD + (int64_t)sizeof EXIF) return false;
            if (memcmp(here + SEGMENT_HEAD, EXIF, sizeof EXIF) == 0) return false;
        }
        at += 2 + length;
    }
    return false;
}

bool jpeg_is_plain(const uint8_t *data, int64_t size, bool whole, int64_t max_pixels,
                   int32_t *numbers) {
    if (size < SEGMENT_HEAD || data[0] != 0xFF || data[1] != START || data[2] != 0xFF) return false;
    if (whole && (data[size - 2] != 0xFF || data[size - 1] != END)) return false;
    if (!find_frame(data, size, numbers)) return false;
    if (numbers[0] < 1 || numbers[1] < 1 || numbers[2] < 1) return false;
    return (int64_t)numbers[0] * numbers[1] <= max_pixels;
}
