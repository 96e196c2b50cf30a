"""One suite over every way records travel: the same bytes.

`tests/runners/test_conformance.py` is the suite of every way that a pipeline runs.
"""

import itertools

import apache_beam as beam
import pytest

import beam_tfrecord as bt
from beam_tfrecord.exchange import merge, write_steps
from beam_tfrecord.exchange import merge_plan as plan
from beam_tfrecord.sources.parquet import Parquet
from beam_tfrecord.transforms.read_batches import ReadBatches
from tests.helpers.datasets import ids, sample_table, shard_hashes, write_parquet

OPTIONS = {"splits": {"train": 0.7, "test": 0.3}, "shards": 6, "seed": 3}

# Name of the runner, its Beam options, exchange, rows of a batch, bytes of a task.
WAYS = {
    "one worker": ("FnApiRunner", (), "files", 16_384, 2**26),
    "two threads": ("direct", ("--direct_num_workers=2",), "files", 100, 20_000),
    "small batches": ("FnApiRunner", (), "files", 7, 2**26),
    "small tasks": ("FnApiRunner", (), "files", 16_384, 5_000),
    "runner exchange": ("FnApiRunner", (), "runner", 16_384, 2**26),
    "runner exchange, threads": ("direct", ("--direct_num_workers=2",), "runner", 50, 20_000),
}


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    directory = tmp_path_factory.mktemp("input")
    return write_parquet(directory, sample_table(3000), files=4, group_rows=200)


@pytest.fixture(scope="module")
def expected(parquet, tmp_path_factory):
    """Return the files of an undisturbed job with the given options, written once."""
    known = {}

    def of(**options):
        key = repr(sorted(options.items()))
        if key not in known:
            output = tmp_path_factory.mktemp("expected") / "out"
            write_in_one_way(parquet, output, WAYS["one worker"], **options)
            known[key] = shard_hashes(output)
        return known[key]

    return of


def write_in_one_way(parquet, output, way, **options):
    runner, words, exchange, batch_rows, task_bytes = way
    with bt.pipeline(runner, options=words) as pipeline:
        (
            pipeline
            | ReadBatches(Parquet(parquet), batch_rows=batch_rows, task_bytes=task_bytes)
            | bt.WriteToTFRecord(f"{output}/", exchange=exchange, **options)
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", WAYS)
def test_shuffled_files_are_the_same_bytes(parquet, tmp_path, expected, name):
    write_in_one_way(parquet, tmp_path / "out", WAYS[name], **OPTIONS)
    assert shard_hashes(tmp_path / "out") == expected(**OPTIONS)
    assert len(expected(**OPTIONS)) == 9


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", ["small batches", "two threads", "runner exchange"])
@pytest.mark.parametrize(
    "options",
    [
        {"shuffle": False, "shards": 3},
        {"shuffle": False, "shards": 3, "splits": {"a": 0.5, "b": 0.5}},
        {"key": ["id"], "shards": 3},
        {"group": ["name"], "splits": {"a": 0.5, "b": 0.5}, "shards": 3},
        {"compression_type": "gzip", "shards": 3},
    ],
    ids=lambda options: "-".join(options),
)
def test_every_order_is_the_same_bytes(parquet, tmp_path, expected, name, options):
    write_in_one_way(parquet, tmp_path / "out", WAYS[name], **options)
    assert shard_hashes(tmp_path / "out") == expected(**options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fan_in", "options"), [(2, {}), (7, {"key": ["name"]}), (2, {"compression_type": "gzip"})]
)
def test_two_rounds_of_merging_give_the_same_bytes(
    parquet, tmp_path, expected, monkeypatch, fan_in, options
):
    monkeypatch.setattr(write_steps, "run_bytes_of", lambda _: 10_000)
    monkeypatch.setattr(plan, "max_fan_in", lambda _: fan_in)
    monkeypatch.setattr(plan, "PART_BYTES", 9_000)
    merged = []

    def merge_runs(task, *rest):
        merged.append(task)
        return merge.merge_runs(task, *rest)

    monkeypatch.setattr(write_steps, "merge_runs", merge_runs)
    write_in_one_way(parquet, tmp_path / "out", WAYS["small batches"], **OPTIONS, **options)
    assert shard_hashes(tmp_path / "out") == expected(**OPTIONS, **options)
    batches = {(task.first_run, task.end_run) for task in merged}
    assert len(batches) > 1
    assert all(end - first <= fan_in for first, end in batches)
    assert len(merged) > len(batches)


def write_copies(output, order, way, **options):
    """Write 8 copies of 400 rows, four by a function and twice by Flatten; return the ids."""
    runner, words, exchange, _, _ = way
    with bt.pipeline(runner, options=words) as pipeline:
        rows = (
            pipeline
            | beam.Create([{"id": number} for number in order], reshuffle=False)
            | beam.FlatMap(lambda row: [row] * 4)
        )
        (
            (rows, rows)
            | beam.Flatten()
            | bt.WriteToTFRecord(f"{output}/", exchange=exchange, **options)
        )
    return ids(output)


@pytest.mark.slow
@pytest.mark.parametrize("name", WAYS)
def test_copies_are_spread_the_same_way_for_every_worker(tmp_path, name):
    copies = write_copies(tmp_path / "out", range(400), WAYS[name], shards=2)
    assert sorted(copies) == sorted([*range(400)] * 8)
    # All copies of a row are in one shard. In a random order, 64 of its 200 rows times 8 would have
    # 200 (1 - (1 - 64/1600)^8) = 55.7 distinct ones, and 14 neighbours would be equal in all.
    distinct = [len(set(copies[first : first + 64])) for first in range(0, 3200, 64)]
    assert 54.7 < sum(distinct) / len(distinct) < 56.7
    assert sum(one == other for one, other in itertools.pairwise(copies)) < 28
    again = write_copies(tmp_path / "again", reversed(range(400)), WAYS["one worker"], shards=2)
    assert again == copies
    assert shard_hashes(tmp_path / "out") == shard_hashes(tmp_path / "again")


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"key": "id"}, {"shuffle": False}], ids=["key", "source"])
def test_copies_stay_together_by_key_and_in_source_order(tmp_path, options):
    copies = write_copies(tmp_path / "out", range(400), WAYS["one worker"], **options)
    assert [list(of_row) for _, of_row in itertools.groupby(copies)] == [
        [row] * 8 for row in dict.fromkeys(copies)
    ]
