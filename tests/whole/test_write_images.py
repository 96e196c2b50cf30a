"""`write` of pictures: splits, copies, labels, rejects, and the same bytes however it is run."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from beam_tfrecord.check.verify import verify
from beam_tfrecord.errors import RejectedRows, TargetExists, UsageError
from beam_tfrecord.jobs.settings import make_settings
from beam_tfrecord.options.jobs import WriteOptions
from beam_tfrecord.sources.images import folders as images_pack
from beam_tfrecord.sources.images import read as images_read
from tests.helpers.cli_stand_ins import run
from tests.images.picture_zoo import zoo
from tests.sources.made_images import encoded, exif, jpeg, picture, write_tree

SPLITS = ("a", "b", "c")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Return a directory of 40 pictures in two classes, of which five are copies of others."""
    root = tmp_path_factory.mktemp("photos") / "photos"
    for number in range(35):
        write_tree(root, **{f"{'cat' if number % 2 else 'dog'}__{number:02d}": jpeg(number)})
    for number in range(5):
        write_tree(root, **{f"cat__copy{number}": jpeg(number)})
    return root


@pytest.fixture(scope="module")
def written(photos, tmp_path_factory):
    """Return the dataset of those pictures in three splits, and what was told on the way."""
    output = tmp_path_factory.mktemp("written") / "out"
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        patch.setattr(images_pack, "PACK_FILES", 30)
        bt.write(photos, output, splits="a=0.34,b=0.33,c=0.33")
    return output, [str(warning.message) for warning in told]


def rows_by_path(output, **options):
    return {row["path"]: row for row in bt.load(output, **options).rows()}


def test_pictures_are_written_with_their_labels(photos, written):
    output, _ = written
    rows = rows_by_path(output)
    assert len(rows) == 40
    for path, row in rows.items():
        assert row["image"] == (photos / path).read_bytes()
        assert row["label"] == ("cat", "dog").index(row["label_name"])
        assert row["label_name"] == path.split("/")[0]
    assert not verify(output).faults


def test_labels_are_in_the_manifest_and_beside_the_data(written):
    output, _ = written
    manifest = json.loads((output / "manifest.json").read_text())
    assert (output / "labels.txt").read_text() == "cat\ndog\n"
    assert "labels.txt" in manifest["sidecars"]
    labels = {feature["name"]: feature.get("labels") for feature in manifest["schema"]["features"]}
    assert labels["label"] == ["cat", "dog"]
    assert bt.load(output).schema["label"].labels == ("cat", "dog")


def test_copies_share_a_split_and_are_told(written):
    output, told = written
    # Number 0 is a picture of dogs and of cats, and so on.
    assert told[-2:] == [
        "5 rows are duplicates of others by content",
        "3 duplicated contents have several labels: correct the wrong ones",
    ]
    assert json.loads((output / "manifest.json").read_text())["group"] == ["sha256"]
    split_of = {}
    for split in SPLITS:
        for row in bt.load(output, split=split).rows():
            split_of.setdefault(row["sha256"], set()).add(split)
    assert len(split_of) == 35
    assert all(len(splits) == 1 for splits in split_of.values())
    assert set().union(*split_of.values()) == set(SPLITS)
    copies = json.loads((output / "job.json").read_text())["copies"]
    assert copies == {"rows": 5, "exact": True, "contents_of_several_labels": 3}


def test_nothing_is_done_twice_but_a_new_picture_is_seen(tmp_path):
    write_tree(tmp_path / "in", cat__a=jpeg(), dog__b=jpeg(1))
    first = bt.write(tmp_path / "in", tmp_path / "out")
    assert bt.write(tmp_path / "in", tmp_path / "out").fingerprint == first.fingerprint
    write_tree(tmp_path / "in", cat__new=jpeg(99))
    differences = r"different: input edited: some of the files from cat/a\.jpg on"
    with pytest.raises(TargetExists, match=rf"\({differences}\)$"):
        bt.write(tmp_path / "in", tmp_path / "out")
    second = bt.write(tmp_path / "in", tmp_path / "out", overwrite=True)
    assert second.fingerprint != first.fingerprint
    assert second.examples == 3


def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


