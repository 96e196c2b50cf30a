"""The order of ``tf()``: that of `Order`, divided by records, and continued at any step."""

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from beam_tfrecord.loading.order import Order
from tests.helpers.lazy import Lazy
from tests.helpers.made_datasets import make_dataset
from tests.sources.made_images import jpeg, write_tree

tf = Lazy("tensorflow")

ROWS = 61
TABLE = pa.table({"id": range(ROWS), "tags": [[row] * (row % 3) for row in range(ROWS)]})
INDEXED = ("1 shard", "4 shards")
STREAMED = ("parquet", "gzip", "no index")


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    directory = tmp_path_factory.mktemp("order")
    pq.write_table(TABLE, directory / "in.parquet", row_group_size=7)
    out = {name: directory / name.replace(" ", "") for name in (*INDEXED, *STREAMED)}
    for name in INDEXED:
        bt.write(directory / "in.parquet", out[name], shards=int(name[0]))
    bt.write(directory / "in.parquet", out["gzip"], shards=3, compression="gzip")
    make_dataset(out["no index"], TABLE, shards=9)
    out["parquet"] = directory / "in.parquet"
    return out


def batches_of(dataset):
    return [np.atleast_1d(example["id"].numpy()).tolist() for example in dataset]


def ids(dataset):
    return [row for batch in batches_of(dataset) for row in batch]


def expected_epochs(path, seed):
    """Yield the rows of epoch 0, 1 and so on, read by their numbers."""
    rows = bt.load(path)
    for epoch in itertools.count():
        yield rows.take(Order(ROWS, seed, epoch).indices(0, ROWS))["id"].to_pylist()


@pytest.mark.parametrize("kind", INDEXED)
@pytest.mark.parametrize("batch_size", [None, 8])
@pytest.mark.slow_after(2)
def test_order_of_every_epoch_follows_from_the_seed(datasets, kind, batch_size):
    dataset = bt.load(datasets[kind]).tf(batch_size, shuffle=True, seed=5)
    assert int(dataset.cardinality()) == (ROWS if batch_size is None else 8)
    expected = list(itertools.islice(expected_epochs(datasets[kind], 5), 4))
    assert [ids(dataset), ids(dataset)] == expected[:2]
    twice = bt.load(datasets[kind]).tf(batch_size, shuffle=True, seed=5, repeat=2)
    dropped = bt.load(datasets[kind]).tf(7, repeat=2, drop_remainder=True)
    assert int(dropped.cardinality()) == 2 * (ROWS // 7)
    assert dropped.element_spec["id"].shape == [7]
    assert [ids(twice), ids(twice)] == [expected[0] + expected[1], expected[2] + expected[3]]


def test_seeds(datasets):
    rows = bt.load(datasets["1 shard"])
    first = rows.take(rows.order().indices(0, ROWS))["id"].to_pylist()
    for seed in (0, None):
        assert rows.order(seed) == rows.order()
        assert ids(rows.tf(shuffle=True, seed=seed)) == first
        assert ids(rows.tf(shuffle=True, seed=seed)) == first
    assert ids(rows.tf(shuffle=True)) == first
    assert sorted(ids(rows.tf(shuffle=20, seed=1))) == list(range(ROWS))


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(
    ("kind", "count", "options"),
    [
        *((kind, 3, {}) for kind in (*INDEXED, *STREAMED)),
        *((kind, 8, {"shuffle": True}) for kind in (*INDEXED, *STREAMED)),
        *((kind, 3, {"shuffle": 10, "seed": 1}) for kind in ("4 shards", "gzip")),
    ],
)
def test_readers_together_read_each_example_once(datasets, kind, count, options):
    rows = bt.load(datasets[kind])
    readers = [rows.tf(2, shard=(index, count), **options) for index in range(count)]
    parts = [batches_of(reader) for reader in readers]
    assert [int(reader.cardinality()) for reader in readers] == [len(part) for part in parts]
    assert sorted(row for part in parts for batch in part for row in batch) == list(range(ROWS))
    sizes = {sum(map(len, part)) for part in parts}
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *(("4 shards", options) for options in ({}, {"shuffle": True}, {"shuffle": 20})),
        *((kind, {"shuffle": 20}) for kind in STREAMED),
    ],
)
@pytest.mark.parametrize("shard", [None, (0, 2)])
@pytest.mark.parametrize("batch_size", [None, 4])
def test_start_step_skips_what_was_read(datasets, kind, options, shard, batch_size):
    rows = bt.load(datasets[kind])
    options = {**options, "seed": 9, "shard": shard}
    whole = batches_of(rows.tf(batch_size, repeat=3, **options))
    steps = len(whole) // 3
    for start in (1, steps, steps + 2):
        dataset = rows.tf(batch_size, start_step=start, **options)
        first = 2 * steps if start >= steps else steps
        assert batches_of(dataset) == whole[start:first]
        assert batches_of(dataset) == whole[first : first + steps]
        assert int(dataset.cardinality()) == (steps if start == steps else -2)
    endless = rows.tf(batch_size, start_step=2, repeat=None, **options)
    assert int(endless.cardinality()) == -1
    assert batches_of(endless.take(2 * steps)) == whole[2 : 2 * steps + 2]


