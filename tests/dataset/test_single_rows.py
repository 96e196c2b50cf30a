"""Single rows of a dataset: the right ones, from many threads and processes, or an error."""

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError, UsageError

ROWS = 500


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    directory = tmp_path_factory.mktemp("rows")
    table = pa.table(
        {
            "id": pa.array(range(ROWS)),
            "text": [None if row % 7 == 0 else "x" * (row % 90) for row in range(ROWS)],
            "list": [list(range(row % 5)) for row in range(ROWS)],
        }
    )
    pq.write_table(table, directory / "in.parquet")
    bt.write(directory / "in.parquet", directory / "out", splits="a=0.7,b=0.3", shards=5)
    return directory / "out"


@pytest.fixture
def copied(dataset, tmp_path):
    return Path(shutil.copytree(dataset, tmp_path / "out"))


def test_rows_are_those_of_the_table(dataset):
    ds = bt.load(dataset)
    table = ds.arrow()
    indices = np.random.default_rng(0).integers(-ROWS, ROWS, 300)
    taken = ds.take(indices)
    assert taken.schema == table.schema
    assert taken.to_pylist() == table.take(pa.array(indices % ROWS)).to_pylist()
    assert ds[7] == table.slice(7, 1).to_pylist()[0]
    assert ds[-1] == table.slice(ROWS - 1, 1).to_pylist()[0]
    assert ds[480:520:3] == table.take(pa.array(range(480, 500, 3))).to_pylist()
    assert ds[10:5] == []
    assert list(ds) == table.to_pylist()
    assert ds.__getitems__([3, 3, 0]) == [ds[3], ds[3], ds[0]]


def test_rows_of_a_split_with_some_columns(dataset):
    ds = bt.load(dataset, split="b", columns=["text"])
    table = ds.arrow()
    assert (
        ds.take([len(ds) - 1, 0]).to_pylist() == table.take(pa.array([len(ds) - 1, 0])).to_pylist()
    )
    assert ds.take([]).schema == table.schema


def test_a_dataset_has_columns(dataset):
    with pytest.raises(UsageError, match=r"^columns is empty: name some, or leave it out"):
        bt.load(dataset, columns=[])


def test_a_row_that_does_not_exist(dataset):
    ds = bt.load(dataset)
    for index in (ROWS, -ROWS - 1):
        with pytest.raises(IndexError, match=f"row {index} does not exist: there are 500 rows"):
            ds[index]
    # These would be negative numbers in 64 bits.
    for indices in ([2**63], [2**64 - 1], np.array([2**64 - 2, 5], np.uint64)):
        with pytest.raises(IndexError, match=r"row (9,223|18,446),.* does not exist"):
            ds.take(indices)
    with pytest.raises(IndexError, match=r"row 18,446,744,073,709,551,615 does not exist"):
        ds[2**64 - 1]
    for dtype in (np.int8, np.uint8, np.uint64):
        assert ds.take(np.array([5, 100], dtype)).column("id").to_pylist() == [
            ds[5]["id"],
            ds[100]["id"],
        ]


@pytest.mark.parametrize(
    "indices", [3, [1.0, 2.0], np.array([True, False]), [[1, 2]], (row for row in range(3)), "12"]
)
def test_indices_are_integers(dataset, indices):
    with pytest.raises(TypeError, match="indices must be a list or an array of integers with one"):
        bt.load(dataset).take(indices)
    assert bt.load(dataset).take(np.array([1, 2], np.uint8)).num_rows == 2


def test_compressed_shards_and_shards_without_an_index_say_what_to_do(dataset, copied, tmp_path):
    bt.write(dataset.parent / "in.parquet", tmp_path / "gz", compression="gzip")
    assert not (tmp_path / "gz" / "_index").exists()
    with pytest.raises(UsageError, match="compressed shards can only be read one after the other"):
        bt.load(tmp_path / "gz")[0]
    shutil.rmtree(copied / "_index")
    with pytest.raises(UsageError, match=r"has no index.*: beam-tfrecord index"):
        bt.load(copied)[0]
    with pytest.raises(UsageError, match="rows of Parquet files can only be read"):
        bt.load(dataset.parent / "in.parquet")[0]


def test_an_index_of_another_shard_is_refused(copied):
    first, second = sorted((copied / "_index").iterdir())[:2]
    shutil.copyfile(second, first)
    with pytest.raises(DataError, match=r"the index of .* is that of another file"):
        bt.load(copied).take(range(ROWS))


def test_damage_names_file_and_offset(copied):
    ds = bt.load(copied)
    path = Path(ds.path(ds.shards[0]))
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    with pytest.raises(
        DataError, match=r"is damaged at byte 0 \(record 0\): the checksum of the pay"
    ):
        bt.load(copied)[0]
    os.truncate(path, len(data) - 3)
    with pytest.raises(DataError, match=r"the file ends within the records|has .* bytes"):
        bt.load(copied)[ds.shards[0].examples - 1]


def test_shards_that_were_exchanged_are_an_error(tmp_path):
    pq.write_table(pa.table({"id": range(1000, 1600)}), tmp_path / "in.parquet")
    bt.write(tmp_path / "in.parquet", tmp_path / "out", shards=2)
    # Records of equal sizes, so the sizes of files and records say nothing.
    one, other = sorted((tmp_path / "out").glob("*.tfrecord"))
    one.rename(tmp_path / "free")
    other.rename(one)
    (tmp_path / "free").rename(other)
    for row in range(0, 600, 7):
        with pytest.raises(DataError, match=r"00002.tfrecord.*the records do not fit the index"):
            bt.load(tmp_path / "out")[row]


def test_a_dataset_that_is_replaced_is_an_error(copied, dataset):
    ds = bt.load(copied)
    bt.write(dataset.parent / "in.parquet", copied, seed=5, shards=3, overwrite=True)
    with pytest.raises(DataError, match="was replaced or removed after it was opened"):
        ds[0]
