"""Datasets in Grain: as a source of its own pipelines, and with the order of all readers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_tfrecord as bt
from beam_tfrecord.errors import UsageError
from beam_tfrecord.loading.epochs import Epochs
from beam_tfrecord.loading.order import Order
from tests.helpers.effort import examples
from tests.helpers.lazy import Lazy

grain = Lazy("grain")

pytestmark = pytest.mark.slow

ROWS = 97


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("grain")
    table = {
        "id": range(ROWS),
        "x": np.arange(ROWS, dtype=np.float32) / 2,
        "text": [f"row {row}" for row in range(ROWS)],
        "list": pa.array(np.arange(2 * ROWS).reshape(-1, 2).tolist(), pa.list_(pa.int64(), 2)),
        "maybe": [None if row % 5 == 0 else row for row in range(ROWS)],
    }
    pq.write_table(pa.table(table), directory / "in.parquet")
    bt.write(directory / "in.parquet", directory / "out", shards=3)
    bt.write(directory / "in.parquet", directory / "gzip", shards=3, compression="gzip")
    return directory


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


def flat(batches):
    return [row for batch in batches for row in batch]


def test_a_dataset_is_a_source(directory):
    ds = bt.load(directory / "out", columns=["id", "x", "text"])
    source = grain.MapDataset.source(ds)
    expected = ds.arrow()["id"].to_pylist()
    assert [row["id"] for row in source] == expected
    order = list(grain.MapDataset.range(ROWS).shuffle(7))
    batches = list(source.shuffle(7).batch(10))
    assert flat(ids(batches)) == [expected[index] for index in order]
    assert batches[0]["text"].tolist() == [f"row {row}" for row in batches[0]["id"]]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_resumes(directory, workers):
    def loader():
        sampler = grain.samplers.IndexSampler(ROWS, shuffle=True, seed=3, num_epochs=2)
        ds = bt.load(directory / "out", columns=["id"])
        return grain.DataLoader(data_source=ds, sampler=sampler, worker_count=workers)

    everything = [row["id"] for row in loader()]
    assert sorted(everything) == sorted([*range(ROWS)] * 2)
    iterator = iter(loader())
    for _ in range(20):
        next(iterator)
    state = iterator.get_state()
    next(iterator)
    resumed = iter(loader())
    resumed.set_state(state)
    assert [row["id"] for row in resumed] == everything[20:]


@pytest.mark.parametrize("name", ["out", "gzip"])
def test_batches_are_those_of_all_readers(directory, name):
    ds = bt.load(directory / name)
    epochs = Epochs(ds, shuffle=True, seed=5)
    expected = [next(epochs.read(epoch, [(0, ROWS)]))[0]["id"].to_pylist() for epoch in (0, 1)]
    found = ids(ds.grain(10, shuffle=True, seed=5, repeat=2, defaults={"maybe": -1}))
    assert [len(batch) for batch in found] == ([10] * 9 + [7]) * 2
    assert flat(found) == flat(expected)
    if name == "out":
        rows = ds.arrow()["id"].to_numpy()
        assert expected == [
            rows[Order(ROWS, 5, epoch).indices(0, ROWS)].tolist() for epoch in (0, 1)
        ]


def test_values_are_those_of_numpy(directory):
    ds = bt.load(directory / "out")
    arrays = ds.numpy(defaults={"maybe": -1})
    batches = list(ds.grain(40, defaults={"maybe": -1}))
    for name, values in arrays.items():
        joined = np.concatenate([batch[name] for batch in batches])
        assert joined.dtype == values.dtype
        assert joined.tolist() == values.tolist()


@settings(max_examples=examples(60, 6), deadline=None)
@given(data=st.data())
def test_any_processes_read_each_example_once_and_resume(directory, data):
    step = data.draw(st.integers(1, 30))
    worlds = [world for world in range(1, 31) if step % world == 0]
    options = {
        "shuffle": data.draw(st.sampled_from([False, True, 40])),
        "seed": data.draw(st.integers(0, 2**64 - 1)),
        "repeat": data.draw(st.integers(1, 3)),
        "drop_remainder": data.draw(st.booleans()),
    }
    ds = bt.load(directory / data.draw(st.sampled_from(["out", "gzip"])), columns=["id"])

    def iterators():
        world = data.draw(st.sampled_from(worlds))
        return [
            iter(ds.grain(step // world, shard=(rank, world), **options)) for rank in range(world)
        ]

    def one(batch):
        return batch["id"].tolist()

    def some(ranks, most):
        read = [[one(next(rank)) for _ in range(most)] for rank in ranks]
        return [flat(list(batches)) for batches in zip(*read, strict=True)]

    everything = [flat(list(parts)) for parts in zip(*map(ids, iterators()), strict=True)]
    in_epoch = ROWS // step if options["drop_remainder"] else -(-ROWS // step)
    assert len(everything) == in_epoch * options["repeat"]
    for epoch in range(options["repeat"]):
        rows = flat(everything[epoch * in_epoch : (epoch + 1) * in_epoch])[:ROWS]
        assert len(set(rows)) == len(rows) == min(ROWS, in_epoch * step)
    stop = data.draw(st.integers(0, len(everything)))
    stopped = iterators()
    begin = some(stopped, stop)
    states = {json.dumps(iterator.get_state()) for iterator in stopped}
    assert len(states) == 1
    resumed = iterators()
    for iterator in resumed:
        iterator.set_state(json.loads(next(iter(states))))
    rest = [flat(list(parts)) for parts in zip(*map(ids, resumed), strict=True)]
    # Processes of another number repeat another number of examples at the end of an epoch.
    last = ROWS - (in_epoch - 1) * step
    assert len(begin + rest) == len(everything)
    for number, (found, expected) in enumerate(zip(begin + rest, everything, strict=True)):
        most = last if number % in_epoch == in_epoch - 1 else step
        assert found[:most] == expected[:most]


def test_labels_masks_and_categories_are_those_of_torch(directory):
    ds = bt.load(directory / "out")
    options = {
        "label": "x",
        "columns": ["maybe", "text"],
        "nulls": "mask",
        "categories": {"text": [f"row {row}" for row in range(ROWS)]},
    }
    for (found, label), (expected, target) in zip(
        ds.grain(40, **options), ds.torch(40, **options), strict=True
    ):
        assert list(found) == list(expected) == ["maybe", "text", "maybe_mask"]
        assert label.tolist() == target.tolist()
        assert {name: of.tolist() for name, of in found.items()} == {
            name: of.tolist() for name, of in expected.items()
        }
    with pytest.raises(UsageError, match=r"'maybe' has 20 missing .*nulls=<number> or nulls='mask"):
        ds.grain(40)


def test_worker_processes_keep_the_order_and_resume(directory):
    def batches(workers):
        ds = bt.load(directory / "out", columns=["id", "text"])
        options = grain.MultiprocessingOptions(num_workers=workers)
        return ds.grain(10, shuffle=True, seed=2, repeat=2).mp_prefetch(options)

    everything = ids(
        bt.load(directory / "out", columns=["id"]).grain(10, shuffle=True, seed=2, repeat=2)
    )
    iterator = iter(batches(3))
    assert ids(next(iterator) for _ in range(7)) == everything[:7]
    state = iterator.get_state()
    next(iterator)
    resumed = iter(batches(3))
    resumed.set_state(state)
    assert ids(resumed) == everything[7:]


def test_grain_transforms_the_batches(directory):
    ds = bt.load(directory / "out", columns=["id"])
    doubled = ds.grain(10, repeat=None).map(lambda batch: {"id": batch["id"] * 2})
    iterator = iter(doubled)
    found = ids(next(iterator) for _ in range(25))
    assert found == [[2 * row for row in batch] for batch in ids(ds.grain(10, repeat=3))[:25]]
    state = iterator.get_state()
    after = next(iterator)
    iterator.set_state(state)
    assert next(iterator)["id"].tolist() == after["id"].tolist()


def test_no_rows_end_at_once(directory):
    ds = bt.load(directory / "out", columns=["id"])
    assert list(ds.grain(ROWS + 1, drop_remainder=True, repeat=None)) == []
    assert list(ds.grain(10, repeat=0)) == []


def test_unusable_arguments(directory):
    ds = bt.load(directory / "out")
    with pytest.raises(UsageError, match="maybe"):
        ds.grain(10)
    ds = bt.load(directory / "out", columns=["id"])
    with pytest.raises(UsageError, match="a batch must have at least 1 row, not 0"):
        ds.grain(0)
    with pytest.raises(UsageError, match="reader 2 of 2 does not exist"):
        ds.grain(1, shard=(2, 2))
    with pytest.raises(UsageError, match="repeat must be at least 0, not -1"):
        ds.grain(1, repeat=-1)


def test_states_of_other_readers_are_refused(directory):
    ds = bt.load(directory / "out", columns=["id"])
    iterator = iter(ds.grain(10, shuffle=True, seed=1))
    next(iterator)
    state = iterator.get_state()
    with pytest.raises(
        UsageError, match=r"of another order: pass the shuffle= and seed= that .* \(seed 1\)"
    ):
        iter(ds.grain(10, shuffle=True, seed=2)).set_state(state)
    with pytest.raises(UsageError, match="the state is of another dataset"):
        iter(bt.load(directory / "gzip", columns=["id"]).grain(10)).set_state(state)
    with pytest.raises(UsageError, match="choose a batch_size that keeps their product"):
        iter(ds.grain(4, shuffle=True, seed=1)).set_state(state)
