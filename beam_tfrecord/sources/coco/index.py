"""Finds the images of a COCO file, and the annotations of each, without the file in memory.

Annotations are in any order, and a file may have 450 MB. One pass over it notes where each image
and each annotation begins and ends; only these numbers are kept, 40 bytes for each annotation.
"""

from __future__ import annotations

import codecs
import json
import mmap
from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord.errors import DataError
from beam_tfrecord.features.arrow_arrays import Int64Array
from beam_tfrecord.sources.base import InputFile

_BLOCK_BYTES = 2**22
_MAX_VALUE_BYTES = 2**28
# The longest text of which only a part may look wrong, such as ``-Infinity`` or ``\u00e9``.
_LONGEST_TOKEN = 16
_SPACE = " \t\r\n"
_PARTS = ("images", "annotations", "categories")


class Span(NamedTuple):
    """A value of the file: its first byte, and the end of its last."""

    start: int
    stop: int


class Index(NamedTuple):
    """Where the values of a file are."""

    images: Int64Array
    counts: Int64Array
    annotations: Int64Array
    categories: Span
    keys: frozenset[str]
    lost: int
    first_lost: str


def index_of(raw: pa.NativeFile, file: InputFile) -> Index:
    """Read a file once, and return where its values are."""
    scanner = _Scanner(raw, file)
    found = _Found(file)
    for part in scanner.members():
        if part == "categories":
            found.categories = scanner.value()[1]
        elif part in _PARTS and scanner.peek() == "[":
            for number, (value, span) in enumerate(scanner.items()):
                found.add(part, number, value, span)
        else:
            scanner.skip()
    return found.index()


class _Found:
    """Collects the images and annotations of a file."""

    def __init__(self, file: InputFile) -> None:
        self.categories: Span | None = None
        self._file = file
        # Texts and numbers of images are replaced by the position in which they first appear.
        self._numbers: dict[int | str, int] = {}
        self._spans = {part: array("q") for part in _PARTS}
        self._images = {part: array("q") for part in _PARTS}
        self._keys: set[str] = set()

    def add(self, part: str, number: int, value: Any, span: Span) -> None:
        """Add an image or an annotation."""
        key = "id" if part == "images" else "image_id"
        name = value.get(key) if isinstance(value, dict) else None
        if not isinstance(name, int | str) or isinstance(name, bool):
            raise DataError(
                f"{self._file.name} has no {key}, a number or text, in {part}[{number}]: correct it"
            )
        if part == "annotations":
            self._keys.update(value)
        self._images[part].append(self._numbers.setdefault(name, len(self._numbers)))
        self._spans[part].extend(span)

    def index(self) -> Index:
        """Return the index."""
        images, owners = (np.array(self._images[part]) for part in ("images", "annotations"))
        if not len(images) or self.categories is None:
            lacks = "categories" if len(images) else "images"
            raise DataError(
                f"{self._file.name} has no {lacks}: pass a COCO file of instances, such as "
                "instances_val2017.json"
            )
        place = np.full(len(self._numbers), -1)
        place[images] = np.arange(len(images))
        if len(twice := np.flatnonzero(np.bincount(images) > 1)):
            raise DataError(
                f"{self._file.name} has image {self._name(int(twice[0]))} twice: remove one"
            )
        places = place[owners]
        order = np.argsort(places, kind="stable")
        lost = int((places < 0).sum())
        spans = np.array(self._spans["annotations"]).reshape(-1, 2)[order[lost:]]
        return Index(
            np.array(self._spans["images"]),
            np.bincount(places[places >= 0], minlength=len(images)),
            spans.ravel(),
            self.categories,
            frozenset(self._keys),
            lost,
            self._name(int(owners[order[0]])) if lost else "",
        )

    def _name(self, number: int) -> str:
        return repr(next(name for name, at in self._numbers.items() if at == number))


class _Scanner:
    """Reads JSON values from a file, with a window of its text in memory.

    The text is decoded as Latin-1, so that a character is a byte; so only ASCII texts are right.
    """

    def __init__(self, raw: pa.NativeFile, file: InputFile) -> None:
        self._raw, self._file = raw, file
        self._text, self._before, self._at, self._is_end = "", 0, 0, False
        self._decode = json.JSONDecoder().raw_decode
        self._more()
        if self._text.startswith(codecs.BOM_UTF8.decode("latin-1")):
            self._at = len(codecs.BOM_UTF8)

    def peek(self) -> str:
        """Return the next character that is no space; empty at the end."""
        while True:
            while self._at < len(self._text):
                if (character := self._text[self._at]) not in _SPACE:
                    return character
                self._at += 1
            if self._is_end:
                return ""
            self._more()

    def value(self) -> tuple[Any, Span]:
        """Return the next value and its place."""
        self.peek()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
                # A number may go on in the next block.
                is_cut = end == len(self._text)
            except json.JSONDecodeError as error:
                end, problem = error.pos, error.msg
                is_cut = end + _LONGEST_TOKEN > len(self._text) or "Unterminated" in problem
                if not is_cut or self._is_end:
                    raise self._error(problem, end) from error
            except (ValueError, RecursionError) as error:
                raise self._error(f"a value is too deep or long: {error}", self._at) from error
            if not is_cut or self._is_end:
                break
            if len(self._text) - self._at > _MAX_VALUE_BYTES:
                raise self._error(f"a value has more than {_MAX_VALUE_BYTES:,} bytes", self._at)
            self._more()
        span = Span(self._before + self._at, self._before + end)
        self._at = end
        return value, span

    def members(self) -> Iterator[str]:
        """Yield the name of each member of the object in the file; the caller reads its value."""
        self._take("{")
        while self.peek() != "}":
            name, _ = self.value()
            self._take(":")
            yield name
            if self.peek() != "}":
                self._take(",")
        self._take("}")
        if self.peek():
            raise self._error("there is more text after the object", self._at)

    def items(self) -> Iterator[tuple[Any, Span]]:
        """Yield the values of an array."""
        self._take("[")
        while self.peek() != "]":
            yield self.value()
            if self.peek() != "]":
                self._take(",")
        self._take("]")

    def skip(self) -> None:
        """Read a value, and an array value by value."""
        if self.peek() != "[":
            self.value()
            return
        for _ in self.items():
            pass

    def _take(self, character: str) -> None:
        if self.peek() != character:
            raise self._error(f"expected {character!r}", self._at)
        self._at += 1

    def _more(self) -> None:
        # As much again as there is, so that a long value is not parsed many times.
        data = self._raw.read(max(_BLOCK_BYTES, len(self._text) - self._at))
        self._before += self._at
        self._text, self._at = self._text[self._at :] + data.decode("latin-1"), 0
        self._is_end = not data

    def _error(self, problem: str, at: int) -> DataError:
        byte = self._before + at
        if self._is_end and at + _LONGEST_TOKEN > len(self._text):
            return DataError(f"{self._file.name} is cut off at byte {byte:,}: write it again")
        return DataError(
            f"{self._file.name} is not valid JSON at byte {byte:,} ({problem}): correct it"
        )


def pieces_of(raw: mmap.mmap, spans: npt.NDArray[np.int64]) -> list[Any]:
    """Return the values at some places of a file, given starts and ends, shape `[2 * values]`."""
    pairs = spans.reshape(-1, 2).tolist()
    return [json.loads(raw[start:stop]) for start, stop in pairs]
