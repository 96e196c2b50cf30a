"""A Flink cluster and a stand-in for Dataflow, one for all tests, and what Flink's jobs read."""

import tempfile

import pytest

from beam_tfrecord.runners import dataflow
from tests.helpers.marks import mark_users
from tests.runners.dataflow_cloud import cloud_of, emulated_storage
from tests.runners.flink_cluster import Gate, running_cluster, write_trips, written_here


def pytest_itemcollected(item):
    mark_users(item, {"cluster"}, "flink")
    mark_users(item, {"cloud"}, "dataflow")


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch):
    """Keep what Beam leaves of pipelines that never run, and of jobs in other processes."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


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
    return write_trips(tmp_path_factory.mktemp("input"))


@pytest.fixture(scope="session")
def expected(trips, tmp_path_factory):
    """Return the files of the same dataset written by threads of one process, without a map."""
    return written_here(trips, tmp_path_factory.mktemp("local"))


@pytest.fixture
def gate(tmp_path):
    """Give a map function that stops at a row until it is let go on, or the test ends."""
    gate = Gate(tmp_path)
    yield gate
    # A job that a failed test left behind would occupy the cluster.
    gate.open()
