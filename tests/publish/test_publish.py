"""What publishing refuses, and what it leaves of others."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError
from tests.helpers.datasets import shard_hashes, visible_names


def test_rejects_come_and_go_with_the_dataset_and_files_of_others_stay(tmp_path):
    (tmp_path / "a.csv").write_text("x\n1\n2,3\n")
    out = tmp_path / "out"
    assert bt.write(tmp_path / "a.csv", out, max_rejects=1).rejects["rows"] == 1
    assert visible_names(out / "rejects") == ["rejects-00000.parquet"]
    (out / "rejects" / "mine").touch()
    (out / "data-00007-of-00009.tfrecord").write_text("not in any manifest")
    (tmp_path / "a.csv").write_text("x\n1\n")
    assert bt.write(tmp_path / "a.csv", out, overwrite=True).rejects["rows"] == 0
    assert visible_names(out / "rejects") == ["mine"]
    assert (out / "data-00007-of-00009.tfrecord").exists()


def test_a_manifest_that_cannot_be_read_replaces_no_dataset(tmp_path):
    out = tmp_path / "out"
    bt.write(pa.table({"x": [1]}), out)
    before = shard_hashes(out)
    # Arrow takes any text for a zone.
    odd = pa.table({"x": pa.array([1], pa.timestamp("us", "]"))})
    pq.write_table(odd, tmp_path / "odd.parquet")
    message = "^nothing was published, because its manifest could not be read: column 'x': 'timest"
    with pytest.raises(DataError, match=message):
        bt.write(tmp_path / "odd.parquet", out, overwrite=True)
    assert shard_hashes(out) == before
