"""A Flink cluster and a stand-in for Dataflow, one for all tests, and what Flink's jobs read."""

import os
import subprocess
import sys
import tempfile

import pytest

from beam_tfrecord.runners import dataflow
from beam_tfrecord.runners.flink_cluster import answers, free_port
from tests.helpers.marks import mark_users
from tests.runners.dataflow_cloud import cloud_of, emulated_storage
from tests.runners.flink_cluster import (
    ROOT,
    Gate,
    running_cluster,
    wait_for,
    write_trips,
    written_here,
)


def pytest_itemcollected(item):
    mark_users(item, {"cluster"}, "flink")
    mark_users(item, {"cloud"}, "dataflow")


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch):
    """Keep what Beam leaves of pipelines that never run, and of jobs in other processes."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture(scope="module")
def worker_pool(tmp_path_factory):
    """Run a pool of workers, each started by our boot; give its address and the boot's cache."""
    directory = tmp_path_factory.mktemp("pool")
    boot = directory / "boot"
    boot.write_text(f'#!/bin/sh\nexec {sys.executable} -m beam_tfrecord.runners.boot "$@"\n')
    boot.chmod(0o755)
    address = f"localhost:{free_port()}"
    command = [sys.executable, "-m", "apache_beam.runners.worker.worker_pool_main"]
    places = {"PYTHONPATH": str(ROOT), "BEAM_TFRECORD_BOOT_CACHE": str(directory / "cache")}
    pool = subprocess.Popen(
        [*command, f"--service_port={address.split(':')[1]}", f"--container_executable={boot}"],
        cwd=directory,
        env={**os.environ, **places},
        stderr=subprocess.DEVNULL,
    )
    wait_for(lambda: answers(address), what="the pool listens")
    yield address, directory / "cache"
    pool.terminate()
    pool.wait(30)


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
