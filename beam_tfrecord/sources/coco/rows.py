"""Reads the rows of a COCO file: the path and size of each image, and the objects in it.

A list of an image has one item for each object, in the order of the file. The names of the columns
and the units of boxes are those of TensorFlow's Object Detection API:
https://github.com/tensorflow/models/blob/master/research/object_detection/data_decoders/tf_example_decoder.py
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from beam_tfrecord.rows.batch import DEFAULT_BATCH_ROWS, Batch, Origin, Reject
from beam_tfrecord.sources.base import Chunk, InputFile, Scan, Source, Unit
from beam_tfrecord.sources.coco.content import FAR, read_file
from beam_tfrecord.sources.files import as_paths, list_files

SUFFIXES = (".json",)
PATH, WIDTH, HEIGHT = "file_name", "annotated_width", "annotated_height"
# The largest number of a category in the file.
MOST = "most_category"
AREA = "image/object/area"
SEGMENTATION = "image/object/segmentation"
LABEL = "image/object/class/label"
CROWD = "image/object/is_crowd"
_OBJECTS: Mapping[str, pa.DataType] = {
    "image/object/bbox/xmin": pa.float32(),
    "image/object/bbox/ymin": pa.float32(),
    "image/object/bbox/xmax": pa.float32(),
    "image/object/bbox/ymax": pa.float32(),
    LABEL: pa.int64(),
    "image/object/class/text": pa.string(),
    AREA: pa.float32(),
    CROWD: pa.int64(),
    SEGMENTATION: pa.string(),
}
COLUMNS: Mapping[str, pa.DataType] = {
    "image/source_id": pa.string(),
    **{name: pa.list_(kind) for name, kind in _OBJECTS.items()},
}
"""The columns that are read from the file of annotations."""

_UNIT_IMAGES = 512


class _Wrong(Exception):
    """An image or an object that cannot be read, with the reason."""


@dataclasses.dataclass(frozen=True)
class CocoRows(Source):
    """The rows of COCO files, without the images themselves."""

    kind: ClassVar[str] = "coco"
    infers_from_scans: ClassVar[bool] = True

    paths: Sequence[str]

    def files(self) -> Iterator[InputFile]:
        return list_files(as_paths(self.paths), SUFFIXES)

    # The detail of a scan is the number of images, and what of the file is not read.
    def scan(self, chunk: Chunk) -> Scan:
        content = read_file(chunk.file)
        return Scan(chunk, (len(content.images), content.remarks))

    def units(self, scans: Sequence[Scan]) -> list[Unit]:
        file, (images, _) = scans[0].chunk.file, scans[0].detail
        starts = range(0, images, _UNIT_IMAGES)
        units = []
        for number, start in enumerate(starts):
            stop = min(start + _UNIT_IMAGES, images)
            name = file.unit_name(number, len(starts))
            size = file.bytes * (stop - start) // images
            units.append(Unit(name, file, number, start, stop, stop - start, size, size))
        return units

    def merge(self, inferences: Iterable[Scan]) -> pa.Schema:
        del inferences
        own = {PATH: pa.string(), WIDTH: pa.int64(), HEIGHT: pa.int64(), MOST: pa.int64()}
        return pa.schema({**own, **COLUMNS})

    def remarks(self, inferences: Sequence[Scan], schema: pa.Schema) -> list[str]:
        return sorted(remark for scan in inferences for remark in scan.detail[1])

    def read(
        self, unit: Unit, schema: pa.Schema, *, batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Batch]:
        content = read_file(unit.file)
        for first in range(unit.start, unit.stop, batch_rows):
            rows: dict[int, dict[str, Any]] = {}
            rejects: list[Reject] = []
            for at in range(first, min(first + batch_rows, unit.stop)):
                image, objects = content.images[at]
                try:
                    rows[at - unit.start] = _row(image, objects, content.categories)
                except _Wrong as error:
                    rejects.append(_reject(unit, at - unit.start, image, str(error)))
            data = pa.RecordBatch.from_pylist(list(rows.values()), schema=schema)
            address = (f"{unit.file.name} image ", unit.start)
            origin = Origin(unit.name, unit.index, np.array(list(rows), np.int64), address=address)
            yield Batch(data, origin, rejects=tuple(rejects))


def _row(image: Mapping[str, Any], objects: Sequence[Any], names: Mapping[int, str]) -> Any:
    """Return the row of an image."""
    width: Any = image.get("width")
    height: Any = image.get("height")
    if not all(type(side) is int and 0 < side < FAR for side in (width, height)):
        raise _Wrong("has no width and height in pixels")
    if type(image.get("file_name")) is not str:
        raise _Wrong("has no file_name")
    items = [_object(value, width, height, names) for value in objects]
    return {
        PATH: image["file_name"],
        WIDTH: width,
        HEIGHT: height,
        MOST: max(names, default=0),
        "image/source_id": str(image["id"]),
        **{name: [item[at] for item in items] for at, name in enumerate(_OBJECTS)},
    }


def _object(value: Any, width: int, height: int, names: Mapping[int, str]) -> tuple[Any, ...]:
    """Return the items of an object in the columns of its image."""
    where = f"has annotation {value.get('id')!r}"
    box = value.get("bbox")
    if not (isinstance(box, list) and len(box) == 4 and all(map(_is_number, box))):
        raise _Wrong(f"{where} without a bbox of four numbers")
    x, y, w, h = box
    if w < 0 or h < 0:
        raise _Wrong(f"{where} with a bbox of negative size")
    category = value.get("category_id")
    if type(category) is not int or category not in names:
        raise _Wrong(f"{where} of category {category!r}, which is not in categories")
    area, crowd = value.get("area", math.nan), value.get("iscrowd", 0)
    if not (_is_number(area) or area != area) or crowd not in (0, 1):
        raise _Wrong(f"{where} whose area is no number, or whose iscrowd is not 0 or 1")
    segmentation = value.get("segmentation", "null")
    corners = x / width, y / height, (x + w) / width, (y + h) / height
    return (*corners, category, names[category], area, int(crowd), segmentation)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < FAR


def _reject(unit: Unit, row: int, image: Mapping[str, Any], reason: str) -> Reject:
    name = str(image.get("file_name", f"image {image.get('id')!r}"))
    message = f"{name} in {unit.file.name} {reason}: correct it, or leave the image out"
    return Reject(unit.name, row, "image", "bad-annotation", message, name, name)
