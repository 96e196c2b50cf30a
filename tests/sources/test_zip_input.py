"""A zip file is read like the directory that it holds: by every source, in parts, and if bad."""

import io
import os
import random
import zipfile

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from PIL import Image

import beam_tfrecord as bt
from beam_tfrecord.errors import BeamTFRecordError, DataError, TargetExists, UsageError
from beam_tfrecord.sources.choose import detect_kind, make_source
from beam_tfrecord.sources.csv.source import Csv
from beam_tfrecord.sources.images.source import Images
from beam_tfrecord.testing import some_rows
from tests.helpers.effort import examples
from tests.helpers.reading import rows_of
from tests.helpers.zips import make_zip, set_field, zip_of
from tests.sources.behaviour import CASES
from tests.sources.made_sql import shards_of

ROWS = 200
KINDS = pytest.mark.parametrize("kind", sorted(CASES))
METHODS = pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
TABLE = "id,x\n1,2.5\n2,3.5\n"


@pytest.mark.slow_after(10)
@KINDS
@METHODS
def test_a_zip_file_has_the_rows_of_its_directory(tmp_path, monkeypatch, kind, method):
    case = CASES[kind]
    case.use_small_units(monkeypatch)
    rows = list(map(case.held, some_rows(2 * ROWS)))
    (tmp_path / "in" / "b").mkdir(parents=True)
    case.write(tmp_path / "in" / f"a{case.suffix}", rows[:ROWS])
    case.write(tmp_path / "in" / "b" / f"c{case.suffix}", rows[ROWS:])
    path = zip_of(tmp_path / "in", tmp_path / "in.zip", method)
    of_directory, of_zip = case.open(str(tmp_path / "in")), case.open(str(path))
    assert of_zip.schema() == of_directory.schema()
    assert rows_of(of_zip) == rows_of(of_directory)
    units = of_zip.all_units(of_zip.all_scans())
    # Each unit reads from the start of a member.
    assert [unit.name for unit in units] == [f"in.zip/a{case.suffix}", f"in.zip/b/c{case.suffix}"]


@KINDS
@METHODS
def test_a_wrong_crc_is_named(tmp_path, kind, method):
    case = CASES[kind]
    (tmp_path / "in").mkdir()
    case.write(tmp_path / "in" / f"x{case.suffix}", list(map(case.held, some_rows(ROWS))))
    path = zip_of(tmp_path / "in", tmp_path / "in.zip", method)
    data = bytearray(path.read_bytes())
    # The name ends the header that has the CRC; a manifest may be there, too.
    data[data.rfind(f"x{case.suffix}".encode()) - 46 + 16] ^= 1
    path.write_bytes(data)
    # openpyxl takes any error of reading for one of its format.
    reason = "not a valid xlsx file" if kind == "excel" else "Bad CRC-32"
    with pytest.raises(DataError, match=rf"in\.zip/x\{case.suffix}.*{reason}") as raised:
        rows_of(case.open(str(path)))
    assert "\n" not in str(raised.value)


def names(*paths, **options):
    return [file.name for file in make_source(paths, **options).files()]


def test_parts_of_zip_files_are_named_like_parts_of_directories(tmp_path):
    members = {
        "train/a.csv": TABLE,
        "train/deep/b.csv": TABLE,
        "test.csv": TABLE,
        "train/.DS_Store": b"\0",
        "__MACOSX/train/._a.csv": b"\0",
        "_tmp/x.csv": b"\0",
        "read.me": b"\0",
    }
    one = make_zip(tmp_path / "one.zip", members)
    make_zip(tmp_path / "two.ZIP", {"c.csv": TABLE})
    make_zip(tmp_path / "data[1].zip", {"d.csv": TABLE})
    assert names(one) == ["one.zip/test.csv", "one.zip/train/a.csv", "one.zip/train/deep/b.csv"]
    assert names(f"{one}/train") == ["one.zip/train/a.csv", "one.zip/train/deep/b.csv"]
    assert names(f"file://{one}/train/") == names(f"{one}/train")
    assert names(f"{one}/train/*.csv") == ["one.zip/train/a.csv"]
    assert names(f"{one}/**/*.csv") == names(one)
    assert names(f"{one}/test.csv") == ["one.zip/test.csv"]
    assert names(tmp_path / "two.ZIP", one)[-1] == "two.ZIP/c.csv"
    assert names(tmp_path / "data[1].zip") == ["data[1].zip/d.csv"]
    assert names(f"{tmp_path}/data[[]1].zip") == ["data[1].zip/d.csv"]
    assert names(f"{tmp_path}/*.zip/**/?.csv") == [
        *("data[1].zip/d.csv", "one.zip/train/a.csv", "one.zip/train/deep/b.csv")
    ]


