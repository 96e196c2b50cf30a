"""Headers against Pillow and TensorFlow, whole and cut, and against random bytes."""

import contextlib
import random
import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_tfrecord.images import Header, ImageError
from beam_tfrecord.images.headers import describe
from tests.helpers.effort import examples
from tests.images.picture_zoo import pngs
from tests.sources.made_images import HEIGHT, SAMPLES, WIDTH

# Channels that were looked up in TensorFlow, or, where it cannot read the file, in Pillow.
CHANNELS = {
    "jpeg-grey": 1,
    "png-1": 1,
    "png-grey": 1,
    "png-grey-16": 1,
    "png-grey-alpha": 2,
    "png-grey-transparent": 1,
    "png-palette-transparent": 4,
    "png-alpha": 4,
    "webp-alpha": 4,
    "webp-lossless-alpha": 4,
    "bmp-grey": 1,
    "bmp-palette": 1,
    "bmp-alpha": 4,
    "tiff-grey": 1,
    "tiff-16": 1,
    "tiff-alpha": 4,
    "tiff-cmyk": 4,
}
ORIENTATIONS = {"jpeg-thumbnail": 6, "png-oriented": 8, "webp-oriented": 3, "tiff-oriented": 5}
# TensorFlow has no TIFF, refuses BMP below 8 bits, and ends the process on animated WebP.
TENSORFLOW = [
    name
    for name in SAMPLES
    if not name.startswith("tiff") and name not in ("bmp-1", "webp-animated", "webp-oriented")
]


@pytest.mark.parametrize("name", SAMPLES)
def test_header(name):
    expected = Header(
        name.partition("-")[0], WIDTH, HEIGHT, CHANNELS.get(name, 3), ORIENTATIONS.get(name, 1)
    )
    assert describe(SAMPLES[name])._replace(refusal=None) == expected


@pytest.mark.xdist_group("tensorflow")
def test_channels_are_those_of_tensorflow():
    import tensorflow as tf

    files = {name: SAMPLES[name] for name in TENSORFLOW} | {"png-4-16": dict(pngs())["4-16"]}
    seen = {name: int(tf.io.decode_image(data).shape[-1]) for name, data in files.items()}
    assert seen == {name: describe(data).channels for name, data in files.items()}


@pytest.mark.parametrize("name", [name for name in SAMPLES if name != "jpeg-trailer"])
def test_every_cut_is_seen(name):
    data = SAMPLES[name]
    # What TIFF and BMP have behind their pixels, and padding, is no loss.
    needed = {"tiff": 0.6, "bmp": 1.0, "webp": 1.0}.get(name.partition("-")[0], 1.0)
    codes = set()
    for cut in range(1, int(len(data) * needed)):
        with pytest.raises(ImageError) as caught:
            describe(data[:cut])
        codes.add(caught.value.code)
    assert codes <= {"truncated", "damaged", "not-an-image"}


@given(st.sampled_from([name for name in SAMPLES if name[:3] not in ("bmp", "tif")]), st.binary())
@settings(max_examples=examples(200), deadline=None)
def test_bytes_behind_the_end_are_no_loss(name, more):
    assert describe(SAMPLES[name] + more) == describe(SAMPLES[name])


@pytest.mark.parametrize("name", SAMPLES)
def test_a_cut_is_let_through_where_nobody_asks(name):
    data = SAMPLES[name]
    # The directory of a TIFF is at its end, and Pillow opens no WebP that is cut off.
    if not name.startswith(("tiff", "webp")):
        cut = data[: len(data) - 10]
        assert describe(cut, check_end=False)[:4] == describe(data)[:4]


@pytest.mark.parametrize("name", SAMPLES)
def test_flipped_and_cut_bytes_never_crash(name):
    chance = random.Random(name)
    for _ in range(examples(300)):
        data = bytearray(SAMPLES[name])
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(min(len(data), 600))] = chance.randrange(256)
        # Any other exception would come through.
        with contextlib.suppress(ImageError):
            describe(
                bytes(data[: chance.randrange(1, len(data) + 1)]), check_end=chance.random() < 0.5
            )


@pytest.mark.parametrize(
    ("data", "code", "reason"),
    [
        (b"", "empty", "is empty"),
        (
            b"<html></html>",
            "not-an-image",
            "is not an image, or cut off in its header: it begins with b'<html></'",
        ),
    ],
)
def test_what_is_wrong_is_told(data, code, reason):
    with pytest.raises(ImageError) as caught:
        describe(data)
    assert (caught.value.code, caught.value.reason) == (code, reason)


def test_a_bomb_is_refused_by_its_header():
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")]
    bomb = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    with pytest.raises(ImageError, match=r"has far too many pixels: pass --max-pixels"):
        describe(bomb)
    assert describe(bomb, max_pixels=60_000**2).width == 60_000


def test_a_picture_of_no_size_is_a_fault():
    png = SAMPLES["png"][:16] + bytes(4) + SAMPLES["png"][20:]
    frame = SAMPLES["jpeg"].index(b"\xff\xc0")
    jpeg = SAMPLES["jpeg"][: frame + 5] + bytes(2) + SAMPLES["jpeg"][frame + 7 :]
    for data in (png, jpeg):
        with pytest.raises(ImageError, match=r"not an image|has no pixels"):
            describe(data)
