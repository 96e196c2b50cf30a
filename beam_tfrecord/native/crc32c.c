#include "crc32c.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
/* Clang 14 and later have the instruction apart from SSE 4.2, and GCC 10 and older lack the name. */
#if defined(__clang__) && __clang_major__ >= 14
#define BT_HARDWARE __attribute__((target("sse4.2,crc32")))
#else
#define BT_HARDWARE __attribute__((target("sse4.2")))
#endif
#define CRC_8(crc, value) ((uint32_t)_mm_crc32_u64((crc), (value)))
#define CRC_4(crc, value) _mm_crc32_u32((crc), (value))
#define CRC_1(crc, value) _mm_crc32_u8((crc), (value))
#elif defined(__aarch64__)
#if defined(__linux__)
#include <sys/auxv.h>
#endif
/* In assembly: arm_acle.h has these only if the whole file may use the extension. */
#define CRC_OF(name, type, operation) \
    BT_INLINE uint32_t name(uint32_t crc, type value) { \
        __asm__(".arch_extension crc\n\t" operation : "+r"(crc) : "r"(value)); \
        return crc; \
    }
CRC_OF(CRC_8, uint64_t, "crc32cx %w0, %w0, %x1")
CRC_OF(CRC_4, uint32_t, "crc32cw %w0, %w0, %w1")
CRC_OF(CRC_1, uint8_t, "crc32cb %w0, %w0, %w1")
#define BT_HARDWARE
#endif

/* Bytes of one of three lanes: the instruction takes 3 cycles, so one lane leaves two idle. */
enum { LONG_LANE = 1024, SHORT_LANE = 128 };

static const uint32_t POLYNOMIAL = 0x82f63b78u; /* 0x1edc6f41 with its bits reversed */

static uint32_t slices[8][256];

typedef uint32_t (*ExtendFunction)(uint32_t crc, const uint8_t *data, size_t bytes);

static uint32_t extend_portable(uint32_t crc, const uint8_t *data, size_t bytes) {
    for (; bytes >= 8; data += 8, bytes -= 8) {
        uint64_t x = load64(data) ^ crc;
        crc = slices[7][x & 0xff] ^ slices[6][(x >> 8) & 0xff] ^ slices[5][(x >> 16) & 0xff] ^
              slices[4][(x >> 24) & 0xff] ^ slices[3][(x >> 32) & 0xff] ^
              slices[2][(x >> 40) & 0xff] ^ slices[1][(x >> 48) & 0xff] ^ slices[0][x >> 56];
    }
    while (bytes--) crc = (crc >> 8) ^ slices[0][(crc ^ *data++) & 0xff];
    return crc;
}

static ExtendFunction extend = extend_portable;

#ifdef BT_HARDWARE

static uint32_t shift_long[4][256];
static uint32_t shift_short[4][256];

BT_INLINE uint32_t shift(uint32_t table[4][256], uint32_t crc) {
    return table[0][crc & 0xff] ^ table[1][(crc >> 8) & 0xff] ^ table[2][(crc >> 16) & 0xff] ^
           table[3][crc >> 24];
}

/* Three lanes side by side; the register of each is moved past the lanes after it. */
BT_HARDWARE static uint32_t extend_lanes(uint32_t crc, const uint8_t *data, size_t lane,
                                         uint32_t table[4][256]) {
    uint32_t second = 0, third = 0;
    for (size_t i = 0; i < lane; i += 8) {
        crc = CRC_8(crc, load64(data + i));
        second = CRC_8(second, load64(data + lane + i));
        third = CRC_8(third, load64(data + 2 * lane + i));
    }
    crc = shift(table, crc) ^ second;
    return shift(table, crc) ^ third;
}

BT_HARDWARE static uint32_t extend_hardware(uint32_t crc, const uint8_t *data, size_t bytes) {
    for (; bytes >= 3 * LONG_LANE; data += 3 * LONG_LANE, bytes -= 3 * LONG_LANE)
        crc = extend_lanes(crc, data, LONG_LANE, shift_long);
    for (; bytes >= 3 * SHORT_LANE; data += 3 * SHORT_LANE, bytes -= 3 * SHORT_LANE)
        crc = extend_lanes(crc, data, SHORT_LANE, shift_short);
    for (; bytes >= 8; data += 8, bytes -= 8) crc = CRC_8(crc, load64(data));
    if (bytes & 4) {
        crc = CRC_4(crc, load32(data));
        data += 4;
    }
    for (bytes &= 3; bytes--; data++) crc = CRC_1(crc, *data);
    return crc;
}

static bool has_instruction(void) {
#if defined(__x86_64__)
    return __builtin_cpu_supports("sse4.2");
#elif defined(__linux__)
    return getauxval(AT_HWCAP) & HWCAP_CRC32;
#else
    return true; /* every processor of Apple's */
#endif
}

/* A register is linear in its bits: the move past `lane` zero bytes of each bit gives all. */
static void fill_shift(uint32_t table[4][256], size_t lane) {
    static const uint8_t zeros[LONG_LANE];
    uint32_t moved[32];
    for (int bit = 0; bit < 32; bit++) moved[bit] = extend_portable(1u << bit, zeros, lane);
    for (int byte = 0; byte < 4; byte++)
        for (int value = 0; value < 256; value++) {
            uint32_t sum = 0;
            for (int bit = 0; bit < 8; bit++)
                if (value >> bit & 1) sum ^= moved[8 * byte + bit];
            table[byte][value] = sum;
        }
}

#endif

void bt_crc32c_init(void) {
    for (uint32_t value = 0; value < 256; value++) {
        uint32_t crc = value;
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (crc & 1 ? POLYNOMIAL : 0);
        slices[0][value] = crc;
    }
    for (int slice = 1; slice < 8; slice++)
        for (int value = 0; value < 256; value++) {
            uint32_t before = slices[slice - 1][value];
            slices[slice][value] = (before >> 8) ^ slices[0][before & 0xff];
        }
#ifdef BT_HARDWARE
    if (has_instruction()) {
        fill_shift(shift_long, LONG_LANE);
        fill_shift(shift_short, SHORT_LANE);
        extend = extend_hardware;
    }
#endif
}

uint32_t bt_crc32c(const uint8_t *data, size_t bytes) { return ~extend(0xffffffffu, data, bytes); }

uint32_t bt_crc32c_portable(const uint8_t *data, size_t bytes) {
    return ~extend_portable(0xffffffffu, data, bytes);
}
