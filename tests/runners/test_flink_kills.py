"""Kills on a real Flink cluster: whatever dies, and when, it costs nothing but time.

`scripts/prove/run flink` kills at more moments, and more often.
"""

import os
import signal

import pytest

from tests.runners.flink_cluster import SPLIT, data_of, finish, leftovers, start_writing
from tests.runners.flink_kills import lose_host, restarts_of


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
