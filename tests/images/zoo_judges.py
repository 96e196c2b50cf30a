"""What TensorFlow and Pillow make of a picture, against what is said of it when it is written."""

from __future__ import annotations

import collections
import dataclasses
import io
import random
import tempfile

import numpy as np
from PIL import Image

from beam_tfrecord.images.decode import Transform
from beam_tfrecord.sources.images.read import ReadSettings, read_images
from tests.helpers.lazy import Lazy
from tests.images.picture_zoo import varied, zoo

tf = Lazy("tensorflow")


MAX_PIXELS = 2**26
# Decoders of JPEG differ in the last bits, and so do those that fill what no frame of a GIF covers.
_MOST_DIFFERENCE = 3
_UNCHANGED = Transform()
# Larger ones take long to vary.
_VARIED_BYTES = 10_000


def tensorflow_pixels(data):
    """Return what `.tf()` decodes a picture to; None where TensorFlow refuses it."""
    try:
        image = tf.io.decode_image(data, channels=3, expand_animations=False)
    except tf.errors.InvalidArgumentError:
        return None
    return np.asarray(image)


def pillow_pixels(data):
    """Return what Pillow decodes a picture to, 16 bits to 8; None where it refuses it."""
    try:
        image = Image.open(io.BytesIO(data))
        if image.mode.startswith("I;16"):
            values = np.asarray(image) >> 8
            return np.repeat(values.astype(np.uint8)[..., None], 3, axis=-1)
        return np.asarray(image.convert("RGB"))
    except Exception:
        return None


def stored(data, check, transform=_UNCHANGED):
    """Return header and bytes of a picture as it is written; None where it is rejected."""
    how = ReadSettings(check, transform, MAX_PIXELS, 2**30, needs_sha256=False)
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        images, contents = read_images([file.name], [len(data)], {}, how)
    return (images[0].header, contents[0].as_py()) if images else None


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What becomes of a picture.

    Attributes:
        said: ``rejected``, ``counted`` or ``silent``.
        is_decoded: TensorFlow decodes it.
        is_right: The pixels are those of Pillow; None where Pillow refuses the picture.
        has_size: It is decoded to the size that is stored beside it.
    """

    said: str
    is_decoded: bool
    is_right: bool | None
    has_size: bool

    @property
    def is_missed(self):
        """True where nothing is said of a picture that cannot be read back."""
        return self.said == "silent" and not (self.is_decoded and self.is_right is not False)

    @property
    def is_false_alarm(self):
        """True where a picture is counted that is read back as it is."""
        return self.said == "counted" and self.is_decoded and self.is_right is True


def _are_alike(pixels, expected, data):
    is_like = pixels.shape == expected.shape
    return is_like and int(np.abs(pixels - expected.astype(int)).max()) <= _MOST_DIFFERENCE


def _is_gif_right(pixels, expected, data):
    """Compare the first frame; what lies around it has no color of its own."""
    image = Image.open(io.BytesIO(data))
    left, top, right, bottom = image.tile[0][1]
    height, width, _ = pixels.shape
    if right > width or bottom > height:
        return False
    frame = (slice(top, bottom), slice(left, right))
    return bool((pixels[frame] == expected[frame]).all())


def judged(data, check):
    """Return what becomes of a picture under a check."""
    kept = stored(data, check)
    if kept is None:
        return Verdict("rejected", False, None, True)
    header = kept[0]
    pixels, expected = tensorflow_pixels(data), pillow_pixels(data)
    is_right = None
    if pixels is not None and expected is not None:
        is_right = (_is_gif_right if header.format == "gif" else _are_alike)(pixels, expected, data)
    has_size = pixels is None or pixels.shape[:2] == (header.height, header.width)
    said = "counted" if header.refusal else "silent"
    return Verdict(said, pixels is not None, is_right, has_size)


def damage(count, seed):
    """Return how often varied pictures are judged rightly under each check.

    Returns:
        Counts by check, and the pictures that a check let through in silence though Pillow takes
        them and TensorFlow does not.
    """
    chance = random.Random(seed)
    pictures = {name: data for name, data in zoo().items() if len(data) < _VARIED_BYTES}
    names = list(pictures)
    counts = {check: collections.Counter() for check in ("header", "decode")}
    missed = []
    for _ in range(count):
        name = chance.choice(names)
        data = varied(pictures[name], chance)
        is_sound = pillow_pixels(data) is not None
        for check, counter in counts.items():
            verdict = judged(data, check) if data else Verdict("rejected", False, None, True)
            if verdict.said == "silent" and not verdict.is_decoded:
                what = "missed" if is_sound else "missed, as Pillow refuses it too"
                missed += [(check, name, data)] if is_sound else []
            elif verdict.is_false_alarm:
                what = "false alarm"
            elif verdict.said == "silent" and not verdict.has_size:
                what = "of another size"
            else:
                what = verdict.said
            counter[what] += 1
    return {"counts": {check: dict(found) for check, found in counts.items()}, "missed": missed}
