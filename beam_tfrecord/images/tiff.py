"""TIFF headers, and EXIF, which is a TIFF header inside other formats.

TIFF 6.0 (Adobe, 1992) and BigTIFF: a byte order, then a chain of directories of tagged values.
Only the first directory counts: it is the first page.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from beam_tfrecord.images import UPRIGHT, Fault, Header, Refusal, damaged, truncated

WIDTH, HEIGHT, PHOTOMETRIC, ORIENTATION, SAMPLES = 256, 257, 262, 274, 277
_OFFSETS_AND_COUNTS = ((273, 279), (324, 325))  # of strips, and of tiles
_PALETTE, _YCBCR = 3, 6
_REFUSAL = Refusal("is a TIFF")
_RGB_CHANNELS = 3

# Bytes of a value of each type; 13 and 16 to 18 are those of BigTIFF.
_TYPE_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8}
_TYPE_BYTES |= {13: 4, 16: 8, 17: 8, 18: 8}
_INTEGERS = {1: "B", 3: "H", 4: "I", 13: "I", 16: "Q", 18: "Q"}
# What reading behind the end raises, or so far behind it that it is no position at all.
_OUTSIDE = (struct.error, OverflowError)
# More strips than that are not looked at one by one.
_MAX_VALUES = 2**20


class _Layout(NamedTuple):
    """How a file writes its numbers, and where its first directory is."""

    order: str
    is_big: bool
    directory: int


def is_tiff(data: memoryview) -> bool:
    """Tell whether `data` begins as a TIFF or BigTIFF does."""
    return bytes(data[:4]) in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def tiff_header(data: memoryview, *, whole: bool) -> Header:
    """Read the first page of a TIFF.

    Args:
        data: The whole file.
        whole: Check that every strip or tile lies inside the file.

    Raises:
        Fault: It is cut off, or its structure is broken.
    """
    try:
        layout = _layout_of(data)
        tags = _directory(data, layout)
        width, height = _one(data, layout, tags, WIDTH, 0), _one(data, layout, tags, HEIGHT, 0)
        photometric = _one(data, layout, tags, PHOTOMETRIC, 0)
        samples = _one(data, layout, tags, SAMPLES, 1)
        orientation = _one(data, layout, tags, ORIENTATION, UPRIGHT)
        end = _end_of_pixels(data, layout, tags) if whole else 0
    except _OUTSIDE:
        raise truncated("in its header") from None
    if end > len(data):
        raise truncated(f"{end - len(data)} bytes before the end of its pixels")
    channels = _RGB_CHANNELS if photometric in (_PALETTE, _YCBCR) else samples
    return Header("tiff", width, height, channels, _checked(orientation), _REFUSAL)


def exif_orientation(data: memoryview) -> int:
    """Return the orientation in an EXIF block, 1 where it holds none or is broken."""
    try:
        layout = _layout_of(data)
        return _checked(_one(data, layout, _directory(data, layout), ORIENTATION, UPRIGHT))
    except (*_OUTSIDE, Fault):
        return UPRIGHT


def _checked(orientation: int) -> int:
    return orientation if 1 <= orientation <= 8 else UPRIGHT


def _layout_of(data: memoryview) -> _Layout:
    order = "<" if bytes(data[:2]) == b"II" else ">"
    (magic,) = struct.unpack_from(order + "H", data, 2)
    if magic == 43:
        return _Layout(order, True, struct.unpack_from(order + "Q", data, 8)[0])
    return _Layout(order, False, struct.unpack_from(order + "I", data, 4)[0])


def _directory(data: memoryview, layout: _Layout) -> dict[int, tuple[int, int, int]]:
    """Return type, number of values and position of the values of every tag."""
    order, is_big, at = layout
    if is_big:
        entry, entry_bytes, inline_bytes = struct.Struct(order + "HHQ"), 20, 8
        (count,) = struct.unpack_from(order + "Q", data, at)
        at += 8
    else:
        entry, entry_bytes, inline_bytes = struct.Struct(order + "HHI"), 12, 4
        (count,) = struct.unpack_from(order + "H", data, at)
        at += 2
    # A count that the file cannot hold ends in struct.error below, after as many as it can.
    tags: dict[int, tuple[int, int, int]] = {}
    for here in range(at, at + count * entry_bytes, entry_bytes):
        tag, kind, values = entry.unpack_from(data, here)
        place = here + entry_bytes - inline_bytes
        if _TYPE_BYTES.get(kind, 1) * values > inline_bytes:
            (place,) = struct.unpack_from(order + ("Q" if is_big else "I"), data, place)
        tags[tag] = (kind, values, place)
    return tags


def _values(
    data: memoryview, layout: _Layout, tags: dict[int, tuple[int, int, int]], tag: int
) -> tuple[int, ...]:
    kind, count, place = tags.get(tag, (3, 0, 0))
    if kind not in _INTEGERS:
        raise damaged(f"tag {tag} is no whole number")
    return struct.unpack_from(
        f"{layout.order}{min(count, _MAX_VALUES)}{_INTEGERS[kind]}", data, place
    )


def _one(
    data: memoryview,
    layout: _Layout,
    tags: dict[int, tuple[int, int, int]],
    tag: int,
    default: int,
) -> int:
    values = _values(data, layout, tags, tag)
    return values[0] if values else default


def _end_of_pixels(data: memoryview, layout: _Layout, tags: dict[int, tuple[int, int, int]]) -> int:
    for offsets, counts in _OFFSETS_AND_COUNTS:
        if offsets in tags:
            starts = _values(data, layout, tags, offsets)
            sizes = _values(data, layout, tags, counts)
            return max(map(sum, zip(starts, sizes, strict=False)), default=0)
    return 0
