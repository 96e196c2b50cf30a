"""`diff`: the same rows are the same data, whatever their order and files."""

import dataclasses
import datetime
import json
import shutil

import pyarrow as pa
import pytest

from beam_tfrecord.check.diff import SplitDifference, diff
from beam_tfrecord.dataset.load import load
from beam_tfrecord.errors import DataError
from beam_tfrecord.features.feature import Feature
from tests.helpers.made_datasets import make_dataset, write_examples

TABLE = pa.table({"id": list(range(10)), "name": [f"n{row}" for row in range(10)]})
SPLITS = {"train": list(range(7)), "test": [7, 8, 9]}


@pytest.fixture
def first(tmp_path):
    make_dataset(tmp_path / "a", TABLE, splits=SPLITS)
    return tmp_path / "a"


def test_reordered_and_resharded_copies_are_the_same_data(first, tmp_path):
    other = {"train": SPLITS["train"][::-1], "test": [9, 7, 8]}
    make_dataset(tmp_path / "b", TABLE, splits=other, shards=3, compression="GZIP")
    found = diff(first, tmp_path / "b")
    assert found.same_data
    assert found.lines() == [
        "note: compression is none in A, gzip in B",
        "note: number of shards of split train is 2 in A, 3 in B",
        "note: number of shards of split test is 2 in A, 3 in B",
    ]


def test_one_split_of_equal_content_is_not_read(tmp_path):
    make_dataset(tmp_path / "a", TABLE)
    make_dataset(tmp_path / "b", TABLE, splits={"data": range(9, -1, -1)}, shards=5)
    for shard in load(tmp_path / "b").shards:
        (tmp_path / "b" / shard.path).write_bytes(bytes(shard.bytes))
    assert diff(tmp_path / "a", tmp_path / "b").same_data


def test_a_missing_or_shortened_shard_is_an_error(first, tmp_path):
    shutil.copytree(first, tmp_path / "b")
    shard = tmp_path / "b" / load(first).shards[-1].path
    shard.write_bytes(b"")
    with pytest.raises(DataError, match="has 0 bytes but the manifest says"):
        diff(first, tmp_path / "b")
    shard.unlink()
    with pytest.raises(DataError, match="is missing: restore it"):
        diff(tmp_path / "b", first)


def test_rows_are_counted_as_often_as_they_are_there(first, tmp_path):
    make_dataset(tmp_path / "b", TABLE, splits={"train": [0, 0, 0, 2, 3, 4, 5], "test": [7, 8, 9]})
    found = diff(first, tmp_path / "b")
    assert not found.same_data
    assert found.splits == (
        SplitDifference("train", 7, 7, removed=2, added=2),
        SplitDifference("test", 3, 3, removed=0, added=0),
    )
    assert found.moved == 0
    assert found.lines() == [
        "split train: 7 rows in A, 7 in B: 2 only in A, 2 only in B",
        "   id  name",
        "A   1  n1",
        "A   6  n6",
        "B   0  n0",
    ]
    assert str(found) == "\n".join([*found.lines(), "the data differs"])


def test_only_the_first_five_rows_of_a_side_are_shown(first, tmp_path):
    make_dataset(tmp_path / "b", TABLE.slice(7), splits={"train": [], "test": [0, 1, 2]})
    (train, _) = diff(first, tmp_path / "b").splits
    assert (train.removed, train.added) == (7, 0)
    assert [row["id"] for row in train.removed_rows] == [0, 1, 2, 3, 4]
    assert train.lines(max_width=8)[1:3] == ["   id", "A   0"]


def test_rows_of_different_columns_are_shown_in_one_table(tmp_path):
    day = pa.array([datetime.date(2026, 1, 2)])
    make_dataset(tmp_path / "a", pa.table({"id": [1], "day": day}), splits={"data": [0]})
    make_dataset(tmp_path / "b", pa.table({"id": [1], "size": [2.5]}), splits={"data": [0]})
    found = diff(tmp_path / "a", tmp_path / "b")
    assert found.splits[0].lines()[1:] == [
        "   id  day         size",
        "A   1  2026-01-02",
        "B   1               2.5",
    ]
    (split,) = json.loads(json.dumps(found.to_json()))["splits"]
    assert split["removed_rows"] == [{"id": 1, "day": "2026-01-02"}]


