"""Options of ``tf()`` that decide how shards are read."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import UsageError

pytestmark = pytest.mark.xdist_group("tensorflow")

ROWS = 120
SHARDS = 4


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    directory = tmp_path_factory.mktemp("shards")
    pq.write_table(pa.table({"id": pa.array(np.arange(ROWS))}), directory / "in.parquet")
    bt.write(directory / "in.parquet", directory / "out", shards=SHARDS)
    return directory / "out"


def ids(out, **options):
    return [int(row["id"]) for row in bt.load(out).tf(**options)]


def test_interleaved_shards_give_an_example_of_each_in_turn(out):
    dataset = bt.load(out)
    shards = [dataset.of_shards(i, SHARDS).numpy()["id"].tolist() for i in range(SHARDS)]
    found = ids(out, interleave=SHARDS)
    assert found[:SHARDS] == [shard[0] for shard in shards]
    assert sorted(found) == list(range(ROWS))
    assert found == ids(out, interleave=SHARDS)
    assert ids(out, interleave=1) == ids(out) == [row for shard in shards for row in shard]


def test_every_worker_reads_shards_of_its_own(out):
    parts = [ids(out, shard=(i, 3)) for i in range(3)]
    assert sorted(one for part in parts for one in part) == list(range(ROWS))
    assert all(parts)


def test_shuffle_and_cache_keep_every_row_and_the_number_of_them(out):
    dataset = bt.load(out).tf(7, shuffle=50, seed=3, cache=True, repeat=2, drop_remainder=True)
    assert int(dataset.cardinality()) == 2 * (ROWS // 7)
    epochs = [int(one) for batch in dataset for one in batch["id"]]
    first, second = epochs[: len(epochs) // 2], epochs[len(epochs) // 2 :]
    assert len(set(first)) == len(first) == len(set(second)) == ROWS // 7 * 7
    assert first != second


def test_no_shard_at_a_time_is_refused(out):
    with pytest.raises(UsageError, match="interleave is 0: read at least 1 shard at a time"):
        bt.load(out).tf(interleave=0)
