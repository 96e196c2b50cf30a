"""Decoding: Pillow judges, and resizing, turning and re-encoding do what they say."""

from __future__ import annotations

import io
import random

import numpy as np
import pytest
from PIL import Image

from beam_tfrecord.images import Header, ImageError
from beam_tfrecord.images.decode import Transform, check_decode, transformed
from beam_tfrecord.images.headers import describe
from tests.helpers.effort import examples
from tests.sources.made_images import SAMPLES, encoded, picture

PIXELS = 2**28
DAMAGES = examples(200)


def is_sound(data):
    try:
        Image.open(io.BytesIO(data)).load()
        describe(data)
    except Exception:
        return False
    return True


def cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data))]


def flipped(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 6)):
        changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(changed)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
def test_any_jpeg_is_judged_as_at_its_full_size(mode, progressive, subsampling):
    chance = random.Random(f"{mode} {progressive} {subsampling}")
    noise = np.random.default_rng(0)
    channels = {"L": (), "RGB": (3,), "CMYK": (4,)}[mode]
    judged = set()
    for width, height in ((1, 1), (7, 9), (33, 50), (131, 70)):
        pixels = noise.integers(0, 256, (height, width, *channels), np.uint8)
        out = io.BytesIO()
        Image.fromarray(pixels).convert(mode).save(
            out,
            "JPEG",
            progressive=progressive,
            subsampling=subsampling,
            restart_marker_blocks=chance.choice([0, 3]),
        )
        whole = out.getvalue()
        header = decoded(whole)
        assert (header.width, header.height) == (width, height)
        for damage in (cut, flipped):
            for _ in range(DAMAGES // 2):
                data = damage(whole, chance)
                is_taken = is_sound(data)
                assert is_taken == is_decoded(data)
                judged.add(is_taken)
    assert judged == {True, False}


def is_decoded(data):
    try:
        decoded(data)
    except ImageError:
        return False
    return True


def decoded(data):
    """Check a picture as it is read: its header first."""
    header = describe(data)
    check_decode(data, header, max_pixels=PIXELS)
    return header


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("format", ["jpeg", "png", "webp", None])
def test_everything_becomes_everything(name, format):
    header = describe(SAMPLES[name])
    how = Transform("10x12", format, 90, orient=True)
    data, new, _ = transformed(SAMPLES[name], header, how, max_pixels=PIXELS)
    assert describe(data) == new
    format = format or ("jpeg" if name.startswith("jpeg") else "png")
    assert (new.format, new.height, new.width, new.orientation) == (format, 10, 12, 1)
    image = Image.open(io.BytesIO(data))
    assert image.size == (12, 10)


@pytest.mark.parametrize("kind", ["f4", "i4"])
@pytest.mark.parametrize("wanted", [(None, "png"), (8, None), ("4x4", "jpeg")])
def test_pixels_that_no_format_holds_are_not_made_to_fit(kind, wanted):
    data = encoded(Image.fromarray(np.arange(192, dtype=kind).reshape(12, 16) * 1000), "TIFF")
    how = Transform(*wanted, 90, orient=False)
    with pytest.raises(ImageError, match=r"pixels that are .*convert it beforehand"):
        transformed(data, describe(data), how, max_pixels=PIXELS)


@pytest.mark.parametrize("resize", ["20000x20000", "99999999999", 10**6])
def test_a_size_beyond_the_limit_is_refused_before_it_is_made(resize):
    data = encoded(picture(), "PNG")
    how = Transform(resize, None, 90, orient=False)
    with pytest.raises(ImageError, match=r"would be resized to \d+x\d+, more than") as raised:
        transformed(data, describe(data), how, max_pixels=PIXELS)
    assert raised.value.code == "too-large"


def test_transparency_becomes_white_in_a_jpeg():
    image = Image.new("RGBA", (16, 16), (255, 0, 0, 0))
    data = encoded(image, "PNG")
    how = Transform(None, "jpeg", 95, orient=False)
    jpeg, _, _ = transformed(data, describe(data), how, max_pixels=PIXELS)
    assert np.asarray(Image.open(io.BytesIO(jpeg))).min() > 250


def test_sixteen_bits_become_eight():
    data = SAMPLES["png-grey-16"]
    how = Transform(None, "webp", 100, orient=False)
    webp, _, _ = transformed(data, describe(data), how, max_pixels=PIXELS)
    expected = np.asarray(Image.open(io.BytesIO(data))).astype(np.int32) >> 8
    seen = np.asarray(Image.open(io.BytesIO(webp)).convert("L"), np.int32)
    assert np.abs(seen - expected).mean() < 8


def test_quality_counts():
    data = encoded(picture(width=200, height=200), "PNG")
    small, large = (
        transformed(data, describe(data), Transform(None, "jpeg", quality), max_pixels=PIXELS)[0]
        for quality in (10, 90)
    )
    assert len(small) < len(large)


@pytest.mark.parametrize(
    ("how", "changes"),
    [
        (Transform(), False),
        (Transform(format="jpeg"), False),
        (Transform(format="png"), True),
        (Transform(orient=True), True),
        (Transform(resize=17), False),
        (Transform(resize=16), True),
        (Transform(resize=(17, 23)), False),
        (Transform(resize=(23, 17)), True),
    ],
)
def test_only_what_must_change_is_touched(how, changes):
    assert how.changes(Header("jpeg", 23, 17, 3, 6)) == changes
