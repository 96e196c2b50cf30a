"""Columns as memory-mapped arrays."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import UsageError


def write(directory, first=0):
    i = np.arange(first, first + 50)
    table = pa.table(
        {
            "id": pa.array(i, pa.int32()),
            "pair": pa.array([[n, n / 2] for n in i], pa.list_(pa.float32(), 2)),
            "tip": pa.array(i / 4, pa.float32(), mask=i % 5 == 0),
            "when": pa.array(i, pa.timestamp("s")),
            "note": [f"n{n}" for n in i],
        }
    )
    pq.write_table(table, directory / "in.parquet")
    bt.write(directory / "in.parquet", directory / "out", overwrite=True, shuffle=False)
    return directory / "out"


def test_columns_are_mapped_and_written_once(tmp_path):
    dataset = bt.load(write(tmp_path), columns=["pair", "id", "tip", "when"])
    arrays = dataset.memmap(tmp_path / "map", defaults={"tip": -1.0})
    assert all(isinstance(array, np.memmap) for array in arrays.values())
    for name, expected in dataset.numpy(defaults={"tip": -1.0}).items():
        assert arrays[name].dtype == expected.dtype
        np.testing.assert_array_equal(arrays[name], expected)
    assert not arrays["id"].flags.writeable
    times = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "map").iterdir()}
    dataset.memmap(tmp_path / "map", defaults={"tip": -1.0})
    assert times == {path.name: path.stat().st_mtime_ns for path in (tmp_path / "map").iterdir()}


@pytest.mark.parametrize("change", ["rows", "columns", "defaults"])
def test_what_is_not_the_same_is_written_anew(change, tmp_path):
    out = write(tmp_path)
    columns, default = ["id", "tip"], -1.0
    bt.load(out, columns=columns).memmap(tmp_path / "map", defaults={"tip": default})
    if change == "rows":
        out = write(tmp_path, first=7)
    elif change == "columns":
        columns = ["tip", "id"]
    else:
        default = -2.0
    dataset = bt.load(out, columns=columns)
    arrays = dataset.memmap(tmp_path / "map", defaults={"tip": default})
    assert list(arrays) == columns
    np.testing.assert_array_equal(arrays["id"], dataset.numpy(defaults={"tip": 0.0})["id"])
    assert default in arrays["tip"].tolist()


def test_what_cannot_be_mapped_is_named(tmp_path):
    out = write(tmp_path)
    with pytest.raises(UsageError, match="values of column 'note' have no fixed width: leave it"):
        bt.load(out, columns=["id", "note"]).memmap(tmp_path / "map")
    with pytest.raises(UsageError, match="column 'tip' has 10 missing values"):
        bt.load(out, columns=["tip"]).memmap(tmp_path / "map")
    assert not (tmp_path / "map" / "memmap.json").exists()
