import math

import numpy as np
import pytest

from beam_tfrecord.errors import UsageError
from beam_tfrecord.exchange import plan
from beam_tfrecord.exchange.plan import (
    LOCAL_REQUEST_BYTES,
    REMOTE_REQUEST_BYTES,
    Window,
    max_fan_in,
    plan_merges,
    run_bytes_for,
    split_order,
    window_bytes_for,
)
from beam_tfrecord.exchange.spill_files import BinCounts
from beam_tfrecord.layout import Layout, ShardSpec, Splits

TWO = Splits((("train", 0.5), ("a", 0.5)))


def counts(nbytes, shift=48):
    sizes = np.array(nbytes, np.int64)
    return BinCounts(np.arange(len(sizes), dtype=np.uint64), np.ones_like(sizes), sizes, shift)


def shards_of(tasks):
    return [[(w.split, w.shard, w.bytes) for w in task] for task in tasks]


def test_splits_are_in_the_order_given_then_by_name():
    layout = Layout(splits=TWO)
    assert split_order({"z", "a", "train", "b"}, layout) == ["train", "a", "b", "z"]
    assert split_order({"z", "a"}, Layout(splits=Splits((), "part"))) == ["a", "z"]


def test_windows_cover_all_places_of_their_bins():
    layout = Layout(shards=ShardSpec(total=2))
    [task] = plan_merges({"data": counts([10, 10, 10, 10])}, layout)
    assert task == (
        Window("data", 0, 0, 2 * 2**48 - 1, 20, 2),
        Window("data", 1, 2 * 2**48, 4 * 2**48 - 1, 20, 2),
    )


def test_small_shards_share_a_task_and_splits_follow_each_other(
    monkeypatch,
):
    monkeypatch.setattr(plan, "TASK_BYTES", 25)
    layout = Layout(splits=TWO, shards=ShardSpec(shard_bytes=10))
    tasks = plan_merges({"a": counts([10]), "train": counts([10, 10, 10])}, layout)
    assert shards_of(tasks) == [
        [("train", 0, 10), ("train", 1, 10)],
        [("train", 2, 10), ("a", 0, 10)],
    ]


def test_a_large_shard_is_merged_window_by_window_in_one_task(
    monkeypatch,
):
    monkeypatch.setattr(plan, "TASK_BYTES", 25)
    monkeypatch.setattr(plan, "WINDOW_BYTES", 20)
    layout = Layout(shards=ShardSpec(total=2))
    tasks = plan_merges({"data": counts([10] * 8)}, layout)
    assert shards_of(tasks) == [
        [("data", 0, 20), ("data", 0, 20)],
        [("data", 1, 20), ("data", 1, 20)],
    ]


def test_shards_do_not_depend_on_the_bins_of_runs():
    layout = Layout(shuffle=False, shards=ShardSpec(total=4))
    rows = 3000
    fine = counts([10] * rows, shift=0)
    planned = plan_merges({"data": fine}, layout)
    assert plan_merges({"data": fine.coarsened(1)}, layout) == planned
    # 3,000 records have bins of 4 rows.
    assert [w.records for task in planned for w in task] == [752, 748, 752, 748]


def test_nothing_to_merge():
    assert plan_merges({}, Layout()) == []


def test_too_few_shards_are_refused():
    layout = Layout(splits=TWO, shards=ShardSpec(total=1))
    with pytest.raises(UsageError, match="1 shard is too few for 2 splits"):
        plan_merges({"a": counts([1]), "train": counts([1])}, layout)


@pytest.mark.parametrize(
    ("request_bytes", "most"), [(REMOTE_REQUEST_BYTES, 137.4e9), (LOCAL_REQUEST_BYTES, 1.0995e12)]
)
def test_one_round_reaches_as_far_as_documented(request_bytes, most):
    for size, is_enough in ((int(most), True), (int(1.001 * most), False)):
        runs = math.ceil(size / run_bytes_for(size, request_bytes))
        assert (runs <= max_fan_in(request_bytes)) == is_enough


@pytest.mark.parametrize("size", [10**9, 10**12, 10**14])
def test_reads_of_a_store_are_large_for_any_size(size):
    run_bytes = run_bytes_for(size, REMOTE_REQUEST_BYTES)
    # With more runs than can be merged at once, a round first merges as many of them as can be.
    runs = min(math.ceil(size / run_bytes), max_fan_in(REMOTE_REQUEST_BYTES))
    assert window_bytes_for(runs, REMOTE_REQUEST_BYTES) / runs >= 10**6
