"""A Flink cluster and a stand-in for Dataflow, one for all tests, and what Flink's jobs read."""

import pytest

import beam_tfrecord as bt
from beam_tfrecord.runners import dataflow
from tests.helpers.marks import mark_users
from tests.runners.dataflow_cloud import cloud_of, emulated_storage
from tests.runners.flink_cluster import Gate, data_of, running_cluster

# A little more than is taken for small, which would run in one worker.
ROWS = 250_000
_WIDTH = 60


def pytest_itemcollected(item):
    mark_users(item, {"cluster"}, "flink")
    mark_users(item, {"cloud"}, "dataflow")


@pytest.fixture(scope="session")
def storage():
    """Run the storage that jobs of Dataflow read and write."""
    with emulated_storage() as endpoint:
        yield endpoint


@pytest.fixture
def cloud(storage, monkeypatch):
    """Give a bucket and a service."""
    monkeypatch.setattr(dataflow.DataflowResult, "first_look_s", 0.05)
    with cloud_of(storage) as made:
        yield made


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """Run a cluster for the whole session."""
    with running_cluster(tmp_path_factory.mktemp("flink")) as running:
        yield running


@pytest.fixture(scope="session")
def trips(tmp_path_factory):
    """Return a CSV file of several units."""
    path = tmp_path_factory.mktemp("input") / "trips.csv"
    with open(path, "w") as file:
        file.write("id,fare,city\n")
        for i in range(ROWS):
            file.write(f"{i},{i * 7919 % 100_003 / 100},town-{i % 97:0{_WIDTH}}\n")
    return path


@pytest.fixture(scope="session")
def expected(trips, tmp_path_factory):
    """Return the files of the same dataset written by threads of one process, without a map."""
    output = tmp_path_factory.mktemp("local") / "out"
    bt.write(trips, output, splits="train=0.9,test=0.1", shards=6)
    return data_of(output)


@pytest.fixture
def gate(tmp_path):
    """Give a map function that stops at a row until it is let go on, or the test ends."""
    gate = Gate(tmp_path)
    yield gate
    # A job that a failed test left behind would occupy the cluster.
    gate.open()
