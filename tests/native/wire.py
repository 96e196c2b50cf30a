"""Varints and fields."""

from __future__ import annotations


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
