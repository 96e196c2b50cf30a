"""A given schema settles what Parquet files disagree about, exactly or not at all."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt


@pytest.fixture
def files(tmp_path):
    pq.write_table(pa.table({"x": [1, 2**53 + 1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": [1.5, 2.5]}), tmp_path / "b.parquet")
    return tmp_path


@pytest.mark.parametrize(
    ("arrow", "rows", "refused"),
    [("double", [1.0, 1.5, 2.5], "9007199254740993"), ("int64", [1, 2**53 + 1], "1.5")],
)
def test_values_are_exact_or_rejected(files, arrow, rows, refused):
    schema = bt.Schema((bt.Feature("x", arrow),))
    bt.write(files / "*.parquet", files / "out", schema=schema, shuffle=False, max_rejects="any")
    assert [row["x"] for row in bt.load(files / "out").rows()] == rows
    rejects = pq.read_table(files / "out" / "rejects")
    assert rejects["value"].to_pylist()[0] == refused
