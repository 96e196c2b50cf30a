"""Pictures of every kind: what is stored, TensorFlow decodes, or it is counted with the cure."""

import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from beam_tfrecord.images.decode import Transform
from beam_tfrecord.images.headers import describe
from tests.helpers.effort import examples
from tests.images.picture_zoo import ended, zoo
from tests.images.zoo_judges import judged, pillow_pixels, stored, tensorflow_pixels

pytestmark = pytest.mark.xdist_group("tensorflow")

ZOO = zoo()
# Pillow decodes these rare kinds, and TensorFlow does not, or to other pixels.
MISSED = {"bmp-24-no-start", "png-palette-missing", "png-palette-twice"}
# Faults of the coded pixels, which the header check does not read.
UNSEEN = {"header": MISSED | {"png-crc-pixels", "png-pixels-without-sum"}, "decode": MISSED}
FALSE_ALARMS = {"gif-animated-small-first", "gif-smaller-frame-at-origin"}
OTHER_SIZES = {"gif-animated-larger-second"}


@pytest.mark.parametrize("check", ["header", "decode"])
def test_what_is_stored_is_decoded_or_counted(check):
    verdicts = {name: judged(data, check) for name, data in ZOO.items()}
    # What Pillow refuses as well is damaged, which is for the decode check to find.
    missed = {
        name
        for name, verdict in verdicts.items()
        if verdict.is_missed and (check == "decode" or pillow_pixels(ZOO[name]) is not None)
    }
    assert missed == UNSEEN[check]
    alarms = {name for name, verdict in verdicts.items() if verdict.is_false_alarm}
    assert alarms == FALSE_ALARMS
    sizes = {name for name, v in verdicts.items() if v.said == "silent" and not v.has_size}
    assert sizes == OTHER_SIZES
    said = [verdict.said for verdict in verdicts.values()]
    assert said.count("counted") > 75
    assert said.count("silent") > 150


@pytest.mark.parametrize("format", ["png", "jpeg"])
def test_the_cure_cures(format):
    for name, data in ZOO.items():
        before, after = stored(data, "decode"), stored(data, "decode", Transform(format=format))
        if before is None or after is None or before[0].refusal is None:
            continue
        header, content = after
        pixels = tensorflow_pixels(content)
        assert header.refusal is None, name
        assert pixels is not None, name
        assert pixels.shape[:2] == (header.height, header.width), name


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("webp-animated", "is animated"),
        ("webp-alpha", "has an alpha channel, which TensorFlow cannot decode in WebP"),
        *(
            (f"bmp-{name}", "has a palette or a layout of BMP that TensorFlow does not decode")
            for name in ("1-40", "16-565", "24-12", "24-trailing", "8-colored", "8-run-length")
        ),
        ("jpeg-precision-12", "has a coding that TensorFlow does not decode"),
        ("gif-transparent", "has a transparent color, or a first frame that does not fill it"),
        ("sample-tiff", "is a TIFF"),
    ],
)
def test_the_reason_is_told(name, reason):
    assert describe(ZOO[name]).refusal == reason


@given(
    name=st.sampled_from(sorted(ZOO.keys() - MISSED)),
    share=st.floats(0, 1),
    way=st.sampled_from(["file", "stream", "rows", "lines"]),
)
@example(name="png-3-1-interlaced", share=0.8125, way="rows")
@settings(max_examples=examples(400), deadline=None)
def test_pictures_that_end_anywhere(name, share, way):
    data = ended(ZOO[name], share, way)
    header, decode = (judged(data, check) for check in ("header", "decode"))
    assert decode.said == "rejected" or header.said != "rejected"
    assert decode.said != "silent" or decode.is_decoded
    has_fewer_rows = way == "rows" and data.startswith(b"\x89PNG") and data != ZOO[name]
    if has_fewer_rows and tensorflow_pixels(data) is None:
        assert stored(data, "header", Transform(resize=4)) is None


DECODES = """
import sys
from beam_tfrecord.images import ImageError
from beam_tfrecord.images.headers import describe
from beam_tfrecord.images.decode import Transform, check_decode, transformed
data = bytes.fromhex(sys.argv[1])
header = describe(data)
assert header[1:3] == (11, 7)
for _ in range(400):
    check_decode(data, header, max_pixels=2**28)
    transformed(data, header, Transform(resize=2), max_pixels=2**28)
"""


def test_a_lossless_jpeg_does_not_overrun_memory():
    # Decoded at a part of its size, it ended the process.
    done = subprocess.run(
        [sys.executable, "-c", DECODES, ZOO["jpeg-lossless"].hex()],
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()[-500:]


def test_a_palette_that_is_missing_is_a_fault_and_no_crash():
    assert stored(ZOO["png-palette-missing"], "header", Transform(format="jpeg")) is None
