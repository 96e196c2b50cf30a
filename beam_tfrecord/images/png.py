"""PNG headers: RFC 2083 and the W3C's third edition (eXIf): a chain of chunks up to IEND."""

from __future__ import annotations

import struct

from beam_tfrecord.images.header import UPRIGHT, Header, damaged, truncated
from beam_tfrecord.images.tiff import exif_orientation

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS_BY_COLOR = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}
_PALETTE = 3
_CHUNK = struct.Struct(">I4s")
_CHUNK_EXTRA_BYTES = 12  # length, type and CRC


def png_header(data: memoryview, *, whole: bool) -> Header:
    """Read the chunks of a PNG; animated ones are described by their canvas.

    Args:
        data: The whole file.
        whole: Check that the chunks go on to the end mark.

    Raises:
        Fault: It is cut off, or its structure is broken.
    """
    try:
        length, kind, width, height, depth, color = struct.unpack_from(">I4sIIBB", data, 8)
    except struct.error:
        raise truncated("in its header") from None
    if kind != b"IHDR" or length != 13 or color not in _CHANNELS_BY_COLOR or depth > 16:
        raise damaged("its first chunk is no header")
    transparent, orientation, has_pixels = False, UPRIGHT, False
    at = len(SIGNATURE)
    while True:
        if at + _CHUNK_EXTRA_BYTES > len(data):
            if whole:
                raise truncated("before its end mark")
            break
        length, kind = _CHUNK.unpack_from(data, at)
        if kind == b"IEND":
            break
        if kind == b"IDAT":
            has_pixels = True
        elif kind == b"tRNS":
            transparent = True
        elif kind == b"eXIf":
            orientation = exif_orientation(data[at + 8 : at + 8 + length])
        at += length + _CHUNK_EXTRA_BYTES
    if whole and not has_pixels:
        raise damaged("it has no pixels")
    channels = _CHANNELS_BY_COLOR[color] + (color == _PALETTE and transparent)
    return Header("png", width, height, channels, orientation)
