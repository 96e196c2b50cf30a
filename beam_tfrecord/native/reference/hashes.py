"""CRC-32C and XXH64."""

from __future__ import annotations

import struct
from typing import Any

_MASK_32 = 0xFFFFFFFF
_MASK_64 = 0xFFFFFFFFFFFFFFFF

_CRC_POLYNOMIAL = 0x82F63B78
_CRC_MASK_DELTA = 0xA282EAD8

_PRIME_1 = 0x9E3779B185EBCA87
_PRIME_2 = 0xC2B2AE3D27D4EB4F
_PRIME_3 = 0x165667B19E3779F9
_PRIME_4 = 0x85EBCA77C2B2AE63
_PRIME_5 = 0x27D4EB2F165667C5
_STRIPE_BYTES = 32


def as_bytes(data: Any) -> memoryview:
    """Return the bytes of any object with a contiguous buffer, without a copy."""
    return memoryview(data).cast("B")


def _crc_of_byte(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (_CRC_POLYNOMIAL if value & 1 else 0)
    return value


_CRC_TABLE = [_crc_of_byte(value) for value in range(256)]


def crc32c(data: Any) -> int:
    """Return the CRC-32C (Castagnoli, RFC 3720 appendix B.4) of the bytes."""
    crc = _MASK_32
    for byte in as_bytes(data):
        crc = (crc >> 8) ^ _CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ _MASK_32


def masked_crc32c(data: Any) -> int:
    """Return the CRC-32C as TFRecord files hold it: rotated right by 15 bits, plus a constant."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + _CRC_MASK_DELTA) & _MASK_32


def _rotate(value: int, bits: int) -> int:
    value &= _MASK_64
    return ((value << bits) | (value >> (64 - bits))) & _MASK_64


def _round(lane: int, word: int) -> int:
    return _rotate(lane + word * _PRIME_2, 31) * _PRIME_1 & _MASK_64


def _merge_lanes(lanes: list[int]) -> int:
    value = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    for lane in lanes:
        value = ((value ^ _round(0, lane)) * _PRIME_1 + _PRIME_4) & _MASK_64
    return value & _MASK_64


def _finish(value: int, rest: bytes) -> int:
    """Mix in the last bytes, fewer than a stripe, and spread all bits."""
    words = len(rest) // 8
    for (word,) in struct.iter_unpack("<Q", rest[: 8 * words]):
        value = (_rotate(value ^ _round(0, word), 27) * _PRIME_1 + _PRIME_4) & _MASK_64
    rest = rest[8 * words :]
    if len(rest) >= 4:
        (word,) = struct.unpack("<I", rest[:4])
        value = (_rotate(value ^ (word * _PRIME_1 & _MASK_64), 23) * _PRIME_2 + _PRIME_3) & _MASK_64
        rest = rest[4:]
    for byte in rest:
        value = _rotate(value ^ (byte * _PRIME_5 & _MASK_64), 11) * _PRIME_1 & _MASK_64
    value = (value ^ (value >> 33)) * _PRIME_2 & _MASK_64
    value = (value ^ (value >> 29)) * _PRIME_3 & _MASK_64
    return value ^ (value >> 32)


class XXH64:
    """XXH64 of bytes that come in pieces, from the public specification of xxHash."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._total_bytes = 0
        self._pending = b""
        starts = (seed + _PRIME_1 + _PRIME_2, seed + _PRIME_2, seed, seed - _PRIME_1)
        self._lanes = [start & _MASK_64 for start in starts]

    def update(self, data: Any) -> None:
        """Add bytes."""
        piece = bytes(as_bytes(data))
        self._total_bytes += len(piece)
        piece = self._pending + piece
        whole = len(piece) - len(piece) % _STRIPE_BYTES
        for words in struct.iter_unpack("<4Q", piece[:whole]):
            self._lanes = [_round(lane, w) for lane, w in zip(self._lanes, words, strict=True)]
        self._pending = piece[whole:]

    def intdigest(self) -> int:
        """Return the hash of all bytes so far."""
        if self._total_bytes < _STRIPE_BYTES:
            value = self._seed + _PRIME_5
        else:
            value = _merge_lanes(self._lanes)
        return _finish((value + self._total_bytes) & _MASK_64, self._pending)


def xxh64(data: Any, seed: int = 0) -> int:
    """Return the XXH64 of the bytes."""
    state = XXH64(seed)
    state.update(data)
    return state.intdigest()
