"""Decodes images with Pillow: checks their pixels, resizes, turns and re-encodes them.

Pillow works without the interpreter's lock, so that threads use all cores.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import struct
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from beam_tfrecord.errors import UsageError
from beam_tfrecord.images import UPRIGHT, Header, ImageError
from beam_tfrecord.images.headers import check_pixels, chunks, describe, open_image, pillow_faults

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

FORMATS = ("jpeg", "png", "webp")
_ORIENTATION_TAG = 274
_SIZE = re.compile(r"(\d+)(?:x(\d+))?")
# A JPEG is decoded at a reduced scale, but at least this factor larger than the target, so that the
# last step of resizing is smooth.
_DRAFT_GAP = 2
_PNG_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of a pixel, by the type of color
# First row, first column, and steps of both, of the seven parts of an interlaced PNG (Adam7).
_PARTS = [*zip(*(map(int, of) for of in ("0040201", "0402010", "8884422", "8844221")), strict=True)]
# Files of these modes do not state which values are black and white.
_WIDE_MODES = {"I": "integers of 32 bits", "F": "floating-point numbers"}


@dataclasses.dataclass(frozen=True)
class Transform:
    """The changes to make to images, as a user asks for; without any, an image keeps its bytes."""

    resize: int | str | tuple[int, int] | None = None
    format: str | None = None
    quality: int = 90
    orient: bool = False

    def __post_init__(self) -> None:
        if self.format not in (None, *FORMATS):
            raise UsageError(
                f"format {self.format!r} cannot be written: choose one of {', '.join(FORMATS)}"
            )
        if not 1 <= self.quality <= 100:
            raise UsageError(f"quality {self.quality} is not from 1 to 100: correct --quality")
        self.target(1, 1)

    @property
    def is_none(self) -> bool:
        """Whether all images remain unchanged."""
        return self.resize is None and self.format is None and not self.orient

    def changes(self, header: Header) -> bool:
        """Return whether an image has to be decoded and encoded again."""
        if self.is_none:
            return False
        turns = self.orient and header.orientation != UPRIGHT
        is_resized = self.target(header.width, header.height) != (header.width, header.height)
        # Encoding again helps in these two formats: TensorFlow decodes all that Pillow encodes.
        is_mended = header.refusal is not None and self.format in ("jpeg", "png")
        return turns or is_resized or is_mended or self.format not in (None, header.format)

    def target(self, width: int, height: int) -> tuple[int, int]:
        """Return the new width and height, given those of the upright image."""
        if self.resize is None:
            return width, height
        sides = self.resize if isinstance(self.resize, tuple) else (self.resize,)
        text = "x".join(map(str, sides))
        match = _SIZE.fullmatch(text)
        if match is None or "0" in match.groups():
            raise UsageError(f"cannot resize to {text!r}: write 256, or height x width as 240x320")
        if match[2] is not None:
            return int(match[2]), int(match[1])
        scale = int(match[1]) / min(width, height)
        return max(1, round(width * scale)), max(1, round(height * scale))


def check_decode(data: bytes, header: Header, *, max_pixels: int) -> None:
    """Check that an image, or the first of several frames, can be decoded.

    All coded bytes of a JPEG are decoded, but its pixels are computed at an eighth of their size.
    This finds the same faults in 0.6 of the time, because the omitted arithmetic cannot fail.
    """
    if header.format == "png":
        with pillow_faults():
            open_image(data, max_pixels=max_pixels).verify()
            _check_rows(data)
    image = open_image(data, max_pixels=max_pixels)
    # A requested size of one pixel makes the decoder of JPEG use its smallest scale.
    _load(image, data, None if header.refusal else (1, 1))


def transformed(
    data: bytes, header: Header, how: Transform, *, max_pixels: int
) -> tuple[bytes, Header, tuple[int, int]]:
    """Decode an image, or the first of several frames, and encode it with the changes `how`."""
    image = open_image(data, max_pixels=max_pixels)
    # Pillow applies the orientation of a TIFF when it loads the file.
    turns = how.orient or header.format == "tiff"
    swaps = turns and header.orientation > 4  # orientations 5 to 8 exchange width and height
    upright = (header.height, header.width) if swaps else (header.width, header.height)
    size = how.target(*upright)
    check_pixels(*size, max_pixels, verb="would be resized to")
    sides = size[::-1] if swaps else size
    # Of a lossless JPEG, Pillow would write beyond the end of its buffer.
    _load(image, data, None if header.refusal else [_DRAFT_GAP * side for side in sides])
    with pillow_faults():
        stored = _encoded(image, header, how, size, turns=turns)
        # An encoder may drop unused transparency, or add colors to grey.
        return stored, describe(stored, check_end=False, max_pixels=max_pixels), upright


def _encoded(
    image: Image, header: Header, how: Transform, size: tuple[int, int], *, turns: bool
) -> bytes:
    """Turn, convert, resize and encode a decoded image."""
    from PIL import Image as Images
    from PIL import ImageOps

    format = how.format or ("jpeg" if header.format == "jpeg" else "png")
    profile = image.info.get("icc_profile") if image.mode != "CMYK" else None
    orientation = UPRIGHT if turns else header.orientation
    if header.orientation != orientation and header.format != "tiff":
        image.getexif()[_ORIENTATION_TAG] = header.orientation  # its size was computed by this one
        image = ImageOps.exif_transpose(image)
    image = _converted(image, format, of=header.format)
    if image.size != size:
        image = image.resize(size, Images.Resampling.BICUBIC, reducing_gap=_DRAFT_GAP)
    options: dict[str, Any] = {"quality": how.quality} if format != "png" else {}
    if orientation != UPRIGHT:
        exif = Images.Exif()
        exif[_ORIENTATION_TAG] = orientation
        options["exif"] = exif.tobytes()
    if profile:
        options["icc_profile"] = profile
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def _load(image: Any, data: bytes, draft: Sequence[int] | None = None) -> None:
    """Decode the pixels, of a JPEG near the size `draft`; check that a PNG has all of its rows."""
    with pillow_faults():
        image.draft(None, draft)
        image.load()
        if image.format == "PNG":
            # Pillow leaves missing rows black, so the last one tells, unless rows are interlaced.
            last_row = image.crop((0, image.height - 1, image.width, image.height))
            if image.info.get("interlace") or last_row.getbbox() is None:
                _check_rows(data)


def _check_rows(data: bytes) -> None:
    """Raise `ImageError` if a PNG lacks rows of pixels."""
    width, height, depth, color, _, _, is_interlaced = struct.unpack_from(">IIBBBBB", data, 16)
    bits, parts = depth * _PNG_SAMPLES[color], _PARTS if is_interlaced else [(0, 0, 1, 1)]
    # Each row of a part that is not empty has a byte of its filter.
    least = sum(
        len(range(row, height, down)) * ((len(range(column, width, right)) * bits + 15) // 8)
        for row, column, down, right in parts
        if column < width
    )
    packed = [chunk[8:-4] for kind, chunk in chunks(data) if kind == b"IDAT"]
    unpacker = zlib.decompressobj()
    # Room for more than any image has, so that the end of the stream is read, too.
    rows = unpacker.decompress(b"".join(packed), least + 4 * height + 8)
    if len(rows) < least or not (unpacker.eof or unpacker.unconsumed_tail):
        raise ImageError("truncated", "is cut off before the end of its pixels")


def rgb_pixels(data: bytes, *, max_pixels: int) -> np.ndarray:
    """Decode an image, or the first of several frames, to RGB as it would be stored as a JPEG.

    Transparent pixels become white, and 16 bits 8. The orientation in EXIF changes nothing, but
    Pillow itself turns a TIFF. A sound JPEG is decoded by simplejpeg in 0.7 of Pillow's time. Both
    use libjpeg-turbo with the same settings, so the pixels are the same.
    """
    import numpy as np
    import simplejpeg

    image = open_image(data, max_pixels=max_pixels)
    if image.format == "JPEG" and image.mode in ("RGB", "L"):
        # It refuses each fault; Pillow decodes the file nevertheless, or says what is wrong.
        with contextlib.suppress(ValueError):
            pixels: np.ndarray = simplejpeg.decode_jpeg(data, "RGB")
            return pixels
    _load(image, data)
    with pillow_faults():
        if image.mode == "RGB" and "transparency" not in image.info:
            return np.array(image)
        format = (image.format or "").lower()
        return np.array(_converted(image, "jpeg", of=format).convert("RGB"))


def _converted(image: Image, format: str, *, of: str) -> Image:
    """Return the pixels in a mode that resizes smoothly and that `format` supports."""
    from PIL import Image as Images

    # Older versions of Pillow widen the 16 bits of a PNG.
    if image.mode.startswith("I;16") or (image.mode == "I" and of == "png"):
        if format == "png" and image.mode == "I;16":
            return image
        return image.convert("F").point(lambda value: value / 256).convert("L")
    if image.mode in _WIDE_MODES:
        raise ImageError(
            "unsupported",
            f"has pixels that are {_WIDE_MODES[image.mode]}, for which {format} has no room: "
            "convert it beforehand",
        )
    if image.mode in ("1", "L") and "transparency" not in image.info:
        return image.convert("L" if format != "webp" else "RGB")
    if not image.has_transparency_data:
        return image.convert("RGB")
    if format != "jpeg":
        return image.convert("RGBA" if image.mode != "LA" or format == "webp" else "LA")
    # JPEG has no transparency: transparent pixels become white, as on a page.
    page = Images.new("RGBA", image.size, "white")
    return Images.alpha_composite(page, image.convert("RGBA")).convert("RGB")