def test_readers_of_another_number_continue(datasets):
    rows = bt.load(datasets["1 shard"])
    options = {"shuffle": True, "seed": 4, "start_step": 3}
    two = [batches_of(rows.tf(6, shard=(index, 2), **options)) for index in range(2)]
    joined = [
        row for step in itertools.zip_longest(*two, fillvalue=[]) for batch in step for row in batch
    ]
    assert (
        joined == ids(rows.tf(12, **options)) == next(expected_epochs(datasets["1 shard"], 4))[36:]
    )


@pytest.mark.slow
def test_the_order_of_files_without_an_index_is_that_of_grain(datasets):
    for kind in STREAMED:
        rows = bt.load(datasets[kind])
        expected = [batch["id"].tolist() for batch in rows.grain(8, shuffle=20, seed=3, repeat=2)]
        assert batches_of(rows.tf(8, shuffle=20, seed=3, repeat=2)) == expected


def test_numbers_that_are_missing_are_masked_or_replaced(tmp_path):
    table = pa.table({"n": [1, None, 3], "text": ["a", "b", None]})
    bt.write(table, tmp_path / "out", shuffle=False)
    rows = bt.load(tmp_path / "out", columns=["n", "text"])
    (masked,) = rows.tf(3, nulls="mask")
    assert masked["n"].numpy().tolist() == [1, 0, 3]
    assert masked["n_mask"].numpy().tolist() == [True, False, True]
    assert masked["text"].numpy().tolist() == [b"a", b"b", b""]
    (filled,) = rows.tf(3, nulls=-1, categories={"text": ["b", "a"]}, defaults={"text": "a"})
    assert filled["n"].numpy().tolist() == [1, -1, 3]
    assert filled["text"].numpy().tolist() == [1, 0, 1]


@pytest.mark.parametrize("options", [{}, {"shuffle": True}])
@pytest.mark.slow
def test_readers_of_no_examples(tmp_path, options):
    pq.write_table(TABLE.slice(0, 2), tmp_path / "in.parquet")
    bt.write(tmp_path / "in.parquet", tmp_path / "out")
    rows = bt.load(tmp_path / "out")
    last = rows.tf(4, shard=(2, 3), repeat=None, **options)
    assert (int(last.cardinality()), list(last)) == (0, [])
    dropped = rows.tf(4, drop_remainder=True, start_step=5, **options, seed=1)
    assert (int(dropped.cardinality()), list(dropped)) == (0, [])


def test_decoded_images_are_divided_and_continued(tmp_path):
    write_tree(tmp_path / "in", **{f"c{n}__{n}": jpeg(n) for n in range(7)})
    bt.write(tmp_path / "in", tmp_path / "out")
    rows = bt.load(tmp_path / "out")

    def labels(**options):
        dataset = rows.tf(2, label="label", shuffle=True, seed=1, **options)
        return [label.numpy().tolist() for _, label in dataset]

    order = rows.take(Order(7, 1).indices(0, 7))["label"].to_pylist()
    assert labels() == [order[:2], order[2:4], order[4:6], order[6:]]
    assert labels(start_step=2) == [order[4:6], order[6:]]
    assert labels(shard=(1, 2)) == [order[2:4], order[6:]]
