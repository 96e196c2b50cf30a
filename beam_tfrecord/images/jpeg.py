"""JPEG headers: ITU-T T.81, with the orientation from EXIF (APP1).

A file is a chain of segments, each a marker with a length, up to the first start of scan. From
there on entropy-coded bytes follow, in which FF stands only before 00, a restart marker or the
next segment: so an FF D9 behind the start of scan is the true end.
"""

from __future__ import annotations

from beam_tfrecord.images.header import UPRIGHT, Header, damaged, truncated
from beam_tfrecord.images.tiff import exif_orientation

_MAX_CHANNELS = 3  # what TensorFlow decodes CMYK to
_EXIF, _START_OF_SCAN, _END = 0xE1, 0xDA, 0xD9
# SOF0 to SOF15 without DHT (C4), JPG (C8) and DAC (CC), which lie between them.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# Markers without a length: TEM, and the restart markers.
_BARE = frozenset({0x01, *range(0xD0, 0xD8)})


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
    if whole and bytes(data[-2:]) != b"\xff\xd9" and bytes(data[scan:]).rfind(b"\xff\xd9") < 0:
        raise truncated("before its end mark")
    return header


def _segments(data: memoryview) -> tuple[Header, int]:
    """Return the header, and where the first scan starts; IndexError where the file ends."""
    at, frame, orientation = 2, None, UPRIGHT
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
            frame = width, height, min(data[at + 9], _MAX_CHANNELS)
        elif marker == _EXIF and bytes(data[at + 4 : at + 10]) == b"Exif\0\0":
            if orientation == UPRIGHT:
                orientation = exif_orientation(data[at + 10 : at + 2 + length])
        elif marker == _START_OF_SCAN:
            if frame is None:
                raise damaged("it has no frame before its first scan")
            return Header("jpeg", *frame, orientation), at + 2 + length
        elif marker == _END:
            raise damaged("it ends before its first scan")
        if length < 2:
            raise damaged(f"a segment at byte {at} has no length")
        at += 2 + length
