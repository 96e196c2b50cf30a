"""`bt.mix`: shares at every prefix, each row once before any comes again, and resuming anywhere."""

import itertools
import json
import random
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_tfrecord as bt
from beam_tfrecord.errors import UsageError
from tests.helpers.effort import WHOLE, examples
from tests.helpers.lazy import Lazy
from tests.helpers.made_datasets import make_dataset

tf = Lazy("tensorflow")
torch = Lazy("torch")

SIZES = [7, 100, 31, 1, 12, 50] + ([3 + 5 * n for n in range(44)] if WHOLE else [])


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """The paths of datasets of several sizes; the id of row 12 of dataset 3 is 3000012."""
    directory = tmp_path_factory.mktemp("mixture")
    for number, size in enumerate(SIZES):
        ids = pa.array(range(number * 10**6, number * 10**6 + size), pa.int64())
        make_dataset(directory / str(number), pa.table({"id": ids}), splits={"train": range(size)})
        bt.index(directory / str(number))
    return [str(directory / str(number)) for number in range(len(SIZES))]


def chairmen(shares, places):
    """Yield which dataset is next by the rule of Tijdeman as he wrote it, with fractions."""
    counts, least = [0] * len(shares), Fraction(1, max(2, 2 * len(shares) - 2))
    for place in range(1, places + 1):
        may = [n for n, share in enumerate(shares) if share * place - counts[n] >= least]
        must = {n: (counts[n] + 1 - least) / shares[n] // 1 for n in may}
        chosen = min(may, key=lambda n: (must[n], n))
        counts[chosen] += 1
        yield chosen


def check_passes(drawn, size):
    """Check that each row comes once before any comes again; return the passes."""
    passes = [drawn[start : start + size] for start in range(0, len(drawn), size)]
    assert all(len(set(one)) == len(one) for one in passes)
    assert all(set(one) == set(passes[0]) for one in passes[:-1])
    return passes


@settings(max_examples=examples(100, 20), deadline=None)
@given(data=st.data())
def test_every_prefix_has_the_shares(paths, data):
    chosen = data.draw(st.permutations(range(len(paths))))[: data.draw(st.integers(2, len(paths)))]
    weights = [data.draw(st.integers(1, 1000)) for _ in chosen]
    total, length = sum(weights), 200_000 if WHOLE else 4_000
    unit = data.draw(st.sampled_from([1, Fraction(1, 7), Fraction(1, 1000)]))
    asked = {paths[n]: str(unit * weight) for n, weight in zip(chosen, weights, strict=True)}
    ds = bt.mix(asked, seed=data.draw(st.integers(0, 2**64 - 1)), steps=length, batch_size=1)
    ids = ds["id"]
    assert len(ids) == len(ds) == length
    after = np.arange(1, length + 1)
    for number, weight in zip(chosen, weights, strict=True):
        mine = ids // 10**6 == number
        off = np.cumsum(mine) * total - after * weight  # in parts of a row, exactly
        assert np.abs(off).max() < total
        assert not off[total - 1 :: total].any()
        passes = check_passes(ids[mine].tolist(), SIZES[number])
        assert len(passes) < 3 or SIZES[number] < 12 or passes[0] != passes[1]
    at = data.draw(st.integers(0, length - 1))
    assert ds[at]["id"] == ids[at]
    shares = [Fraction(weight, total) for weight in weights]
    expected = [chosen[n] for n in chairmen(shares, 200)]
    assert (ids[:200] // 10**6).tolist() == expected


def test_many_decimals_are_rounded_to_65536(paths):
    weights = [0.123456789, 0.2, 0.676543211]
    ds = bt.mix(dict(zip(paths, weights, strict=False)), steps=65_536, batch_size=1)
    counts = np.bincount(ds["id"] // 10**6)
    assert np.abs(counts - 65_536 * np.array(weights)).max() < 1


def test_an_epoch_ends_before_a_row_comes_again_or_when_all_came(paths):
    weights = {paths[1]: 0.7, paths[2]: 0.3}
    first, every = bt.mix(weights), bt.mix(weights, until="all")
    ids = every["id"].tolist()
    assert len(set(ids)) == 131
    assert len(set(ids[:-1])) == 130
    assert len(first) == next(n for n in range(131) if ids[n] in ids[:n])
    assert first["id"].tolist() == ids[: len(first)]
    assert first.content != bt.mix(weights, seed=1).content
    assert len(list(first.rows())) == len(list(first.examples())) == len(first)


def of_ranks(ds, size, world, first=0, last=None):
    """Return the rows of all ranks, step after step, and the rows of each rank."""
    ranks = []
    for rank in range(world):
        read = ds.tf(size // world, shard=(rank, world), start_step=first, repeat=None)
        steps = itertools.islice(read, None if last is None else last - first)
        ranks.append([batch["id"].numpy().tolist() for batch in steps])
    rows = [row for step in zip(*ranks, strict=True) for batch in step for row in batch]
    return rows, ranks


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(("size", "worlds"), [(12, [6]), (10, [1, 10]), (32, [16, 4])])
def test_ranks_divide_each_step_and_get_the_shares(paths, size, worlds):
    steps = 30
    ds = bt.mix({paths[1]: 0.7, paths[5]: 0.3}, seed=4, steps=steps, batch_size=size)
    whole, _ = of_ranks(ds, size, 1, last=2 * steps)
    second = bt.mix({paths[1]: 0.7, paths[5]: 0.3}, seed=4, steps=2 * steps, batch_size=size)
    mapped = second["id"].tolist()  # the second epoch goes on where the first ended
    for at in range(0, len(mapped), size):
        assert sorted(whole[at : at + size]) == sorted(mapped[at : at + size])
    for world in worlds:
        found, ranks = of_ranks(ds, size, world, last=2 * steps)
        assert found == whole
        shares = [np.mean(np.concatenate(of) < 5 * 10**6) for of in ranks]
        assert 0.5 < min(shares) <= max(shares) < 0.9


def by_torch(ds, size, world, state, steps):
    loaders = [ds.torch(size // world, rank=rank, world=world).loader() for rank in range(world)]
    ranks = []
    for loader in loaders:
        if state is not None:
            loader.load_state_dict(json.loads(json.dumps(state)))
        epochs = itertools.chain.from_iterable(itertools.repeat(loader, 3))
        ranks.append([batch["id"].tolist() for batch in itertools.islice(epochs, steps)])
    assert all(loader.state_dict() == loaders[0].state_dict() for loader in loaders)
    rows = [row for step in zip(*ranks, strict=True) for batch in step for row in batch]
    return rows, loaders[0].state_dict()


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2, 3, 7, 16])
def test_ranks_resume_with_other_numbers_of_ranks(paths, world):
    choose = random.Random(world)
    others = [choose.randint(1, 16) for _ in range(3)]
    size = int(np.lcm.reduce([world, *others[:1]])) * choose.randint(1, 3)
    ds = bt.mix({paths[1]: 5, paths[2]: 2, paths[4]: "1/3"}, seed=2, steps=9, batch_size=size)
    undisturbed, _ = by_torch(ds, size, 1, None, 18)
    found, state = [], None
    for number, steps in ((world, 4), (others[0], 7), (world, 7)):
        rows, state = by_torch(ds, size, number, state, steps)
        found += rows
    assert found == undisturbed
    assert set(state) == {"dataset", "seed", "mixed", "epoch", "delivered"}
    other = bt.mix({paths[1]: 5, paths[2]: 3}, seed=2, steps=9, batch_size=size)
    with pytest.raises(UsageError, match="the state is of another dataset"):
        by_torch(other, size, 1, state, 1)


@pytest.mark.slow
def test_all_frameworks_read_the_same_rows(paths):
    ds = bt.mix({paths[1]: 3, paths[5]: 1}, seed=8, steps=10, batch_size=8)
    expected, _ = of_ranks(ds, 8, 1, last=10)
    workers = ds.torch(8).loader(num_workers=2)
    for read in (ds.torch(8), workers, ds.grain(8), ds.keras(8, stack=False)):
        assert [int(row) for batch in read for row in np.asarray(batch["id"])] == expected
    assert sorted(expected) == sorted(ds["id"].tolist())


@settings(max_examples=examples(40, 8), deadline=None)
@given(data=st.data())
def test_other_weights_lose_and_double_nothing(paths, data):
    seen = {n: [] for n in range(6)}
    earlier, since, weight = None, None, st.integers(1, 9)
    for _ in range(3):
        chosen = data.draw(st.lists(st.integers(0, 5), min_size=1, unique=True))
        weights = {paths[n]: data.draw(weight) for n in chosen}
        steps = data.draw(st.integers(0, 40))
        earlier = bt.mix(weights, seed=6, steps=steps + 1, batch_size=4, since=since)
        since = steps, earlier
        for row in earlier["id"].tolist()[: 4 * steps]:
            seen[row // 10**6].append(row)
    for number, drawn in seen.items():
        check_passes(drawn, SIZES[number])


def wrong_mixes(paths, directory):
    old = bt.mix({paths[0]: 1}, seed=1, steps=5, batch_size=2)
    a, b, c = {paths[0]: 0.7}, {paths[1]: 0.3}, {"batch_size": 2}
    for name, columns in {"empty": {"id": [0]}, "text": {"id": ["x"]}}.items():
        table = pa.table(columns).slice(0, 0 if name == "empty" else 1)
        make_dataset(directory / name, table, splits={"train": range(table.num_rows)}, shards=1)
        bt.index(directory / name)
    make_dataset(directory / "zipped", pa.table({"id": [1]}), compression="GZIP", shards=1)
    pq.write_table(pa.table({"id": [1]}), directory / "rows.parquet")
    make_dataset(directory / "two", pa.table({"id": [1, 2]}), splits={"x": [0], "y": [1]})
    for weight in (0, -1, "x", float("nan"), True, "1/0", None):
        yield {**a, paths[1]: weight}, {}, f"weight {weight!r} of '.*/1' is not a positive number"
    yield {}, {}, "mix needs a dict of paths and weights"
    yield [paths[0]], {}, "mix needs a dict of paths and weights"
    yield {paths[0]: 1, paths[1]: 1e-6}, {}, "the weight of '.*/1' is below one row in 65,536"
    yield {**a, directory / "empty": 1}, {}, "empty' has no rows to mix: leave it out"
    yield {**a, directory / "text": 1}, {}, "column 'id' is int64 in '.*/0' but string in '.*/text'"
    yield {**a, directory / "zipped": 1}, {}, "rows of compressed shards can only be read one after"
    yield {**a, directory / "rows.parquet": 1}, {}, "rows of Parquet files can only be read one aft"
    yield {**a, directory / "two": 1}, {}, "these are the rows of the splits x, y: choose one"
    yield {**a, paths[0] + "/": 1}, {}, "two paths have the same rows: pass one of them"
    yield b, {"steps": 9}, "steps= counts steps of all ranks: also pass batch_size="
    yield b, {"steps": 0, **c}, "steps= counts steps of all ranks"
    yield b, {"steps": 9, "until": "all", **c}, "steps and until both say where an epoch ends"
    yield b, {"until": "last"}, "until 'last' is unknown: pass 'first' or 'all', or steps="
    yield b, {"seed": -1}, "seed -1 is out of range"
    yield a, {"since": (2, old), "seed": 1}, "since= counts steps of all ranks: also pass batch"
    yield a, {"since": (2, old), **c}, "the earlier mixture has another seed: pass seed=1"
    for since in (3, (3, bt.load(paths[0]))):
        yield a, {"since": since, **c}, "since needs steps and the mixture that delivered them"
    part = {"split": "train[1:]", "seed": 1, "since": (2, old), **c}
    yield a, part, "has other rows than in the earlier mixture, so rows would come again"


def test_wrong_use_is_one_line(paths, tmp_path):
    for weights, options, message in wrong_mixes(paths, tmp_path):
        with pytest.raises(UsageError, match=message) as raised:
            bt.mix(weights, **options)
        assert "\n" not in str(raised.value)


def test_a_mixture_is_not_shuffled_again(paths):
    with pytest.raises(UsageError, match="in random order, by the seed of mix: leave shuffle out"):
        bt.mix({paths[0]: 1, paths[1]: 1}).tf(2, shuffle=True)
