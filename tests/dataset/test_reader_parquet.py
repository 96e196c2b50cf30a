"""A staged Parquet dataset, opened like a written one."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError, UsageError
from tests.helpers.made_datasets import make_dataset

ROWS = 1000


def staged():
    i = np.arange(ROWS)
    return pa.table(
        {
            "id": pa.array(i, pa.int64()),
            "fare": pa.array(i / 8, pa.float64(), mask=i % 10 == 0),
            "tags": pa.array([[f"t{n}"] * (n % 3) for n in i]),
            "when": pa.array(1_600_000_000 + i, pa.timestamp("ms")),
        }
    )


@pytest.fixture
def stage(tmp_path):
    """Write two files of several row groups."""
    (tmp_path / "stage").mkdir()
    for number, rows in enumerate((slice(0, 300), slice(300, ROWS))):
        part = staged().slice(rows.start, rows.stop - rows.start)
        pq.write_table(part, tmp_path / "stage" / f"part-{number}.parquet", row_group_size=100)
    return tmp_path / "stage"


def test_rows_come_with_the_types_of_the_files(stage):
    dataset = bt.load(stage)
    assert len(dataset) == ROWS
    assert dataset.splits == {"data": ROWS}
    assert dataset.arrow().to_pydict() == staged().to_pydict()
    assert dataset.arrow().schema.types == staged().schema.types
    assert next(dataset.rows()) == staged().slice(0, 1).to_pylist()[0]
    assert bt.load(stage / "part-1.parquet").arrow()["id"].to_pylist() == list(range(300, ROWS))


def test_columns(stage):
    dataset = bt.load(stage, columns=["when", "id"])
    assert dataset.arrow().column_names == ["when", "id"]
    assert dataset.numpy()["id"].tolist() == list(range(ROWS))


def test_examples_are_those_that_write_makes(stage, tmp_path):
    bt.write(stage, tmp_path / "out", shuffle=False)
    assert list(bt.load(stage).examples()) == list(bt.load(tmp_path / "out").examples())


def test_there_is_one_split(stage):
    with pytest.raises(UsageError, match="split 'train' does not exist: the splits are data"):
        bt.load(stage, split="train")


def test_the_rejects_of_a_dataset_are_not_the_rows_of_its_directory(tmp_path):
    make_dataset(tmp_path / "all" / "one", pa.table({"x": [1]}), splits={"data": [0]})
    (tmp_path / "all" / "one" / "rejects").mkdir()
    pq.write_table(staged(), tmp_path / "all" / "one" / "rejects" / "rejects-00000.parquet")
    with pytest.raises(UsageError, match=r"did you mean '.*/all/one'\?"):
        bt.load(tmp_path / "all")
    assert len(bt.load(tmp_path / "all" / "one" / "rejects")) == ROWS


@pytest.mark.slow
def test_stages_in_one_directory_are_read_together(stage):
    for name in ("a", "b"):
        bt.extract(stage, stage.parent / "stages" / name)
    assert len(bt.load(stage.parent / "stages")) == 2 * ROWS


def test_a_value_that_no_example_holds_is_named(tmp_path):
    table = pa.table({"n": pa.array([1, 2**64 - 1], pa.uint64())})
    pq.write_table(table, tmp_path / "n.parquet")
    assert bt.load(tmp_path / "n.parquet").arrow().to_pydict() == table.to_pydict()
    with pytest.raises(DataError, match=r"n\.parquet row 1: value 18446744073709551615 of"):
        list(bt.load(tmp_path / "n.parquet").examples())


def test_numpy_names_the_column_of_lists_with_missing_numbers(tmp_path):
    pq.write_table(pa.table({"sizes": [[1, None], [2]]}), tmp_path / "a.parquet")
    with pytest.raises(UsageError, match="column 'sizes' has 1 missing values"):
        bt.load(tmp_path / "a.parquet").numpy()
