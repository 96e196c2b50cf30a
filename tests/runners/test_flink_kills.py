"""Kills on a real Flink cluster: whatever dies, and when, it costs nothing but time.

`scripts/prove/run flink` kills at more moments, and more often.
"""

import os
import signal

import pytest

from tests.runners.flink_cluster import (
    SPLIT,
    data_of,
    finish,
    leftovers,
    start_writing,
    wait_for,
)
from tests.runners.flink_kills import appears, await_moment, lose_host, restarts_of


@pytest.fixture(autouse=True)
def rested(cluster):
    """Let no worker of an earlier job be taken for one of this."""
    cluster.await_rest()


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


@pytest.mark.parametrize("sign", ["run-", "publishing"])
def test_a_host_lost_while_it_exchanges_and_publishes(sign, cluster, trips, expected, tmp_path):
    lose_host(sign, cluster, trips, expected, tmp_path)


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
