"""``torch()``: which rows its workers and ranks read, in which order, and how they resume."""

from __future__ import annotations

import itertools
import json
import pickle
import shutil
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.loading.order import Order
from tests.helpers.lazy import Lazy

torch = Lazy("torch")
data = Lazy("torch.utils.data")
stateful = Lazy("torchdata.stateful_dataloader")

ROWS = 97
KINDS = ("one", "many", "gzip", "parquet")
# PyTorch counts the cores, and warns of more workers.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:This DataLoader will create")]


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    directory = tmp_path_factory.mktemp("torch")
    table = pa.table({"id": range(ROWS), "text": [f"row {n}" for n in range(ROWS)]})
    pq.write_table(table, directory / "in.parquet")
    out = {"parquet": directory / "in.parquet"}
    for name, options in {
        "one": {"shards": 1},
        "many": {"shards": 20},
        "gzip": {"shards": 5, "compression": "gzip"},
    }.items():
        out[name] = directory / name
        bt.write(directory / "in.parquet", out[name], **options)
    return out


def ids(batches: Iterable[Any]) -> list[list[int]]:
    found = []
    for batch in batches:
        assert batch["text"] == [f"row {n}" for n in batch["id"].tolist()]
        found.append(batch["id"].tolist())
    return found


def by_torch(read: Any, **options: Any) -> Any:
    return data.DataLoader(read, batch_size=None, sampler=read.sampler, **options)


def flat(batches):
    return list(itertools.chain.from_iterable(batches))


def in_batches(rows, size):
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def expected(place, epoch, seed=0):
    """Return the rows in the documented order of local shards that have an index."""
    rows = bt.load(place).arrow()["id"].to_pylist()
    return [rows[index] for index in Order(ROWS, seed, epoch).indices(0, ROWS)]


@pytest.mark.parametrize("kind", ["one", "many"])
def test_the_seed_decides_the_order_of_every_epoch(places, kind):
    for seed in (0, 5):
        dataset = bt.load(places[kind]).torch(10, shuffle=True, seed=seed)
        assert len(dataset) == 10
        for epoch in (0, 1):
            assert ids(dataset) == in_batches(expected(places[kind], epoch, seed), 10)
        dataset.set_epoch(7)
        assert flat(ids(dataset)) == expected(places[kind], 7, seed)
        assert flat(ids(dataset)) == expected(places[kind], 8, seed)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_shuffle_rows_are_in_order(places, kind):
    dataset = bt.load(places[kind])
    rows = dataset.arrow()["id"].to_pylist()
    assert ids(dataset.torch(10)) == ids(dataset.torch(10)) == in_batches(rows, 10)
    dropping = dataset.torch(10, drop_remainder=True)
    assert ids(dropping) == in_batches(rows, 10)[:-1]
    assert len(dropping) == 9


WORKERS = [
    *(("one", 4, True, "fork"), ("many", 2, False, "fork"), ("many", 4, True, "fork")),
    *(("gzip", 2, False, "fork"), ("parquet", 4, True, "fork")),
    # Each process that is spawned imports PyTorch.
    ("gzip", 2, True, "spawn"),
]


@pytest.mark.parametrize(("kind", "workers", "persistent", "method"), WORKERS)
def test_workers_read_the_batches_of_a_single_process(places, kind, workers, persistent, method):
    dataset = bt.load(places[kind])
    single = dataset.torch(7, shuffle=True)
    epochs = [ids(single) for _ in range(4)]
    assert all(sorted(flat(epoch)) == list(range(ROWS)) for epoch in epochs)
    assert len({tuple(flat(epoch)) for epoch in epochs}) == 4
    options = {
        "num_workers": workers,
        "persistent_workers": persistent,
        "multiprocessing_context": method,
    }
    read = dataset.torch(7, shuffle=True)
    for of, loader in (
        (read, by_torch(read, **options)),
        (own := dataset.torch(7, shuffle=True).loader(**options), own),
    ):
        found = [ids(loader), ids(loader)]
        of.set_epoch(3)
        found.append(ids(loader))
        of.set_epoch(2)
        found.append(ids(loader))
        assert found == [epochs[number] for number in (0, 1, 3, 2)]
        assert len(loader) == 14


def test_an_iteration_that_stops_ends_its_epoch(places):
    dataset = bt.load(places["many"])
    single = dataset.torch(7, shuffle=True)
    epochs = [ids(single) for _ in range(3)]
    own = dataset.torch(7, shuffle=True)
    for persistent in (False, True):
        read = dataset.torch(7, shuffle=True)
        options = {"num_workers": 2, "persistent_workers": persistent}
        for loader in (by_torch(read, **options), dataset.torch(7, shuffle=True).loader(**options)):
            assert ids([next(iter(loader))]) == epochs[0][:1]
            assert ids(loader) == epochs[1]
            assert ids(loader) == epochs[2]
    assert ids([next(iter(own))]) == epochs[0][:1]
    assert ids(own) == epochs[1]


