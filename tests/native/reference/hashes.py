"""CRC-32C and XXH64 by well-known libraries."""

import google_crc32c
import xxhash

_CRC_MASK_DELTA = 0xA282EAD8


def as_bytes(data):
    """Return the bytes of any object with a contiguous buffer, without a copy."""
    return memoryview(data).cast("B")


def masked_crc32c(data):
    """Return the CRC-32C as TFRecord files hold it: rotated right by 15 bits, plus a constant."""
    crc = google_crc32c.value(bytes(as_bytes(data)))
    return (((crc >> 15) | (crc << 17)) + _CRC_MASK_DELTA) & 0xFFFFFFFF


def xxh64(data, seed=0):
    """Return the XXH64 of the bytes."""
    return xxhash.xxh64_intdigest(bytes(as_bytes(data)), seed)
