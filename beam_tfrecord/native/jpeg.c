#include "jpeg.h"

#include <string.h>

enum { START = 0xD8, END = 0xD9, SCAN = 0xDA, APP1 = 0xE1, TEM = 0x01, FILL = 0xFF };
enum { HUFFMAN = 0xC4, QUANTIZATION = 0xDB, RESTARTS = 0xDD, COMMENT = 0xFE };

/* A segment: FF, its marker, two bytes of its length, which counts itself. A frame: precision,
 * height, width, the number of its components, and three bytes of each. */
enum { SEGMENT_HEAD = 4, LEAST_LENGTH = 2, FRAME_BYTES = 10, MOST_CHANNELS = 3 };
enum { COMPONENT_BYTES = 3, MOST_COMPONENTS = 4 };

/* Limits of libjpeg-turbo, and of TensorFlow's own code around it. */
enum { PRECISION = 8, MOST_PIXELS_A_SIDE = 65500, MOST_SAMPLES = 1 << 29, MOST_BLOCKS = 10 };

static const uint8_t EXIF[6] = {'E', 'x', 'i', 'f', 0, 0};

static int32_t big_endian_16(const uint8_t *at) { return at[0] << 8 | at[1]; }

/* Baseline, extended and progressive frames. */
static bool is_frame(uint8_t marker) { return marker >= 0xC0 && marker <= 0xC2; }

/* What decoders read or pass over. */
static bool is_known(uint8_t marker) {
    return marker == HUFFMAN || marker == QUANTIZATION || marker == RESTARTS || marker == COMMENT ||
           (marker >= 0xE0 && marker <= 0xEF);
}

static bool is_factor(int factor) { return factor == 1 || factor == 2 || factor == 4; }

/* Whether TensorFlow decodes the frame whose header, after its length, begins at `frame`. */
static bool is_decoded(const uint8_t *frame, int64_t size) {
    int64_t height = big_endian_16(frame + 1), width = big_endian_16(frame + 3);
    int components = frame[5], blocks = 0;
    if (frame[0] != PRECISION || components < 1 || components == 2) return false;
    if (components > MOST_COMPONENTS || size < 6 + components * COMPONENT_BYTES) return false;
    if (width > MOST_PIXELS_A_SIDE || height > MOST_PIXELS_A_SIDE) return false;
    for (int i = 0; i < components; i++) {
        int across = frame[7 + i * COMPONENT_BYTES] >> 4, down = frame[7 + i * COMPONENT_BYTES] & 15;
        if (!is_factor(across) || !is_factor(down)) return false;
        blocks += across * down;
    }
    return width * height * components < MOST_SAMPLES && (components == 1 || blocks <= MOST_BLOCKS);
}

static bool has_no_length(uint8_t marker) {
    return marker == TEM || (marker >= 0xD0 && marker <= 0xD7);
}

static bool find_frame(const uint8_t *data, int64_t size, int32_t *numbers) {
    bool found = false, has_tables = false;
    for (int64_t at = 2; size - at >= SEGMENT_HEAD;) {
        const uint8_t *here = data + at;
        uint8_t marker = here[1];
        if (here[0] != 0xFF || marker == END) return false;
        if (marker == FILL || has_no_length(marker)) {
            at += marker == FILL ? 1 : 2;
            continue;
        }
        if (marker == SCAN) return found && has_tables;
        int32_t length = big_endian_16(here + 2);
        if (length < LEAST_LENGTH) return false;
        if (is_frame(marker)) {
            if (found || size - at < FRAME_BYTES) return false;
            if (!is_decoded(here + SEGMENT_HEAD, size - at - SEGMENT_HEAD)) return false;
            numbers[0] = big_endian_16(here + 7);
            numbers[1] = big_endian_16(here + 5);
            numbers[2] = here[9] < MOST_CHANNELS ? here[9] : MOST_CHANNELS;
            found = true;
        } else if (!is_known(marker)) {
            return false;
        } else if (marker == APP1) {
            if (size - at < SEGMENT_HEAD + (int64_t)sizeof EXIF) return false;
            if (memcmp(here + SEGMENT_HEAD, EXIF, sizeof EXIF) == 0) return false;
        }
        has_tables |= marker == QUANTIZATION;
        at += 2 + length;
    }
    return false;
}

bool jpeg_is_plain(const uint8_t *data, int64_t size, int64_t max_pixels, int32_t *numbers) {
    if (size < SEGMENT_HEAD || data[0] != 0xFF || data[1] != START || data[2] != 0xFF) return false;
    if (data[size - 2] != 0xFF || data[size - 1] != END) return false;
    if (!find_frame(data, size, numbers)) return false;
    if (numbers[0] < 1 || numbers[1] < 1) return false;
    return (int64_t)numbers[0] * numbers[1] <= max_pixels;
}
