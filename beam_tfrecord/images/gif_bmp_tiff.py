"""Parsers of the headers of GIF, BMP and TIFF, and of the orientation in an EXIF block.

An EXIF block is a TIFF inside of another format.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import NamedTuple

from beam_tfrecord.images import (
    UPRIGHT,
    Fault,
    Header,
    Refusal,
    damaged,
    too_large_for_tensorflow,
    truncated,
)

_RGB = 3

OUT_OF_BOUNDS_ERRORS = (struct.error, IndexError, OverflowError)
"""Errors of reading at a position beyond the end of a file, or at one that no file can have."""

# GIF89a. Pillow does not report the sizes of all frames without decoding them.
_GIF_TRAILER, _GIF_IMAGE, _GIF_EXTENSION = 0x3B, 0x2C, 0x21


class _Frame(NamedTuple):
    """The position of a frame of a GIF on its screen, and the size of its own color table."""

    left: int
    top: int
    width: int
    height: int
    table_bytes: int


def gif_header(data: memoryview, *, check_end: bool) -> Header:
    """Read the header of a GIF; it has the largest width and height of all frames, as TensorFlow.

    `check_end` also checks that the blocks reach the trailer.
    """
    width, height = struct.unpack_from("<HHxxx", data, 6)
    frames: list[_Frame] = []
    try:
        _add_frames(data, frames)
        if check_end and not frames:
            raise damaged("it has no pixels")
    except (struct.error, IndexError):
        if check_end:
            raise truncated("before its end mark") from None
    except Fault:
        if check_end:
            raise
    if not frames:
        return Header("gif", width, height, _RGB, refusal=Refusal("has no complete frame"))
    # TensorFlow ignores all frames after an empty one.
    end = next((i for i, frame in enumerate(frames) if not frame.width * frame.height), len(frames))
    width = max((frame.width for frame in frames[:end]), default=0)
    height = max((frame.height for frame in frames[:end]), default=0)
    first, refusal = frames[0], None
    if not first.table_bytes and not _color_table_bytes(data[10]):
        refusal = Refusal("has no color table")
    elif first.left + first.width > width or first.top + first.height > height:
        refusal = Refusal("has a frame away from its corner, of which TensorFlow cuts off a part")
    return Header("gif", width, height, _RGB, refusal=refusal)


def _add_frames(data: memoryview, frames: list[_Frame]) -> None:
    """Read all blocks of a GIF up to the trailer, and add every complete frame to `frames`."""
    at = 13 + _color_table_bytes(data[10])
    while (kind := data[at]) != _GIF_TRAILER:
        frame = None
        if kind == _GIF_IMAGE:
            left, top, width, height = struct.unpack_from("<HHHH", data, at + 1)
            frame = _Frame(left, top, width, height, _color_table_bytes(data[at + 9]))
            at += 11 + frame.table_bytes
        elif kind == _GIF_EXTENSION:
            at += 2
        else:
            raise damaged(f"no block at byte {at}")
        while size := data[at]:
            at += size + 1
        at += 1
        if frame:
            frames.append(frame)


def _color_table_bytes(flags: int) -> int:
    return 3 * 2 ** ((flags & 7) + 1) if flags & 0x80 else 0


# BMP: Windows DIB, and the headers of OS/2. With the methods BI_RGB, BI_BITFIELDS and
# BI_ALPHABITFIELDS the pixels are not compressed; the last two state the bits of each color.
_BMP_PLAIN, _BMP_MASKED = (0, 3, 6), (3, 6)
_BMP_LAST_COMPRESSION = 6
_BMP_OS2_HEADER, _BMP_WINDOWS_HEADER = 12, 40
_BMP_DEPTHS, _BMP_DECODED_DEPTHS = (1, 2, 4, 8, 16, 24, 32), (8, 24, 32)
_BMP_MASKS_AT = 54
_BMP_BGR = struct.pack("<III", 0xFF0000, 0xFF00, 0xFF)
_BMP_MIN_BYTES = 32  # of a file that TensorFlow decodes
_BMP_MAX_PIXELS = (2**31 - 1) // 8
_GREYS = bytes(range(256))


def bmp_header(data: memoryview, *, check_end: bool) -> Header:
    """Read the header of a BMP; `check_end` also checks that the file has every row of pixels."""
    start, header_bytes, width, height, _, bits = struct.unpack_from("<IIiiHH", data, 10)
    compression = colors = 0
    if header_bytes == _BMP_OS2_HEADER:
        width, height, _, bits = struct.unpack_from("<HHHH", data, 18)
    elif header_bytes >= _BMP_WINDOWS_HEADER:
        compression, colors = struct.unpack_from("<I12xI", data, 30)
    if bits not in _BMP_DEPTHS:
        raise damaged(f"it has {bits} bits per pixel")
    if compression > _BMP_LAST_COMPRESSION:
        raise damaged(f"it is compressed in an unknown way ({compression})")
    height = abs(height)
    row_bytes = (width * bits + 31) // 32 * 4 if compression in _BMP_PLAIN else 0
    end = start + row_bytes * height
    if check_end and end > len(data):
        raise truncated(f"{end - len(data)} bytes before the end of its pixels")
    refusal: Refusal | None
    if header_bytes == _BMP_OS2_HEADER:
        refusal = Refusal("has a header of OS/2")
    elif bits not in _BMP_DECODED_DEPTHS:
        refusal = Refusal(f"has {bits} bits per pixel")
    elif compression not in _BMP_PLAIN:
        refusal = Refusal("is compressed")
    elif width * height >= _BMP_MAX_PIXELS:
        refusal = too_large_for_tensorflow(width, height)
    else:
        is_masked = bits == 32 and compression in _BMP_MASKED
        palette = data[14 + header_bytes : start][: 4 * (colors or 256)] if bits == 8 else b""
        refusal = _plain_bmp_refusal(data, end, bytes(palette), is_masked=is_masked)
    # TensorFlow decodes each byte of a pixel to a channel, and does not decode other depths.
    channels = bits // 8 if bits in _BMP_DECODED_DEPTHS else _RGB
    return Header("bmp", width, height, channels, refusal=refusal)


def _plain_bmp_refusal(
    data: memoryview, end: int, palette: bytes, *, is_masked: bool
) -> Refusal | None:
    """Return the refusal of a BMP with complete bytes for each pixel, whose pixels end at `end`."""
    if end != len(data) or end < _BMP_MIN_BYTES:
        more = f"{len(data) - end} bytes after" if end < len(data) else "not all of"
        return Refusal(f"has {more} its pixels")
    if any(palette[color::4] != _GREYS[: len(palette[color::4])] for color in range(3)):
        return Refusal("has a palette, whose indices TensorFlow reads as shades of grey")
    if is_masked and bytes(data[_BMP_MASKS_AT : _BMP_MASKS_AT + len(_BMP_BGR)]) != _BMP_BGR:
        return Refusal("has its colors in another order than TensorFlow expects")
    return None


# TIFF 6.0 (Adobe, 1992) and BigTIFF: a byte order, then a chain of directories of tagged values.
# Only the first directory is read: it describes the first page. Pillow is not used: it refuses
# pages of more than four channels, and warns about every damaged EXIF block.
TIFF_SIGNATURES = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_WIDTH, _HEIGHT, _PHOTOMETRIC, _ORIENTATION, _SAMPLES = 256, 257, 262, 274, 277
_STRIP_OFFSETS, _STRIP_SIZES, _TILE_OFFSETS, _TILE_SIZES = 273, 279, 324, 325
_HEADER_TAGS = (_WIDTH, _HEIGHT, _PHOTOMETRIC, _ORIENTATION, _SAMPLES)
_PIXEL_TAGS = (_STRIP_OFFSETS, _STRIP_SIZES, _TILE_OFFSETS, _TILE_SIZES)
_PALETTE, _YCBCR = 3, 6
_BIG_TIFF = 43
# struct formats of the integer types; 13 is the position of a directory, 16 and 18 are of BigTIFF.
_INTEGERS = {1: "B", 3: "H", 4: "I", 13: "I", 16: "Q", 18: "Q"}
# Values of a tag beyond this number, such as the positions of further strips, are ignored.
_MAX_VALUES = 2**20


def tiff_header(data: memoryview, *, check_end: bool) -> Header:
    """Read the header of the first page of a TIFF.

    `check_end` also checks that every strip or tile lies inside the file.
    """
    tags = _integer_tags(data, _HEADER_TAGS + (_PIXEL_TAGS if check_end else ()))
    starts, sizes = tags.get(_STRIP_OFFSETS, ()), tags.get(_STRIP_SIZES, ())
    if _STRIP_OFFSETS not in tags:
        starts, sizes = tags.get(_TILE_OFFSETS, ()), tags.get(_TILE_SIZES, ())
    end = max(map(sum, zip(starts, sizes, strict=False)), default=0)
    if end > len(data):
        raise truncated(f"{end - len(data)} bytes before the end of its pixels")
    has_colors = _first(tags, _PHOTOMETRIC, 0) in (_PALETTE, _YCBCR)
    return Header(
        "tiff",
        _first(tags, _WIDTH, 0),
        _first(tags, _HEIGHT, 0),
        _RGB if has_colors else _first(tags, _SAMPLES, 1),
        _orientation(tags),
        Refusal("is a TIFF"),
    )


def exif_orientation(data: memoryview) -> int:
    """Return the orientation in an EXIF block; 1 if it contains none or is broken."""
    try:
        return _orientation(_integer_tags(data, (_ORIENTATION,)))
    except (*OUT_OF_BOUNDS_ERRORS, Fault):
        return UPRIGHT


def _orientation(tags: dict[int, tuple[int, ...]]) -> int:
    orientation = _first(tags, _ORIENTATION, UPRIGHT)
    return orientation if 1 <= orientation <= 8 else UPRIGHT


def _first(tags: dict[int, tuple[int, ...]], tag: int, default: int) -> int:
    return next(iter(tags.get(tag, ())), default)


def _integer_tags(data: memoryview, wanted: Collection[int]) -> dict[int, tuple[int, ...]]:
    """Return the integer values of the `wanted` tags that the first directory contains."""
    order = "<" if bytes(data[:2]) == b"II" else ">"
    is_big = struct.unpack_from(order + "H", data, 2)[0] == _BIG_TIFF
    offset, count_format = (order + "Q", order + "Q") if is_big else (order + "I", order + "H")
    entry = struct.Struct(order + ("HHQ8x" if is_big else "HHI4x"))
    inline_bytes = struct.calcsize(offset)
    (at,) = struct.unpack_from(offset, data, inline_bytes)
    (count,) = struct.unpack_from(count_format, data, at)
    at += struct.calcsize(count_format)
    tags = {}
    # If the file cannot hold `count` entries, the loop ends with struct.error.
    for start in range(at, at + count * entry.size, entry.size):
        tag, kind, values = entry.unpack_from(data, start)
        if tag not in wanted:
            continue
        if kind not in _INTEGERS:
            raise damaged(f"tag {tag} is not an integer")
        place = start + entry.size - inline_bytes
        if struct.calcsize(order + _INTEGERS[kind]) * values > inline_bytes:
            (place,) = struct.unpack_from(offset, data, place)
        number = min(values, _MAX_VALUES)
        tags[tag] = struct.unpack_from(f"{order}{number}{_INTEGERS[kind]}", data, place)
    return tags
