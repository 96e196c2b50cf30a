"""Reads the rows of a COCO file: the path and size of each image, and the objects in it.

A list of an image has one item for each object, in the order of the file. The names of the columns
and the units of boxes are those of TensorFlow's Object Detection API:
https://github.com/tensorflow/models/blob/master/research/object_detection/data_decoders/tf_example_decoder.py
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import mmap
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS, Batch, Origin, Reject
from beam_tfrecord.errors import DataError, InputChanged
from beam_tfrecord.features.arrow_arrays import Int64Array
from beam_tfrecord.sizes import counted
from beam_tfrecord.sources.base import Chunk, InputFile, Scan, Source, Unit
from beam_tfrecord.sources.coco.index import CocoUnit, index_of
from beam_tfrecord.sources.files import as_paths, list_files
from beam_tfrecord.storage import is_remote, open_read
from beam_tfrecord.tables import listed

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

_KNOWN_KEYS = frozenset(
    ("id", "image_id", "category_id", "bbox", "area", "iscrowd", "segmentation")
)
_UNIT_IMAGES = 512
# No width, coordinate or area is as large; a float32 can be.
_FAR = 2**60


class CocoInference(NamedTuple):
    """What a unit shows for remarks about its file."""

    file: InputFile
    keys: frozenset[str]
    lost: int
    first_lost: str


class _Wrong(Exception):
    """An image or an object that cannot be read, with the reason."""


@dataclasses.dataclass(frozen=True)
class CocoRows(Source):
    """The rows of COCO files, without the images themselves."""

    kind: ClassVar[str] = "coco"
    detail_type: ClassVar[Any] = CocoUnit

    paths: Sequence[str]

    def files(self) -> Iterator[InputFile]:
        return list_files(as_paths(self.paths), SUFFIXES)

    def scan(self, chunk: Chunk) -> Scan:
        with _opened(chunk.file) as raw:
            return Scan(chunk, index_of(raw, chunk.file.name))

    def units(self, scans: Sequence[Scan]) -> list[Unit]:
        index: CocoUnit = scans[0].detail
        file, images = scans[0].chunk.file, len(index.counts)
        starts = range(0, images, _UNIT_IMAGES)
        ends = np.concatenate([[0], np.cumsum(index.counts)])
        units = []
        for number, start in enumerate(starts):
            stop = min(start + _UNIT_IMAGES, images)
            detail = index._replace(
                images=index.images[2 * start : 2 * stop],
                counts=index.counts[start:stop],
                annotations=index.annotations[2 * ends[start] : 2 * ends[stop]],
            )
            name = file.unit_name(number, len(starts))
            size = file.bytes * (stop - start) // images
            units.append(Unit(name, file, number, start, stop, stop - start, size, size, detail))
        return units

    def infer(self, of: Unit) -> CocoInference:
        return CocoInference(of.file, of.detail.keys, of.detail.lost, of.detail.first_lost)

    def merge(self, inferences: Iterable[CocoInference]) -> pa.Schema:
        del inferences
        own = {PATH: pa.string(), WIDTH: pa.int64(), HEIGHT: pa.int64(), MOST: pa.int64()}
        return pa.schema({**own, **COLUMNS})

    def remarks(self, inferences: Sequence[CocoInference], schema: pa.Schema) -> list[str]:
        lines = []
        files = {one.file.name: one for one in inferences}
        for name, one in sorted(files.items()):
            if one.lost:
                lines.append(
                    f"{counted(one.lost, 'annotation')} in {name} left out: images that are not "
                    f"in the file, such as {one.first_lost}"
                )
            if others := sorted(one.keys - _KNOWN_KEYS):
                lines.append(f"annotations in {name} have keys that are not read: {listed(others)}")
        return lines

    def read(
        self, unit: Unit, schema: pa.Schema, *, batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Batch]:
        detail: CocoUnit = unit.detail
        ends = np.concatenate([[0], np.cumsum(detail.counts)])
        with _opened(unit.file) as raw:
            names = _categories(raw, detail, unit.file)
            for first in range(0, len(detail.counts), batch_rows):
                rows: dict[int, dict[str, Any]] = {}
                rejects: list[Reject] = []
                for row in range(first, min(first + batch_rows, len(detail.counts))):
                    spans = detail.annotations[2 * ends[row] : 2 * ends[row + 1]]
                    (image,) = _values(raw, detail.images[2 * row : 2 * row + 2], unit)
                    try:
                        rows[row] = _row(image, _values(raw, spans, unit), names)
                    except _Wrong as error:
                        rejects.append(_reject(unit, row, image, str(error)))
                data = pa.RecordBatch.from_pylist(list(rows.values()), schema=schema)
                address = (f"{unit.file.name} image ", unit.start)
                numbers = np.array(list(rows), np.int64)
                origin = Origin(unit.name, unit.index, numbers, address=address)
                yield Batch(data, origin, rejects=tuple(rejects))


@contextlib.contextmanager
def _opened(file: InputFile) -> Iterator[mmap.mmap | bytes]:
    """Yield the bytes of a file; a remote one is first copied to this machine."""
    # The annotations of neighbouring images are all over the file.
    copy = _copied(file) if is_remote(file.path) else None
    with open(file.path if copy is None else copy.name, "rb") as raw:
        if not file.bytes:  # nothing that can be mapped
            yield b""
            return
        with mmap.mmap(raw.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            yield mapped


@functools.lru_cache(maxsize=1)
def _copied(file: InputFile) -> Any:
    """Return a temporary file with the content of a remote one, for as long as it is referenced."""
    copy = tempfile.NamedTemporaryFile(prefix="beam_tfrecord-coco-")  # noqa: SIM115
    with open_read(file.path, version=file.version) as raw:
        shutil.copyfileobj(raw, copy, 2**22)
    copy.flush()
    return copy


def _values(raw: mmap.mmap | bytes, spans: Int64Array, unit: Unit) -> list[Any]:
    """Return the values at some places of a file, given starts and ends, shape `[2 * values]`."""
    try:
        return [json.loads(raw[start:stop]) for start, stop in spans.reshape(-1, 2).tolist()]
    except UnicodeDecodeError as error:
        raise DataError(f"{unit.file.name} is not UTF-8 ({error}): convert it") from error
    except ValueError as error:
        raise InputChanged(f"{unit.file.name} was changed while it was read: run again") from error


def _categories(raw: mmap.mmap | bytes, detail: CocoUnit, file: InputFile) -> dict[int, str]:
    """Return the names of the categories by their numbers."""
    start, stop = detail.categories
    found: dict[int, str] = {}
    values = json.loads(raw[start:stop])
    for number, value in enumerate(values if isinstance(values, list) else [None]):
        category = value if isinstance(value, dict) else {}
        key, name = category.get("id"), category.get("name")
        if type(key) is not int or abs(key) >= _FAR or type(name) is not str or key in found:
            raise DataError(
                f"{file.name} has no id of its own, a number, or no name in categories[{number}]: "
                "correct it"
            )
        found[key] = name
    return found


def _row(image: Mapping[str, Any], objects: Sequence[Any], names: Mapping[int, str]) -> Any:
    """Return the row of an image."""
    width: Any = image.get("width")
    height: Any = image.get("height")
    if not all(type(side) is int and 0 < side < _FAR for side in (width, height)):
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
    segmentation = json.dumps(value.get("segmentation"), separators=(",", ":"))
    corners = x / width, y / height, (x + w) / width, (y + h) / height
    return (*corners, category, names[category], area, int(crowd), segmentation)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < _FAR


def _reject(unit: Unit, row: int, image: Mapping[str, Any], reason: str) -> Reject:
    name = str(image.get("file_name", f"image {image.get('id')!r}"))
    message = f"{name} in {unit.file.name} {reason}: correct it, or leave the image out"
    return Reject(unit.name, row, "image", "bad-annotation", message, name, name)
