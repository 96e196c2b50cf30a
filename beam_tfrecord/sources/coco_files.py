"""Reads COCO annotation files as rows: the path and size of each image, and the objects in it.

A list of an image has one item for each object, in the order of the file. The names of the columns
and the units of boxes are those of TensorFlow's Object Detection API:
https://github.com/tensorflow/models/blob/master/research/object_detection/data_decoders/tf_example_decoder.py
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from beam_tfrecord.base.text import counted, listed, repeated
from beam_tfrecord.errors import DataError
from beam_tfrecord.rows.batch import DEFAULT_BATCH_ROWS, Batch, Origin, Reject
from beam_tfrecord.sources.base import Chunk, InputFile, Scan, Source, Unit
from beam_tfrecord.sources.files import as_paths, list_files
from beam_tfrecord.storage import open_read

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
# No width, coordinate or area is as large; a float32 can be.
FAR = 2**60
_POLYGONS = "segmentation"
_KNOWN_KEYS = frozenset(("id", "image_id", "category_id", "bbox", "area", "iscrowd", _POLYGONS))
# A worker reads a few files at a time, and each needs much memory.
_FILES_KEPT = 4
_LOCK = threading.Lock()
_as_text = json.JSONEncoder(separators=(",", ":")).encode


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


class CocoFile(NamedTuple):
    """The content of a file: each image with its annotations, categories, and what is not read."""

    images: Sequence[tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]]
    categories: Mapping[int, str]
    remarks: Sequence[str]


def read_file(file: InputFile) -> CocoFile:
    """Return the content of a file, which is parsed once, and kept for all threads."""
    with _LOCK:
        return _read(file)


@functools.lru_cache(_FILES_KEPT)
def _read(file: InputFile) -> CocoFile:
    content = _parsed(file)
    # Some programs write the same id as a number and as text, so ids are compared as text.
    images: dict[str, Mapping[str, Any]] = {}
    for key, image in _items(content, "images", "id", file.name):
        if str(key) in images:
            raise DataError(f"{file.name} has image {key!r} twice: remove one")
        images[str(key)] = image
    objects: dict[str, list[Mapping[str, Any]]] = {key: [] for key in images}
    lost: list[Mapping[str, Any]] = []
    keys: set[str] = set()
    for key, annotation in _items(content, "annotations", "image_id", file.name):
        objects.get(str(key), lost).append(annotation)
        keys.update(annotation)
    if not images or "categories" not in content:
        lacks = "categories" if images else "images"
        raise DataError(
            f"{file.name} has no {lacks}: pass a COCO file of instances, such as "
            "instances_val2017.json"
        )
    pairs = list(zip(images.values(), objects.values(), strict=True))
    return CocoFile(pairs, _categories(content, file.name), list(_remarks(file.name, lost, keys)))


def _parsed(file: InputFile) -> Mapping[str, Any]:
    """Return the object in a file."""
    try:
        with open_read(file.path, version=file.version) as raw:
            content = json.loads(raw.read().decode("utf-8-sig"), object_pairs_hook=_compact)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{file.name} is not valid JSON, or cut off ({error}): correct it"
        ) from error
    if not isinstance(content, dict):
        raise DataError(f"{file.name} is no JSON object: pass a COCO file of instances")
    return content


def _compact(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of a file, with its segmentation as text, which needs little memory."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"key {repeated(key for key, _ in pairs)[0]!r} twice in an object")
    if _POLYGONS in found:
        found[_POLYGONS] = _as_text(found[_POLYGONS])
    return found


def _items(
    content: Mapping[str, Any], part: str, key: str, name: str
) -> Iterator[tuple[int | str, Mapping[str, Any]]]:
    """Yield the items of a list of the file, each with the id of its image."""
    values = content.get(part, [])
    for number, value in enumerate(values if isinstance(values, list) else [None]):
        found = value.get(key) if isinstance(value, dict) else None
        if not isinstance(found, int | str) or isinstance(found, bool):
            raise DataError(
                f"{name} has no {key}, a number or text, in {part}[{number}]: correct it"
            )
        yield found, value


def _categories(content: Mapping[str, Any], name: str) -> dict[int, str]:
    """Return the names of the categories by their numbers."""
    found: dict[int, str] = {}
    for key, category in _items(content, "categories", "id", name):
        text = category.get("name")
        if type(key) is not int or abs(key) >= FAR or type(text) is not str or key in found:
            raise DataError(
                f"{name} has category {key!r} twice, or its id is no number, or its name no text: "
                "correct it"
            )
        found[key] = text
    return found


def _remarks(name: str, lost: Sequence[Mapping[str, Any]], keys: set[str]) -> Iterator[str]:
    """Yield what is not read."""
    if lost:
        yield (
            f"{counted(len(lost), 'annotation')} in {name} left out: images that are not in the "
            f"file, such as {lost[0]['image_id']!r}"
        )
    if others := sorted(keys - _KNOWN_KEYS):
        yield f"annotations in {name} have keys that are not read: {listed(others)}"
