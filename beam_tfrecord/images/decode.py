"""Full decoding with Pillow: the judge of ``--check decode``, and what resizes and re-encodes.

Pillow is imported where it is needed: describing and storing pictures as they are does without.
It decodes and resizes without the interpreter's lock, so threads use all cores.
"""

from __future__ import annotations

import dataclasses
import io
import re
from typing import TYPE_CHECKING, Any

from beam_tfrecord.errors import UsageError
from beam_tfrecord.images import UPRIGHT, Fault, Header, Refusal
from beam_tfrecord.images.formats import check_pixels, describe, has_sound_pixels, refusal_of_scans

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

FORMATS = ("jpeg", "png", "webp")
_PILLOW_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF")
_SIZE = re.compile(r"(\d+)(?:x(\d+))?")
# A JPEG is decoded at the smallest scale that leaves this much for the smooth last step.
_DRAFT_GAP = 2
# Asks for a JPEG at the smallest scale that its decoder has.
_LEAST_SIZE = (1, 1)


@dataclasses.dataclass(frozen=True)
class Transform:
    """What becomes of the pixels; one that changes nothing leaves the bytes untouched.

    Attributes:
        shorter: New length of the shorter side in pixels; the other follows.
        size: New height and width, instead.
        format: Format to store; None: a JPEG stays one, and what else is changed becomes PNG.
        quality: Of JPEG and WebP, from 1 to 100.
        orient: Turn the pixels as EXIF says.
    """

    shorter: int | None = None
    size: tuple[int, int] | None = None
    format: str | None = None
    quality: int = 90
    orient: bool = False

    @property
    def is_none(self) -> bool:
        """True where no picture is ever changed."""
        return not (self.resizes or self.format or self.orient)

    @property
    def resizes(self) -> bool:
        """True where pictures get another size."""
        return bool(self.shorter or self.size)

    def changes(self, header: Header) -> bool:
        """Tell whether a picture has to be decoded and encoded anew."""
        if self.is_none:
            return False
        turns = self.orient and header.orientation != UPRIGHT
        is_resized = self.target(header.width, header.height) != (header.width, header.height)
        # Whatever Pillow encodes in these two formats, TensorFlow decodes.
        is_mended = header.refusal is not None and self.format in ("jpeg", "png")
        return turns or is_resized or is_mended or self.format not in (None, header.format)

    def target(self, width: int, height: int) -> tuple[int, int]:
        """Return the new width and height of a picture that stands upright."""
        if self.size is not None:
            return self.size[1], self.size[0]
        if self.shorter is None:
            return width, height
        scale = self.shorter / min(width, height)
        return max(1, round(width * scale)), max(1, round(height * scale))


def make_transform(
    resize: int | str | tuple[int, int] | None, format: str | None, quality: int, orient: bool
) -> Transform:
    """Build a `Transform` from what a user gives.

    Args:
        resize: ``256`` for the shorter side, or ``"240x320"`` for height and width.
        format: One of `FORMATS`.
        quality: From 1 to 100.
        orient: Turn the pixels as EXIF says.

    Raises:
        UsageError: One of them is not possible.
    """
    if format not in (None, *FORMATS):
        raise UsageError(f"format {format!r} cannot be written: choose one of {', '.join(FORMATS)}")
    if not 1 <= quality <= 100:
        raise UsageError(f"quality {quality} is not from 1 to 100: correct --quality")
    shorter, size = None, None
    if resize is not None:
        text = "x".join(map(str, resize)) if isinstance(resize, tuple) else str(resize)
        match = _SIZE.fullmatch(text)
        if match is None or "0" in match.groups():
            raise UsageError(f"cannot resize to {text!r}: write 256, or height x width as 240x320")
        if match[2] is None:
            shorter = int(match[1])
        else:
            size = int(match[1]), int(match[2])
    return Transform(shorter, size, format, quality, orient)


def check_pillow() -> None:
    """Check that Pillow can be imported.

    Raises:
        UsageError: It cannot.
    """
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        raise UsageError(
            "decoding pictures needs Pillow: pip install 'beam-tfrecord[images]'"
        ) from None


def check_decode(data: memoryview, header: Header | Fault, *, max_pixels: int) -> Header:
    """Decode a picture, its first frame where there are several, and describe it.

    All that is coded is decoded, and judged as at full size; but a JPEG becomes pixels at an eighth
    of its size, which takes 0.6 of the time: what is left out is arithmetic that cannot fail.

    Args:
        data: The whole file.
        header: What `describe` says of it, or raises.
        max_pixels: Width times height that is let through.

    Returns:
        `header`, or that of Pillow instead of a fault, with what only the pixels show.

    Raises:
        Fault: Pillow cannot.
    """
    image = _opened(data, max_pixels)
    frame = image.tile[0][1] if image.tile else None
    if _may_reduce(header):
        image.draft(None, _LEAST_SIZE)
    _load(image)
    if isinstance(header, Fault):
        # Pillow forgives more than other decoders do.
        header = header_of(image)._replace(refusal=Refusal(header.reason))
    return (
        header if header.refusal else header._replace(refusal=refusal_of_pixels(data, image, frame))
    )


