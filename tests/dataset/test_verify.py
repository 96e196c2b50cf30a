"""`verify`: nothing is said of a sound dataset, and every kind of damage is told with its place."""

import collections
import json

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from beam_tfrecord.check import verify as verify_module
from beam_tfrecord.check import verify_examples
from beam_tfrecord.check.verify import Fault, verify
from beam_tfrecord.dataset.load import load
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.tensors import TensorType
from tests.helpers.made_datasets import encoded, make_dataset, write_examples

TABLE = pa.table({"id": list(range(8)), "name": [f"n{row}" for row in range(8)]})
SCHEMA = Schema((Feature("id", "int64", nullable=False), Feature("name", "text")))
SHARD = "data-00001-of-00002.tfrecord"
SPLIT_SIZES = {"train": 900, "dev": 500, "test": 400}


@pytest.fixture
def dataset(tmp_path):
    make_dataset(tmp_path, TABLE)
    return tmp_path


def faults(directory):
    return [str(fault) for fault in verify(directory).faults]


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_a_sound_dataset_has_no_faults(tmp_path, compression):
    manifest = make_dataset(tmp_path, TABLE, compression=compression)
    found = verify(tmp_path, threads=2)
    assert (found.faults, found.ok) == ((), True)
    assert [note[:19] for note in found.notes] == ["job.json is missing"] * bool(compression)
    assert (found.shards, found.examples, found.bytes) == (2, 8, manifest.bytes)
    assert json.loads(json.dumps(found.to_json()))["ok"] is True


def test_every_damaged_record_is_told(dataset):
    data = bytearray((dataset / SHARD).read_bytes())
    record = len(data) // 4
    data[20] ^= 1
    data[record * 2 + 20] ^= 1
    (dataset / SHARD).write_bytes(data)
    reason = "the checksum of the payload does not match"
    assert faults(dataset) == [
        f"{SHARD}: byte 0 (record 0): {reason}",
        f"{SHARD}: byte {record * 2} (record 2): {reason}",
    ]
    assert verify(dataset).examples == 6
    ending = "verified 2 shards, 6 examples: 2 faults"
    assert str(verify(dataset)).splitlines() == [*faults(dataset), ending]


def test_missing_and_cut_shards(dataset):
    data = (dataset / SHARD).read_bytes()
    (dataset / SHARD).unlink()
    assert faults(dataset) == [f"{SHARD}: the file is missing"]
    record = len(data) // 4
    (dataset / SHARD).write_bytes(data[: record * 3])
    assert faults(dataset) == [
        f"{SHARD}: 3 examples, the manifest says 4",
        f"{SHARD}: {record * 3} bytes, the manifest says {record * 4}",
    ]
    (dataset / SHARD).write_bytes(data[:-1])
    assert faults(dataset) == [
        f"{SHARD}: byte {record * 3} (record 3): the file ends within this record, after "
        f"{record - 1} bytes of it"
    ]


def test_an_error_of_the_disk_leaves_the_faults_found_before_it(dataset, monkeypatch):
    data = bytearray((dataset / SHARD).read_bytes())
    data[20] ^= 1
    (dataset / SHARD).write_bytes(data)
    read_blocks = verify_module.read_blocks

    def failing(*arguments, **keywords):
        yield from read_blocks(*arguments, **keywords)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(verify_module, "read_blocks", failing)
    damaged, unreadable = (fault for fault in faults(dataset) if fault.startswith(SHARD))
    assert "the checksum of the payload does not match" in damaged
    assert "nput/output error" in unreadable


def test_records_in_another_order_have_another_hash(dataset):
    data = (dataset / SHARD).read_bytes()
    record = len(data) // 4
    swapped = data[record:] + data[:record]
    (dataset / SHARD).write_bytes(swapped)
    seen, known = (f"{xxhash.xxh64_intdigest(stream):016x}" for stream in (swapped, data))
    assert faults(dataset) == [f"{SHARD}: the hash is {seen}, the manifest says {known}"]


