"""`describe`: the header of a picture in any known format, with its limits and end mark checked."""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable
from typing import NamedTuple

from isal import isal_zlib

from beam_tfrecord.images import (
    UPRIGHT,
    Fault,
    Header,
    Refusal,
    damaged,
    too_large_for_tensorflow,
    truncated,
)
from beam_tfrecord.images.tiff import exif_orientation, is_tiff, tiff_header

_MAX_CHANNELS = 3  # what TensorFlow decodes CMYK to
_EXIF, _START_OF_SCAN, _END, _QUANTIZATION = 0xE1, 0xDA, 0xD9, 0xDB
# SOF0 to SOF15 without DHT (C4), JPG (C8) and DAC (CC), which lie between them.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# Markers without a length: TEM, and the restart markers.
_BARE = frozenset({0x01, *range(0xD0, 0xD8)})

# What libjpeg-turbo, and with it TensorFlow, decodes: baseline, extended and progressive frames,
# and no segments but tables, restarts, lines (DNL), comments and those of applications.
_DECODED_FRAMES = frozenset({0xC0, 0xC1, 0xC2, 0xC9, 0xCA})
_KNOWN = frozenset({0xC4, 0xCC, _QUANTIZATION, 0xDC, 0xDD, 0xFE, *range(0xE0, 0xF0)})
# In coded data FF 00 is a byte FF, and restarts and fill bytes mean nothing.
_MARKER_IN_SCAN = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
_JPEG_MOST_SIDE = 65_500
_MOST_SAMPLES = 2**29
_MOST_FACTOR, _MOST_BLOCKS = 4, 10


def jpeg_header(data: memoryview, *, whole: bool) -> Header:
    """Read the header of a JPEG.

    Args:
        data: The whole file.
        whole: Check that the end mark is there.

    Raises:
        Fault: It is cut off, or its structure is broken.
    """
    try:
        header, scan = _segments(data)
    except IndexError:
        raise truncated("in its header") from None
    if bytes(data[-2:]) != b"\xff\xd9" and bytes(data[scan:]).rfind(b"\xff\xd9") < 0:
        if whole:
            raise truncated("before its end mark")
        header = header._replace(refusal=Refusal("has no end mark"))
    return header


def _segments(data: memoryview) -> tuple[Header, int]:
    """Return the header, and where the first scan starts; IndexError where the file ends."""
    at, frame, orientation, has_tables = 2, None, UPRIGHT, False
    refusal: Refusal | None = None
    while True:
        if data[at] != 0xFF:
            raise damaged(f"no marker at byte {at}")
        marker = data[at + 1]
        if marker == 0xFF:  # any number of these may stand before a marker
            at += 1
            continue
        if marker in _BARE:
            at += 2
            continue
        if marker == _END:
            raise damaged("it ends before its first scan")
        length = data[at + 2] << 8 | data[at + 3]
        if marker in _FRAMES:
            height, width = data[at + 5] << 8 | data[at + 6], data[at + 7] << 8 | data[at + 8]
            refusal = refusal or (Refusal("has two frames") if frame else _of_frame(data, at))
            frame = width, height, min(data[at + 9], _MAX_CHANNELS)
        elif marker == _START_OF_SCAN:
            if frame is None:
                raise damaged("it has no frame before its first scan")
            if not has_tables:
                refusal = refusal or Refusal("has no quantization table")
            return Header("jpeg", *frame, orientation, refusal), at + 2 + length
        elif marker == _EXIF and bytes(data[at + 4 : at + 10]) == b"Exif\0\0":
            if orientation == UPRIGHT:
                orientation = exif_orientation(data[at + 10 : at + 2 + length])
        elif marker == _QUANTIZATION:
            has_tables = True
        elif marker not in _KNOWN:
            refusal = refusal or Refusal(f"has a segment that no decoder knows (FF {marker:02X})")
        if length < 2:
            raise damaged(f"a segment at byte {at} has no length")
        at += 2 + length


def _of_frame(data: memoryview, at: int) -> Refusal | None:
    """Return why the frame whose marker is at `at` is refused; IndexError where the file ends."""
    height, width = data[at + 5] << 8 | data[at + 6], data[at + 7] << 8 | data[at + 8]
    components = data[at + 9]
    if max(width, height) > _JPEG_MOST_SIDE or width * height * components >= _MOST_SAMPLES:
        return too_large_for_tensorflow(width, height)
    return _of_coding(data[at + 1], data[at + 4], bytes(data[at + 10 : at + 10 + 3 * components]))


