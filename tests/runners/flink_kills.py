"""Kills of what runs a job on a Flink cluster, and what the job must come to all the same."""

import json
import os
import signal
import time

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

# What appears in a job's output: a run is a part of the exchange; a shard is merged of runs; the
# note is written before the first shard gets its name; the manifest is the last thing but to clear
# up.
SIGNS = ("run-", ".shard-", "publishing", "manifest.json")


def appears(output, begin):
    """Return whether the output, or the job's directory in it, holds a file of some kind."""

    def is_there():
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


def kill_task_manager(cluster, trips, expected, gate, directory):
    """Kill a TaskManager while it reads."""
    words = (str(trips), "out", *SPLIT, *gate.words, *cluster.arguments)
    writing = start_writing(*words, cwd=directory)
    victim = cluster.task_manager_of(gate.met())
    os.kill(victim, signal.SIGKILL)
    cluster.start_task_manager()
    gate.open()
    code, said = finish(writing)
    assert code == 0, said
    assert data_of(directory / "out") == expected
    assert leftovers(directory / "out") == []
    assert restarts_of(directory / "out") >= 1


def lose_host(sign, cluster, trips, expected, directory):
    """Kill a TaskManager and its workers at the moment that a file appears in the output."""
    output = directory / "out"
    writing = start_writing(str(trips), "out", *SPLIT, *cluster.arguments, cwd=directory)
    wait_for(output.exists, what="the job has begun")
    wait_for(appears(output, "kept-tasks"), what="rows are read")
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