def test_two_iterations_at_a_time(places):
    dataset = bt.load(places["many"])
    single = dataset.torch(7, shuffle=True)
    epochs = [ids(single) for _ in range(4)]
    loader = by_torch(dataset.torch(7, shuffle=True), num_workers=2)
    for epoch in (0, 2):
        pairs = list(zip(loader, loader, strict=True))
        found = [ids(one) for one in zip(*pairs, strict=True)]
        assert sorted(found) == sorted(epochs[epoch : epoch + 2])


def _of_a_group(rank, place, port, out):
    dataset = bt.load(place)
    early = dataset.torch(8, shuffle=True)
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2
    )
    try:
        list(early)
        message = ""
    except UsageError as error:
        message = str(error)
    read = dataset.torch(8, shuffle=True)
    options = {"num_workers": 1, "multiprocessing_context": "spawn"}
    batches = ids(by_torch(read, **options))
    resumable = dataset.torch(8, shuffle=True).loader()
    assert ids(resumable) == batches
    explicit = ids(dataset.torch(8, shuffle=True, rank=0, world=1))
    Path(out, str(rank)).write_text(json.dumps([batches, explicit, message]))
    torch.distributed.destroy_process_group()


def test_ranks_of_a_process_group(places, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(
        _of_a_group, (str(places["one"]), port, str(tmp_path)), nprocs=2, join=True
    )
    found = [json.loads((tmp_path / str(rank)).read_text()) for rank in range(2)]
    order = expected(places["one"], 0)
    steps = zip(found[0][0], found[1][0], strict=True)
    assert flat(flat(step) for step in steps) == order + order[:1]
    for _, explicit, message in found:
        assert flat(explicit) == order
        assert message.startswith("torch.distributed was initialized after torch() was called")


@pytest.mark.parametrize("kind", ["many", "gzip"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_resumes_on_other_ranks_and_workers(places, kind, workers):
    dataset = bt.load(places[kind])

    def loaders(world, workers):
        return [
            dataset.torch(24 // world, shuffle=True, seed=3, rank=rank, world=world).loader(workers)
            for rank in range(world)
        ]

    def rows(loaders, epoch):
        for loader in loaders:
            assert loader.state_dict()["epoch"] == epoch
        return flat(flat(step) for step in zip(*map(ids, loaders), strict=True))

    (whole,) = loaders(1, 0)
    epochs = [rows([whole], epoch) for epoch in range(3)]
    first = loaders(2, workers)
    assert rows(first, 0)[:ROWS] == epochs[0]
    under_way = [iter(loader) for loader in first]
    begin = flat(flat(ids([next(one) for one in under_way])) for _ in range(2))
    states = [json.loads(json.dumps(loader.state_dict())) for loader in first]
    assert states[0] == states[1]
    assert states[0]["epoch"] == 1
    assert states[0]["delivered"] == len(begin) == 48
    for world, other in ((1, 0), (3, 2 - workers), (2, workers)):
        resumed = loaders(world, other)
        for loader in resumed:
            loader.load_state_dict(states[0])
            # As training loops call it at the begin of each epoch, that of the state included.
            loader.set_epoch(1)
        assert (begin + rows(resumed, 1))[:ROWS] == epochs[1]
        assert rows(resumed, 2)[:ROWS] == epochs[2]


def test_a_loader_resumes_at_any_batch(places):
    dataset = bt.load(places["many"])
    whole = dataset.torch(10, shuffle=True)
    epochs = [ids(whole) for _ in range(3)]
    first = dataset.torch(10, shuffle=True).loader()
    assert first.state_dict()["epoch"] == first.state_dict()["delivered"] == 0
    under_way = iter(first)
    for batches in range(1, 11):
        next(under_way)
        state = first.state_dict()
        # After the last batch the next epoch begins.
        assert (state["epoch"], state["delivered"]) == (
            (0, batches * 10) if batches < 10 else (1, 0)
        )
        resumed = dataset.torch(10, shuffle=True)
        rest = epochs[0][batches:] or epochs[1]
        # Other loaders of the same dataset, and the dataset itself, go on there, too.
        for of in (resumed.loader(), by_torch(resumed, num_workers=2 * (batches == 4)), resumed):
            resumed.loader().load_state_dict(state)
            assert ids(of) == rest


def test_states_that_do_not_fit(places):
    dataset = bt.load(places["many"])
    shuffled = dataset.torch(10, shuffle=True, seed=1)
    next(iter(shuffled))
    state = shuffled.loader().state_dict()
    for other, message in (
        (bt.load(places["one"]).torch(10, shuffle=True, seed=1), "the state is of another dataset"),
        (dataset.torch(10, shuffle=True, seed=2), r"of another order: .* shuffle= .* \(seed 1\)"),
        (dataset.torch(10), "of another order"),
        (dataset.torch(10, shuffle=40, seed=1), "of another order"),
        (dataset.torch(7, shuffle=True, seed=1), "after 10 examples, which is no multiple of .* 7"),
    ):
        with pytest.raises(UsageError, match=message):
            other.loader().load_state_dict(state)
    with pytest.raises(UsageError, match="this is no state of a dataset: it has no 'dataset'"):
        shuffled.loader().load_state_dict({"epoch": 0})
    with pytest.raises(UsageError, match="epoch -1 is out of range: choose one from 0"):
        shuffled.set_epoch(-1)
    with pytest.raises(UsageError, match="reads in order: leave in_order out"):
        shuffled.loader(2, in_order=False)
    with pytest.raises(TypeError, match="batch_size"):
        shuffled.loader(batch_size=3)


def test_a_data_loader_needs_the_sampler(places):
    dataset = bt.load(places["one"]).torch(10, shuffle=True)
    message = r"batches are not chosen by number: pass sampler=data.sampler to the DataLoader, or"
    for options in ({"batch_size": None}, {"batch_size": 2}, {"batch_size": None, "shuffle": True}):
        with pytest.raises(UsageError, match=message):
            list(data.DataLoader(dataset, **options))


def test_a_copy_counts_its_own_epochs(places):
    dataset = bt.load(places["one"]).torch(10, shuffle=True)
    ids(dataset)
    copy = pickle.loads(pickle.dumps(dataset))
    assert ids(copy) == ids(dataset) == in_batches(expected(places["one"], 1), 10)


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("kind", ["one", "gzip"])
@pytest.mark.parametrize("workers", [0, 2])
def test_stateful_data_loader(places, kind, workers):
    dataset = bt.load(places[kind])
    single = dataset.torch(7, shuffle=True)
    epochs = [ids(single) for _ in range(3)]

    def loader(workers=workers):
        torch.manual_seed(0)  # The workers of a resumed training may have the seeds of the first.
        read = dataset.torch(7, shuffle=True)
        options = {"batch_size": None, "sampler": read.sampler, "num_workers": workers}
        return stateful.StatefulDataLoader(read, **options)

    for epoch, stop in ((0, 0), (0, 1), (0, 5), (1, 4), (1, 14)):
        first = loader()
        for done in epochs[:epoch]:
            assert ids(first) == done
        under_way = iter(first)
        begin = ids(itertools.islice(under_way, stop))
        if stop == 14:
            assert next(under_way, None) is None
        state = first.state_dict()
        resumed = loader()
        resumed.load_state_dict(state)
        if stop < 14:
            assert begin + ids(resumed) == epochs[epoch]
        assert ids(resumed) == epochs[epoch + 1]


def test_an_error_of_a_worker_says_what_is_wrong(places, tmp_path):
    shutil.copytree(places["one"], tmp_path / "copy")
    dataset = bt.load(tmp_path / "copy").torch(10)
    shard = next((tmp_path / "copy").glob("*.tfrecord"))
    shard.write_bytes(bytes(shard.stat().st_size))
    for loader in (by_torch(dataset, num_workers=1), dataset.loader(1)):
        with pytest.raises(DataError, match="was changed or replaced after it was opened"):
            list(loader)


def _identity(rows: list[Any]) -> list[Any]:
    return rows


def test_rows_by_number_are_a_map_style_dataset(places):
    dataset = bt.load(places["many"])
    rows = dataset.arrow()["id"].to_pylist()
    found = []
    for rank in range(2):
        sampler = torch.utils.data.DistributedSampler(dataset, 2, rank, shuffle=True, seed=4)
        loader = data.DataLoader(
            dataset, batch_size=8, sampler=sampler, num_workers=1, collate_fn=_identity
        )
        read = [row["id"] for batch in loader for row in batch]
        assert read == [rows[index] for index in sampler]
        found += read
    assert set(found) == set(rows)
    assert len(found) == ROWS + 1


@pytest.mark.parametrize("kind", ["many", "gzip"])
@pytest.mark.parametrize("workers", [0, 2])
def test_single_rows_in_batches_of_the_data_loader(places, kind, workers):
    dataset = bt.load(places[kind]).torch(shuffle=True)
    loader = data.DataLoader(dataset, batch_size=10, sampler=dataset.sampler, num_workers=workers)
    single = bt.load(places[kind]).torch(10, shuffle=True)
    assert [ids(loader), ids(loader)] == [ids(single), ids(single)]


@pytest.mark.parametrize("size", [3, 100_000])
def test_tensors_of_workers_are_whole_and_may_be_written_to(tmp_path, size):
    values = [[float(row)] * size for row in range(4)]
    lists = pa.array(values, pa.list_(pa.float32(), size))
    pq.write_table(pa.table({"id": range(4), "x": lists}), tmp_path / "in.parquet")
    dataset = bt.load(tmp_path / "in.parquet").torch(2, dtype=torch.bfloat16, nulls=0)
    for loader in (by_torch(dataset, num_workers=1), dataset.loader(1)):
        for batch in loader:
            assert batch["x"].shape == (2, size)
            assert batch["x"][:, -1].tolist() == batch["id"].tolist()
            batch["x"] += 1
            batch["id"] += 1
