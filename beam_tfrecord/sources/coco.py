"""Reads images with the objects that COCO files annotate, one row for each image.

The rows of a file of instances (https://cocodataset.org/#format-data) name the images: see
`beam_tfrecord.sources.images.base`.
"""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from beam_tfrecord.base.arguments import as_words
from beam_tfrecord.base.extras import require
from beam_tfrecord.errors import UsageError
from beam_tfrecord.images import ImageError
from beam_tfrecord.native.kernel_types import BoolArray
from beam_tfrecord.options.sources import CocoOptions
from beam_tfrecord.sources.base import InputFile, Scan, Source
from beam_tfrecord.sources.coco_files import (
    AREA,
    COLUMNS,
    CROWD,
    HEIGHT,
    LABEL,
    MOST,
    PATH,
    SEGMENTATION,
    WIDTH,
    CocoRows,
)
from beam_tfrecord.sources.files import as_paths
from beam_tfrecord.sources.images.base import ImageSource
from beam_tfrecord.sources.images.read import ImageRows

_OF_OBJECTS, _OF_CLASSES = "image/object/mask", "mask"
MASKS: Mapping[str, tuple[str, pa.DataType]] = {
    "objects": (_OF_OBJECTS, pa.list_(pa.binary())),
    "classes": (_OF_CLASSES, pa.binary()),
}
"""The columns of masks, and their types, by the values of the option `masks`."""


_Size = tuple[int, int]
_LEAST_POLYGON = 6
MOST_CATEGORY = 2**16 - 1


@dataclasses.dataclass(frozen=True)
class Coco(CocoOptions, ImageSource):
    """Images with annotated objects, from COCO files such as ``instances_val2017.json``."""

    kind: ClassVar[str] = "coco"
    infers_from_scans: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "masks", as_words("masks", self.masks))
        for name in self.masks or ():
            if name not in MASKS:
                raise UsageError(f"masks {name!r} are not known: use {' and '.join(MASKS)}")

    @property
    def is_stable(self) -> bool:
        return False

    @property
    def row_source(self) -> Source:
        return CocoRows(as_paths(self.paths))

    @property
    def path_name(self) -> str:
        return PATH

    def files(self) -> Iterator[InputFile]:
        if self.masks:
            require("coco", "masks of objects")
        return super().files()

    def infer(self, of: Scan) -> Any:
        return of

    def merge(self, inferences: Iterable[Any]) -> pa.Schema:
        types = {**COLUMNS, **dict(map(MASKS.__getitem__, self.masks or ()))}
        fields = tuple(pa.field(name, arrow) for name, arrow in types.items())
        return self._schema_of(further=fields)

    def remarks(self, inferences: Sequence[Any], schema: pa.Schema) -> list[str]:
        return self.row_source.remarks(inferences, schema)

    def _folder_of(self, file: InputFile) -> str:
        # An image has to be below the directory of the images.
        return ""

    def _schema_of_rows(self, schema: pa.Schema) -> pa.Schema:
        names = {name for name in schema.names if name in COLUMNS} | {PATH, WIDTH, HEIGHT}
        if {_OF_OBJECTS, _OF_CLASSES} & {*schema.names}:
            names |= {SEGMENTATION, LABEL, CROWD, MOST}
        return pa.schema([field for field in self.row_source.merge([]) if field.name in names])

    def _described(self, rows: ImageRows, schema: pa.Schema) -> ImageRows:
        read = rows.batch.data.to_pylist()
        masks: dict[int, Masks] = {}
        for number, row in enumerate(read if MOST in rows.batch.data.schema.names else ()):
            try:
                masks[number] = _masks_of(row, _OF_CLASSES in schema.names)
            except NoMask as error:
                rows.faults.setdefault(number, ImageError("bad-mask", f"has an object {error}"))

        def more(accepted: list[int], columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
            sizes = zip(columns["width"].to_pylist(), columns["height"].to_pylist(), strict=True)
            made = [
                _sized(read[row], masks.get(row), size)
                for row, size in zip(accepted, sizes, strict=True)
            ]
            return {
                name: pa.array([row[name] for row in made], schema.field(name).type)
                for name in (AREA, _OF_OBJECTS, _OF_CLASSES)
                if name in schema.names
            }

        expected = [(row[WIDTH], row[HEIGHT]) for row in read]
        return dataclasses.replace(rows, expected=expected, more=more)


def _masks_of(row: Mapping[str, Any], has_classes: bool) -> Masks:
    """Return the masks of a row."""
    wrong = [number for number in row[LABEL] if not 0 < number <= MOST_CATEGORY]
    if has_classes and wrong:
        raise NoMask(f"of category {wrong[0]}, and masks have 1 to {MOST_CATEGORY:,}")
    size = row[WIDTH], row[HEIGHT]
    return Masks(*size, [runs_of(json.loads(text), *size) for text in row[SEGMENTATION]])


def _sized(row: Mapping[str, Any], masks: Masks | None, size: tuple[int, int]) -> dict[str, Any]:
    """Return the values that depend on the size in which an image is stored."""
    scale = size[0] * size[1] / (row[WIDTH] * row[HEIGHT])
    made: dict[str, Any] = {AREA: [area * scale for area in row.get(AREA, ())]}
    if masks is not None:
        made[_OF_OBJECTS] = masks.objects(size)
        made[_OF_CLASSES] = masks.classes(row[LABEL], row[CROWD], size, most=row[MOST])
    return made


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
        self, categories: Sequence[int], crowds: Sequence[int], size: tuple[int, int], *, most: int
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
