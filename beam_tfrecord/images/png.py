"""PNG headers: RFC 2083 and the W3C's third edition (eXIf): a chain of chunks up to IEND."""

from __future__ import annotations

import struct

from isal import isal_zlib

from beam_tfrecord.images.header import (
    UPRIGHT,
    Header,
    Refusal,
    damaged,
    too_large_for_tensorflow,
    truncated,
)
from beam_tfrecord.images.tiff import exif_orientation

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS_BY_COLOR = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}
_DEPTHS_BY_COLOR = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_PALETTE = 3
_CHUNK = struct.Struct(">I4s")
_CHUNK_EXTRA_BYTES = 12  # length, type and CRC
_NEEDED = (b"IHDR", b"PLTE", b"IDAT", b"IEND")
_IS_OPTIONAL = 0x20  # bit of the first letter of a type
_END = b"\0\0\0\0IEND\xaeB`\x82"

# Limits of libpng, and of TensorFlow's own code around it.
_MOST_PIXELS_A_SIDE = 1_000_000
_MOST_PIXELS = 2**29
_MOST_PALETTE_BYTES = 3 * 256


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
    transparent, orientation, pixel_bytes, palettes, is_behind = False, UPRIGHT, 0, 0, False
    at = len(SIGNATURE)
    refusal: Refusal | None = None
    while True:
        if at + _CHUNK_EXTRA_BYTES > len(data):
            if whole:
                raise truncated("before its end mark")
            refusal = refusal or Refusal("has no end mark")
            break
        length, kind = _CHUNK.unpack_from(data, at)
        if kind == b"IDAT":
            pixel_bytes += length
            if is_behind:
                refusal = refusal or Refusal("has its pixels in two places")
            elif color == _PALETTE and not palettes:
                refusal = refusal or Refusal("has no palette before its pixels")
        else:
            is_behind = pixel_bytes > 0
            if not kind[0] & _IS_OPTIONAL or not kind.isalpha():
                palettes += kind == b"PLTE"
                refusal = refusal or _of_chunk(data, at, color, palettes, is_behind=is_behind)
            elif kind == b"tRNS":
                transparent = True
            elif kind == b"eXIf":
                orientation = exif_orientation(data[at + 8 : at + 8 + length])
            if kind == b"IEND":
                break
        at += length + _CHUNK_EXTRA_BYTES
    if not pixel_bytes:
        if whole:
            raise damaged("it has no pixels")
        refusal = refusal or Refusal("has no pixels")
    channels = _CHANNELS_BY_COLOR[color] + (color == _PALETTE and transparent)
    return Header("png", width, height, channels, orientation, refusal)


def _of_chunk(
    data: memoryview, at: int, color: int, palettes: int, *, is_behind: bool
) -> Refusal | None:
    """Return why a chunk that decoders must know, and that holds no pixels, is refused."""
    length, kind = _CHUNK.unpack_from(data, at)
    if kind == b"IEND" and bytes(data[at : at + _CHUNK_EXTRA_BYTES]) == _END:
        return None
    if kind not in _NEEDED:
        return Refusal(f"has a chunk that no decoder knows ({bytes(kind)!r})")
    if not is_sound(data, at):
        return Refusal(f"has a chunk {kind.decode()} with a wrong checksum")
    if kind == b"IHDR":
        return _of_header(data) if at == len(SIGNATURE) else Refusal("has two headers")
    if palettes > 1:
        return Refusal("has two palettes")
    is_read = kind == b"PLTE" and color == _PALETTE and not is_behind
    if is_read and (not length or length % 3 or length > _MOST_PALETTE_BYTES):
        return Refusal(f"has a palette of {length} bytes")
    return None


def _of_header(data: memoryview) -> Refusal | None:
    width, height, depth, color, *rest = struct.unpack_from(">IIBBBBB", data, 16)
    if depth not in _DEPTHS_BY_COLOR[color]:
        return Refusal(f"has {depth} bits a sample, which its type of colors does not allow")
    if rest[0] or rest[1] or rest[2] > 1:
        return Refusal("is compressed, filtered or interlaced in an unknown way")
    if max(width, height) > _MOST_PIXELS_A_SIDE or width * height >= _MOST_PIXELS:
        return too_large_for_tensorflow(width, height)
    return None


def is_sound(data: memoryview, at: int) -> bool:
    """Tell whether the checksum of the chunk at `at` is right; False where the file ends in it."""
    (length,) = struct.unpack_from(">I", data, at)
    end = at + 8 + length
    return isal_zlib.crc32(data[at + 4 : end]).to_bytes(4, "big") == bytes(data[end : end + 4])


def has_sound_pixels(data: memoryview) -> bool:
    """Tell whether the checksums of all chunks of pixels are right, which decoders may skip."""
    at = len(SIGNATURE)
    while at + _CHUNK_EXTRA_BYTES <= len(data):
        length, kind = _CHUNK.unpack_from(data, at)
        if kind == b"IDAT" and not is_sound(data, at):
            return False
        at += length + _CHUNK_EXTRA_BYTES
    return True
