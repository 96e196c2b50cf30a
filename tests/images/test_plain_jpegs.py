"""Plain JPEGs, which the kernel describes by the batch, against the reference for any picture."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from beam_tfrecord.images import Fault
from beam_tfrecord.images.formats import describe
from beam_tfrecord.native import _files as files
from beam_tfrecord.sources.images.read import Files
from tests.images.picture_zoo import zoo
from tests.sources.made_images import SAMPLES, encoded, exif, picture

LIMIT = 10_000


def told(pictures, *, limit=LIMIT):
    """Describe pictures that lie side by side."""
    data = np.frombuffer(b"".join(pictures) + b"\0", np.uint8)
    held = Files(data, [len(one) for one in pictures], {})
    return held.plain_jpegs(max_pixels=limit)


def described(data):
    """Return what the reference says; None where that is a fault."""
    try:
        return describe(data, max_pixels=LIMIT)
    except Fault:
        return None


def check(data):
    """Compare both; tell whether it was a plain JPEG."""
    (header,) = told([data])
    # The reference finds nothing that TensorFlow refuses, either.
    assert header is None or header == described(data)
    return header is not None


def test_jpegs_without_exif_are_plain_and_nothing_else_is():
    headers = dict(zip(SAMPLES, told(list(SAMPLES.values())), strict=True))
    plain = {name for name, header in headers.items() if header is not None}
    with_exif = {name for name in SAMPLES if Image.open(io.BytesIO(SAMPLES[name])).getexif()}
    # The trailer of a camera is behind the end mark.
    jpegs = {name for name in SAMPLES if name.startswith("jpeg")} - {"jpeg-trailer"}
    assert plain == jpegs - with_exif
    assert {name: headers[name] for name in plain} == {
        name: describe(SAMPLES[name]) for name in plain
    }


@pytest.mark.parametrize("name", [name for name in SAMPLES if name.startswith("jpeg")])
def test_no_cut_and_no_limit_is_overlooked(name):
    data = SAMPLES[name]
    for cut in range(len(data)):
        check(data[:cut])
    header = describe(data)
    assert told([data], limit=header.width * header.height - 1) == [None]


def test_exif_of_any_orientation_is_left_to_the_reference():
    turned = [encoded(picture(), "JPEG", exif=exif(way)) for way in range(1, 9)]
    assert told(turned) == [None] * 8


_numbers = st.integers(0, 255)
_markers = st.one_of(
    st.sampled_from(
        [0x01, 0xC0, 0xC2, 0xC4, 0xC8, 0xCC, 0xCF, 0xD0, 0xD8, 0xDB, 0xDB, 0xD9, 0xE0, 0xE1, 0xFF]
    ),
    _numbers,
)
_contents = st.one_of(
    st.binary(max_size=12),
    st.just(b"Exif\0\0MM\0*\0\0\0\x08\0\0"),
    st.tuples(_numbers, _numbers, _numbers, st.binary(max_size=12)).map(
        lambda n: bytes([8, 0, n[0], 0, n[1], n[2] % 6]) + n[3]
    ),
    st.sampled_from([1, 3, 4]).map(lambda n: bytes([8, 0, 7, 0, 9, n]) + bytes([1, 0x11, 0]) * n),
)


def _segment(marker, content, more):
    return bytes([0xFF, marker]) + (len(content) + 2 + more).to_bytes(2, "big") + content


_segments = st.lists(
    st.builds(_segment, _markers, _contents, st.sampled_from([0, 0, 0, 0, 1, 200])), max_size=6
)


@given(_segments, st.sampled_from([b"", b"\xff\xda", b"\xff\xda\0\x02"]))
def test_any_chain_of_segments(segments, scan):
    for end in (b"", b"\xff\xd9", b"\xff\xd9trailer"):
        check(b"\xff\xd8" + b"".join(segments) + scan + end)


def test_such_chains_are_plain_as_well_as_not():
    # Else the test above would show nothing.
    frame = _segment(0xC2, bytes([8, 0, 7, 0, 9, 3, 1, 0x22, 0, 2, 0x11, 0, 3, 0x11, 0]), 0)
    tables, scan = _segment(0xDB, bytes(65), 0), b"\xff\xda\0\x02\xff\xd9"
    for fill in (b"", b"\xff", b"\xff\x01\xff\xd3", _segment(0xE1, b"http:/", 0)):
        assert check(b"\xff\xd8" + tables + fill + frame + scan)
    assert not check(b"\xff\xd8" + tables + frame + frame + scan)
    assert not check(b"\xff\xd8" + frame + scan)
    assert not check(b"\xff\xd8" + tables + frame + scan[:-2])
    assert not check(b"\xff\xd8" + tables + _segment(0xC4, bytes(12), 0) + scan)


@pytest.mark.slow_after(9)
@pytest.mark.parametrize("name", [name for name in zoo() if name.startswith("jpeg")])
def test_jpegs_of_every_kind(name):
    check(zoo()[name])


@given(
    st.sampled_from([name for name in SAMPLES if name.startswith("jpeg")]),
    st.lists(st.tuples(st.integers(0, 700), _numbers), max_size=4),
)
def test_flipped_bytes(name, flips):
    data = bytearray(SAMPLES[name])
    for at, value in flips:
        data[at % len(data)] = value
    check(bytes(data))


def test_ranges_outside_of_the_data_are_refused():
    data = np.zeros(4, np.uint8)
    for start, size in ((-1, 1), (0, 5), (4, 1), (0, -1)):
        with pytest.raises(ValueError, match="outside of the data"):
            files.describe_jpegs(data, np.array([start]), np.array([size]), LIMIT)
    with pytest.raises(ValueError, match="1 starts, but 2 sizes"):
        files.describe_jpegs(data, np.array([0]), np.array([0, 1]), LIMIT)
    assert files.describe_jpegs(data[:0], np.array([0]), np.array([0]), LIMIT).tolist() == [
        [0, 0, 0]
    ]
