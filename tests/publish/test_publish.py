import dataclasses
import json
import os
import shutil

import pyarrow as pa
import pytest
import xxhash

from beam_tfrecord.batch import Reject
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.exchange.shard_writers import Piece
from beam_tfrecord.exchange.tally import Tally
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.layout import Layout, ShardNames, Splits
from beam_tfrecord.manifest import Manifest, Shard, Split
from beam_tfrecord.publish.outputs import named_shards, publish_dataset
from beam_tfrecord.rejects import REJECTS_FILE, write_rejects
from beam_tfrecord.storage import lease
from beam_tfrecord.workdir.job import Identity, Job
from beam_tfrecord.workdir.target import Target

TWO = Layout(splits=Splits((("train", 0.5), ("a", 0.5))), seed=7)
SCHEMA = Schema.from_arrow(pa.schema([("x", pa.int64())]))
SIDECARS = ["job.json", "manifest.json", "schema.json", "schema.pbtxt"]


def piece(directory, split, order, examples=1):
    path = directory / f"shard-{split}-{order}"
    nbytes = path.write_text(f"{split} {order}")
    stream = 10 * examples, f"{order:016x}", 2**63
    return Piece(split, (order,), str(path), examples, *stream, nbytes)


def put(
    out,
    pieces,
    layout=TWO,
    *,
    schema=SCHEMA,
    **more,
):
    (out / ".tmp-0").mkdir(parents=True, exist_ok=True)
    made = [piece(out / ".tmp-0", *one) for one in pieces]
    tally = Tally(rows=len(made), records=len(made), schema=schema, **more)
    target = Target(str(out), layout.names.prefix)
    identity = Identity("f00d", source={"kind": "csv", "files": []})
    job = Job(target, str(out / ".tmp-0"), layout=layout, identity=identity)
    with lease(str(out)) as held:
        publish_dataset(job, tally, made, lease=held, info={"runner": "test"})
    manifest = Manifest.load(target.manifest)
    # As a job does once the dataset is there.
    shutil.rmtree(out / ".tmp-0")
    return manifest


def files(out):
    found = (path for path in out.rglob("*") if path.is_file())
    return sorted(str(path.relative_to(out)) for path in found)


def test_shards_get_their_names_and_the_manifest_lists_them(tmp_path):
    manifest = put(tmp_path, [("a", 4), ("train", 9), ("train", 2)])
    assert files(tmp_path) == [
        "a-00000-of-00001.tfrecord",
        *SIDECARS,
        "train-00000-of-00002.tfrecord",
        "train-00001-of-00002.tfrecord",
    ]
    assert (tmp_path / "train-00000-of-00002.tfrecord").read_text() == "train 2"
    assert (tmp_path / "train-00001-of-00002.tfrecord").read_text() == "train 9"
    assert Manifest.load(tmp_path) == manifest
    assert list(manifest.splits) == ["train", "a"]
    assert manifest.fingerprint == "f00d"
    assert manifest.content == "8000000000000000"
    assert (manifest.seed, manifest.order, manifest.place) == (7, "shuffled", "origin")
    assert manifest.sidecars["schema.json"] == (
        xxhash.xxh64_hexdigest((tmp_path / "schema.json").read_bytes())
    )
    job = json.loads((tmp_path / "job.json").read_text())
    assert job["runner"] == "test"
    assert job["stored_bytes"]["a-00000-of-00001.tfrecord"] == 3


def test_shards_without_examples_leave_no_gap(tmp_path):
    pieces = [piece(tmp_path, "data", order, order % 2) for order in (3, 2, 1)]
    named = named_shards(pieces, Layout())
    assert [(shard.path, one.order) for shard, one in named["data"]] == [
        ("data-00000-of-00002.tfrecord", (1,)),
        ("data-00001-of-00002.tfrecord", (3,)),
    ]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (ShardNames("", "part"), "splits need a directory: write to 'part/' instead"),
        (ShardNames(template=""), "two shards would be named 'train.tfrecord': number them with S"),
    ],
)
def test_names_that_do_not_tell_shards_apart_are_refused_before_anything_is_touched(
    tmp_path, names, message
):
    layout = Layout(splits=TWO.splits, names=names)
    with pytest.raises(UsageError, match=message):
        put(tmp_path, [("a", 0), ("train", 0), ("train", 1)], layout)
    assert len(files(tmp_path / ".tmp-0")) == 3
    assert len(files(tmp_path)) == 3


