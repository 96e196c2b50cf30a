"""Makes thumbnails of the images and small arrays of a dataset, as data URLs."""

from __future__ import annotations

import base64
import dataclasses
import html
import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from beam_tfrecord.base.text import cell
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.images import ImageError
from beam_tfrecord.images.decode import Transform, transformed
from beam_tfrecord.images.headers import MAX_PIXELS, describe
from beam_tfrecord.loading.rows import Rows

_PIXELS, _SMALL_HEIGHT = 160, 64
# A smaller file is embedded as it is, so that its bytes do not depend on a codec.
_EMBEDDED_BYTES = 6000
_EMBEDDED = ("jpeg", "png", "gif", "webp")
_LARGEST_ARRAY = 128
_FAINT = 32  # arrays of smaller values, such as 0 to 16, are made brighter
_PICTURES = 24
_BOXES = tuple(f"image/object/bbox/{side}" for side in ("xmin", "ymin", "xmax", "ymax"))
_OBJECTS = "image/object/class/text"
_LABELS = ("label", "labels", "class", "target")


@dataclasses.dataclass(frozen=True)
class Picture:
    """A thumbnail of `width` x `height` pixels; boxes are left, top, width and height in pixels."""

    url: str
    width: int
    height: int
    split: int
    label: str
    boxes: Sequence[Sequence[float]]


def picture_html(picture: Picture) -> str:
    """Return a picture for a notebook."""
    return (
        f'<img src="{picture.url}" height="{_SMALL_HEIGHT}" title="{html.escape(picture.label)}"> '
    )


def label_name(schema: Schema) -> str | None:
    """Return the column that is the label: the first with class names, or with the usual name."""
    known = [feature.name for feature in schema.features if feature.labels]
    return next((name for name in (*known, *_LABELS, _OBJECTS) if name in schema), None)


def pictures(
    dataset: Rows, features: Mapping[str, Any], label: str | None = None, most: int = _PICTURES
) -> list[Picture]:
    """Return thumbnails of the first rows of each split; `features` is the JSON of statistics."""
    names = [name for name, found in features.items() if "image" in found or _is_picture(found)]
    if not names:
        return []
    label = label or label_name(dataset.schema)
    others = [name for name in (label, *_BOXES) if name is not None and name in dataset.schema]
    schema = dataset.schema.select(dict.fromkeys([names[0], *others]))
    count = max(1, most // len(dataset.split_names))
    classes = dataset.schema[label].labels if label is not None else ()
    found = []
    for number, split in enumerate(dataset.split_names):
        part = dataclasses.replace(dataset, split_names=(split,), schema=schema)
        for row in itertools.islice(part.rows(), count):
            if (thumbnail := _thumbnail(row[names[0]])) is not None:
                text = "" if label is None else label_text(row[label], classes)
                boxes = list(_boxes(row, *thumbnail[1:]))
                found.append(Picture(*thumbnail, number, text, boxes))
    return found


def label_text(value: Any, classes: Sequence[str]) -> str:
    """Return a label as text: the name of its class if it is known."""
    if isinstance(value, list):
        return cell(", ".join(dict.fromkeys(map(str, value))))
    is_number = isinstance(value, int) and 0 <= value < len(classes)
    return cell(classes[value] if is_number else "" if value is None else str(value))


def _is_picture(found: Mapping[str, Any]) -> bool:
    return found["type"].startswith("uint8[") and found["type"].count(",") in (1, 2)


def _boxes(row: Mapping[str, Any], width: int, height: int) -> Iterator[list[float]]:
    """Yield the boxes of objects, which are stored as shares of the width and height."""
    if all(row.get(name) for name in _BOXES):
        for left, top, right, bottom in zip(*(row[name] for name in _BOXES), strict=False):
            box = (left * width, top * height, (right - left) * width, (bottom - top) * height)
            yield [round(side, 1) for side in box]


def _thumbnail(value: Any) -> tuple[str, int, int] | None:
    """Return the data URL, width and height of a small picture; None if the value is none."""
    if isinstance(value, bytes):
        try:
            header = describe(value)
            if len(value) > _EMBEDDED_BYTES or header.format not in _EMBEDDED:
                how = Transform(resize=_PIXELS, format="jpeg", quality=75, orient=True)
                value, header, _ = transformed(value, header, how, max_pixels=MAX_PIXELS)
        except ImageError:
            return None
        return _data_url(value, header.format), header.width, header.height
    return None if value is None else _array_thumbnail(np.asarray(value))


def _array_thumbnail(pixels: np.ndarray) -> tuple[str, int, int] | None:
    """Return the thumbnail of an array of grey values or of colors."""
    is_small = pixels.ndim in (2, 3) and 0 < max(pixels.shape[:2]) <= _LARGEST_ARRAY
    if not is_small or not pixels.size or pixels.shape[2:] not in ((), (1,), (3,), (4,)):
        return None
    from PIL import Image

    if pixels.shape[2:] == (1,):
        pixels = pixels[..., 0]
    most = max(int(pixels.max()), 1)
    if most < _FAINT:
        pixels = (pixels.astype(np.uint16) * 255 // most).astype(np.uint8)
    file = io.BytesIO()
    # Uncompressed, so that the bytes do not depend on a version of zlib.
    Image.fromarray(pixels).save(file, "PNG", compress_level=0)
    return _data_url(file.getvalue(), "png"), pixels.shape[1], pixels.shape[0]


def _data_url(data: bytes, format: str) -> str:
    return f"data:image/{format};base64,{base64.b64encode(data).decode('ascii')}"
