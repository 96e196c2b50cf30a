"""A round of merging before the last: which runs, which ranges, and what becomes of them."""

from pathlib import Path

import pytest

from beam_tfrecord.exchange.merge import merge_runs
from beam_tfrecord.exchange.merge_plan import RunTask
from beam_tfrecord.format.layout import Layout
from beam_tfrecord.job_state.checkpoints import find_merged, save_merged
from tests.exchange.making import write_entries

BIN = 2**48
TASK = RunTask(0, 2, "a", 0, 8 * BIN - 1)


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


def test_a_new_run_is_the_same_each_time_and_found_while_it_is_whole(two_runs, tmp_path):
    run = merge_runs(TASK, two_runs, Layout(), str(tmp_path))
    data = Path(run.path).read_bytes()
    assert merge_runs(TASK, two_runs, Layout(), str(tmp_path)).path == run.path
    assert Path(run.path).read_bytes() == data
    save_merged(str(tmp_path), "key", run)
    assert find_merged(str(tmp_path), "key").path == run.path
    assert find_merged(str(tmp_path), "other") is None
    Path(run.path).write_bytes(data[:-1])
    assert find_merged(str(tmp_path), "key") is None
