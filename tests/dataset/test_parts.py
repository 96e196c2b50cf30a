"""Parts of splits, and several datasets as one: the rows are those of slices of Python lists."""

import functools
import json
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_tfrecord as bt
from beam_tfrecord.errors import UsageError
from tests.helpers.cli_stand_ins import run
from tests.helpers.effort import examples
from tests.helpers.lazy import Lazy
from tests.helpers.made_datasets import make_dataset

torch = Lazy("torch")

TRAIN, TEST = list(range(57)), list(range(57, 80))
SPLITS = {"train": TRAIN, "test": TEST}
TABLE = pa.table({"id": range(80), "text": [f"row {n}" if n % 3 else None for n in range(80)]})


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    directory = tmp_path_factory.mktemp("parts")
    make_dataset(directory / "plain", TABLE, splits=SPLITS, shards=5)
    bt.index(directory / "plain")
    make_dataset(directory / "gzip", TABLE, splits=SPLITS, shards=3, compression="GZIP")
    present = pa.table({"id": range(100, 130), "text": [f"row {n}" for n in range(100, 130)]})
    make_dataset(directory / "other", present, splits={"train": range(20), "more": range(20, 30)})
    bt.index(directory / "other")
    pq.write_table(TABLE.slice(0, 57), directory / "rows.parquet", row_group_size=10)
    return directory


def edges(count):
    percent = st.sampled_from(["%", ".5%", ".25%"])
    shares = st.builds("{}{}".format, st.integers(-99, 99), percent)
    return st.one_of(st.none(), st.integers(-count, count).map(str), shares)


def row_at(edge, count):
    """Return the row at an edge, with whole numbers of 1/400 of the rows."""
    if not edge.endswith("%"):
        return int(edge) + count * (int(edge) < 0)
    whole, _, rest = edge.strip("-%").partition(".")
    parts = 4 * int(whole) + {"": 0, "5": 2, "25": 1}[rest]
    return count * (400 - parts if edge[0] == "-" and parts else parts) // 400


@settings(max_examples=examples(400, 10), deadline=None)
@given(data=st.data())
def test_slices_are_those_of_lists(places, data):
    terms, expected = [], []
    for name in data.draw(st.lists(st.sampled_from(["train", "test"]), min_size=1, max_size=3)):
        rows = SPLITS[name]
        first, last = data.draw(edges(len(rows))), data.draw(edges(len(rows)))
        begin = 0 if first is None else row_at(first, len(rows))
        end = len(rows) if last is None else row_at(last, len(rows))
        if begin > end:
            (first, begin), (last, end) = (last, end), (first, begin)
            begin, end = (0 if first is None else begin), (len(rows) if last is None else end)
        terms.append(f"{name}[{first or ''}:{last or ''}]")
        expected += rows[begin:end]
    name = data.draw(st.sampled_from(["plain", "gzip"]))
    ds = bt.load(places / name, split=data.draw(st.sampled_from(["+", " + "])).join(terms))
    assert len(ds) == len(expected)
    assert ds.arrow().to_pylist() == TABLE.take(pa.array(expected, pa.int64())).to_pylist()
    assert [row["id"] for row in ds] == expected
    assert len(list(ds.examples())) == len(expected)
    if expected and name == "plain":
        at = data.draw(st.integers(-len(expected), len(expected) - 1))
        assert pickle.loads(pickle.dumps(ds))[at]["id"] == expected[at]


@pytest.mark.parametrize("name", ["plain", "gzip", "rows.parquet"])
def test_neighbouring_percents_meet(places, name):
    split = "data" if name == "rows.parquet" else "train"
    for percent in range(0, 101, 7):
        parts = [f"{split}[:{percent}%]", f"{split}[{percent}%:]"]
        found = [bt.load(places / name, split=part)["id"].tolist() for part in parts]
        assert len(found[0]) == 57 * percent // 100
        assert found[0] + found[1] == TRAIN