@functools.lru_cache(256)
def _of_coding(marker: int, precision: int, components: bytes) -> Refusal | None:
    """Return why a frame is refused, given three bytes a component; most pictures are alike."""
    if marker not in _DECODED_FRAMES:
        return Refusal(f"is coded in a way that TensorFlow does not decode (FF {marker:02X})")
    if precision != 8:
        return Refusal(f"has {precision} bits a sample")
    if len(components) not in (3, 9, 12):
        return Refusal(f"has {len(components) // 3} components")
    factors = [divmod(factor, 16) for factor in components[1::3]]
    sides = [side for factor in factors for side in factor]
    is_single = len(factors) == 1
    if min(sides) < 1 or max(sides) > _MOST_FACTOR or not (is_single or _is_scaled(factors)):
        return Refusal("has sampling factors that no decoder takes")
    return None


def _is_scaled(factors: list[tuple[int, int]]) -> bool:
    """Tell whether components of these sampling factors can be brought to one size."""
    across, down = (max(sides) for sides in zip(*factors, strict=True))
    blocks = sum(x * y for x, y in factors)
    return blocks <= _MOST_BLOCKS and not any(across % x or down % y for x, y in factors)


def refusal_of_scans(data: memoryview) -> Refusal | None:
    """Return why what follows the header of a JPEG is refused; other decoders may read it.

    TensorFlow reads on to the end mark once it has all pixels, and fails on what it meets there.
    """
    _, at = _segments(data)
    while found := _MARKER_IN_SCAN.search(data, at):
        at = found.start()
        marker = data[at + 1]
        if marker == _END:
            return None
        if marker not in _KNOWN and marker != _START_OF_SCAN:
            return Refusal(
                f"has a marker among its pixels that does not belong there (FF {marker:02X})"
            )
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return Refusal("has no end mark")


_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS_BY_COLOR = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}
_DEPTHS_BY_COLOR = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_PNG_PALETTE = 3
_PNG_CHUNK = struct.Struct(">I4s")
_CHUNK_EXTRA_BYTES = 12  # length, type and CRC
_NEEDED = (b"IHDR", b"PLTE", b"IDAT", b"IEND")
_IS_OPTIONAL = 0x20  # bit of the first letter of a type
_PNG_END = b"\0\0\0\0IEND\xaeB`\x82"

# Limits of libpng, and of TensorFlow's own code around it.
_PNG_MOST_SIDE = 1_000_000
_PNG_MOST_PIXELS = 2**29
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
    at = len(_PNG_SIGNATURE)
    refusal: Refusal | None = None
    while True:
        if at + _CHUNK_EXTRA_BYTES > len(data):
            if whole:
                raise truncated("before its end mark")
            refusal = refusal or Refusal("has no end mark")
            break
        length, kind = _PNG_CHUNK.unpack_from(data, at)
        if kind == b"IDAT":
            pixel_bytes += length
            if is_behind:
                refusal = refusal or Refusal("has its pixels in two places")
            elif color == _PNG_PALETTE and not palettes:
                refusal = refusal or Refusal("has no palette before its pixels")
        else:
            is_behind = pixel_bytes > 0
            if not kind[0] & _IS_OPTIONAL or not kind.isalpha():
                palettes += kind == b"PLTE"
                refusal = refusal or _of_png_chunk(data, at, color, palettes, is_behind=is_behind)
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
    channels = _CHANNELS_BY_COLOR[color] + (color == _PNG_PALETTE and transparent)
    return Header("png", width, height, channels, orientation, refusal)


def _of_png_chunk(
    data: memoryview, at: int, color: int, palettes: int, *, is_behind: bool
) -> Refusal | None:
    """Return why a chunk that decoders must know, and that holds no pixels, is refused."""
    length, kind = _PNG_CHUNK.unpack_from(data, at)
    if kind == b"IEND" and bytes(data[at : at + _CHUNK_EXTRA_BYTES]) == _PNG_END:
        return None
    if kind not in _NEEDED:
        return Refusal(f"has a chunk that no decoder knows ({bytes(kind)!r})")
    if not is_sound(data, at):
        return Refusal(f"has a chunk {kind.decode()} with a wrong checksum")
    if kind == b"IHDR":
        return _of_png_header(data) if at == len(_PNG_SIGNATURE) else Refusal("has two headers")
    if palettes > 1:
        return Refusal("has two palettes")
    is_read = kind == b"PLTE" and color == _PNG_PALETTE and not is_behind
    if is_read and (not length or length % 3 or length > _MOST_PALETTE_BYTES):
        return Refusal(f"has a palette of {length} bytes")
    return None