@pytest.mark.parametrize("way", ["columns", "map", "stage", "dataset", "batches", "rows"])
def test_copies_share_a_split_in_every_way(photos, written, tmp_path, way):
    output, stage, halves = tmp_path / "out", tmp_path / "stage", "a=0.5,b=0.5"
    if way == "columns":
        bt.write(photos, output, splits=halves, columns=["image", "path"])
    elif way == "map":
        bt.write(photos, output, splits=halves, map=same)
    elif way == "stage":
        bt.extract(photos, stage)
        bt.write(stage, output, splits=halves)
    elif way == "dataset":
        bt.write(written[0], output, splits=halves)
    else:
        with bt.pipeline() as p:
            rows = p | bt.ReadFromImages(photos)
            rows = rows | bt.ToRows() if way == "rows" else rows
            rows | bt.WriteToTFRecord(f"{output}/", splits=halves)
    images = [{r["image"] for r in bt.load(output, split=s).rows()} for s in "ab"]
    assert len(images[0]) + len(images[1]) == 35
    assert not images[0] & images[1]
    assert not verify(output).faults


@pytest.mark.parametrize("is_staged", [False, True])
def test_folders_of_splits_are_splits(tmp_path, is_staged):
    pictures = {f"{name}__{i}": jpeg(i) for i, name in enumerate(("train__x", "val__x", "test__y"))}
    write_tree(tmp_path / "in", **pictures, train__y__4=jpeg(4))
    if is_staged:
        bt.extract(tmp_path / "in", tmp_path / "stage")
    manifest = bt.write(tmp_path / ("stage" if is_staged else "in"), tmp_path / "out")
    counts = {name: split.examples for name, split in manifest.splits.items()}
    assert counts == {"test": 1, "train": 2, "val": 1}
    (row,) = bt.load(tmp_path / "out", split="val").rows()
    assert (row["path"], row["label"], row["split"]) == ("val/x/1.jpg", 0, "val")
    named = str(tmp_path / ("stage" if is_staged else "in"))
    with pytest.raises(UsageError, match="names the splits of the input: add it to --columns"):
        make_settings(WriteOptions(named, tmp_path / "own", columns=["image"]))
    told = make_settings(WriteOptions(named, tmp_path / "own", splits="a=0.5,b=0.5"))
    assert told.layout.splits.names == ("a", "b")


