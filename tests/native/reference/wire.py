"""Varints, fields and frames."""

from __future__ import annotations

import struct

from tests.native.reference.hashes import masked_crc32c

HEAD_BYTES = 12
FRAME_BYTES = 16


def varint(value: int) -> bytes:
    """Return the minimal varint; a negative number is taken as 64 bits of two's complement."""
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number, content):
    """Return a length-delimited protobuf field."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def feature_entry(name, kind, values):
    """Return one entry of the map in Features, canonical.

    Args:
        name: The key.
        kind: 1 bytes, 2 float, 3 int64; 0 for a Feature without a kind.
        values: Each value: raw bytes, four bytes of a float32, or a varint.
    """
    if kind == 1:
        content = b"".join(field(1, value) for value in values)
    else:
        content = field(1, b"".join(values)) if values else b""
    feature = field(kind, content) if kind else b""
    return field(1, field(1, name) + field(2, feature))


def framed(payload: bytes) -> bytes:
    """Return the payload as a record of a TFRecord file."""
    length = struct.pack("<Q", len(payload))
    checksums = (masked_crc32c(length), masked_crc32c(payload))
    return length + struct.pack("<I", checksums[0]) + payload + struct.pack("<I", checksums[1])


def payload_at(data, start):
    """Return the payload of the framed record, or None where it does not lie inside the data."""
    if start < 0 or len(data) - start < FRAME_BYTES:
        return None
    (length,) = struct.unpack_from("<Q", data, start)
    if length > len(data) - start - FRAME_BYTES:
        return None
    return data[start + HEAD_BYTES : start + HEAD_BYTES + length]