def test_an_edited_manifest_and_sidecar(dataset):
    with (dataset / "schema.json").open("a") as file:
        file.write("\n")
    (fault,) = verify(dataset).faults
    assert (fault.path, fault.where) == ("schema.json", "")
    assert fault.message.startswith("the hash is ")
    (dataset / "schema.json").unlink()
    assert faults(dataset) == ["schema.json: the file is missing"]
    manifest = dataset / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"seed": 0', '"seed": 1'))
    (fault,) = verify(dataset).faults
    assert fault.path == "manifest.json"
    changed = "the file was changed after it was written"
    assert fault.message == f"{changed}: restore it from a copy, or run write again"


def test_a_wrong_content_hash(tmp_path):
    manifest = make_dataset(tmp_path, TABLE)
    text = manifest.dumps()
    object.__setattr__(manifest, "content", "0" * 16)
    (tmp_path / "manifest.json").write_text(manifest.dumps())
    right = json.loads(text)["content"]
    assert faults(tmp_path) == [
        f"manifest.json: content: the hash of all examples is {right}, not 0000000000000000"
    ]


def test_files_named_like_shards_are_strays(dataset):
    for name in (
        *("data-00002-of-00003.tfrecord", "dev-00000-of-00001.tfrecord.gz"),
        *("notes.txt", "other.tfrecord", ".data-00000-of-00001.tfrecord", "_x-0-of-1.tfrecord"),
    ):
        (dataset / name).write_bytes(b"")
    stray = "named like a shard of this dataset but not in its manifest: remove it"
    assert verify(dataset).faults == (
        Fault("data-00002-of-00003.tfrecord", "", stray),
        Fault("dev-00000-of-00001.tfrecord.gz", "", stray),
    )


def test_strays_of_a_file_prefix_follow_its_own_names(tmp_path):
    manifest = make_dataset(tmp_path, TABLE, shards=1)
    (tmp_path / "data-00000-of-00001.tfrecord").rename(tmp_path / "part7.rec")
    shard = manifest.splits["data"].shards[0]
    object.__setattr__(shard, "path", "part7.rec")
    (tmp_path / "part-manifest.json").write_text(manifest.dumps())
    (tmp_path / "manifest.json").unlink()
    for name in ("part12.rec", "partx.rec", "a-00000-of-00001.tfrecord"):
        (tmp_path / name).write_bytes(b"")
    assert [fault.path for fault in verify(tmp_path / "part").faults] == ["part12.rec"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": Feature(type="text", nullable=False)}, "feature 'id' is int64, but the schema "),
        ({"name": None}, "feature 'name' is not in the schema"),
        ({"more": Feature(type="int64", nullable=False)}, "feature 'more' is missing"),
    ],
)
def test_examples_that_do_not_fit_the_schema(tmp_path, change, message):
    examples = encoded(TABLE, SCHEMA)
    write_examples(tmp_path, {"data": [examples]}, SCHEMA.edit(**change))
    (fault,) = verify(tmp_path).faults
    assert (fault.path, fault.where) == ("data-00000-of-00001.tfrecord", "record 0")
    assert fault.message.startswith(message)


def test_the_first_record_that_does_not_fit_is_found(tmp_path):
    examples = encoded(pa.table({"id": list(range(50)), "name": ["a"] * 50}), SCHEMA)
    examples[37] = b"no example"
    examples[41] = b"neither"
    write_examples(tmp_path, {"data": [examples]}, SCHEMA)
    (fault,) = verify(tmp_path).faults
    assert fault.where == "record 37"
    assert "record" not in fault.message


