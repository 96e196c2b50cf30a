"""Finds the images of a COCO file, and the annotations of each.

Annotations are in any order, and a file may have 450 MB. One pass over its text notes where each
image and each annotation begins and ends. Only these numbers are kept: 40 bytes for an annotation.
"""

from __future__ import annotations

import codecs
import json
import mmap
import re
from array import array
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from beam_tfrecord.errors import DataError
from beam_tfrecord.features.arrow_arrays import Int64Array

_SPACES = re.compile(r"[ \t\r\n]*")
# The key that identifies the image of each item.
_KEYS = {"images": "id", "annotations": "image_id"}
_NO_CATEGORIES = (0, 0)

_Span = tuple[int, int]


class CocoUnit(NamedTuple):
    """Where some images of a file are, and the annotations of each.

    `images` and `annotations` have the first byte and the end of each value, `counts` the number of
    annotations of each image. The other attributes are of the file.
    """

    images: Int64Array
    counts: Int64Array
    annotations: Int64Array
    categories: _Span
    keys: frozenset[str]
    lost: int
    first_lost: str


def index_of(raw: mmap.mmap | bytes, name: str) -> CocoUnit:
    """Read a file once, and return where its values are."""
    text = _Text(raw, name)
    spans = {part: array("q") for part in _KEYS}
    owners = {part: array("q") for part in _KEYS}
    # Texts and numbers of images are replaced by the position in which they first appear.
    numbers: dict[int | str, int] = {}
    keys: set[str] = set()
    categories = _NO_CATEGORIES
    for part in text.members():
        if part not in _KEYS:
            _, span = text.value()
            categories = span if part == "categories" else categories
            continue
        for number, (value, span) in enumerate(text.items()):
            key = value.get(_KEYS[part]) if isinstance(value, dict) else None
            if not isinstance(key, int | str) or isinstance(key, bool):
                raise DataError(
                    f"{name} has no {_KEYS[part]}, a number or text, in {part}[{number}]: "
                    "correct it"
                )
            if part == "annotations":
                keys.update(value)
            owners[part].append(numbers.setdefault(key, len(numbers)))
            spans[part].extend(span)
    if not spans["images"] or categories == _NO_CATEGORIES:
        lacks = "categories" if spans["images"] else "images"
        raise DataError(
            f"{name} has no {lacks}: pass a COCO file of instances, such as instances_val2017.json"
        )
    return _joined(spans, owners, list(numbers), name)._replace(
        categories=categories, keys=frozenset(keys)
    )


def _joined(
    spans: Mapping[str, array[int]], owners: Mapping[str, array[int]], ids: list[Any], name: str
) -> CocoUnit:
    """Sort the annotations by their images."""
    images = np.array(owners["images"])
    if len(twice := np.flatnonzero(np.bincount(images) > 1)):
        raise DataError(f"{name} has image {ids[twice[0]]!r} twice: remove one")
    place = np.full(len(ids), -1)
    place[images] = np.arange(len(images))
    of_annotations = np.array(owners["annotations"], np.int64)
    places = place[of_annotations]
    order = np.argsort(places, kind="stable")
    lost = int((places < 0).sum())
    annotations = np.array(spans["annotations"], np.int64).reshape(-1, 2)[order[lost:]]
    counts = np.bincount(places[places >= 0], minlength=len(images))
    first_lost = repr(ids[of_annotations[order[0]]]) if lost else ""
    at_images = np.array(spans["images"])
    return CocoUnit(
        at_images, counts, annotations.ravel(), _NO_CATEGORIES, frozenset(), lost, first_lost
    )


class _Text:
    """Reads JSON values from a file.

    The text is decoded as Latin-1, so that a character is a byte; so only ASCII texts are right.
    """

    def __init__(self, raw: mmap.mmap | bytes, name: str) -> None:
        self._text, self._name = str(raw, "latin-1"), name
        self._at = len(codecs.BOM_UTF8) if raw[:3] == codecs.BOM_UTF8 else 0
        self._decode = json.JSONDecoder().raw_decode

    def value(self) -> tuple[Any, _Span]:
        """Return the next value and its place."""
        self._next()
        start = self._at
        try:
            value, self._at = self._decode(self._text, start)
        except json.JSONDecodeError as error:
            raise self._error(error.msg, error.pos) from error
        except (ValueError, RecursionError) as error:
            raise self._error(f"a value is too deep or long: {error}", start) from error
        return value, (start, self._at)

    def members(self) -> Iterator[str]:
        """Yield the name of each member of the object in the file; the caller reads its value."""
        for _ in self._parts("{}"):
            name, _ = self.value()
            self._take(":")
            yield name
        if self._next():
            raise self._error("there is more text after the object", self._at)

    def items(self) -> Iterator[tuple[Any, _Span]]:
        """Yield the values of an array."""
        return (self.value() for _ in self._parts("[]"))

    def _parts(self, brackets: str) -> Iterator[None]:
        """Yield at the start of each part of an array or object; the caller reads the part."""
        self._take(brackets[0])
        while self._next() != brackets[1]:
            yield
            if self._next() != brackets[1]:
                self._take(",")
        self._take(brackets[1])

    def _next(self) -> str:
        """Go to the next character that is no space, and return it; empty at the end."""
        spaces = _SPACES.match(self._text, self._at)
        self._at = spaces.end() if spaces else self._at
        return self._text[self._at : self._at + 1]

    def _take(self, character: str) -> None:
        if self._next() != character:
            raise self._error(f"expected {character!r}", self._at)
        self._at += 1

    def _error(self, problem: str, at: int) -> DataError:
        return DataError(
            f"{self._name} is not valid JSON, or cut off, at byte {at:,} ({problem}): correct it"
        )
