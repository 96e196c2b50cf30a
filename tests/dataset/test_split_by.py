"""The manifest says what splits follow from, which tells `verify` what a duplicate means."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt

# Each row twice, in splits of its own by column.
TABLE = pa.table({"id": [row // 2 for row in range(40)], "part": ["a", "b"] * 20})
SHARES = {"a": 0.5, "b": 0.5}


@pytest.fixture
def source(tmp_path):
    pq.write_table(TABLE, tmp_path / "in.parquet")
    return tmp_path / "in.parquet"


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("settings", "split_by"),
    [
        ({}, None),
        ({"splits": SHARES}, "bytes"),
        ({"splits": SHARES, "group": ["id"]}, "group"),
        ({"splits": SHARES, "key": ["id"]}, "group"),
        ({"split_column": "part"}, "column"),
    ],
)
def test_what_splits_follow_from(source, tmp_path, settings, split_by):
    manifest = bt.write(source, tmp_path / "out", **settings)
    assert manifest.split_by == split_by
    assert bt.verify(tmp_path / "out").faults == ()


@pytest.mark.slow
def test_splits_that_were_assigned_before(source, tmp_path):
    with bt.pipeline() as root:
        rows = root | bt.ReadFromParquet(source) | bt.AssignSplits(split_column="part")
        without = rows | bt.MapRows(lambda row: {"id": row["id"]})
        _ = without | bt.WriteToTFRecord(f"{tmp_path}/out/")
    assert bt.load(tmp_path / "out").manifest.split_by == "assigned"
    found = bt.verify(tmp_path / "out")
    # The rows differed where they were assigned: that their examples are equal is no fault.
    assert found.faults == ()
    assert found.notes == ("20 distinct examples are in more than one split",)