def _of_png_header(data: memoryview) -> Refusal | None:
    width, height, depth, color, *rest = struct.unpack_from(">IIBBBBB", data, 16)
    if depth not in _DEPTHS_BY_COLOR[color]:
        return Refusal(f"has {depth} bits a sample, which its type of colors does not allow")
    if rest[0] or rest[1] or rest[2] > 1:
        return Refusal("is compressed, filtered or interlaced in an unknown way")
    if max(width, height) > _PNG_MOST_SIDE or width * height >= _PNG_MOST_PIXELS:
        return too_large_for_tensorflow(width, height)
    return None


def is_sound(data: memoryview, at: int) -> bool:
    """Tell whether the checksum of the chunk at `at` is right; False where the file ends in it."""
    (length,) = struct.unpack_from(">I", data, at)
    end = at + 8 + length
    return isal_zlib.crc32(data[at + 4 : end]).to_bytes(4, "big") == bytes(data[end : end + 4])


def has_sound_pixels(data: memoryview) -> bool:
    """Tell whether the checksums of all chunks of pixels are right, which decoders may skip."""
    at = len(_PNG_SIGNATURE)
    while at + _CHUNK_EXTRA_BYTES <= len(data):
        length, kind = _PNG_CHUNK.unpack_from(data, at)
        if kind == b"IDAT" and not is_sound(data, at):
            return False
        at += length + _CHUNK_EXTRA_BYTES
    return True


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


SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff")
"""Names that end so, in any case, are taken for pictures."""

MAX_PIXELS = 2**28
"""Pixels that decode to 1 GiB of RGBA: more is a mistake or an attack."""

_LONGEST_SIGNATURE_BYTES = 12
_SIGNATURES = (_PNG_SIGNATURE, b"GIF87a", b"GIF89a", b"\xff\xd8\xff", b"BM", b"II*\0", b"MM\0*")

Parser = Callable[..., Header]


def describe(
    data: bytes | memoryview, *, whole: bool = True, max_pixels: int = MAX_PIXELS
) -> Header:
    """Read the header of a picture.

    Args:
        data: The whole file.
        whole: Check that the file goes on to the end that its format marks.
        max_pixels: Width times height that is let through.

    Raises:
        Fault: It is no picture of a known format, is cut off or broken, or has too many pixels.
    """
    view = memoryview(data)
    if not view:
        raise Fault("empty", "is empty")
    parser = _parser_of(view)
    if parser is None:
        begin = bytes(view[:_LONGEST_SIGNATURE_BYTES])
        if any(signature.startswith(begin) for signature in _SIGNATURES):
            raise truncated("in its first bytes")
        raise Fault("not-an-image", f"is no picture: it begins with {begin[:8]!r}")
    header = parser(view, whole=whole)
    if header.width < 1 or header.height < 1 or header.channels < 1:
        raise damaged(f"its size is {header.width}x{header.height}")
    check_pixels(header.width, header.height, max_pixels)
    return header


def check_pixels(width: int, height: int, max_pixels: int) -> None:
    """Refuse a picture that is too large to decode.

    Raises:
        Fault: It has more than `max_pixels`.
    """
    if width * height > max_pixels:
        raise Fault(
            "too-large",
            f"is {width}x{height}, more than {max_pixels:,} pixels: pass --max-pixels to allow it",
        )


def _parser_of(data: memoryview) -> Parser | None:
    begin = bytes(data[:_LONGEST_SIGNATURE_BYTES])
    if begin.startswith(b"\xff\xd8\xff"):
        return jpeg_header
    if begin.startswith(_PNG_SIGNATURE):
        return png_header
    if begin.startswith((b"GIF87a", b"GIF89a")):
        return gif_header
    if begin[:4] == b"RIFF" and begin[8:12] == b"WEBP":
        return webp_header
    if is_tiff(data):
        return tiff_header
    return bmp_header if begin.startswith(b"BM") else None
