"""Reads the header of an image (format, size, channels, orientation) in any supported format.

`describe` chooses the parser: this module parses JPEG, PNG and WebP, and `gif_bmp_tiff` the other
formats. A parser also finds why TensorFlow would not decode the image, and with `check_end` checks
that the file is complete. It raises `Fault` if the structure is broken, and any error of
`OUT_OF_BOUNDS_ERRORS` if the header is truncated. Parsing a JPEG takes 6 us here and 36 us with
Pillow, which finds neither a missing end mark nor most reasons why TensorFlow fails. The native
kernel describes plain JPEGs in batches; `jpeg_header` is its reference.
"""

from __future__ import annotations

import functools
import re
import struct
import zlib
from collections.abc import Callable, Iterator

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
from beam_tfrecord.images.gif_bmp_tiff import (
    OUT_OF_BOUNDS_ERRORS,
    TIFF_SIGNATURES,
    bmp_header,
    exif_orientation,
    gif_header,
    tiff_header,
)

SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff")
"""Suffixes, in lower case, of the files that are read as images."""

MAX_PIXELS = 2**28
"""Default limit: 2**28 pixels are 1 GiB as RGBA; more is a mistake or an attack."""

_RGB, _RGBA = 3, 4

# JPEG: ITU-T T.81. A file is a chain of segments, each a marker with a length, up to the first
# start of scan. From there on entropy-coded bytes follow, in which FF stands only before 00, a
# restart marker or the next segment: so an FF D9 after the start of scan is the true end.
_EXIF, _START_OF_SCAN, _END, _QUANTIZATION = 0xE1, 0xDA, 0xD9, 0xDB
# SOF0 to SOF15 without DHT (C4), JPG (C8) and DAC (CC), which lie between them.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# Markers without a length: TEM, and the restart markers.
_BARE = frozenset({0x01, *range(0xD0, 0xD8)})

# What libjpeg-turbo, and with it TensorFlow, decodes: baseline, extended and progressive frames,
# and no segments but tables, restarts, DNL, comments and APPn.
_DECODED_FRAMES = frozenset({0xC0, 0xC1, 0xC2, 0xC9, 0xCA})
_KNOWN = frozenset({0xC4, 0xCC, _QUANTIZATION, 0xDC, 0xDD, 0xFE, *range(0xE0, 0xF0)})
# In coded data FF 00 is a byte FF, and restarts and fill bytes mean nothing.
_MARKER_IN_SCAN = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
_FRAME_SIZE = struct.Struct(">HHB")
_JPEG_MAX_SIDE = 65_500
_MAX_SAMPLES = 2**29
_MAX_FACTOR, _MAX_BLOCKS = 4, 10


def jpeg_header(data: memoryview, *, check_end: bool) -> Header:
    """Read the header of a JPEG; `check_end` also checks that the file has its end mark."""
    header, scan = _segments(data)
    if bytes(data[-2:]) != b"\xff\xd9" and bytes(data[scan:]).rfind(b"\xff\xd9") < 0:
        if check_end:
            raise truncated("before its end mark")
        header = header._replace(refusal=Refusal("has no end mark"))
    return header


def _segments(data: memoryview) -> tuple[Header, int]:
    """Return the header and the start of the first scan."""
    at, frame, orientation, has_tables = 2, None, UPRIGHT, False
    refusal: Refusal | None = None
    while True:
        if data[at] != 0xFF:
            raise damaged(f"no marker at byte {at}")
        marker = data[at + 1]
        if marker == 0xFF or marker in _BARE:
            at += 1 if marker == 0xFF else 2  # any number of fill bytes FF may precede a marker
            continue
        if marker == _END:
            raise damaged("it ends before its first scan")
        length = data[at + 2] << 8 | data[at + 3]
        if marker in _FRAMES:
            height, width, components = _FRAME_SIZE.unpack_from(data, at + 5)
            refusal = refusal or (Refusal("has two frames") if frame else _frame_refusal(data, at))
            frame = width, height, min(components, _RGB)
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


