"""Rows by number from object stores: few requests, one version of each, errors of one line."""

import concurrent.futures
import os
import pickle
import random
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from beam_tfrecord import storage
from beam_tfrecord.errors import BeamTFRecordError
from beam_tfrecord.loading.epochs import Epochs

ROWS, SHARDS = 4000, 2


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """A dataset of records of 1 KB, all of one size."""
    directory = tmp_path_factory.mktemp("records")
    texts = [f"{row:960}" for row in range(ROWS)]
    ids = pa.array(range(10**6, 10**6 + ROWS))
    pq.write_table(pa.table({"id": ids, "text": texts}), directory / "in.parquet")
    bt.write(directory / "in.parquet", directory / "out", shards=SHARDS)
    return directory / "out"


def copied(local, store):
    """Copy the dataset to the store, manifest last; return its URL."""
    files = sorted(path for path in local.rglob("*") if path.is_file())
    for path in sorted(files, key=lambda path: path.name == "manifest.json"):
        storage.put(f"{store.url}/out/{path.relative_to(local)}", path.read_bytes())
    return f"{store.url}/out"


def reads(store):
    """Return the requests for bytes of shards since the last call."""
    found = [
        request
        for request in store.faults.requests
        if request.startswith("GET") and ".tfrecord" in request and "alt=json" not in request
    ]
    store.faults.clear()
    return found


def ids(rows):
    return rows["id"].to_pylist()


def error_of(read):
    with pytest.raises(BeamTFRecordError) as caught:
        read()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_rows_by_number_are_those_of_a_local_dataset(store, local):
    ds, expected = bt.load(copied(local, store)), bt.load(local)
    indices = random.Random(1).choices(range(-ROWS, ROWS), k=50)
    assert ds.take(indices).equals(expected.take(indices))
    assert ds[7] == expected[7]
    assert ds[-3:] == expected[-3:]


def test_neighbours_are_read_by_one_request(store, local):
    ds = bt.load(copied(local, store))
    ds.take([0, ROWS - 1])
    reads(store)
    ds.take(range(0, ROWS, 2))
    assert len(reads(store)) == SHARDS
    ds.take([0, ROWS // 2 - 1])  # the ends of the first shard, 2 MB apart
    assert len(reads(store)) == 2


def test_an_epoch_by_windows_needs_few_requests(store, local):
    ds = bt.load(copied(local, store))
    epochs = Epochs(ds, shuffle=1000, seed=1)
    ds.take([0, ROWS - 1])
    reads(store)
    chunks = -(-ROWS // 62)  # 1,000 rows are 16 chunks of 62 rows
    found = epochs.read(0, [(start, start + 50) for start in range(0, ROWS, 50)])
    rows = [row for batch, _ in found for row in ids(batch)]
    assert sorted(rows) == sorted(ids(bt.load(local).arrow()))
    assert rows != sorted(rows)
    # The rotation divides a chunk, and the border between shards another one, of each window.
    assert len(reads(store)) <= chunks + 2 * 5


def test_only_one_version_of_a_shard_is_read(store, local):
    url = copied(local, store)
    ds = bt.load(url)
    first, second = (ds.path(shard) for shard in ds.shards)
    assert storage.file_size(first) == storage.file_size(second)
    ds.take(range(0, ROWS, 100))
    storage.put(first, storage.read_bytes(second))
    message = error_of(lambda: ds.take(range(ROWS)))
    assert first in message
    assert "replaced" in message
    # Rows of the other shard can still be read.
    assert ids(ds.take([ROWS - 1])) == [ids(bt.load(local).take([ROWS - 1]))[0]]


FORK = """
import os, pickle, sys
ds = pickle.load(sys.stdin.buffer)
row = ds[3]
child = os.fork()
if not child:
    os._exit(ds[3] != row or ds[-1] == row)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_handles_are_small_and_work_in_threads_and_processes(store, local):
    ds = bt.load(copied(local, store))
    expected = ids(bt.load(local).arrow())
    ds.take([0, ROWS - 1])
    handle = pickle.dumps(ds)
    assert len(handle) < 10_000
    parts = [list(range(start, ROWS, 8)) for start in range(8)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for part, rows in zip(parts, pool.map(ds.take, parts), strict=True):
            assert ids(rows) == [expected[index] for index in part]
    command = [sys.executable, "-W", "ignore", "-c", FORK]
    environment = {**store.environment, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, input=handle, env=environment, timeout=60, check=False)
    assert done.returncode == 0