def test_damaged_pictures_end_the_job_unless_they_may_be_rejected(tmp_path):
    write_tree(tmp_path / "in", cat__a=jpeg(), cat__bad=jpeg()[:-9], dog__z=b"", dog__y=jpeg(1))
    with pytest.raises(RejectedRows, match=r"cat/bad\.jpg is cut off before its end"):
        bt.write(tmp_path / "in", tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.json").exists()
    manifest = bt.write(tmp_path / "in", tmp_path / "out", max_rejects="any")
    assert manifest.examples == 2
    rejects = pq.read_table(tmp_path / "out" / "rejects").to_pylist()
    codes = {row["value"]: row["code"] for row in rejects}
    assert codes == {"cat/bad.jpg": "truncated", "dog/z.jpg": "empty"}


def test_the_command_line_takes_it_all(photos, tmp_path):
    (tmp_path / "classes.txt").write_text("dog\ncat\n")
    flags = ["--labels", str(tmp_path / "classes.txt"), "--check", "decode", "--resize", "16x16"]
    flags += ["--format", "jpeg", "--quality", "80", "--orient", "--max-pixels", "500000"]
    ran = run("write", str(photos), str(tmp_path / "out"), *flags)
    assert ran.exit_code == 0, ran.output
    assert bt.load(tmp_path / "out").schema["label"].labels == ("dog", "cat")
    (size,) = {(row["height"], row["width"]) for row in bt.load(tmp_path / "out").rows()}
    assert size == (16, 16)


def test_a_given_schema_keeps_the_labels(photos, tmp_path):
    schema = bt.schema(str(photos)).select(["image", "label"])
    bt.write(photos, tmp_path / "out", schema=schema.edit(label=bt.Feature(type="int64")))
    assert (tmp_path / "out" / "labels.txt").read_text() == "cat\ndog\n"
    assert bt.load(tmp_path / "out").schema.names == ("image", "label")


def test_a_table_of_paths(photos, written, tmp_path):
    lines = [f"{path.relative_to(photos)},{path.parent.name}\n" for path in photos.rglob("*.jpg")]
    (tmp_path / "t.csv").write_text("path,label\n" + "".join(sorted(lines)))
    options = {"base": str(photos)}
    bt.write(tmp_path / "t.csv", tmp_path / "out", from_="images", source_options=options)
    assert rows_by_path(tmp_path / "out") == rows_by_path(written[0])
    assert (tmp_path / "out" / "labels.txt").read_text() == "cat\ndog\n"
    # Its text says nothing about the pictures: a second run looks at them again.
    assert bt.load(tmp_path / "out").manifest.fingerprint == ""


def odd_pictures(root):
    """Write pictures in two classes, three of which TensorFlow refuses."""
    odd = zoo()
    for number, name in enumerate(("webp-animated", "bmp-1-40", "sample-tiff", "gif-87a")):
        suffix = "tiff" if name == "sample-tiff" else name.partition("-")[0]
        path = root / ("cat", "dog")[number % 2] / f"{name}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(odd[name])
    write_tree(root, cat__plain=jpeg())


@pytest.mark.parametrize("way", ["folders", "table"])
def test_pictures_that_tensorflow_refuses_are_counted(tmp_path, way, recwarn, monkeypatch):
    monkeypatch.setattr(images_pack, "PACK_FILES", 2)
    monkeypatch.setattr(images_read, "BATCH_FILES", 1)
    odd_pictures(tmp_path / "in")
    source, options = tmp_path / "in", {}
    if way == "table":
        paths = sorted(path.relative_to(source) for path in source.rglob("*.*"))
        rows = "".join(f"{path},{path.parts[0]}\n" for path in paths)
        source = tmp_path / "table.csv"
        source.write_text("path,label\n" + rows)
        options = {"from_": "images", "source_options": {"base": str(tmp_path / "in")}}
    bt.write(source, tmp_path / "out", **options)
    told = json.loads((tmp_path / "out" / "job.json").read_text())["refused_pictures"]
    cure = "--format png or --format jpeg"
    path = "cat/sample-tiff.tiff"
    assert told == {"rows": 3, "path": path, "reason": "is a TIFF", "cure": cure}
    assert [str(one.message) for one in recwarn if "TensorFlow" in str(one.message)] == [
        "TensorFlow, and so .tf(), fails on 3 stored images or decodes them wrongly: "
        f"the first, {path}, is a TIFF: to convert them, pass {cure}"
    ]


def test_nothing_is_counted_of_pictures_that_are_not_stored(tmp_path):
    odd_pictures(tmp_path / "in")
    bt.write(tmp_path / "in", tmp_path / "out", columns=["label", "path"])
    assert json.loads((tmp_path / "out" / "job.json").read_text())["refused_pictures"] is None


@pytest.mark.slow
def test_what_is_counted_travels_to_the_sink_through_every_step(tmp_path):
    odd_pictures(tmp_path / "in")
    with bt.pipeline() as root:
        rows = root | bt.ReadFromImages(tmp_path / "in") | bt.MapRows(same)
        split = rows | bt.AssignSplits("a=0.5,b=0.5")
        split | bt.WriteToTFRecord(f"{tmp_path}/out/")
    told = json.loads((tmp_path / "out" / "job.json").read_text())["refused_pictures"]
    assert told["rows"] == 3


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("orient", [False, True])
@pytest.mark.parametrize("check", ["header", "decode", "none"])
def test_the_size_before_resizing_is_stored(tmp_path, orient, check):
    wide, xmp = picture(width=40, height=20), b'<x tiff:Orientation="6"/>'
    turned, by_xmp = encoded(wide, "JPEG", exif=exif(6)), encoded(wide, "JPEG", xmp=xmp)
    write_tree(
        tmp_path / "in", a__large=jpeg(width=60, height=30), a__same=jpeg(width=12, height=8)
    )
    write_tree(tmp_path / "in", a__turned=turned, b__turned=by_xmp)
    options = {"resize": 8, "orient": orient, "check": check}
    bt.write(tmp_path / "in", tmp_path / "out", source_options=options)
    sides = ("width", "height", "original_width", "original_height")
    rows = rows_by_path(tmp_path / "out")
    sizes = {path: tuple(row[side] for side in sides) for path, row in rows.items()}
    # A box scales by the width over the original width, in the picture as it is stored.
    assert sizes == {
        "a/large.jpg": (16, 8, 60, 30),
        "a/same.jpg": (12, 8, 12, 8),
        "a/turned.jpg": (8, 16, 20, 40) if orient else (16, 8, 40, 20),
        "b/turned.jpg": (8, 16, 20, 40) if orient else (16, 8, 40, 20),
    }
