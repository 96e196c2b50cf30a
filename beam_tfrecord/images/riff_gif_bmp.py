"""Headers of WebP (Google's container specification), GIF89a and BMP (Windows DIB)."""

from __future__ import annotations

import struct

from beam_tfrecord.images.header import UPRIGHT, Header, damaged, truncated
from beam_tfrecord.images.tiff import exif_orientation

_RGB, _RGBA = 3, 4
_ALPHA = 0x10
_WEBP_BYTES = {b"VP8 ": 30, b"VP8L": 25, b"VP8X": 30}  # up to the size
_GIF_TRAILER, _GIF_IMAGE, _GIF_EXTENSION = 0x3B, 0x2C, 0x21
_BMP_CORE_BYTES, _BMP_OS2_HEADER = 26, 12
_BMP_PLAIN = {0, 3, 6}  # BI_RGB, BI_BITFIELDS, BI_ALPHABITFIELDS: rows of one size


def webp_header(data: memoryview, *, whole: bool) -> Header:
    """Read the chunks of a WebP; animated ones are described by their canvas.

    Args:
        data: The whole file.
        whole: Check that the file is as long as it says.

    Raises:
        Fault: It is cut off, or its structure is broken.
    """
    try:
        (riff_bytes,) = struct.unpack_from("<I", data, 4)
        header = _webp_canvas(data)
    except (struct.error, IndexError):
        raise truncated("in its header") from None
    if whole and riff_bytes + 8 > len(data):
        raise truncated(f"{riff_bytes + 8 - len(data)} bytes before its end")
    return header


def _webp_canvas(data: memoryview) -> Header:
    kind = bytes(data[12:16])
    if len(data) < _WEBP_BYTES.get(kind, 16):
        raise IndexError
    if kind == b"VP8 ":
        if bytes(data[23:26]) != b"\x9d\x01\x2a":
            raise damaged("its frame has no start code")
        width, height = struct.unpack_from("<HH", data, 26)
        return Header("webp", width & 0x3FFF, height & 0x3FFF, _RGB)
    if kind == b"VP8L":
        if data[20] != 0x2F:
            raise damaged("its frame has no signature")
        (bits,) = struct.unpack_from("<I", data, 21)
        channels = _RGBA if bits >> 28 & 1 else _RGB
        return Header("webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, channels)
    if kind == b"VP8X":
        flags = data[20]
        width = int.from_bytes(data[24:27], "little") + 1
        height = int.from_bytes(data[27:30], "little") + 1
        if len(data) < 30:
            raise IndexError
        channels = _RGBA if flags & _ALPHA else _RGB
        return Header("webp", width, height, channels, _webp_orientation(data))
    if len(kind) < 4:
        raise IndexError
    raise damaged(f"its first chunk is {kind!r}")


def _webp_orientation(data: memoryview) -> int:
    at = 12
    while at + 8 <= len(data):
        kind, length = struct.unpack_from("<4sI", data, at)
        if kind == b"EXIF":
            block = data[at + 8 : at + 8 + length]
            # Some writers keep the prefix that EXIF has inside a JPEG.
            return exif_orientation(block[6:] if bytes(block[:6]) == b"Exif\0\0" else block)
        at += 8 + length + (length & 1)
    return UPRIGHT


def gif_header(data: memoryview, *, whole: bool) -> Header:
    """Read the canvas of a GIF; TensorFlow gives its frames as RGB.

    Args:
        data: The whole file.
        whole: Check that its blocks go on to the trailer.

    Raises:
        Fault: It is cut off, or its structure is broken.
    """
    try:
        width, height = struct.unpack_from("<HH", data, 6)
        if whole:
            _walk_gif(data)
    except (struct.error, IndexError):
        raise truncated("before its end mark") from None
    if len(data) < 13:
        raise truncated("in its header")
    return Header("gif", width, height, _RGB)


def _walk_gif(data: memoryview) -> None:
    """Go from block to block to the trailer; IndexError where the file ends before."""
    at = 13 + _color_table_bytes(data[10])
    while (kind := data[at]) != _GIF_TRAILER:
        if kind == _GIF_IMAGE:
            at += 11 + _color_table_bytes(data[at + 9])
        elif kind == _GIF_EXTENSION:
            at += 2
        else:
            raise damaged(f"no block at byte {at}")
        while size := data[at]:
            at += size + 1
        at += 1


def _color_table_bytes(flags: int) -> int:
    return 3 * 2 ** ((flags & 7) + 1) if flags & 0x80 else 0


def bmp_header(data: memoryview, *, whole: bool) -> Header:
    """Read the header of a BMP; 1, 2 or 4 bits a pixel are a palette of colours.

    Args:
        data: The whole file.
        whole: Check that every row of pixels is there.

    Raises:
        Fault: It is cut off, or its structure is broken.
    """
    try:
        pixels, header_bytes = struct.unpack_from("<II", data, 10)
        if header_bytes == _BMP_OS2_HEADER:
            width, height, _, bits = struct.unpack_from("<HHHH", data, 18)
            compression = 0
        else:
            width, height, _, bits, compression = struct.unpack_from("<iiHHI", data, 18)
    except struct.error:
        raise truncated("in its header") from None
    height = abs(height)
    if bits not in (1, 2, 4, 8, 16, 24, 32):
        raise damaged(f"it has {bits} bits a pixel")
    end = pixels
    if compression in _BMP_PLAIN:
        end += (width * bits + 31) // 32 * 4 * height
    if whole and end > len(data):
        raise truncated(f"{end - len(data)} bytes before the end of its pixels")
    return Header("bmp", width, height, _bmp_channels(bits))


def _bmp_channels(bits: int) -> int:
    """Return whole bytes a pixel, as TensorFlow counts; it reads no pixels below a byte."""
    return bits // 8 if bits in (8, 24, 32) else _RGB