def test_what_only_the_old_dataset_had_goes_and_the_rest_stays(tmp_path):
    put(tmp_path, [("train", 1), ("train", 2), ("a", 1)])
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "train-00007-of-00009.tfrecord").write_text("not in any manifest")
    put(tmp_path, [("train", 1)])
    assert files(tmp_path) == [
        *("job.json", "manifest.json", "notes.txt", "schema.json", "schema.pbtxt"),
        *("train-00000-of-00001.tfrecord", "train-00007-of-00009.tfrecord"),
    ]


def test_an_old_manifest_never_points_outside_its_directory(tmp_path):
    out = tmp_path / "out"
    old = put(out, [("train", 1)])
    (tmp_path / "precious").write_text("mine")
    outside = Split((Shard("../precious", 1, 1, "0" * 16),))
    forged = dataclasses.replace(old, splits={"train": outside})
    (out / "manifest.json").write_text(forged.dumps())
    put(out, [("a", 1)])
    assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.parametrize("failing", range(1, 8))
def test_a_job_that_breaks_off_never_leaves_a_manifest_that_lies(tmp_path, monkeypatch, failing):
    old = put(tmp_path, [("train", 1), ("train", 2), ("a", 1)])
    calls = 0
    replace = os.replace

    def replace_or_fail(*paths):
        nonlocal calls
        calls += 1
        if calls == failing:
            raise OSError("gone")
        replace(*paths)

    monkeypatch.setattr(os, "replace", replace_or_fail)
    with pytest.raises(OSError, match="gone"):
        put(tmp_path, [("train", 5), ("train", 6), ("a", 5)])
    if failing == 1:
        # Nothing is touched before what is about to happen was noted.
        assert Manifest.load(tmp_path) == old
        assert (tmp_path / "train-00000-of-00002.tfrecord").read_text() == "train 1"
    else:
        assert not (tmp_path / "manifest.json").exists()


def test_rejects_come_and_go_with_the_dataset(tmp_path):
    out, spilled = tmp_path / "out", str(tmp_path / "r")
    write_rejects(spilled, [Reject("u", 1, "x", "bad-value", "m")])
    manifest = put(out, [("a", 1)], reject_files=(spilled,), rejects=1)
    assert manifest.rejects["rows"] == 1
    assert "rejects/rejects-00000.parquet" in files(out)
    assert put(out, [("a", 1)]).rejects["rows"] == 0
    assert not (out / "rejects").exists()


def test_files_of_others_among_the_rejects_are_no_obstacle(tmp_path):
    (tmp_path / "rejects").mkdir()
    (tmp_path / "rejects" / "mine").touch()
    put(tmp_path, [("a", 1)])
    assert (tmp_path / "rejects" / "mine").exists()
    assert (tmp_path / "manifest.json").exists()


def test_the_manifest_says_what_places_follow_from(tmp_path):
    assert put(tmp_path, [], Layout(key=("x",))).place == "key"
    assert put(tmp_path, [], Layout(), places_by_bytes=True).place == "bytes"
    assert put(tmp_path, [], Layout(shuffle=False)).order == "source"
    assert REJECTS_FILE not in files(tmp_path)


def test_a_manifest_that_cannot_be_read_replaces_no_dataset(tmp_path):
    before = put(tmp_path, [("train", 1)])
    # Arrow takes any text for a zone.
    odd = Schema.from_arrow(pa.schema([("x", pa.timestamp("us", "]"))]))
    message = "^nothing was published, because its manifest could not be read: column 'x': 'timest"
    with pytest.raises(DataError, match=message):
        put(tmp_path, [("train", 2)], schema=odd)
    assert Manifest.load(tmp_path) == before
    assert (tmp_path / "train-00000-of-00001.tfrecord").read_text() == "train 1"
