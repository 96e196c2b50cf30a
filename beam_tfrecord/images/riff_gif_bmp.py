"""Headers of WebP (Google's container specification), GIF89a and BMP (Windows DIB)."""

from __future__ import annotations

import struct
from typing import NamedTuple

from beam_tfrecord.images.header import (
    UPRIGHT,
    Fault,
    Header,
    Refusal,
    damaged,
    too_large_for_tensorflow,
    truncated,
)
from beam_tfrecord.images.tiff import exif_orientation

_RGB, _RGBA = 3, 4
_ALPHA, _ANIMATION = 0x10, 0x02
_WEBP_PIXELS = (b"VP8 ", b"VP8L")
_WEBP_BYTES = {b"VP8 ": 30, b"VP8L": 25, b"VP8X": 30}  # up to the size
_GIF_TRAILER, _GIF_IMAGE, _GIF_EXTENSION = 0x3B, 0x2C, 0x21
_BMP_OS2_HEADER, _BMP_SHORT_HEADER, _BMP_INFO_HEADER = 12, 16, 40
_BMP_PLAIN = {0, 3, 6}  # BI_RGB, BI_BITFIELDS, BI_ALPHABITFIELDS: rows of one size
_BMP_MASKED = {3, 6}
_BMP_MASKS_AT = 54
_BMP_BGR = struct.pack("<III", 0xFF0000, 0xFF00, 0xFF)
_BMP_LEAST_BYTES = 32  # that TensorFlow asks for
_BMP_MOST_PIXELS = (2**31 - 1) // 8
_GREYS = bytes(range(256))
_TRANSPARENT = Refusal("has transparency, which TensorFlow decodes of no WebP")
_ANIMATED = Refusal("is animated")


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
    if kind in _WEBP_PIXELS:
        width, height, is_clear = _webp_pixels(data, 12)
        header = Header("webp", width, height, _RGBA if is_clear else _RGB)
        return header._replace(refusal=_of_webp(data, 12, header))
    if kind == b"VP8X":
        flags = data[20]
        width = int.from_bytes(data[24:27], "little") + 1
        height = int.from_bytes(data[27:30], "little") + 1
        header = Header("webp", width, height, _RGB, _webp_orientation(data))
        if flags & _ANIMATION:
            channels = _RGBA if flags & _ALPHA else _RGB
            return header._replace(channels=channels, refusal=_ANIMATED)
        return _of_extended(data, header, is_clear=bool(flags & _ALPHA))
    if len(kind) < 4:
        raise IndexError
    raise damaged(f"its first chunk is {kind!r}")


def _webp_pixels(data: memoryview, at: int) -> tuple[int, int, bool]:
    """Return width, height, and whether the chunk of pixels at `at` holds transparency itself."""
    if bytes(data[at : at + 4]) == b"VP8 ":
        if bytes(data[at + 11 : at + 14]) != b"\x9d\x01\x2a":
            raise damaged("its frame has no start code")
        width, height = struct.unpack_from("<HH", data, at + 14)
        return width & 0x3FFF, height & 0x3FFF, False
    if data[at + 8] != 0x2F:
        raise damaged("its frame has no signature")
    (bits,) = struct.unpack_from("<I", data, at + 9)
    return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, bool(bits >> 28 & 1)


def _of_extended(data: memoryview, header: Header, *, is_clear: bool) -> Header:
    """Return the header of a still picture, with what the chunks behind its canvas say of it."""
    at, has_alpha_chunk = 12, False
    while at + 8 <= len(data):
        kind, length = struct.unpack_from("<4sI", data, at)
        if kind in _WEBP_PIXELS:
            try:
                width, height, holds_alpha = _webp_pixels(data, at)
            except (struct.error, IndexError, Fault):
                break
            is_clear = (holds_alpha if kind == b"VP8L" else is_clear) or has_alpha_chunk
            header = header._replace(channels=_RGBA if is_clear else _RGB)
            if (width, height) != (header.width, header.height):
                refusal = Refusal(
                    f"has a canvas of another size than its pixels ({width}x{height})"
                )
                return header._replace(refusal=refusal)
            return header._replace(refusal=_of_webp(data, at, header))
        has_alpha_chunk |= kind == b"ALPH"
        at += 8 + length + (length & 1)
    return header._replace(
        channels=_RGBA if is_clear else _RGB, refusal=Refusal("has no pixels behind its canvas")
    )


def _of_webp(data: memoryview, at: int, header: Header) -> Refusal | None:
    """Return why a still picture is refused whose pixels are in the chunk at `at`."""
    (riff_bytes,) = struct.unpack_from("<I", data, 4)
    (length,) = struct.unpack_from("<I", data, at + 4)
    if at + 8 + length > riff_bytes + 8:
        return Refusal("has pixels behind the end that it tells")
    return _TRANSPARENT if header.channels == _RGBA else None


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