def _frame_refusal(data: memoryview, at: int) -> Refusal | None:
    """Return why TensorFlow refuses the frame at `at`."""
    height, width, components = _FRAME_SIZE.unpack_from(data, at + 5)
    if max(width, height) > _JPEG_MAX_SIDE or width * height * components >= _MAX_SAMPLES:
        return too_large_for_tensorflow(width, height)
    return _coding_refusal(
        data[at + 1], data[at + 4], bytes(data[at + 10 : at + 10 + 3 * components])
    )


@functools.lru_cache(256)  # most JPEGs share the same frame parameters
def _coding_refusal(marker: int, precision: int, components: bytes) -> Refusal | None:
    """Return why TensorFlow refuses a frame; `components` has three bytes for each."""
    if marker not in _DECODED_FRAMES:
        return Refusal(f"has a coding that TensorFlow does not decode (FF {marker:02X})")
    if precision != 8:
        return Refusal(f"has {precision} bits per sample")
    if len(components) not in (3, 9, 12):
        return Refusal(f"has {len(components) // 3} components")
    factors = [divmod(factor, 16) for factor in components[1::3]]
    sides = [side for factor in factors for side in factor]
    is_single = len(factors) == 1
    if min(sides) < 1 or max(sides) > _MAX_FACTOR or not (is_single or _is_scaled(factors)):
        return Refusal("has unsupported sampling factors")
    return None


def _is_scaled(factors: list[tuple[int, int]]) -> bool:
    """Return whether components of these sampling factors can be brought to one size."""
    across, down = (max(sides) for sides in zip(*factors, strict=True))
    blocks = sum(x * y for x, y in factors)
    return blocks <= _MAX_BLOCKS and not any(across % x or down % y for x, y in factors)


