"""What is known of a picture without decoding it, and what can be wrong with it."""

from __future__ import annotations

from typing import NamedTuple

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