class _Frame(NamedTuple):
    """Where a frame of a GIF lies on its screen, and the colors of its own, in bytes."""

    left: int
    top: int
    width: int
    height: int
    table_bytes: int


def gif_header(data: memoryview, *, whole: bool) -> Header:
    """Read the frames of a GIF; TensorFlow decodes them to RGB of the size of the largest.

    Args:
        data: The whole file.
        whole: Check that its blocks go on to the trailer.

    Raises:
        Fault: It is cut off, or its structure is broken.
    """
    frames: list[_Frame] = []
    try:
        width, height = struct.unpack_from("<HH", data, 6)
        _walk_gif(data, frames)
        if whole and not frames:
            raise damaged("it has no pixels")
    except (struct.error, IndexError):
        if whole or len(data) < 13:
            raise truncated("before its end mark") from None
    except Fault:
        if whole:
            raise
    if not frames:
        return Header("gif", width, height, _RGB, refusal=Refusal("has no whole frame"))
    # Behind a frame of nothing no more are read.
    end = next((i for i, frame in enumerate(frames) if not frame.width * frame.height), len(frames))
    width = max((frame.width for frame in frames[:end]), default=0)
    height = max((frame.height for frame in frames[:end]), default=0)
    first, refusal = frames[0], None
    if not first.table_bytes and not _color_table_bytes(data[10]):
        refusal = Refusal("has no table of colors")
    elif first.left + first.width > width or first.top + first.height > height:
        refusal = Refusal("has a frame that lies off its corner, of which TensorFlow cuts a part")
    return Header("gif", width, height, _RGB, refusal=refusal)


def _walk_gif(data: memoryview, frames: list[_Frame]) -> None:
    """Go from block to block to the trailer, and add every whole frame to `frames`.

    Raises:
        IndexError: The file ends before.
        struct.error: Likewise.
        Fault: There is no block where one should be.
    """
    at = 13 + _color_table_bytes(data[10])
    while (kind := data[at]) != _GIF_TRAILER:
        frame = None
        if kind == _GIF_IMAGE:
            table_bytes = _color_table_bytes(data[at + 9])
            left, top, width, height = struct.unpack_from("<HHHH", data, at + 1)
            frame = _Frame(left, top, width, height, table_bytes)
            at += 11 + table_bytes
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
            if header_bytes <= _BMP_SHORT_HEADER:
                compression = 0
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
    header = Header("bmp", width, height, _bmp_channels(bits))
    if header_bytes == _BMP_OS2_HEADER:
        return header._replace(refusal=Refusal("has a header of OS/2"))
    return header._replace(refusal=_of_bmp(data, header, bits, compression, end))


def _bmp_channels(bits: int) -> int:
    """Return whole bytes a pixel, as TensorFlow counts; it reads no pixels below a byte."""
    return bits // 8 if bits in (8, 24, 32) else _RGB


def _of_bmp(
    data: memoryview, header: Header, bits: int, compression: int, end: int
) -> Refusal | None:
    """Return why a BMP is refused whose pixels, where they are not compressed, end at `end`."""
    if bits not in (8, 24, 32):
        return Refusal(f"has {bits} bits a pixel")
    if compression not in _BMP_PLAIN:
        return Refusal("is compressed")
    if header.width * header.height >= _BMP_MOST_PIXELS:
        return too_large_for_tensorflow(header.width, header.height)
    if end != len(data) or end < _BMP_LEAST_BYTES:
        more = f"{len(data) - end} bytes behind" if end < len(data) else "not all of"
        return Refusal(f"has {more} its pixels")
    if bits == 8 and not _has_greys(data):
        return Refusal("has a palette, whose numbers TensorFlow takes for shades of grey")
    masks = bytes(data[_BMP_MASKS_AT : _BMP_MASKS_AT + len(_BMP_BGR)])
    if bits == 32 and compression in _BMP_MASKED and masks != _BMP_BGR:
        return Refusal("has its colors in another order than TensorFlow takes them")
    return None


def _has_greys(data: memoryview) -> bool:
    """Tell whether every number in a palette is that of the same shade of grey."""
    pixels, header_bytes, compression, colors = (
        int.from_bytes(data[at : at + 4], "little") for at in (10, 14, 30, 46)
    )
    if header_bytes < _BMP_INFO_HEADER:
        compression = colors = 0
    start = 14 + header_bytes
    if header_bytes == _BMP_INFO_HEADER and compression in _BMP_MASKED:
        start += len(_BMP_BGR)
    palette = bytes(data[start : min(start + 4 * (colors or 256), pixels)])
    return all(palette[color::4] == _GREYS[: len(palette[color::4])] for color in range(3))
