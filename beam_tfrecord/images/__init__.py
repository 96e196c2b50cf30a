"""What is known of a picture without decoding it, and what can be wrong with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

UPRIGHT = 1


class Refusal(NamedTuple):
    """Why ``tf.io.decode_image(channels=3)`` fails on a picture, or gives other pixels.

    Attributes:
        reason: To stand behind the name of the picture.
        cure: The options that store what TensorFlow decodes.
    """

    reason: str
    cure: str = "--format png or --format jpeg"


class Header(NamedTuple):
    """A picture as its header describes it.

    Attributes:
        format: ``jpeg``, ``png``, ``gif``, ``webp``, ``bmp`` or ``tiff``.
        width: Of the stored pixels, before any rotation that `orientation` asks for; of a GIF
            that of the widest frame, as TensorFlow decodes it.
        height: Likewise.
        channels: As ``tf.io.decode_image(channels=0)`` gives them where TensorFlow reads the
            format: a palette is 3 (PNG with transparency: 4), CMYK in a JPEG is 3.
        orientation: EXIF tag 274, from 1 (upright) to 8.
        refusal: None where the structure shows nothing that TensorFlow refuses.
    """

    format: str
    width: int
    height: int
    channels: int
    orientation: int = UPRIGHT
    refusal: Refusal | None = None


class Fault(Exception):
    """A picture that is none, or not a whole one.

    Attributes:
        code: ``empty``, ``not-an-image``, ``truncated``, ``too-large``, ``damaged``, or
            ``unsupported`` where the format asked for cannot hold it.
        reason: What is wrong, to stand behind the name of the picture.
    """

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason

    def __reduce__(self) -> tuple[type[Fault], tuple[str, str]]:
        return type(self), (self.code, self.reason)


def truncated(what: str) -> Fault:
    """Return the fault of a picture that ends inside `what`."""
    return Fault("truncated", f"is cut off {what}")


def damaged(what: str) -> Fault:
    """Return the fault of a picture whose structure is broken."""
    return Fault("damaged", f"is damaged: {what}")


def too_large_for_tensorflow(width: int, height: int) -> Refusal:
    """Return the refusal of a picture of more pixels than TensorFlow decodes."""
    return Refusal(f"is too large for TensorFlow ({width}x{height})", "a smaller --resize")


@dataclasses.dataclass(frozen=True)
class Refused:
    """How many pictures TensorFlow refuses, and the first of them by path.

    Attributes:
        rows: Their number.
        path: Of the first.
        reason: Why that one is refused, to stand behind its path.
        cure: The options that store what TensorFlow decodes.
    """

    rows: int
    path: str
    reason: str
    cure: str

    def merge(self, other: Refused) -> Refused:
        """Join what two parts of the data showed."""
        first = min(self, other, key=lambda one: (one.path, one.reason))
        return dataclasses.replace(first, rows=self.rows + other.rows)


def refused_in(pictures: Iterable[tuple[str, Header | None]]) -> Refused | None:
    """Return what the headers of pictures show, given with their paths; None: nothing."""
    found = None
    for path, header in pictures:
        if header is not None and header.refusal is not None:
            found = merge_refused(found, Refused(1, path, *header.refusal))
    return found


def merge_refused(one: Refused | None, other: Refused | None) -> Refused | None:
    """Join what two parts of the data showed."""
    if one is None or other is None:
        return one or other
    return one.merge(other)


def refused_told(refused: Refused | None) -> dict[str, Any] | None:
    """Return what ``job.json`` tells of refused pictures; None where there are none."""
    return None if refused is None else dataclasses.asdict(refused)


def refused_line(told: Mapping[str, Any]) -> str:
    """Return one line for a human, given what ``job.json`` tells."""
    rows = told["rows"]
    are = "picture is" if rows == 1 else "pictures are"
    which = "it" if rows == 1 else "the first"
    return (
        f"{rows:,} {are} stored that TensorFlow, and so .tf(), cannot decode or decodes wrongly: "
        f"{which} is {told['path']}, which {told['reason']}: pass {told['cure']}"
    )
