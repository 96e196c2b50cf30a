"""What publishing refuses, and what it leaves of others."""

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError, TargetExists
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


def sink(prefix, **options):
    """Return a function that writes one row to a file prefix in a directory."""

    def write(out):
        with bt.pipeline() as p:
            rows = p | beam.Create([{"id": 7}])
            rows | bt.WriteToTFRecord(f"{out}/{prefix}", num_shards=1, **options)

    return write


def directory(out):
    bt.write(pa.table({"id": [1, 2]}), out)


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        (sink("data", file_name_suffix=".tfrecord"), directory, "data-00000-of-00001.tfrecord"),
        (directory, sink("data"), "_index/idx-data-00000-of-00001"),
        (
            sink("a", shard_name_template="-b-SS"),
            sink("a-b", shard_name_template="-SS", overwrite=True),
            "a-b-00",
        ),
    ],
)
def test_no_dataset_takes_the_files_of_another_in_its_directory(tmp_path, first, second, shared):
    first(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(TargetExists, match=f"nothing was published: '{shared}' is a file of ano"):
        second(tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    sink("other")(tmp_path)