def test_rows_that_moved_between_splits_are_told(first, tmp_path):
    make_dataset(tmp_path / "b", TABLE, splits={"train": [0, 1, 2, 3, 4, 5, 7], "test": [6, 8, 9]})
    found = diff(first, tmp_path / "b")
    assert not found.same_data
    assert found.moved == 2
    assert "rows in both, but in different splits: 2" in found.lines()


def test_a_split_that_only_one_has(first, tmp_path):
    make_dataset(tmp_path / "b", TABLE, splits={"train": list(range(7)), "dev": [], "eval": [1]})
    assert diff(first, tmp_path / "b").splits == (
        SplitDifference("train", 7, 7, 0, 0),
        SplitDifference("test", 3, 0, removed=3, added=0),
        SplitDifference("eval", 0, 1, removed=0, added=1),
    )


def test_schemas_differ_by_type_store_and_columns(tmp_path):
    features = [Feature("id", "int64"), Feature("name", "text")]
    make_dataset(tmp_path / "a", TABLE, features=features)
    examples = list(load(tmp_path / "a").examples())
    schema = load(tmp_path / "a").schema
    changed = schema.edit(id=Feature(type="int32"), more=Feature(type="text"), name=None)
    write_examples(tmp_path / "b", {"data": [examples]}, changed)
    found = diff(tmp_path / "a", tmp_path / "b")
    assert found.schema == (
        "column 'id' is int64 in A, int32 in B",
        "column 'name' (string) is only in A",
        "column 'more' (string) is only in B",
    )
    assert not found.same_data
    stored = schema.edit(id=Feature(type="int64", store="text"), name=Feature(type="text"))
    write_examples(tmp_path / "c", {"data": [examples]}, stored)
    found = diff(tmp_path / "a", tmp_path / "c")
    assert found.schema == ("column 'id' is stored as auto in A, text in B",)


DATA = {"labels": ("n0", "n1"), "dtype": "<U2"}
NOTES = {"default": ["-"], "fill": "-", "allowed": {"min": ""}, "nullable": False}


@pytest.mark.parametrize("option", [*DATA, *NOTES])
def test_every_option_of_a_column_is_compared(first, tmp_path, option):
    examples, schema = list(load(first).examples()), load(first).schema
    name = dataclasses.replace(schema["name"], nullable=True)
    changed = dataclasses.replace(name, **{option: (DATA | NOTES)[option]})
    for path, feature in {"b": name, "c": changed}.items():
        write_examples(tmp_path / path, {"data": [examples]}, schema.edit(name=feature))
    found = diff(tmp_path / "b", tmp_path / "c")
    assert found.same_data == (option in NOTES)
    assert len(found.lines()) == (2 if option == "labels" else 1)
    assert json.loads(json.dumps(found.to_json()))["same_data"] is found.same_data


def test_the_order_of_columns_is_a_note(tmp_path):
    make_dataset(tmp_path / "a", TABLE)
    make_dataset(tmp_path / "b", TABLE.select(["name", "id"]))
    found = diff(tmp_path / "a", tmp_path / "b")
    assert found.same_data
    assert found.notes == ("the columns are in another order",)


def test_examples_are_compared_in_canonical_form(tmp_path):
    make_dataset(tmp_path / "a", TABLE.select(["id"]), splits={"x": [5], "y": [6]})
    schema = load(tmp_path / "a").schema
    (six,) = load(tmp_path / "a", split="y").examples()
    # The same example as row 5 with its integer not packed: 0a 00 08 05 in place of 0a 01 05.
    unpacked = bytes.fromhex("0a0e0a0c0a0269641206" + "1a04" + "0a00" + "0805")
    write_examples(tmp_path / "b", {"x": [[unpacked]], "y": [[six]]}, schema)
    assert next(load(tmp_path / "b", split="x").rows()) == {"id": 5}
    assert diff(tmp_path / "a", tmp_path / "b").same_data
