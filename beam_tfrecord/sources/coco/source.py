"""The COCO source: one row for each image, with the objects that are annotated in it.

The rows of its file of instances (https://cocodataset.org/#format-data) name the images: see
`beam_tfrecord.sources.images.with_images`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.errors import UsageError
from beam_tfrecord.extras import require
from beam_tfrecord.images import Fault
from beam_tfrecord.options.sources import CocoOptions
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.coco.masks import MOST_CATEGORY, Masks, NoMask
from beam_tfrecord.sources.coco.rows import (
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
    CocoUnit,
)
from beam_tfrecord.sources.files import as_paths
from beam_tfrecord.sources.images.base import ImageSource
from beam_tfrecord.sources.images.labels import Inferred
from beam_tfrecord.sources.images.read import Rows
from beam_tfrecord.sources.images.with_images import RowsInference, WithImages
from beam_tfrecord.type_checks import as_words

_OF_OBJECTS, _OF_CLASSES = "image/object/mask", "mask"
MASKS: Mapping[str, tuple[str, pa.DataType]] = {
    "objects": (_OF_OBJECTS, pa.list_(pa.binary())),
    "classes": (_OF_CLASSES, pa.binary()),
}
"""The columns of masks, and their types, by the values of the option `masks`."""


_Size = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class _WithMasks(WithImages):
    """The images and masks of the rows of a COCO file."""

    masks: Sequence[str] = ()

    @property
    def _needs_images(self) -> bool:
        return True

    def merge(self, inferences: Iterable[RowsInference]) -> pa.Schema:
        types = {**COLUMNS, **dict(map(MASKS.__getitem__, self.masks))}
        fields = tuple(pa.field(name, arrow) for name, arrow in types.items())
        return self.images.schema_of(Inferred(further=fields))

    def remarks(self, inferences: Sequence[RowsInference], schema: pa.Schema) -> list[str]:
        return self.rows.remarks([one.inference for one in inferences], schema)

    def _folder_of(self, file: InputFile) -> str:
        # An image has to be below the directory of the images.
        return ""

    def _schema_of_rows(self, schema: pa.Schema) -> pa.Schema:
        names = {name for name in schema.names if name in COLUMNS} | {PATH, WIDTH, HEIGHT}
        if {_OF_OBJECTS, _OF_CLASSES} & {*schema.names}:
            names |= {SEGMENTATION, LABEL, CROWD, MOST}
        return pa.schema([field for field in self.rows.merge([]) if field.name in names])

    def _described(self, rows: Rows, schema: pa.Schema) -> Rows:
        data = rows.batch.data
        sizes = list(zip(*(data.column(name).to_pylist() for name in (WIDTH, HEIGHT)), strict=True))
        masks: list[Masks | None] = [None] * len(sizes)
        if MOST in data.schema.names:
            for row, (width, height) in enumerate(sizes):
                try:
                    masks[row] = _masks(data, row, width, height, _OF_CLASSES in schema.names)
                except NoMask as error:
                    rows.faults.setdefault(row, Fault("bad-mask", f"has an object {error}"))
        more = functools.partial(_more, data, sizes, masks, schema.names)
        return dataclasses.replace(rows, expected=sizes, more=more)


def _masks(data: pa.RecordBatch, row: int, width: int, height: int, has_classes: bool) -> Masks:
    """Return the masks of a row."""
    numbers = data.column(LABEL)[row].as_py()
    if has_classes and (wrong := [one for one in numbers if not 0 < one <= MOST_CATEGORY]):
        raise NoMask(f"of category {wrong[0]}, and masks have 1 to {MOST_CATEGORY:,}")
    return Masks.of(list(map(json.loads, data.column(SEGMENTATION)[row].as_py())), width, height)


def _more(
    data: pa.RecordBatch,
    sizes: Sequence[tuple[int, int]],
    masks: Sequence[Masks | None],
    names: Sequence[str],
    accepted: Sequence[int],
    columns: Mapping[str, pa.Array],
) -> dict[str, pa.Array]:
    """Return the columns that depend on the size in which an image is stored."""
    old = [sizes[row] for row in accepted]
    stored = zip(columns["width"].to_pylist(), columns["height"].to_pylist(), strict=True)
    # Without a check, the size of an image may be unknown.
    new = [before if None in after else after for before, after in zip(old, stored, strict=True)]
    made: dict[str, pa.Array] = {}
    if AREA in names:
        areas = data.column(AREA).take(pa.array(accepted, pa.int64()))
        made[AREA] = _scaled(areas, old, new)
    if MOST not in data.schema.names:
        return made
    of = data.select([LABEL, CROWD, MOST]).take(pa.array(accepted, pa.int64())).to_pylist()
    drawn = [masks[row] for row in accepted]
    if _OF_OBJECTS in names:
        found = [mask.objects(size) for mask, size in zip(drawn, new, strict=True) if mask]
        made[_OF_OBJECTS] = pa.array(found, pa.list_(pa.binary()))
    if _OF_CLASSES in names:
        images = [
            mask.classes(row[LABEL], row[CROWD], size, most=row[MOST])
            for mask, row, size in zip(drawn, of, new, strict=True)
            if mask
        ]
        made[_OF_CLASSES] = pa.array(images, pa.binary())
    return made


def _scaled(areas: pa.Array, old: Sequence[_Size], new: Sequence[_Size]) -> pa.Array:
    """Return the areas of objects, in pixels of images that were resized."""
    scales = np.array([(w * h) / (x * y) for (w, h), (x, y) in zip(new, old, strict=True)])
    of_objects = np.repeat(scales, pc.list_value_length(areas).to_numpy())
    values = (areas.flatten().to_numpy() * of_objects).astype(np.float32)
    lengths = pc.list_value_length(areas).to_numpy()
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(values))


@dataclasses.dataclass(frozen=True)
class Coco(CocoOptions, ImageSource):
    """Images with annotated objects, from COCO files such as ``instances_val2017.json``.

    Attributes, besides those of all sources of images:
        masks: Masks to make, keys of `MASKS`; None means none. ``objects``: a PNG for each object.
            ``classes``: a PNG for each image, with the numbers of categories.
    """

    kind: ClassVar[str] = "coco"
    detail_type: ClassVar[Any] = CocoUnit

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
    def reader(self) -> _WithMasks:
        return _WithMasks(self, CocoRows(as_paths(self.paths)), PATH, masks=self.masks or ())

    def files(self) -> Iterator[InputFile]:
        if self.masks:
            require("coco", "masks of objects")
        return super().files()
