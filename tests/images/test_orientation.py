"""Orientations in every place that a format has for them: what Pillow makes of a file decides."""

import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from beam_tfrecord.images.decode import Transform
from tests.helpers.effort import examples
from tests.images.picture_zoo import PNG_SIGNATURE, chunk, png_chunks, segment
from tests.images.zoo_judges import stored
from tests.sources.made_images import encoded, exif, picture

# Pillow warns of tags of odd types and lengths.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

NUMBERS = st.sampled_from([0, 1, *range(2, 9), 6, 6, 9])
# Types and counts of an entry; the last one is longer than its block.
KINDS = {(3, 1): "H2x", (1, 1): "B3x", (4, 1): "I", (3, 2): "H2x", (2, 99): "I"}
XMPS = [b'<x tiff:Orientation="%d"/>', b"<tiff:Orientation>%d</tiff:Orientation>"]


@st.composite
def exifs(draw):
    """Return an EXIF block of two entries, of any order, type and length."""
    order, entries = draw(st.sampled_from("<>")), b""
    for tag in draw(st.permutations([274, draw(st.sampled_from([270, 274, 305]))])):
        kind = draw(st.sampled_from([*KINDS, (3, 1), (3, 1)]))
        value = struct.pack(order + KINDS[kind], draw(NUMBERS))
        entries += struct.pack(order + "HHI", tag, *kind) + value
    start = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(order + "IH", 8, 2)
    return (start + entries)[: draw(st.sampled_from([99, 99, 20]))] + bytes(4)


@st.composite
def pictures(draw):
    """Return the suffix of a picture, and the file, with orientations in several places."""
    exif_blocks, profiles = (draw(st.lists(exifs(), max_size=most)) for most in (2, 1))
    xmp = draw(st.sampled_from([b"", *XMPS]))
    xmp = xmp and xmp % draw(NUMBERS)
    suffix, one = draw(st.sampled_from(["jpg", "png", "webp", "tif"])), b"".join(exif_blocks[:1])
    if suffix == "jpg":
        marks = [b"Exif\0\0" + block for block in exif_blocks]
        marks += [b"http://ns.adobe.com/xap/1.0/\0" + xmp] * bool(xmp)
        data = encoded(picture(), "JPEG")
        return suffix, data[:2] + b"".join(segment(0xE1, mark) for mark in marks) + data[2:]
    if suffix == "png":
        head, *pixels, end = png_chunks(encoded(picture(), "PNG"))
        marks = [(b"tEXt", b"Comment\0eXIf MM\0*"), *[(b"eXIf", one)] * bool(one)]
        marks += [(b"iTXt", b"XML:com.adobe.xmp" + bytes(5) + xmp)] * bool(xmp)
        for block in profiles:
            text = f"\nexif\n{len(block)}\n{block.hex()}\n".encode()
            marks.append((b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(text)))
        parts = [*pixels, *marks] if draw(st.booleans()) else [*marks, *pixels]
        return suffix, PNG_SIGNATURE + b"".join(chunk(*part) for part in [head, *parts, end])
    if suffix == "webp":
        return suffix, encoded(picture(), "WEBP", exif=one, xmp=xmp, lossless=True)
    tags = {tag: value for tag, value in ((274, draw(NUMBERS)), (700, xmp)) if value}
    return suffix, encoded(picture(), "TIFF", tiffinfo=tags)


def upright(data):
    """Return the image that Pillow turns; if it cannot read the EXIF, the image as it is."""
    image = Image.open(io.BytesIO(data))
    image.load()
    try:
        return ImageOps.exif_transpose(image).convert("RGB")
    except Exception:
        return image.convert("RGB")


@given(pictures())
@settings(max_examples=examples(400), deadline=None)
def test_pictures_are_turned_as_pillow_turns_them(made):
    suffix, data = made
    expected = upright(data)
    header, same = stored(data, "header")
    assert same == data
    unturned = picture() if suffix == "tif" else Image.open(io.BytesIO(data)).convert("RGB")
    alike = upright(encoded(unturned, "PNG", exif=exif(header.orientation)))
    assert np.array_equal(alike, expected), "the column orientation says so"
    header, turned = stored(data, "header", Transform(format="png", orient=True))
    assert np.array_equal(upright(turned), expected)
    assert header.orientation == 1
    for orient in (False, True):
        _, small = stored(data, "header", Transform(resize=10, format="png", orient=orient))
        size = tuple(round(10 * side / min(expected.size)) for side in expected.size)
        wanted = np.asarray(expected.resize(size, Image.Resampling.BICUBIC), int)
        assert np.abs(np.asarray(upright(small), int) - wanted).max() < 60
