/* CRC-32C (Castagnoli, RFC 3720 appendix B.4) and its masked form in TFRecord files. */
#ifndef BT_CRC32C_H
#define BT_CRC32C_H

#include "wire.h"

/* Builds the tables and picks the fastest way this processor has; call once, before all else. */
void bt_crc32c_init(void);

uint32_t bt_crc32c(const uint8_t *data, size_t bytes);

/* The portable way, whatever the processor has: for tests of both. */
uint32_t bt_crc32c_portable(const uint8_t *data, size_t bytes);

/* Rotated and offset, so that a checksum of data that holds checksums stays good. */
BT_INLINE uint32_t bt_mask_crc(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

BT_INLINE uint32_t bt_masked_crc32c(const uint8_t *data, size_t bytes) {
    return bt_mask_crc(bt_crc32c(data, bytes));
}

#endif