def test_partitions_in_and_around_a_zip_file_are_columns(tmp_path):
    (tmp_path / "day=1").mkdir()
    path = make_zip(tmp_path / "day=1" / "a.zip", {"city=Rome/a.csv": TABLE})
    assert rows_of(Csv(str(path)))[0] == {"id": 1, "x": 2.5, "day": 1, "city": "Rome"}


@pytest.mark.parametrize(
    ("members", "inside", "message"),
    [
        ({}, "", r"cannot read '.*a\.zip': it holds no file|no such file"),
        ({"x.txt": b"1"}, "", r"cannot tell what '.*a\.zip' holds: no file in it ends in"),
        ({"x.csv": b"1"}, "/y*.csv", r"cannot read '.*a\.zip/y\*\.csv': no such file"),
        ({"x.csv.zip": b"1"}, "", r"a\.zip' holds zip files, which are not looked into: unpack"),
        ({"x.csv": b"1", "x.jpg": b"1"}, "", r"holds csv \(1 file\) and images \(1 file\)"),
        (
            {"t/_delta_log/0.json": b"{}", "t/a.parquet": b"1"},
            "",
            r"a\.zip/t/_delta_log/0\.json' is the log of a table: unpack",
        ),
        (
            {"t/metadata/v1.metadata.json": b"{}", "t/data/a.parquet": b"1"},
            "",
            r"v1\.metadata\.json' is the log of a table: unpack",
        ),
    ],
)
def test_what_cannot_be_read_gets_one_line(tmp_path, members, inside, message):
    path = make_zip(tmp_path / "a.zip", members)
    with pytest.raises(UsageError, match=message) as raised:
        names(f"{path}{inside}")
    assert "\n" not in str(raised.value)


def test_zip_files_are_not_mixed_with_others(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"x.csv": TABLE})
    (tmp_path / "b.csv").write_text(TABLE)
    with pytest.raises(UsageError, match="or only some in zip files"):
        names(path, tmp_path / "b.csv")
    (tmp_path / "b.csv").unlink()
    with pytest.raises(UsageError, match=r"holds zip files.*: give '.*/\*\.zip'"):
        names(tmp_path)


@pytest.mark.parametrize("how", ["torn", "locked", "method"])
def test_a_bad_zip_file_writes_nothing_and_says_why(tmp_path, how):
    path = make_zip(tmp_path / "a.zip", {"t/x.csv": TABLE}, zipfile.ZIP_STORED)
    if how == "torn":
        path.write_bytes(path.read_bytes()[:-10])
    else:
        set_field(path, "flags" if how == "locked" else "method", 1 if how == "locked" else 99)
    message = {
        "torn": r"a\.zip' is not a complete zip file",
        "locked": r"a\.zip/t/x\.csv' is encrypted: unpack the zip file",
        "method": r"a\.zip/t/x\.csv' is compressed by method 99, which is not read: unpack",
    }[how]
    with pytest.raises(BeamTFRecordError, match=message) as raised:
        bt.write(path, tmp_path / "out")
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "out" / "manifest.json").exists()


