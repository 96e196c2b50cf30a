"""The Parquet source over several files: schemas that differ, partitions, a given schema."""

import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_tfrecord.errors import DataError, SchemaConflict
from beam_tfrecord.sources.parquet import Parquet
from tests.helpers.reading import read_all, units_of
from tests.sources.made_parquet import write_parquet


def test_files_join_by_name_in_the_order_of_the_first(tmp_path):
    write_parquet(tmp_path / "a.parquet", {"x": pa.array([1], pa.int8()), "t": ["p"]})
    other = {"t": pa.array(["q"], pa.large_string()), "x": pa.array([2**40], pa.int64())}
    write_parquet(tmp_path / "b.parquet", other)
    source = Parquet(tmp_path)
    assert [(f.name, f.type) for f in source.schema()] == [
        ("x", pa.int64()),
        ("t", pa.large_string()),
    ]
    assert read_all(source).to_pylist() == [{"x": 1, "t": "p"}, {"x": 2**40, "t": "q"}]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (
            {"x": [1]},
            {"x": [1.5]},
            "column 'x' is double in b.parquet but int64 in a.parquet: pass --schema",
        ),
        (
            {"x": [1]},
            {"x": [1], "y": [1]},
            "column 'y' is in b.parquet but not in a.parquet: pass --union to fill it with nulls",
        ),
    ],
)
def test_files_that_disagree_are_named(tmp_path, first, second, message):
    write_parquet(tmp_path / "a.parquet", first)
    write_parquet(tmp_path / "b.parquet", second)
    with pytest.raises(SchemaConflict) as caught:
        Parquet(tmp_path).schema()
    assert str(caught.value) == message


def test_given_schema_rejects_values_that_do_not_fit(tmp_path):
    source = Parquet(
        write_parquet(tmp_path / "a.parquet", {"x": [1, 300, 3, -1], "y": list("abcd")})
    )
    schema = pa.schema([("y", pa.string()), ("x", pa.uint8())])
    batches = list(source.read(units_of(source)[0], schema, batch_rows=3))
    rows = [batch.origin.row_numbers(batch.num_rows).tolist() for batch in batches if batch.origin]
    assert rows == [[0, 2], []]
    assert [row for batch in batches for row in batch.rows()] == [
        {"y": "a", "x": 1},
        {"y": "c", "x": 3},
    ]
    rejects = [reject for batch in batches for reject in batch.rejects]
    assert [(r.unit, r.row, r.column, r.code, r.value) for r in rejects] == [
        ("a.parquet", 1, "x", "bad-value", "300"),
        ("a.parquet", 3, "x", "bad-value", "-1"),
    ]
    assert rejects[0].message == (
        "column 'x' is 300 in a.parquet row 1, which is not uint8 exactly: correct --schema"
    )


def test_given_schema_that_needs_rounding_is_refused(tmp_path):
    source = Parquet(write_parquet(tmp_path / "a.parquet", {"x": [0.5]}))
    with pytest.raises(SchemaConflict, match=r"column 'x' is double in a\.parquet but float in"):
        list(source.read(units_of(source)[0], pa.schema([("x", pa.float32())])))
    with pytest.raises(DataError, match=r"column 'z' of the schema is not in a\.parquet"):
        list(source.read(units_of(source)[0], pa.schema([("z", pa.float32())])))


def test_partitions_agree_with_pyarrow(tmp_path):
    days = [datetime.date(2024, 2, 29 - number % 2) for number in range(6)]
    table = pa.table({"x": range(6), "k": [3, 1, 2, 3, 1, 2], "name": [*"a b/=", "ü"], "day": days})
    pq.write_to_dataset(table, tmp_path / "d", partition_cols=["k", "name", "day"])
    ours = read_all(Parquet(tmp_path / "d")).sort_by("x")
    assert ours.to_pylist() == table.sort_by("x").to_pylist()


@pytest.mark.parametrize("name", ["2024-02-30", "20240229", "2024-2-29"])
def test_partitions_that_are_no_dates_are_text(tmp_path, name):
    write_parquet(tmp_path / f"day={name}" / "a.parquet", {"x": [1]})
    write_parquet(tmp_path / "day=2024-01-01" / "a.parquet", {"x": [1]})
    assert Parquet(tmp_path).schema().field("day").type == pa.string()


def test_column_in_file_and_path_is_refused(tmp_path):
    write_parquet(tmp_path / "x=1/a.parquet", {"x": [1], "y": [2]})
    with pytest.raises(SchemaConflict, match="column 'x' is both in the data and in the path"):
        Parquet(tmp_path).schema()
    assert read_all(Parquet(tmp_path, columns=["y"])).to_pylist() == [{"y": 2}]