WRONG = {
    "train[:x]": "split 'train.:x.' cannot be read: write 'train', 'train.:10%.',",
    "train[3]": "cannot be read: write",
    "train[:10%": "cannot be read: write",
    "train[:10%]+": "cannot be read: write",
    "trian[:10%]": "split 'trian' does not exist: the splits are train, test",
    "train[:58]": "'train.:58.' is not in train.0:57., which is all of it",
    "train[:110%]": "is not in train.0:57.",
    "train[9:3]": "is not in train.0:57.",
}


@pytest.mark.parametrize(("split", "message"), WRONG.items())
def test_a_wrong_split_is_one_line_with_the_right_one(places, split, message):
    with pytest.raises(UsageError, match=message) as raised:
        bt.load(places / "plain", split=split)
    assert "\n" not in str(raised.value)


def test_commands_take_slices(places):
    lines = run("head", places / "plain", "--split", "test[-2:]", "--json").stdout.splitlines()
    assert [json.loads(line)["id"] for line in lines] == TEST[-2:]
    assert run("stats", places / "plain", "--split", "train[:10]").stdout.startswith(
        "train[:10]: 10"
    )


def test_several_datasets_are_one(places):
    both = bt.load([places / "plain", str(places / "other")])
    assert both.splits == {"train": 77, "test": 23, "more": 10}
    train = bt.load([places / "plain", places / "other"], split="train[:50%]")
    expected = [*TRAIN[:28], *range(100, 110)]
    assert train["id"].tolist() == expected
    assert train.take([30, 2, 28])["id"].to_pylist() == [102, 2, 100]
    assert train.schema["text"].nullable
    assert train.schema["id"].observed.max == 129
    order = train.order(seed=3).indices(0, 38).tolist()
    assert sorted(order) == list(range(38))
    mixed = bt.load([places / "plain", places / "rows.parquet"], split=None, columns=["id"])
    assert mixed.arrow()["id"].to_pylist() == [*TRAIN, *TEST, *TRAIN]


@pytest.mark.slow
def test_loaders_read_several_in_the_order_of_one(places):
    ds = bt.load([places / "plain", places / "other"], split="train[10:]")
    rows = [*TRAIN[10:], *range(110, 120)]
    expected = [rows[index] for index in ds.order(seed=5, epoch=0).indices(0, 57)]
    options = {"shuffle": True, "seed": 5, "columns": ["id"]}
    all_read = (ds.torch, ds.tf, ds.grain, functools.partial(ds.keras, stack=False))
    for batches in (read(10, **options) for read in all_read):
        found = [np.asarray(batch["id"]).tolist() for batch in batches]
        assert [row for batch in found for row in batch] == expected
    resumed = ds.torch(5, rank=0, world=2, **options).loader()
    loader = ds.torch(10, **options).loader()
    for _ in zip(range(3), loader, strict=False):
        pass
    resumed.load_state_dict(loader.state_dict())
    assert next(iter(resumed))["id"].tolist() == expected[30:35]
    other = bt.load([places / "plain", places / "other"], split="train[11:]")
    with pytest.raises(UsageError, match="the state is of another dataset"):
        other.torch(10, **options).loader().load_state_dict(loader.state_dict())


DIFFERENT = {
    "column 'text' is string in '.*' but missing in '.*': choose columns with equal types": {
        "id": [1]
    },
    "column 'id' is int64 in '.*' but double in '.*': choose columns with equal types": {
        "id": [1.0],
        "text": [""],
    },
}


@pytest.mark.parametrize(("message", "columns"), DIFFERENT.items())
def test_columns_that_differ_are_one_line(places, tmp_path, message, columns):
    make_dataset(tmp_path / "b", pa.table(columns), splits={"train": [0]})
    with pytest.raises(UsageError, match=message):
        bt.load([places / "plain", tmp_path / "b"])
    for none in ([], None, 3):
        with pytest.raises(UsageError, match="load needs a path, or a list of some"):
            bt.load(none)
