"""Describes image files by their headers, without decoding the pixels: JPEG by hand, for speed.

`describe` also finds files that end too early, and images that TensorFlow does not decode.
"""

from __future__ import annotations

import contextlib
import io
import re
import struct
from collections.abc import Iterator
from typing import Any

from beam_tfrecord.images import UPRIGHT, Header, ImageError

SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff")
"""Suffixes, in lower case, of the files that are read as images."""

MAX_PIXELS = 2**28
"""Default limit: 2**28 pixels are 1 GiB as RGBA; more is a mistake or an attack."""

_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF")
_GIF_EXTENSION, _GIF_END = b"!;"
_PNG_START, _PNG_END = b"\x89PNG\r\n\x1a\n", b"\0\0\0\0IEND\xaeB`\x82"
_PNG_KEPT = frozenset({b"IHDR", b"eXIf", b"tEXt", b"zTXt", b"iTXt"})
# JPEG: ITU-T T.81. Segments, each a marker with a length, come before the coded pixels.
_JPEG_START, _JPEG_END = b"\xff\xd8\xff", b"\xff\xd9"
STARTS = (_JPEG_START, b"\x89PNG", b"GIF8", b"BM", b"RIFF", b"II*\0", b"MM\0*")
"""First bytes of the files that are taken for images."""
_SEGMENT = struct.Struct(">BBH")  # 0xFF, marker, length with its own two bytes
_SEGMENTS = frozenset((*range(0xC0, 0xD0), *range(0xDA, 0x100)))
_FRAME = struct.Struct(">BHHB")  # bits of a sample, height, width, components
_FILL, _SCAN, _METADATA = 0xFF, 0xDA, 0xE1
# A tag of EXIF, of either byte order, that is not 1; or one of XMP. Most images have neither.
_TURNS = re.compile(
    rb"\x12\x01(?!\x03\0\x01\0\0\0\x01\0)|\x01\x12(?!\0\x03\0\0\0\x01\0\x01)"
    rb'|tiff:Orientation(?:="|>)[02-9]'
)
# SOF0 to SOF15 without DHT, JPG and DAC. Decoders read baseline, extended and progressive frames.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_DECODED_FRAMES = frozenset({0xC0, 0xC1, 0xC2, 0xC9, 0xCA})
_BMP_WINDOWS_HEADER, _BMP_LAYOUTS = 40, ("L", "BGR", "BGRX", "BGRA")
_WIDTH, _HEIGHT, _ORIENTATION = 256, 257, 274  # tags of TIFF and EXIF
_STARTS, _SIZES = (273, 324), (279, 325)  # of strips or tiles


def describe(
    data: bytes | bytearray,
    start: int = 0,
    end: int | None = None,
    *,
    check_end: bool = True,
    max_pixels: int = MAX_PIXELS,
) -> Header:
    """Read the header of the image in a range of bytes.

    With `check_end`, check that the file is complete, too.
    """
    if data.startswith(_JPEG_START, start):
        # Most images are JPEGs, whose header takes Pillow ten times as long.
        header, is_cut = _read_jpeg(data, start, len(data) if end is None else end)
    else:
        with pillow_faults():
            header, is_cut = _read_other(bytes(data[start:end]), max_pixels)
    if not header.width * header.height:
        raise ImageError("damaged", "is damaged: it has no pixels")
    if is_cut and check_end:
        raise ImageError("truncated", "is cut off before its end")
    check_pixels(header.width, header.height, max_pixels)
    return header


def shown(data: bytes) -> str | None:
    """Return the format and size of an image as text; None for bytes that are no image."""
    with contextlib.suppress(ImageError):
        header = describe(data, check_end=False)
        return f"<{header.format.upper()} {header.width}x{header.height}>"
    return None


