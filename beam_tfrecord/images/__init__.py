"""Types that describe a picture file: its header, its faults, and why TensorFlow cannot decode it.

`formats.describe` reads headers; `decode` decodes, resizes and re-encodes with Pillow. Nothing in
this package depends on Beam, Arrow or the units of a source.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

UPRIGHT = 1


class Refusal(NamedTuple):
    """Why ``tf.io.decode_image(channels=3)`` fails on a picture or returns wrong pixels.

    Attributes:
        reason: A clause that follows the name of the picture in messages.
        cure: The options that store a picture which TensorFlow decodes.
    """

    reason: str
    cure: str = "--format png or --format jpeg"


class Header(NamedTuple):
    """The properties of a picture that its header contains.

    Attributes:
        format: ``jpeg``, ``png``, ``gif``, ``webp``, ``bmp`` or ``tiff``.
        width: Of the stored pixels, before the rotation that `orientation` asks for; for a GIF the
            width of the widest frame, which is what TensorFlow decodes.
        height: Likewise.
        channels: As ``tf.io.decode_image(channels=0)`` returns them, for formats that TensorFlow
            reads: 3 for a palette (PNG with transparency: 4), 3 for CMYK in a JPEG.
        orientation: EXIF tag 274, from 1 (upright) to 8.
        refusal: None if the structure shows nothing that TensorFlow refuses.
    """

    format: str
    width: int
    height: int
    channels: int
    orientation: int = UPRIGHT
    refusal: Refusal | None = None


class Fault(Exception):
    """A file that is not a picture, is truncated or broken, or exceeds a limit.

    Attributes:
        code: ``empty``, ``not-an-image``, ``truncated``, ``too-large``, ``damaged``, or
            ``unsupported`` if the requested format cannot hold the pixels.
        reason: A clause that follows the name of the picture in messages.
    """

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason

    def __reduce__(self) -> tuple[type[Fault], tuple[str, str]]:
        return type(self), (self.code, self.reason)


def truncated(where: str) -> Fault:
    """Return the fault of a file that ends too early."""
    return Fault("truncated", f"is cut off {where}")


def damaged(what: str) -> Fault:
    """Return the fault of a file with a broken structure."""
    return Fault("damaged", f"is damaged: {what}")


def too_large_for_tensorflow(width: int, height: int) -> Refusal:
    """Return the refusal of a picture with more pixels than TensorFlow decodes."""
    return Refusal(f"is too large for TensorFlow ({width}x{height})", "a smaller --resize")


@dataclasses.dataclass(frozen=True)
class Refused:
    """The number of stored pictures that TensorFlow refuses, and the first of them by path.

    Attributes:
        rows: Number of pictures.
        path: Path of the first one.
        reason: `Refusal.reason` of the first one.
        cure: `Refusal.cure` of the first one.
    """

    rows: int
    path: str
    reason: str
    cure: str


def refused_in(pictures: Iterable[tuple[str, Header | None]]) -> Refused | None:
    """Count the refused pictures among pairs of path and header; None if there are none."""
    found = None
    for path, header in pictures:
        if header is not None and header.refusal is not None:
            found = merge_refused(found, Refused(1, path, *header.refusal))
    return found


def merge_refused(one: Refused | None, other: Refused | None) -> Refused | None:
    """Join the counts of two parts of the data."""
    if one is None or other is None:
        return one or other
    first = min(one, other, key=lambda refused: (refused.path, refused.reason))
    return dataclasses.replace(first, rows=one.rows + other.rows)


def refused_as_json(refused: Refused | None) -> dict[str, Any] | None:
    """Return the entry ``refused_pictures`` of ``job.json``; None if there are none."""
    return None if refused is None else dataclasses.asdict(refused)


def refused_warning(entry: Mapping[str, Any]) -> str:
    """Return the one-line warning about an entry ``refused_pictures`` of ``job.json``."""
    rows = entry["rows"]
    are = "picture is" if rows == 1 else "pictures are"
    which = "it" if rows == 1 else "the first"
    return (
        f"{rows:,} {are} stored that TensorFlow, and so .tf(), cannot decode or decodes wrongly: "
        f"{which} is {entry['path']}, which {entry['reason']}: pass {entry['cure']}"
    )
