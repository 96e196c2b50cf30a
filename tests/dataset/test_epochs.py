"""Division of epochs between ranks and workers: each example once, also after a stop."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_tfrecord as bt
from beam_tfrecord.errors import UsageError
from beam_tfrecord.loading.epochs import Division, Epochs
from tests.helpers.effort import examples

ROWS = 97
SHARDS = (1, 3, 20)


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    directory = tmp_path_factory.mktemp("epochs")
    pq.write_table(pa.table({"id": range(ROWS)}), directory / "in.parquet")
    out = {"parquet": directory / "in.parquet"}
    for shards in SHARDS:
        out[shards] = directory / f"out{shards}"
        bt.write(directory / "in.parquet", out[shards], shards=shards)
    out["gzip"] = directory / "gzip"
    bt.write(directory / "in.parquet", out["gzip"], shards=5, compression="gzip")
    return out


def epoch_of(epochs, epoch, division, workers, first=0, last=10**9):
    """Return the batches of the steps `first` to `last` of a rank, which its workers read."""
    steps = range(first, min(last, len(division)))
    batches = {}
    for worker in range(workers):
        own = steps[worker::workers]
        found = epochs.read(epoch, [division.positions(step) for step in own])
        read = (rows.slice(at, end - at) for rows, bounds in found for at, end in bounds)
        batches |= {step: batch["id"].to_pylist() for step, batch in zip(own, read, strict=True)}
    return [batches[step] for step in steps]


def joined(ranks):
    """Return the examples of all ranks in the order of the steps."""
    return [row for step in zip(*ranks, strict=True) for batch in step for row in batch]


@settings(max_examples=examples(300, 30), deadline=None)
@given(data=st.data())
def test_any_division_reads_each_example_once_and_resumes(datasets, data):
    kind = data.draw(st.sampled_from([*SHARDS, "gzip", "parquet"]))
    shuffle = data.draw(st.sampled_from([False, True, 40]))
    seed = data.draw(st.integers(0, 2**64 - 1))
    epoch = data.draw(st.integers(0, 5))
    drop_remainder = data.draw(st.booleans())
    step_examples = data.draw(st.integers(1, 40))
    worlds = [world for world in range(1, 41) if step_examples % world == 0]
    epochs = Epochs(bt.load(datasets[kind]), shuffle=shuffle, seed=seed)

    def ranks(first=0, last=10**9):
        world = data.draw(st.sampled_from(worlds))
        divisions = [
            Division(ROWS, step_examples // world, rank, world, drop_remainder)
            for rank in range(world)
        ]
        assert {division.step_after(division.delivered(first)) for division in divisions} == {first}
        workers = data.draw(st.integers(1, 4))
        return [epoch_of(epochs, epoch, division, workers, first, last) for division in divisions]

    whole = joined(ranks())
    once = whole[:ROWS]
    if drop_remainder:
        assert len(whole) == ROWS // step_examples * step_examples
        assert len(set(whole)) == len(whole)
    else:
        assert sorted(once) == list(range(ROWS))
        assert whole[ROWS:] == once[: len(whole) - ROWS]
    stop = data.draw(st.integers(0, len(whole) // step_examples))
    resumed = joined(ranks(0, stop)) + joined(ranks(stop))
    # Ranks of another number repeat another number of examples at the end.
    assert resumed[:ROWS] == once


def test_all_ranks_have_equal_numbers_of_examples():
    divisions = [Division(10, 2, rank, 3) for rank in range(3)]
    assert [
        [division.positions(step) for step in range(len(division))] for division in divisions
    ] == [[(0, 2), (6, 8)], [(2, 4), (8, 10)], [(4, 6), (10, 12)]]


def test_without_padding_each_position_is_read_once():
    divisions = [Division(10, 2, rank, 3, pad=False) for rank in range(3)]
    assert [
        [division.positions(step) for step in range(len(division))] for division in divisions
    ] == [[(0, 2), (6, 8)], [(2, 4), (8, 9)], [(4, 6), (9, 10)]]
    assert [division.examples for division in divisions] == [4, 3, 3]


def test_epochs_differ_and_repeat(datasets):
    for kind in (3, "gzip"):
        rows = bt.load(datasets[kind])
        division = Division(ROWS, 10)
        first, again, other, reseeded = (
            joined([epoch_of(Epochs(rows, shuffle=True, seed=seed), epoch, division, 1)])
            for seed, epoch in ((1, 0), (1, 0), (1, 1), (2, 0))
        )
        assert first == again
        assert first != other != reseeded != first
        assert first != list(rows.arrow()["id"].to_pylist())


def test_unusable_divisions():
    with pytest.raises(UsageError, match="a batch must have at least 1 row, not 0"):
        Division(10, 0)
    with pytest.raises(UsageError, match=r"reader 2 of 2 does not exist"):
        Division(10, 1, 2, 2)
    with pytest.raises(UsageError, match=r"after 3 examples, which is no multiple of .* 2 x 1"):
        Division(10, 2).step_after(3)
    for odd in (-2, "3", None):
        with pytest.raises(UsageError, match=r"the state says that .* examples were delivered"):
            Division(10, 2).step_after(odd)


def test_seed_out_of_range(datasets):
    with pytest.raises(UsageError, match="seed -1 is out of range"):
        Epochs(bt.load(datasets[1]), shuffle=True, seed=-1)


def test_an_order_is_that_of_the_epochs(datasets):
    rows = bt.load(datasets[3])
    order = rows.order(5, 2)
    assert sorted(order.indices(0, ROWS)) == list(range(ROWS))
    ((batch, _),) = Epochs(rows, shuffle=True, seed=5).read(2, [(10, 30)])
    assert batch.equals(rows.take(order.indices(10, 30)))
    ((batch, _),) = Epochs(rows, shuffle=64, seed=5).read(2, [(10, 30)])
    assert batch.equals(rows.take(rows.order(5, 2, window=64).indices(10, 30)))
    assert not batch.equals(rows.take(order.indices(10, 30)))


def test_a_large_dataset_is_mixed_by_windows(datasets, monkeypatch):
    rows = bt.load(datasets[3])
    assert Epochs(rows, shuffle=True).order(1).chunk == 1
    monkeypatch.setattr("beam_tfrecord.loading.epochs._UNIFORM_BYTES", 100)
    monkeypatch.setattr("beam_tfrecord.loading.rows.MIXED_BYTES", 2000)
    epochs = Epochs(rows, shuffle=True)
    assert epochs.order(1).chunk > 1
    read = [row for batch in epoch_of(epochs, 1, Division(ROWS, 8), 2) for row in batch]
    assert sorted(read) == list(range(ROWS))
    # All rows at a time make a uniform order.
    assert Epochs(rows, shuffle=ROWS).order(1) == rows.order(0, 1)


def test_nested_lists_stay_whole_in_a_window_of_a_compressed_shard(tmp_path):
    grids = [[[row, 1], [2, 3]] for row in range(ROWS)]
    arrow = pa.list_(pa.list_(pa.int64(), 2), 2)
    pq.write_table(pa.table({"grid": pa.array(grids, arrow)}), tmp_path / "in.parquet")
    bt.write(tmp_path / "in.parquet", tmp_path / "out", compression="gzip", shuffle=False)
    rows, _ = next(Epochs(bt.load(tmp_path / "out"), shuffle=40).read(0, [(0, ROWS)]))
    assert sorted(rows["grid"].to_pylist()) == grids