def refusal_of_scans(data: memoryview) -> Refusal | None:
    """Return why TensorFlow refuses the scans of a JPEG, after its header; None if it does not.

    TensorFlow reads to the end mark after the pixels, and fails on an unexpected marker before it.
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


# PNG: RFC 2083, and the third edition of the W3C specification for eXIf. A file is a chain of
# chunks up to IEND.
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS_BY_COLOR = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}
_DEPTHS_BY_COLOR = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_PNG_PALETTE = 3
_PNG_CHUNK = struct.Struct(">I4s")
_CHUNK_EXTRA_BYTES = 12  # length, type and CRC
_NEEDED = (b"IHDR", b"PLTE", b"IDAT", b"IEND")
_IS_OPTIONAL = 0x20  # bit of the first letter of a type
_PNG_LAST_FILTER = 4
# First column, first row, and steps to the next ones, of the passes of an interlaced PNG.
_ADAM7 = (
    (0, 0, 8, 8),
    (4, 0, 8, 8),
    (0, 4, 4, 8),
    (2, 0, 4, 4),
    (0, 2, 2, 4),
    (1, 0, 2, 2),
    (0, 1, 1, 2),
)
_PNG_END = b"\0\0\0\0IEND\xaeB`\x82"

# Limits of libpng, and of TensorFlow's own code around it.
_PNG_MAX_SIDE = 1_000_000
_PNG_MAX_PIXELS = 2**29
_MAX_PALETTE_BYTES = 3 * 256


def png_header(data: memoryview, *, check_end: bool) -> Header:
    """Read the header of a PNG; for an animated PNG it describes the canvas.

    `check_end` also checks that the chunks reach the end mark.
    """
    length, kind, width, height, depth, color = struct.unpack_from(">I4sIIBB", data, 8)
    if kind != b"IHDR" or length != 13 or color not in _CHANNELS_BY_COLOR or depth > 16:
        raise damaged("its first chunk is not a header")
    transparent, orientation, pixel_bytes, palettes, after_pixels = False, UPRIGHT, 0, 0, False
    refusal: Refusal | None = None
    for kind, at, length in _png_chunks(data):
        if kind == b"IDAT":
            pixel_bytes += length
            if after_pixels:
                refusal = refusal or Refusal("has its pixels in two places")
            elif color == _PNG_PALETTE and not palettes:
                refusal = refusal or Refusal("has no palette before its pixels")
        else:
            after_pixels = pixel_bytes > 0
            if not kind[0] & _IS_OPTIONAL or not kind.isalpha():
                palettes += kind == b"PLTE"
                refusal = refusal or _png_chunk_refusal(
                    data, at, color, palettes, after_pixels=after_pixels
                )
            elif kind == b"tRNS":
                transparent = True
            elif kind == b"eXIf":
                orientation = exif_orientation(data[at + 8 : at + 8 + length])
            if kind == b"IEND":
                break
    else:
        if check_end:
            raise truncated("before its end mark")
        refusal = refusal or Refusal("has no end mark")
    if not pixel_bytes:
        if check_end:
            raise damaged("it has no pixels")
        refusal = refusal or Refusal("has no pixels")
    channels = _CHANNELS_BY_COLOR[color] + (color == _PNG_PALETTE and transparent)
    return Header("png", width, height, channels, orientation, refusal)


def _png_chunks(data: memoryview) -> Iterator[tuple[bytes, int, int]]:
    """Yield type, position and length of the content of each chunk."""
    at = len(_PNG_SIGNATURE)
    while at + _CHUNK_EXTRA_BYTES <= len(data):
        length, kind = _PNG_CHUNK.unpack_from(data, at)
        yield kind, at, length
        at += length + _CHUNK_EXTRA_BYTES


def _png_chunk_refusal(
    data: memoryview, at: int, color: int, palettes: int, *, after_pixels: bool
) -> Refusal | None:
    """Return why TensorFlow refuses a critical chunk other than pixels."""
    length, kind = _PNG_CHUNK.unpack_from(data, at)
    if kind == b"IEND" and bytes(data[at : at + _CHUNK_EXTRA_BYTES]) == _PNG_END:
        return None
    if kind not in _NEEDED:
        return Refusal(f"has a chunk that no decoder knows ({bytes(kind)!r})")
    if not _is_sound(data, at):
        return Refusal(f"has a chunk {kind.decode()} with a wrong checksum")
    if kind == b"IHDR":
        return (
            _png_header_refusal(data) if at == len(_PNG_SIGNATURE) else Refusal("has two headers")
        )
    if palettes > 1:
        return Refusal("has two palettes")
    is_read = kind == b"PLTE" and color == _PNG_PALETTE and not after_pixels
    if is_read and (not length or length % 3 or length > _MAX_PALETTE_BYTES):
        return Refusal(f"has a palette of {length} bytes")
    return None


def _png_header_refusal(data: memoryview) -> Refusal | None:
    width, height, depth, color, *rest = struct.unpack_from(">IIBBBBB", data, 16)
    if depth not in _DEPTHS_BY_COLOR[color]:
        return Refusal(f"has {depth} bits per sample, which is invalid for its color type")
    if rest[0] or rest[1] or rest[2] > 1:
        return Refusal("is compressed, filtered or interlaced in an unknown way")
    if max(width, height) > _PNG_MAX_SIDE or width * height >= _PNG_MAX_PIXELS:
        return too_large_for_tensorflow(width, height)
    return None


def _is_sound(data: memoryview, at: int) -> bool:
    """Return whether the checksum of the chunk at `at` is right; False if the file ends in it."""
    (length,) = struct.unpack_from(">I", data, at)
    end = at + 8 + length
    return isal_zlib.crc32(data[at + 4 : end]).to_bytes(4, "big") == bytes(data[end : end + 4])


def check_png_pixels(data: memoryview) -> Refusal | None:
    """Check that the pixels of a PNG are complete; Pillow leaves missing rows black."""
    places = [(at, length) for kind, at, length in _png_chunks(data) if kind == b"IDAT"]
    passes = _png_passes(data)
    expected = sum(rows * row_bytes for rows, row_bytes in passes)
    unpacker = zlib.decompressobj()
    packed = b"".join(data[at + 8 : at + 8 + length] for at, length in places)
    try:
        # One byte more, so that the end of the stream is read, too.
        raw = unpacker.decompress(packed, expected + 1)
    except zlib.error as error:
        raise damaged(f"its pixels cannot be decompressed ({error})") from None
    if len(raw) < expected:
        raise truncated(f"{expected - len(raw)} bytes before the end of its pixels")
    if len(raw) == expected and not unpacker.eof:
        raise truncated("before the checksum of its pixels")
    start = 0
    for rows, row_bytes in passes:
        end = start + rows * row_bytes
        if max(raw[start:end:row_bytes]) > _PNG_LAST_FILTER:
            raise damaged("it has rows of an unknown filter")
        start = end
    if not all(_is_sound(data, at) for at, _ in places):
        return Refusal("has pixels with a wrong checksum")
    return None


def _png_passes(data: memoryview) -> list[tuple[int, int]]:
    """Return the number of rows, and of bytes in a row, of each pass over the pixels."""
    width, height, depth, color, _, _, interlace = struct.unpack_from(">IIBBBBB", data, 16)
    bits = depth if color == _PNG_PALETTE else depth * _CHANNELS_BY_COLOR[color]
    sizes = (
        (-((left - width) // across), -((top - height) // down))
        for left, top, across, down in (_ADAM7 if interlace else ((0, 0, 1, 1),))
    )
    return [(rows, 1 + (columns * bits + 7) // 8) for columns, rows in sizes if columns and rows]


# WebP: Google's container specification.
_WEBP_ALPHA, _WEBP_ANIMATION = 0x10, 0x02
_WEBP_CANVAS, _WEBP_PIXELS = b"VP8X", (b"VP8 ", b"VP8L")
_TRANSPARENT = Refusal("has an alpha channel, which TensorFlow cannot decode in WebP")


def webp_header(data: memoryview, *, check_end: bool) -> Header:
    """Read the header of a WebP; for an animated WebP it describes the canvas.

    `check_end` also checks that the file has the length that its header states.
    """
    riff_bytes, kind = struct.unpack_from("<I4x4s", data, 4)
    if kind == _WEBP_CANVAS:
        header = _canvas_header(data)
    elif kind in _WEBP_PIXELS:
        width, height, has_alpha = _webp_pixels(data, 12)
        header = _with_webp_refusal(
            data, 12, Header("webp", width, height, _RGBA if has_alpha else _RGB)
        )
    else:
        raise damaged(f"its first chunk is {kind!r}")
    if check_end and riff_bytes + 8 > len(data):
        raise truncated(f"{riff_bytes + 8 - len(data)} bytes before its end")
    return header


def _canvas_header(data: memoryview) -> Header:
    """Return the header of an extended WebP, whose first chunk describes the canvas (VP8X)."""
    # Width and height have 24 bits each.
    flags, low, high = struct.unpack_from("<B3xIH", data, 20)
    width, height = (low & 0xFFFFFF) + 1, (low >> 24 | high << 8) + 1
    has_alpha = bool(flags & _WEBP_ALPHA)
    header = Header("webp", width, height, _RGBA if has_alpha else _RGB, _webp_orientation(data))
    if flags & _WEBP_ANIMATION:
        return header._replace(refusal=Refusal("is animated"))
    has_alpha_chunk = False
    for kind, at, _ in _webp_chunks(data):
        if kind in _WEBP_PIXELS:
            try:
                width, height, holds_alpha = _webp_pixels(data, at)
            except (*OUT_OF_BOUNDS_ERRORS, Fault):
                break
            has_alpha = (holds_alpha if kind == b"VP8L" else has_alpha) or has_alpha_chunk
            header = header._replace(channels=_RGBA if has_alpha else _RGB)
            if (width, height) == (header.width, header.height):
                return _with_webp_refusal(data, at, header)
            reason = f"has a canvas of another size than its pixels ({width}x{height})"
            return header._replace(refusal=Refusal(reason))
        has_alpha_chunk |= kind == b"ALPH"
    return header._replace(refusal=Refusal("has no pixels after its canvas"))


def _webp_chunks(data: memoryview) -> Iterator[tuple[bytes, int, int]]:
    """Yield type, position and length of each chunk."""
    at = 12
    while at + 8 <= len(data):
        kind, length = struct.unpack_from("<4sI", data, at)
        yield kind, at, length
        at += 8 + length + (length & 1)


def _webp_pixels(data: memoryview, at: int) -> tuple[int, int, bool]:
    """Return width, height, and whether the chunk of pixels at `at` has an alpha channel."""
    if bytes(data[at : at + 4]) == b"VP8 ":
        mark, width, height = struct.unpack_from("<3sHH", data, at + 11)
        if mark != b"\x9d\x01\x2a":
            raise damaged("its frame has no start code")
        return width & 0x3FFF, height & 0x3FFF, False
    mark, bits = struct.unpack_from("<BI", data, at + 8)
    if mark != 0x2F:
        raise damaged("its frame has no signature")
    return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, bool(bits >> 28 & 1)


def _with_webp_refusal(data: memoryview, at: int, header: Header) -> Header:
    """Return `header` with any refusal of the pixels of a still WebP, in the chunk at `at`."""
    (riff_bytes,) = struct.unpack_from("<I", data, 4)
    (length,) = struct.unpack_from("<I", data, at + 4)
    if at + 8 + length > riff_bytes + 8:
        return header._replace(
            refusal=Refusal("has pixel data beyond the RIFF length in its header")
        )
    return header._replace(refusal=_TRANSPARENT if header.channels == _RGBA else None)


def _webp_orientation(data: memoryview) -> int:
    for kind, at, length in _webp_chunks(data):
        if kind == b"EXIF":
            block = data[at + 8 : at + 8 + length]
            # Some programs write the prefix that EXIF has inside of a JPEG.
            return exif_orientation(block[6:] if bytes(block[:6]) == b"Exif\0\0" else block)
    return UPRIGHT


_LONGEST_SIGNATURE_BYTES = 12
_PARSERS: tuple[tuple[bytes, Callable[..., Header]], ...] = (
    (b"\xff\xd8\xff", jpeg_header),
    (_PNG_SIGNATURE, png_header),
    (b"GIF87a", gif_header),
    (b"GIF89a", gif_header),
    *((signature, tiff_header) for signature in TIFF_SIGNATURES),
    (b"BM", bmp_header),
)


def describe(
    data: bytes | memoryview, *, check_end: bool = True, max_pixels: int = MAX_PIXELS
) -> Header:
    """Read the header of an image."""
    view = memoryview(data)
    if not view:
        raise Fault("empty", "is empty")
    parser = _parser_of(bytes(view[:_LONGEST_SIGNATURE_BYTES]))
    try:
        header = parser(view, check_end=check_end)
    except OUT_OF_BOUNDS_ERRORS:
        raise truncated("in its header") from None
    if header.width < 1 or header.height < 1 or header.channels < 1:
        raise damaged(f"its size is {header.width}x{header.height}")
    check_pixels(header.width, header.height, max_pixels)
    return header


def check_pixels(width: int, height: int, max_pixels: int) -> None:
    """Raise a `Fault` if an image has more than `max_pixels` pixels."""
    if width * height > max_pixels:
        raise Fault(
            "too-large",
            f"is {width}x{height}, more than {max_pixels:,} pixels: pass --max-pixels to allow it",
        )


def _parser_of(begin: bytes) -> Callable[..., Header]:
    if begin[:4] == b"RIFF" and begin[8:] == b"WEBP":
        return webp_header
    for signature, parser in _PARSERS:
        if begin.startswith(signature):
            return parser
    if any(signature.startswith(begin) for signature, _ in _PARSERS):
        raise truncated("in its first bytes")
    raise Fault("not-an-image", f"is not an image: it begins with {begin[:8]!r}")
