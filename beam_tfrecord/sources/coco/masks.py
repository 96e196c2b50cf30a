"""Draws the masks of objects as PNG, from run lengths or from polygons.

Run lengths are the numbers of pixels without and with the object, in turn, column by column. What
pixels a polygon has is what pycocotools says, which all evaluations of COCO use.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from beam_tfrecord.features.arrow_arrays import BoolArray

_LEAST_POLYGON = 6
MOST_CATEGORY = 2**16 - 1


class NoMask(Exception):
    """A segmentation that is neither polygons nor run lengths, with the reason."""


@dataclasses.dataclass(frozen=True)
class Masks:
    """The masks of the objects of an image, by their run lengths."""

    width: int
    height: int
    runs: Sequence[Sequence[int]]

    def objects(self, size: tuple[int, int]) -> list[bytes]:
        """Return a PNG for each object, with 1 where it is, resized to a width and height."""
        return [_png(self._pixels(runs).astype(np.uint8), size) for runs in self.runs]

    def classes(
        self,
        categories: Sequence[int],
        crowds: Sequence[int],
        size: tuple[int, int],
        *,
        most: int,
    ) -> bytes:
        """Return one PNG with the number of the category in each pixel, 0 where no object is.

        Crowds are behind objects, and larger objects behind smaller ones.
        """
        pixels = np.zeros((self.height, self.width), np.uint8 if most < 256 else np.uint16)
        areas = [sum(runs[1::2]) for runs in self.runs]
        for at in sorted(range(len(areas)), key=lambda at: (-crowds[at], -areas[at])):
            pixels[self._pixels(self.runs[at])] = categories[at]
        return _png(pixels, size)

    def _pixels(self, runs: Sequence[int]) -> BoolArray:
        is_inside = np.arange(len(runs)) % 2 == 1
        return np.repeat(is_inside, runs).reshape((self.height, self.width), order="F")


def runs_of(segmentation: Any, width: int, height: int) -> Sequence[int]:
    """Return the run lengths of a segmentation, as a COCO file has it."""
    if isinstance(segmentation, list) and segmentation:
        if not all(map(_is_polygon, segmentation)):
            raise NoMask("with a polygon that is not three or more pairs of numbers")
        from pycocotools import mask

        drawn = mask.merge(mask.frPyObjects(segmentation, height, width))
        return _decoded(drawn["counts"])
    counts = segmentation.get("counts") if isinstance(segmentation, dict) else None
    if not isinstance(counts, str | list):
        raise NoMask("without a segmentation")
    if segmentation.get("size") != [height, width]:
        raise NoMask(f"with a mask of another size, {segmentation.get('size')!r:.40}")
    runs = counts if isinstance(counts, list) else _decoded(counts.encode("utf-8", "replace"))
    are_lengths = all(type(run) is int and run >= 0 for run in runs)
    if not are_lengths or sum(runs) != height * width:
        raise NoMask("with run lengths that do not fit the size of the image")
    return runs


def _decoded(text: bytes) -> list[int]:
    """Decode COCO's compressed run lengths.

    A length is digits of 5 bits, of which the lowest is first, as the characters from ``0`` on. A
    digit that another follows has the bit 32; the last has the sign in its bit 16. From the fourth
    on, lengths are differences from the one before the last.
    """
    runs: list[int] = []
    value = shift = 0
    for character in text:
        digit = character - ord("0")
        value |= (digit & 0x1F) << shift
        shift += 5
        if not digit & 0x20:
            if digit & 0x10:
                value -= 1 << shift
            runs.append(value + (runs[-2] if len(runs) > 2 else 0))
            value = shift = 0
    return runs


def _is_polygon(points: Any) -> bool:
    return (
        isinstance(points, list)
        and len(points) >= _LEAST_POLYGON
        and len(points) % 2 == 0
        and all(type(one) in (int, float) and abs(one) < 2**24 for one in points)
    )


def _png(pixels: Any, size: tuple[int, int]) -> bytes:
    from PIL import Image

    image = Image.fromarray(pixels)
    if image.size != size:
        image = image.resize(size, Image.Resampling.NEAREST)
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()