def test_examples_in_two_splits_are_noted(tmp_path, monkeypatch):
    make_dataset(tmp_path, TABLE, splits={"train": [0, 1, 2, 2, 3], "test": [3, 4, 1]})
    found = verify(tmp_path)
    assert found.ok
    assert found.notes == ("2 distinct examples are in more than one split",)
    examples = [list(load(tmp_path, split=name).examples()) for name in ("train", "test")]
    by_bytes = {"train": [examples[0]], "test": [examples[1], []]}
    write_examples(tmp_path / "by-bytes", by_bytes, SCHEMA, split_by="bytes")
    assert faults(tmp_path / "by-bytes") == [
        f"test-00000-of-00002.tfrecord: record {record}: another split has the same example"
        for record in (0, 2)
    ]
    monkeypatch.setattr(verify_module, "_DUPLICATES_SHOWN", 1)
    assert faults(tmp_path / "by-bytes")[1:] == [
        "2 distinct examples are in more than one split: only the first 1 of the places are listed"
    ]
    grouped = {"train": [examples[0]], "test": [examples[1]]}
    write_examples(tmp_path / "grouped", grouped, SCHEMA, group=("id",))
    assert verify(tmp_path / "grouped").notes == ()


def test_examples_of_any_two_splits_are_found_however_shards_come(tmp_path):
    chosen = np.random.default_rng(5)
    table = pa.table({"id": list(range(5000)), "name": ["a"] * 5000})
    rows = {name: chosen.choice(5000, size).tolist() for name, size in SPLIT_SIZES.items()}
    make_dataset(tmp_path, table, splits=rows)
    in_splits = collections.Counter(row for of_split in rows.values() for row in set(of_split))
    shared = sum(count > 1 for count in in_splits.values())
    assert 0 < shared < 1000
    for threads in (1, 4):
        notes = verify(tmp_path, threads=threads).notes
        assert notes == (f"{shared:,} distinct examples are in more than one split",)


def test_above_the_limit_a_part_of_the_hashes_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(verify_examples, "MAX_HASHES", 100)
    table = pa.table({"id": list(range(400)), "name": ["a"] * 400})
    make_dataset(tmp_path, table, splits={"a": range(400), "b": range(400)})
    seed = xxhash.xxh64_intdigest(b"content", 0)
    examples = load(tmp_path, split="a").examples()
    kept = sum(xxhash.xxh64_intdigest(one, seed) % 4 == 0 for one in examples)
    assert 60 < kept < 140
    assert verify(tmp_path).notes == (
        f"{kept} distinct examples (among one in 4 examples) are in more than one split",
    )


@pytest.mark.parametrize(
    ("arrow", "given", "message"),
    [
        (pa.int8(), pa.array([1, 300]), "cannot be read as int8"),
        (pa.uint8(), pa.array([1, -1]), "cannot be read as uint8"),
        (pa.bool_(), pa.array([1, 2]), "cannot be read as bool"),
        (pa.string(), pa.array([b"a", b"\xff"]), "cannot be read as string"),
        (pa.binary(2), pa.array([b"ab", b"a"]), "cannot be read as fixed_size_binary"),
        (pa.int64(), pa.array([[1], [1, 2]]), "has 2 values, not one"),
        (pa.list_(pa.int64(), 2), pa.array([[1, 2], [1]]), "has 1 values, not 2"),
        (pa.list_(pa.list_(pa.int64())), pa.array([[], [1]]), "does not have as many values"),
        (pa.uuid(), pa.array(["00000000-0000-0000-0000-000000000001", "x"]), "uuid"),
    ],
)
def test_values_that_are_none_of_their_type(tmp_path, arrow, given, message):
    examples = encoded(pa.table({"c": given}), Schema((Feature("c", given.type),)))
    write_examples(tmp_path, {"data": [examples]}, Schema((Feature("c", arrow),)))
    (fault,) = verify(tmp_path).faults
    assert fault.path == "data-00000-of-00001.tfrecord"
    assert message in fault.message


def test_a_column_of_arrays_whose_shape_does_not_fit(tmp_path):
    arrow = TensorType("float32", [None])
    schema = Schema((Feature("c", arrow, store="values"),))
    given = {"c": [[1.0, 2.0], [1.0]], "c/shape": [[2], [2]]}
    examples = encoded(pa.table(given), Schema.from_arrow(pa.table(given).schema))
    write_examples(tmp_path, {"data": [examples]}, schema)
    (fault,) = verify(tmp_path).faults
    assert fault.where == "record 1"