def _may_reduce(header: Header | Fault) -> bool:
    """Tell whether a picture may be decoded at a part of its size.

    Pillow writes behind the end of its memory where it does so with a lossless JPEG.
    """
    return isinstance(header, Header) and header.refusal is None


def transformed(
    data: memoryview, header: Header, how: Transform, *, max_pixels: int
) -> tuple[bytes, Header, tuple[int, int]]:
    """Return a picture as `how` wants it; of several frames, the first.

    Returns:
        Its new bytes, its new header, and width and height before it was resized, but turned as it
        is now.

    Raises:
        Fault: It cannot be decoded, or its pixels do not fit into the new format.
    """
    image = _opened(data, max_pixels)
    # Pillow turns a TIFF when it loads it.
    turns = how.orient or header.format == "tiff"
    swaps = turns and header.orientation > 4  # these four exchange width and height
    if header.format == "gif":
        # Pillow decodes the screen, TensorFlow the largest frame.
        header = header._replace(width=image.width, height=image.height)
    upright = (header.height, header.width) if swaps else (header.width, header.height)
    size = how.target(*upright)
    _check_size(size, max_pixels)
    drafted = size[::-1] if swaps else size
    if _may_reduce(header):
        image.draft(None, (drafted[0] * _DRAFT_GAP, drafted[1] * _DRAFT_GAP))
    _load(image)
    try:
        stored, header = _encoded(image, header, how, size, turns=turns, max_pixels=max_pixels)
    except Fault:
        raise
    except Exception as error:
        raise _fault_of(error) from error
    return stored, header, upright


def _encoded(
    image: Image,
    header: Header,
    how: Transform,
    size: tuple[int, int],
    *,
    turns: bool,
    max_pixels: int,
) -> tuple[bytes, Header]:
    """Turn, convert, resize and encode a decoded picture."""
    from PIL import ImageOps
    from PIL.Image import Resampling

    format = how.format or ("jpeg" if header.format == "jpeg" else "png")
    profile = image.info.get("icc_profile") if image.mode != "CMYK" else None
    orientation = header.orientation
    if turns:
        image, orientation = ImageOps.exif_transpose(image), UPRIGHT
    image = converted(image, format, of=header.format)
    if image.size != size:
        image = image.resize(size, Resampling.BICUBIC, reducing_gap=_DRAFT_GAP)
    options: dict[str, Any] = {"quality": how.quality} if format != "png" else {}
    if orientation != UPRIGHT:
        options["exif"] = _orientation_exif(orientation)
    if profile:
        options["icc_profile"] = profile
    out = io.BytesIO()
    image.save(out, format, **options)
    stored = out.getvalue()
    # An encoder may leave out transparency that is nowhere, or add colours to grey.
    return stored, describe(stored, whole=False, max_pixels=max_pixels)


def _check_size(size: tuple[int, int], max_pixels: int) -> None:
    if size[0] * size[1] > max_pixels:
        raise Fault(
            "too-large",
            f"would be {size[0]}x{size[1]}, more than {max_pixels:,} pixels: choose a smaller "
            "--resize, or pass --max-pixels to allow it",
        )


def _opened(data: memoryview, max_pixels: int) -> ImageFile:
    from PIL import Image, UnidentifiedImageError

    # Pillow's own guard would refuse what the user allows.
    if (Image.MAX_IMAGE_PIXELS or max_pixels) < max_pixels:
        Image.MAX_IMAGE_PIXELS = max_pixels
    try:
        image = Image.open(io.BytesIO(data), formats=_PILLOW_FORMATS)
    except UnidentifiedImageError:
        raise Fault("not-an-image", "is no picture that Pillow knows") from None
    except Exception as error:
        raise _fault_of(error) from error
    check_pixels(*image.size, max_pixels)
    return image


def _load(image: Image) -> None:
    try:
        image.load()
    except Exception as error:
        raise _fault_of(error) from error


def _fault_of(error: Exception) -> Fault:
    """Return what an error of Pillow's decoders means; they raise nearly every kind."""
    text = " ".join(str(error).split()) or type(error).__name__
    if "truncated" in text or isinstance(error, EOFError):
        return Fault("truncated", f"is cut off ({text})")
    return Fault("damaged", f"cannot be decoded ({text})")


def _orientation_exif(orientation: int) -> bytes:
    from PIL import Image

    exif = Image.Exif()
    exif[ORIENTATION_TAG] = orientation
    return exif.tobytes()


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