def open_image(data: bytes, *, max_pixels: int) -> Any:
    """Return Pillow's image of a file, which is not decoded yet."""
    from PIL import Image, UnidentifiedImageError

    if not data:
        raise ImageError("empty", "is empty")
    # Pillow's own limit would refuse what the user allows.
    if (Image.MAX_IMAGE_PIXELS or max_pixels) < max_pixels:
        Image.MAX_IMAGE_PIXELS = max_pixels
    with pillow_faults():
        try:
            image = Image.open(io.BytesIO(data), formats=_FORMATS)
        except UnidentifiedImageError:
            reason = f"is not an image, or cut off in its header: it begins with {data[:8]!r}"
            raise ImageError("not-an-image", reason) from None
    check_pixels(*image.size, max_pixels)
    return image


def check_pixels(width: int, height: int, max_pixels: int, *, verb: str = "is") -> None:
    """Raise an `ImageError` if an image has more than `max_pixels` pixels."""
    if width * height > max_pixels:
        limit = f"more than {max_pixels:,} pixels"
        raise ImageError(
            "too-large", f"{verb} {width}x{height}, {limit}: pass --max-pixels to allow it"
        )


@contextlib.contextmanager
def pillow_faults() -> Iterator[None]:
    """Convert the errors of Pillow, which have many different types, to an `ImageError`."""
    from PIL import Image

    try:
        yield
    except ImageError:
        raise
    except Image.DecompressionBombError as error:
        reason = f"has far too many pixels: pass --max-pixels to allow it ({error})"
        raise ImageError("too-large", reason) from None
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise ImageError("damaged", f"is damaged or cut off ({text})") from error


def _read_jpeg(data: bytes | bytearray, start: int, stop: int) -> tuple[Header, bool]:
    """Return the header of the JPEG in a range of bytes, and whether it lacks its end mark."""
    at, coding, frame, turns = start + 2, 0, b"", False
    while at + _SEGMENT.size <= stop:
        fill, marker, length = _SEGMENT.unpack_from(data, at)
        if fill != _FILL or marker not in _SEGMENTS:
            break
        if marker == _FILL:
            at += 1
            continue
        begin, end = at + _SEGMENT.size, at + 2 + length
        if marker in _FRAMES:
            coding, frame = marker, bytes(data[begin : min(begin + _FRAME.size, stop)])
        elif marker == _METADATA:
            turns = turns or _TURNS.search(data, begin, end) is not None
        elif marker == _SCAN and len(frame) == _FRAME.size:
            bits, height, width, components = _FRAME.unpack(frame)
            is_decoded = coding in _DECODED_FRAMES and bits == 8
            refusal = None if is_decoded else "has a coding that TensorFlow does not decode"
            orientation = _orientation(file=data[start:end]) if turns else UPRIGHT
            header = Header("jpeg", width, height, min(components, 3), orientation, refusal)
            # A thumbnail has an end mark, too, but lies before the pixels.
            return header, data.rfind(_JPEG_END, end, stop) < 0
        at = end
    raise ImageError("damaged", f"is damaged or cut off: it has no segment at byte {at - start}")


def _read_other(data: bytes, max_pixels: int) -> tuple[Header, bool]:
    """Return the header of an image, and whether its file is cut off."""
    image = open_image(data, max_pixels=max_pixels)
    width, height = image.size
    if image.format == "TIFF":  # Pillow turns it
        width, height = image.tag_v2[_WIDTH], image.tag_v2[_HEIGHT]
    # Pillow would decode the pixels of a PNG to read the metadata that follow them.
    kept = (chunk for kind, chunk in chunks(data) if kind in _PNG_KEPT)
    metadata = b"".join((_PNG_START, *kept, _PNG_END)) if image.format == "PNG" else b""
    channels, orientation = _channels(data, image), _orientation(image, file=metadata)
    format, refusal = image.format.lower(), _refusal(data, image)
    return Header(format, width, height, channels, orientation, refusal), _is_cut(data, image)


