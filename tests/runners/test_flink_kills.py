"""Kills on a real Flink cluster: whatever dies, and when, it costs nothing but time."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

import beam_tfrecord as bt
from tests.runners.flink_cluster import (
    SPLIT,
    WRITE_S,
    data_of,
    finish,
    leftovers,
    start_writing,
    wait_for,
)


@pytest.fixture(autouse=True)
def rested(cluster):
    """Let no worker of an earlier job be taken for one of this."""
    cluster.await_rest()


def appears(output, begin):
    """Return whether the output, or the job's directory in it, holds a file of some kind."""

    def is_there() -> bool:
        hidden = [os.path.join(output, name) for name in leftovers(output)]
        return any(
            name.startswith(begin)
            for path in (output, *hidden)
            if os.path.isdir(path)
            for name in os.listdir(path)
        )

    return is_there


def await_moment(is_there):
    """Wait for a moment that is over in some milliseconds."""
    until_s = time.monotonic() + WRITE_S
    while time.monotonic() < until_s:
        try:
            if is_there():
                return
        except FileNotFoundError:
            continue
    raise AssertionError("the moment did not come")


def restarts_of(output):
    return int(json.loads((output / "job.json").read_text())["flink"]["restarts"])


def test_a_task_manager_killed_while_it_reads(cluster, trips, expected, gate, tmp_path):
    words = (str(trips), "out", *SPLIT, *gate.words, *cluster.arguments)
    writing = start_writing(*words, cwd=tmp_path)
    victim = cluster.task_manager_of(gate.met())
    os.kill(victim, signal.SIGKILL)
    cluster.start_task_manager()
    gate.open()
    code, said = finish(writing)
    assert code == 0, said
    assert data_of(tmp_path / "out") == expected
    assert leftovers(tmp_path / "out") == []
    assert restarts_of(tmp_path / "out") >= 1


def test_a_python_worker_killed_while_it_reads(cluster, trips, expected, gate, tmp_path):
    words = (str(trips), "out", *SPLIT, *gate.words, *cluster.arguments)
    writing = start_writing(*words, cwd=tmp_path)
    os.kill(gate.met(), signal.SIGKILL)
    gate.open()
    code, said = finish(writing)
    assert code == 0, said
    assert data_of(tmp_path / "out") == expected
    assert leftovers(tmp_path / "out") == []
    assert restarts_of(tmp_path / "out") >= 1


# A run is a part of the exchange; a shard is merged of runs; the note is written before the first
# shard gets its name; the manifest is the last thing but to clear up.
@pytest.mark.parametrize("sign", ["run-", ".shard-", "publishing", "manifest.json"])
def test_a_host_lost_while_it_exchanges_merges_and_publishes(
    sign, cluster, trips, expected, tmp_path
):
    output = tmp_path / "out"
    writing = start_writing(str(trips), "out", *SPLIT, *cluster.arguments, cwd=tmp_path)
    wait_for(output.exists, what="the job has begun")
    wait_for(appears(output, "kept-groups"), what="rows are read")
    # To find them takes longer than some of the moments.
    workers, victim = cluster.workers(), cluster.task_managers()[0]
    await_moment(appears(output, sign))
    cluster.kill(victim, workers)
    was_published = (output / "manifest.json").exists()
    cluster.start_task_manager()
    code, said = finish(writing)
    assert code == 0, said
    assert data_of(output) == expected
    assert leftovers(output) == []
    assert bt.verify(output).faults == ()
    # To publish takes some milliseconds: a kill may come too late to be noticed.
    assert was_published or restarts_of(output) >= 1


def test_a_job_cancelled_after_a_loss_leaves_what_the_next_one_goes_on_from(
    cluster, trips, expected, tmp_path
):
    output = tmp_path / "out"
    words = (str(trips), "out", *SPLIT, *cluster.arguments)
    writing = start_writing(*words, cwd=tmp_path)
    wait_for(output.exists, what="the job has begun")
    wait_for(appears(output, "kept-groups"), what="rows are read")
    workers, victim = cluster.workers(), cluster.task_managers()[0]
    await_moment(appears(output, "publishing"))
    cluster.kill(victim, workers)
    was_published = (output / "manifest.json").exists()
    # Before another try can come.
    writing.send_signal(signal.SIGINT)
    cluster.start_task_manager()
    code, said = finish(writing)
    if was_published:
        # The kill came too late: then nobody says otherwise.
        assert code == 0 or "the output is complete" in said, said
    else:
        assert code == 130, said
        assert "nothing was published" in said
        assert not (output / "manifest.json").exists()
    cluster.await_rest()
    code, said = finish(start_writing(*words, cwd=tmp_path))
    assert code == 0, said
    assert data_of(output) == expected
    assert leftovers(output) == []
