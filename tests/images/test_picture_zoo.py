"""Pictures of every kind: what is stored, TensorFlow decodes, or it is counted with the cure."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_tfrecord.images import Fault, Refusal
from beam_tfrecord.images.decode import Transform
from beam_tfrecord.images.formats import describe
from tests.helpers.effort import examples
from tests.images.picture_zoo import ended, zoo
from tests.images.zoo_judges import damage, judged, pillow_pixels, stored, tensorflow_pixels

pytestmark = pytest.mark.xdist_group("tensorflow")

ZOO = zoo()
# Faults of the coded pixels, which the header check does not read.
UNSEEN = {
    "header": {"png-pixels-without-sum", "png-crc-pixels", "gif-small-table"},
    "decode": set(),
}
# A broken rule that TensorFlow lets pass.
FALSE_ALARMS = {"png-pixels-twice-parted"}


@pytest.mark.parametrize("check", ["header", "decode"])
def test_what_is_stored_is_decoded_or_counted(check):
    verdicts = {name: judged(data, check) for name, data in ZOO.items()}
    # What Pillow refuses as well is damaged, which is for the decode check to find.
    missed = {
        name
        for name, verdict in verdicts.items()
        if verdict.is_missed and pillow_pixels(ZOO[name]) is not None
    }
    assert missed == UNSEEN[check]
    alarms = {name for name, verdict in verdicts.items() if verdict.is_false_alarm}
    assert alarms == FALSE_ALARMS
    sizes = {name for name, v in verdicts.items() if v.said == "silent" and not v.has_size}
    assert not sizes
    said = [verdict.said for verdict in verdicts.values()]
    assert said.count("counted") > 100
    assert said.count("silent") > 150


@pytest.mark.parametrize("format", ["png", "jpeg"])
def test_the_cure_cures(format):
    for name, data in ZOO.items():
        before, after = stored(data, "decode"), stored(data, "decode", Transform(format=format))
        if before is None or before[0].refusal is None:
            continue
        refusal = before[0].refusal
        assert "--format" in refusal.cure or "is too large" in refusal.reason
        if after is None or "--format" not in refusal.cure:
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
        ("bmp-1-40", "has 1 bits per pixel"),
        ("bmp-16-565", "has 16 bits per pixel"),
        ("bmp-24-12", "has a header of OS/2"),
        ("bmp-24-trailing", "has 2 bytes after its pixels"),
        ("bmp-8-colored", "has a palette, whose indices TensorFlow reads as shades of grey"),
        ("png-header-twice", "has two headers"),
        ("png-critical", "has a chunk that no decoder knows (b'CrIt')"),
        ("gif-smaller-frame", "has a frame away from its corner, of which TensorFlow cuts off a"),
        ("sample-tiff", "is a TIFF"),
    ],
)
def test_the_reason_is_told(name, reason):
    refusal = describe(ZOO[name]).refusal
    assert refusal is not None
    assert refusal.reason.startswith(reason)
    assert refusal.cure == "--format png or --format jpeg"


@given(
    name=st.sampled_from(sorted(ZOO)),
    share=st.floats(0, 1),
    way=st.sampled_from(["file", "stream", "rows", "lines"]),
)
@settings(max_examples=examples(400), deadline=None)
def test_pictures_that_end_anywhere(name, share, way):
    data = ended(ZOO[name], share, way)
    header, decode = (judged(data, check) for check in ("header", "decode"))
    assert decode.said == "rejected" or header.said != "rejected"
    assert decode.said != "silent" or decode.is_decoded
    has_fewer_rows = way == "rows" and data.startswith(b"\x89PNG") and data != ZOO[name]
    if has_fewer_rows and tensorflow_pixels(data) is None:
        assert stored(data, "header", Transform(shorter=4)) is None


@pytest.mark.slow
def test_damaged_pictures_are_counted_or_rejected():
    found = damage(600, seed=1)
    decoded = found["counts"]["decode"]
    assert [name for check, name, _ in found["missed"] if check == "decode"] == []
    assert decoded["rejected"] > 100
    assert decoded["counted"] > 50
    assert decoded.get("false alarm", 0) < decoded["counted"] / 10


DECODES = """
import sys
from beam_tfrecord.images import Fault
from beam_tfrecord.images.formats import describe
from beam_tfrecord.images.decode import Transform, check_decode, transformed
data = memoryview(bytes.fromhex(sys.argv[1]))
header = describe(data)
for _ in range(400):
    assert check_decode(data, header, max_pixels=2**28)[1:3] == (11, 7)
    transformed(data, header, Transform(shorter=2), max_pixels=2**28)
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


@pytest.mark.parametrize(
    ("name", "like", "reason"),
    [
        ("bmp-8-16", "bmp-8-40", None),
        ("bmp-24-16", "bmp-24-40", None),
        ("bmp-32-alpha-masked", "bmp-32-40", None),
        ("bmp-2-40", None, "has 2 bits per pixel"),
        ("bmp-16-4444", None, "has 16 bits per pixel"),
        ("bmp-32-10-bits", None, "has its colors in another order than TensorFlow expects"),
    ],
)
def test_a_bmp_that_pillow_does_not_read_is_stored_unless_it_is_decoded(name, like, reason):
    header = describe(ZOO[name])
    assert header.refusal == (None if reason is None else Refusal(reason))
    assert stored(ZOO[name], "header") == (header, ZOO[name])
    assert stored(ZOO[name], "decode") is None
    if like is not None:
        pixels = tensorflow_pixels(ZOO[name])
        assert pixels is not None
        assert (pixels == tensorflow_pixels(ZOO[like])).all()


@pytest.mark.parametrize("name", ["bmp-jpeg-inside", "bmp-png-inside"])
def test_a_bmp_that_nothing_decodes_is_a_fault(name):
    with pytest.raises(Fault, match="is damaged: it has 0 bits per pixel"):
        describe(ZOO[name])


def test_headers_are_read_without_pillow():
    names = [name for name in ZOO if name.startswith(("bmp-", "gif-", "webp-", "sample-"))]
    code = (
        "import sys; sys.modules['PIL'] = None\n"
        "from beam_tfrecord.images.formats import describe\n"
        "for data in sys.stdin.read().split():\n"
        "    print(describe(bytes.fromhex(data))[:4])"
    )
    sound = [name for name in names if stored(ZOO[name], "header")]
    done = subprocess.run(
        [sys.executable, "-c", code],
        input="\n".join(ZOO[name].hex() for name in sound),
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )
    assert done.stdout.splitlines() == [str(tuple(describe(ZOO[name])[:4])) for name in sound]


def test_a_palette_that_is_missing_is_a_fault_and_no_crash():
    assert stored(ZOO["png-palette-missing"], "header", Transform(format="jpeg")) is None