def _is_cut(data: bytes, image: Any) -> bool:
    """Return whether a file ends before its end mark, or before the last of its pixels."""
    match image.format:
        case "PNG":
            return _PNG_END not in data
        case "GIF":
            return _is_cut_gif(data, image.tile[0][2])
        case "BMP":
            return _end_of_bmp(image) > len(data)
        case "TIFF":
            starts, sizes = (
                image.tag_v2.get(strips) or image.tag_v2.get(tiles, ())
                for strips, tiles in (_STARTS, _SIZES)
            )
            return any(start + size > len(data) for start, size in zip(starts, sizes, strict=False))
    return False  # Pillow does not open a WebP that is cut off


def _is_cut_gif(data: bytes, at: int) -> bool:
    """Return whether a GIF has no end mark, given where the blocks of its first pixels begin."""
    with contextlib.suppress(IndexError):
        while True:
            while size := data[at]:  # a block of this size follows; the last one is empty
                at += size + 1
            while not data[at]:
                at += 1
            if data[at] == _GIF_END:
                return False
            is_image = data[at] != _GIF_EXTENSION  # with its own colors, if a bit says so
            at += 11 + (data[at + 9] >> 7) * (6 << (data[at + 9] & 7)) if is_image else 2
    return True


def _end_of_bmp(image: Any) -> int:
    """Return where the pixels of a BMP end; 0 if they are compressed."""
    decoder, box, start, layout = image.tile[0]
    return start + layout[1] * box[3] if decoder == "raw" else 0


def _channels(data: bytes, image: Any) -> int:
    """Return the number of channels that TensorFlow decodes."""
    if image.format == "BMP":
        return {8: 1, 32: 4}.get(_bits_of_bmp(data), 3)
    if image.mode == "P" or image.format == "GIF":
        return 4 if image.format == "PNG" and "transparency" in image.info else 3
    # Pillow makes RGBA of grey and alpha of 16 bits: the number 4 means both of any depth.
    return 2 if image.format == "PNG" and data[25] == 4 else len(image.getbands())


def _bits_of_bmp(data: bytes) -> int:
    """Return the bits of a pixel, whose place depends on the size of the header."""
    return data[28] if data[14] >= _BMP_WINDOWS_HEADER else data[24]


def _orientation(image: Any = None, *, file: bytes | bytearray = b"") -> int:
    """Return the orientation that Pillow reads from EXIF or XMP; 1 if there is none it can read."""
    from PIL import Image

    with contextlib.suppress(Exception):
        image = Image.open(io.BytesIO(file)) if file else image
        value: Any = Image.Image.getexif(image).get(_ORIENTATION)
        if value in range(1, 9):
            return int(value)
    return UPRIGHT


def chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the type of each chunk of a PNG, and the chunk: length, type, content, checksum."""
    at = len(_PNG_START)
    while at < len(data):
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        yield data[at + 4 : at + 8], data[at:end]
        at = end


def _refusal(data: bytes, image: Any) -> str | None:
    """Return why TensorFlow does not decode an image; None if it does."""
    match image.format:
        case "TIFF":
            return "is a TIFF"
        case "WEBP" if data[12:16] == b"VP8X" and data[20] & 2:
            return "is animated"
        case "WEBP" if image.mode == "RGBA":
            return "has an alpha channel, which TensorFlow cannot decode in WebP"
        case "GIF" if "transparency" in image.info or image.tile[0][1] != (0, 0, *image.size):
            return "has a transparent color, or a first frame that does not fill it"
        case "BMP" if not _is_plain_bmp(data, image):
            return "has a palette or a layout of BMP that TensorFlow does not decode"
    return None


def _is_plain_bmp(data: bytes, image: Any) -> bool:
    """Return whether a pixel is a grey byte, BGR or BGRA, and nothing follows the pixels."""
    is_windows = data[14] >= _BMP_WINDOWS_HEADER
    is_plain = image.tile[0][3][0] in _BMP_LAYOUTS and _bits_of_bmp(data) >= 8
    return is_windows and is_plain and _end_of_bmp(image) == len(data)
