"""JPEG headers: ITU-T T.81, with the orientation from EXIF (APP1).

A file is a chain of segments, each a marker with a length, up to the first start of scan. From
there on entropy-coded bytes follow, in which FF stands only before 00, a restart marker or the
next segment: so an FF D9 behind the start of scan is the true end.
"""

from __future__ import annotations

import functools
import re

from beam_tfrecord.images.header import (
    UPRIGHT,
    Header,
    Refusal,
    damaged,
    too_large_for_tensorflow,
    truncated,
)
from beam_tfrecord.images.tiff import exif_orientation

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
_MOST_PIXELS_A_SIDE = 65_500
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
    if max(width, height) > _MOST_PIXELS_A_SIDE or width * height * components >= _MOST_SAMPLES:
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
