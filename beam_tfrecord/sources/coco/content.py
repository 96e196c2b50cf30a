"""Reads a COCO file: its images, the annotations of each, and the names of the categories."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from beam_tfrecord.base.text import counted, listed, repeated
from beam_tfrecord.errors import DataError
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.storage import open_read

SEGMENTATION = "segmentation"
FAR = 2**60
"""No width, coordinate or area is as large; a float32 can be."""

_KNOWN_KEYS = frozenset(("id", "image_id", "category_id", "bbox", "area", "iscrowd", SEGMENTATION))
# A worker reads a few files at a time, and each needs much memory.
_FILES_KEPT = 4
_LOCK = threading.Lock()
_as_text = json.JSONEncoder(separators=(",", ":")).encode


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
    images: dict[int | str, Mapping[str, Any]] = {}
    for key, image in _items(content, "images", "id", file.name):
        if key in images:
            raise DataError(f"{file.name} has image {key!r} twice: remove one")
        images[key] = image
    objects: dict[int | str, list[Mapping[str, Any]]] = {key: [] for key in images}
    lost: list[Mapping[str, Any]] = []
    keys: set[str] = set()
    for key, annotation in _items(content, "annotations", "image_id", file.name):
        objects.get(key, lost).append(annotation)
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
            content = json.loads(raw.read().decode("utf-8-sig"), object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{file.name} is not valid JSON, or cut off ({error}): correct it"
        ) from error
    if not isinstance(content, dict):
        raise DataError(f"{file.name} is no JSON object: pass a COCO file of instances")
    return content


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of a file, with its segmentation as text, which needs little memory."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"key {repeated(key for key, _ in pairs)[0]!r} twice in an object")
    if SEGMENTATION in found:
        found[SEGMENTATION] = _as_text(found[SEGMENTATION])
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