@METHODS
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_random_damage_changes_no_row_and_gets_one_line(tmp_path, suffix, method):
    table = pa.table({"a": range(60), "s": [f"t{row * row}" for row in range(60)]})
    sink = io.BytesIO()
    write = pq.write_table if suffix == ".parquet" else pa.csv.write_csv
    write(table, sink)
    path = make_zip(tmp_path / "a.zip", {f"t/x{suffix}": sink.getvalue(), "y": b"1"}, method)
    draw, sound, refusals = random.Random(suffix), path.read_bytes(), []
    for _ in range(examples(150)):
        data = bytearray(sound)
        at = draw.randrange(len(data))
        data[at : at + draw.randrange(9)] = draw.randbytes(draw.randrange(9))
        path.write_bytes(data)
        try:
            assert rows_of(make_source(path)) == table.to_pylist()
        except BeamTFRecordError as error:
            refusals.append(str(error))
    assert len(refusals) > examples(150) / 3
    assert all("a.zip" in line and "\n" not in line for line in refusals)


@pytest.mark.slow
def test_a_rerun_is_nothing_unless_a_member_was_edited(tmp_path):
    path = make_zip(tmp_path / "in.zip", {"a.csv": TABLE, "b.csv": TABLE})
    bt.write(path, tmp_path / "out", key="id")
    before = (tmp_path / "out" / "job.json").read_bytes()
    os.utime(path)
    bt.write(path, tmp_path / "out", key="id")
    assert (tmp_path / "out" / "job.json").read_bytes() == before
    make_zip(path, {"a.csv": TABLE, "b.csv": TABLE.replace("2.5", "2.6")})
    with pytest.raises(TargetExists, match="the input was edited"):
        bt.write(path, tmp_path / "out", key="id")


def picture(shade):
    sink = io.BytesIO()
    Image.new("L", (4, 4), shade).save(sink, "JPEG")
    return sink.getvalue()


@pytest.fixture
def pictures(tmp_path):
    for split in ("train", "test"):
        for label in ("cat", "dog"):
            below = tmp_path / "in" / split / label
            below.mkdir(parents=True)
            for number in range(5):
                (below / f"{number}.jpg").write_bytes(picture(40 * number + len(label + split)))
            (below / ".DS_Store").write_bytes(b"\0")
    return tmp_path / "in"


@pytest.mark.slow_after(1)
@METHODS
def test_pictures_are_those_of_the_directory(tmp_path, pictures, method):
    path = zip_of(pictures, tmp_path / "a.zip", method)
    assert detect_kind(path) == "images"
    manifest = bt.write(path, tmp_path / "one")
    assert set(manifest.splits) == {"train", "test"}
    bt.write(pictures, tmp_path / "two")
    assert shards_of(tmp_path / "one") == shards_of(tmp_path / "two")
    assert rows_of(Images(f"{path}/train")) == rows_of(Images(str(pictures / "train")))


def test_a_bad_picture_is_a_reject(tmp_path):
    names = [f"cat/{number}.jpg" for number in range(5)]
    members = {name: picture(40 * at) for at, name in enumerate(names)}
    path = make_zip(tmp_path / "a.zip", members, zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    # In the table of quantization of the second picture, which is valid with any values.
    at = data.find(b"\xff\xdb", data.find(b"cat/1.jpg")) + 20
    data[at] ^= 1
    path.write_bytes(data)
    manifest = bt.write(path, tmp_path / "out", max_rejects=1)
    assert manifest.examples == 4
    text = "".join(p.read_text(errors="replace") for p in (tmp_path / "out/rejects").iterdir())
    assert "cat/1.jpg cannot be read (Bad CRC-32 for file 'cat/1.jpg')" in text


def test_a_dataset_in_a_zip_file_keeps_its_splits(tmp_path):
    (tmp_path / "a.csv").write_text("id\n" + "".join(f"{row}\n" for row in range(100)))
    bt.write(tmp_path / "a.csv", tmp_path / "ds", splits={"a": 0.5, "b": 0.5})
    path = zip_of(tmp_path / "ds", tmp_path / "ds.zip")
    manifest = bt.write(path, tmp_path / "out")
    assert {name: of.examples for name, of in manifest.splits.items()} == {
        name: of.examples for name, of in bt.load(tmp_path / "ds").manifest.splits.items()
    }
