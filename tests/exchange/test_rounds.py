"""A round of merging before the last: which runs, which ranges, and what becomes of them."""

from pathlib import Path

import numpy as np
import pytest

from beam_tfrecord.exchange import plan
from beam_tfrecord.exchange.checkpoints import find_merged, save_merged
from beam_tfrecord.exchange.merge import Slice, merge_runs, merged_entries
from beam_tfrecord.exchange.plan import (
    RunName,
    RunSet,
    RunTask,
    Window,
    after_round,
    name_of,
    names_in_order,
    plan_round,
    range_bits_for,
    run_bytes_for,
    task_bytes_of,
)
from beam_tfrecord.exchange.spill_files import BinCounts, read_index
from beam_tfrecord.layout import Layout
from tests.exchange.making import write_entries
from tests.exchange.test_lots import entries_in

MIB = 2**20
BIN = 2**48
TASK = RunTask(0, 2, "a", 0, 8 * BIN - 1)


def wide(count):
    return tuple(RunName(f"/t/run-{number:04d}") for number in range(count))


def even(bins, nbytes):
    size = np.full(bins, nbytes, np.int64)
    return BinCounts(np.arange(bins, dtype=np.uint64), np.ones(bins, np.int64), size, 48)


def test_runs_that_can_be_merged_at_once_need_no_round():
    counts = {"a": even(8, 2**30)}
    assert list(plan_round(RunSet(wide(512), counts), Layout(), MIB)) == []
    assert list(plan_round(RunSet(wide(513), counts), Layout(shuffle=False), MIB)) == []
    assert task_bytes_of(RunSet(wide(300), counts), Layout(), MIB) == 300 * MIB
    # Narrow runs are looked into by few windows, however many they are.
    narrow = tuple(RunName(f"/t/run-{number}", (0, 9)) for number in range(600))
    assert list(plan_round(RunSet(narrow, counts), Layout(), MIB)) == []


def test_a_round_covers_every_run_and_every_place_once():
    counts = {"b": even(4, 2**30), "a": even(8, 2**30)}
    tasks = list(plan_round(RunSet(wide(1100), counts), Layout(), MIB))
    assert sorted({(task.first_run, task.end_run) for task in tasks}) == [
        (0, 366),
        (366, 733),
        (733, 1100),
    ]
    # 8 GiB of one split in three batches are less than the 4 GiB of a part, as are 4 GiB.
    assert [(t.split, t.first_place, t.last_place) for t in tasks if t.first_run == 0] == [
        ("a", 0, 8 * BIN - 1),
        ("b", 0, 4 * BIN - 1),
    ]
    assert task_bytes_of(RunSet(wide(1100), counts), Layout(), MIB) == 2048 * MIB


def test_large_batches_are_divided_by_place(monkeypatch):
    monkeypatch.setattr(plan, "PART_BYTES", 2**28)
    tasks = list(plan_round(RunSet(wide(1024), {"a": even(8, 2**28)}), Layout(), MIB))
    assert [(t.first_place // BIN, t.last_place // BIN) for t in tasks if t.first_run == 0] == [
        (0, 1),
        (2, 3),
        (4, 5),
        (6, 7),
    ]


def test_merged_runs_replace_those_that_held_any_place():
    narrow, (one, two), new = RunName("/t/n", (5, 9)), wide(2), RunName("/t/m", (0, 3))
    assert names_in_order([narrow, two, one]) == (one, two, narrow)
    assert after_round((one, two, narrow), [new, new]) == (new, narrow)
    assert after_round((one, two, narrow), []) == (narrow, one, two)


def test_a_run_is_looked_into_where_its_records_may_be(tmp_path):
    run = write_entries(tmp_path, [("a", 3 * BIN, b"x")], ["a"], shift=48, name="run")
    name = name_of(run)
    assert name.reach == (3 * BIN, 4 * BIN - 1)
    assert name.may_hold([Window("a", 0, 0, 3 * BIN, 1, 1)])
    assert not name.may_hold([Window("a", 0, 0, 3 * BIN - 1, 1, 1)])
    spread = [("a", place << 56, b"") for place in range(256)]
    assert name_of(write_entries(tmp_path, spread, ["a"], shift=48, name="all")).reach is None


@pytest.fixture
def two_runs(tmp_path):
    entries = [
        [("a", 1, b"one"), ("a", BIN, b"two"), ("a", 9 * BIN, b"beyond"), ("b", 1, b"other")],
        [("a", 1, b"again"), ("a", 7 * BIN, b"last")],
    ]
    return [
        write_entries(tmp_path, of_run, ["a", "b"], shift=48, name=f"run-{number}").path
        for number, of_run in enumerate(entries)
    ]


def test_a_new_run_holds_a_range_of_its_runs_in_order(two_runs, tmp_path):
    run = merge_runs(TASK, two_runs, Layout(), str(tmp_path))
    assert run is not None
    bins, offsets = read_index(run.path).splits["a"]
    assert bins.tolist() == [0, 1, 7]
    assert offsets.tolist() == [0, 24 + 5 + 24 + 3, 83, 111]
    (lot,) = merged_entries([Slice(run.path, 0, 111)], by_bytes=True)
    assert entries_in(lot) == [(1, b"again"), (1, b"one"), (BIN, b"two"), (7 * BIN, b"last")]
    assert merge_runs(RunTask(0, 2, "c", 0, BIN), two_runs, Layout(), str(tmp_path)) is None


def test_two_attempts_write_the_same_run(two_runs, tmp_path):
    first = merge_runs(TASK, two_runs, Layout(), str(tmp_path))
    assert first is not None
    data = Path(first.path).read_bytes()
    second = merge_runs(TASK, two_runs, Layout(), str(tmp_path))
    assert second is not None
    assert second.path == first.path
    assert Path(first.path).read_bytes() == data


def test_a_new_run_is_found_again_while_it_is_whole(two_runs, tmp_path):
    run = merge_runs(TASK, two_runs, Layout(), str(tmp_path))
    assert run is not None
    save_merged(str(tmp_path), "key", run)
    found = find_merged(str(tmp_path), "key")
    assert found is not None
    assert found.path == run.path
    assert find_merged(str(tmp_path), "other") is None
    Path(run.path).write_bytes(Path(run.path).read_bytes()[:-1])
    assert find_merged(str(tmp_path), "key") is None


def test_runs_grow_with_the_total_and_ranges_become_more():
    sizes = [run_bytes_for(total, MIB) // MIB for total in (0, 10**10, 10**11, 10**12, 10**14)]
    assert sizes == [64, 69, 218, 512, 512]
    assert run_bytes_for(None, MIB) == 64 * MIB
    assert [range_bits_for(total) for total in (None, 10**9, 10**12, 10**14)] == [8, 8, 12, 16]
