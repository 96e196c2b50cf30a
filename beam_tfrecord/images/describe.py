"""`describe`: the header of a picture in any known format, with its limits and end mark checked."""

from __future__ import annotations

from collections.abc import Callable

from beam_tfrecord.images.header import Fault, Header, damaged, truncated
from beam_tfrecord.images.jpeg import jpeg_header
from beam_tfrecord.images.png import SIGNATURE, png_header
from beam_tfrecord.images.riff_gif_bmp import bmp_header, gif_header, webp_header
from beam_tfrecord.images.tiff import is_tiff, tiff_header

SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff")
"""Names that end so, in any case, are taken for pictures."""

MAX_PIXELS = 2**28
"""Pixels that decode to 1 GiB of RGBA: more is a mistake or an attack."""

_LONGEST_SIGNATURE_BYTES = 12
_SIGNATURES = (SIGNATURE, b"GIF87a", b"GIF89a", b"\xff\xd8\xff", b"BM", b"II*\0", b"MM\0*")

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
    if begin.startswith(SIGNATURE):
        return png_header
    if begin.startswith((b"GIF87a", b"GIF89a")):
        return gif_header
    if begin[:4] == b"RIFF" and begin[8:12] == b"WEBP":
        return webp_header
    if is_tiff(data):
        return tiff_header
    return bmp_header if begin.startswith(b"BM") else None
