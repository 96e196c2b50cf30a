"""What Pillow tells of a decoded picture, and pixels in the modes that formats hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beam_tfrecord.images.header import UPRIGHT, Fault, Header, Refusal
from beam_tfrecord.images.jpeg import refusal_of_scans
from beam_tfrecord.images.png import has_sound_pixels

if TYPE_CHECKING:
    from PIL.Image import Image

ORIENTATION_TAG = 274
_CHANNELS = {"LA": 2, "RGB": 3, "RGBA": 4, "P": 3, "CMYK": 4, "YCbCr": 3, "LAB": 3, "PA": 4}
# What their values mean is known to whoever made them: there is no black and white to scale by.
_WIDE_MODES = {"I": "integers of 32 bits", "F": "floating-point numbers"}


def header_of(image: Image) -> Header:
    """Describe a picture as Pillow sees it."""
    format = (image.format or "").lower()
    format = "jpeg" if format == "mpo" else format
    channels = _CHANNELS.get(image.mode, 1)
    if format == "jpeg":
        channels = min(channels, 3)
    elif image.mode == "P" and "transparency" in image.info and format == "png":
        channels = 4
    try:
        orientation = image.getexif().get(ORIENTATION_TAG, UPRIGHT)
    except Exception:
        orientation = UPRIGHT
    known = isinstance(orientation, int) and 1 <= orientation <= 8
    return Header(format, *image.size, channels, orientation if known else UPRIGHT)


def refusal_of_pixels(
    data: memoryview, image: Image, frame: tuple[int, int, int, int] | None
) -> Refusal | None:
    """Return why TensorFlow refuses what Pillow has decoded without a word into `frame`."""
    if image.format in ("JPEG", "MPO"):
        return refusal_of_scans(data)
    if image.format == "PNG" and not has_sound_pixels(data):
        return Refusal("has pixels with a wrong checksum")
    if image.format == "GIF" and image.mode == "P" and image.palette is not None:
        most: Any = image.crop(frame).getextrema()[1]
        if 3 * most >= len(image.palette.palette):
            return Refusal("has pixels of colors that are not in its table")
    return None


def converted(image: Image, format: str, *, of: str) -> Image:
    """Return the pixels in a mode that resizes smoothly and that `format` holds.

    Raises:
        Fault: There is none.
    """
    from PIL import Image as Images

    # Older versions of Pillow widen the 16 bits of a PNG.
    if image.mode.startswith("I;16") or (image.mode == "I" and of == "png"):
        if format == "png" and image.mode == "I;16":
            return image
        return image.convert("F").point(lambda value: value / 256).convert("L")
    if image.mode in _WIDE_MODES:
        raise Fault(
            "unsupported",
            f"has pixels that are {_WIDE_MODES[image.mode]}, for which {format} has no room: "
            "store it as it is, or convert it beforehand",
        )
    if image.mode in ("1", "L") and "transparency" not in image.info:
        return image.convert("L" if format != "webp" else "RGB")
    if not image.has_transparency_data:
        return image.convert("RGB")
    if format != "jpeg":
        return image.convert("RGBA" if image.mode != "LA" or format == "webp" else "LA")
    # JPEG has no transparency: what shines through is white, as on a page.
    page = Images.new("RGBA", image.size, "white")
    return Images.alpha_composite(page, image.convert("RGBA")).convert("RGB")
