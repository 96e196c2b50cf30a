"""Types that describe an image file: its header, its faults, and why TensorFlow cannot decode it.

`headers.describe` reads headers; `decode` decodes, resizes and re-encodes. Both use Pillow. Nothing
in this package depends on Beam, Arrow or the sources of rows.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

UPRIGHT = 1


class Header(NamedTuple):
    """The properties of an image that its header contains.

    `refusal` is the reason why ``tf.io.decode_image(channels=3)`` fails or returns wrong pixels.
    """

    format: str
    width: int
    height: int
    channels: int
    orientation: int = UPRIGHT
    refusal: str | None = None


class ImageError(Exception):
    """A file that is not an image, is truncated or broken, or exceeds a limit."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


@dataclasses.dataclass(frozen=True)
class Refused:
    """The number of stored images that TensorFlow cannot decode, and the first of them by path."""

    rows: int
    path: str
    reason: str
    cure: str = "--format png or --format jpeg"


def refused_in(images: Iterable[tuple[str, Header | None]]) -> Refused | None:
    """Count the images whose header has a refusal, given paths and headers; None if none has."""
    found = [Refused(1, path, of.refusal) for path, of in images if of and of.refusal]
    return functools.reduce(merge_refused, found, None)


def merge_refused(one: Refused | None, other: Refused | None) -> Refused | None:
    """Add the counts of two parts of the data, and keep the first image by path."""
    if one is None or other is None:
        return one or other
    first = min(one, other, key=lambda refused: (refused.path, refused.reason))
    return dataclasses.replace(first, rows=one.rows + other.rows)


def refused_warning(entry: Mapping[str, Any]) -> str:
    """Return the one-line warning about an entry ``refused_pictures`` of ``job.json``."""
    rows = entry["rows"]
    images, them = ("image", "it") if rows == 1 else ("images", "them")
    which = entry["path"] if rows == 1 else f"the first, {entry['path']},"
    return (
        f"TensorFlow, and so .tf(), fails on {rows:,} stored {images} or decodes {them} wrongly: "
        f"{which} {entry['reason']}: to convert {them}, pass {entry['cure']}"
    )
