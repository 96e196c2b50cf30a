"""The Parquet source: units, types and rows of one file."""

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.parquet import source as source_module
from beam_tfrecord.sources.parquet.source import Parquet
from tests.helpers.reading import read_all, units_of
from tests.sources.made_parquet import write_parquet


@pytest.fixture
def unit_bytes(monkeypatch):
    """Set the size of units."""
    return lambda size: monkeypatch.setattr(source_module.Parquet, "unit_bytes", size)


def _many_types():
    return pa.table(
        {
            "int": pa.array([1, -2, None], pa.int16()),
            "big": pa.array([0, 2**64 - 1, None], pa.uint64()),
            "float": pa.array([0.5, float("inf"), None], pa.float32()),
            "flag": pa.array([True, False, None]),
            "text": pa.array(["é", "", None]),
            "large": pa.array(["é", "", None], pa.large_string()),
            "bytes": pa.array([b"\xff", b"", None]),
            "fixed": pa.array([b"ab", b"cd", None], pa.binary(2)),
            "day": pa.array([0, 19000, None], pa.date32()),
            "clock": pa.array([0, 1, None], pa.time64("us")),
            "instant": pa.array([0, -1, None], pa.timestamp("us", "UTC")),
            "span": pa.array([0, -1, None], pa.duration("ms")),
            "price": pa.array([1, 2, None], pa.decimal128(10, 2)),
            "list": pa.array([[1, None], [], None], pa.list_(pa.int64())),
            "nested": pa.array([[["a"], []], [], None], pa.list_(pa.list_(pa.string()))),
            "pair": pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], pa.list_(pa.float32(), 2)),
            "struct": pa.array([{"x": 1, "y": None}, {"x": None, "y": "b"}, None]),
            "map": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64())),
        }
    )


def test_every_type_comes_back_as_it_was_written(tmp_path):
    table = _many_types()
    result = read_all(Parquet(write_parquet(tmp_path / "a.parquet", table)))
    assert result.schema.names == table.schema.names
    assert result.schema.types == table.schema.types
    assert result.equals(table)


def test_dictionaries_are_read_as_values_unless_asked_for(tmp_path):
    texts = pa.array(["a", "b", "a", None]).dictionary_encode()
    path = write_parquet(tmp_path / "a.parquet", {"c": texts})
    source = Parquet(path)
    assert source.schema() == pa.schema([("c", pa.string())])
    assert read_all(source)["c"].to_pylist() == ["a", "b", "a", None]
    kept = pa.schema([("c", pa.dictionary(pa.int32(), pa.string()))])
    (batch,) = source.read(units_of(source)[0], kept)
    assert batch.data.schema == kept
    assert batch.data["c"].to_pylist() == ["a", "b", "a", None]


def test_units_are_neighbouring_row_groups(tmp_path, unit_bytes):
    rng = np.random.default_rng(0)
    numbers = pa.array(rng.integers(0, 2**60, 1000))
    path = write_parquet(
        *(tmp_path / "a.parquet", {"x": numbers}),
        row_group_size=100,
        use_dictionary=False,
        compression="none",
    )
    sizes = pq.ParquetFile(path).metadata
    group_bytes = sizes.row_group(0).column(0).total_uncompressed_size
    unit_bytes(3 * group_bytes + 10)
    units = units_of(Parquet(path))
    assert [(unit.name, unit.start, unit.stop, unit.rows) for unit in units] == [
        ("a.parquet:0", 0, 3, 300),
        ("a.parquet:1", 3, 6, 300),
        ("a.parquet:2", 6, 9, 300),
        ("a.parquet:3", 9, 10, 100),
    ]
    assert [unit.index for unit in units] == [0, 1, 2, 3]
    unit_bytes(1)
    assert [unit.rows for unit in units_of(Parquet(path))] == [100] * 10
    unit_bytes(10**9)
    assert [unit.name for unit in units_of(Parquet(path))] == ["a.parquet"]


def test_sizes_count_only_the_columns_that_are_read(tmp_path):
    rng = np.random.default_rng(0)
    table = {"x": rng.random(1000), "y": rng.random(1000).astype(np.float32)}
    path = write_parquet(tmp_path / "a.parquet", table, compression="none", use_dictionary=False)
    both, one = (units_of(Parquet(path, columns=c))[0].input_bytes for c in (None, ["y"]))
    assert 12_000 < both < 13_000
    assert 4_000 < one < 4_500


def test_estimate_of_encoded_bytes_is_near_the_truth(tmp_path):
    columns = {
        "passenger_count": [i % 7 for i in range(500)],
        "fare": [i / 3 for i in range(500)],
        "zone": [f"zone-{i}" for i in range(500)],
    }
    source = Parquet(write_parquet(tmp_path / "a.parquet", columns))
    # 41,890: what TensorFlow's own examples of these rows take, with 16 bytes of framing each.
    assert units_of(source)[0].encoded_bytes == pytest.approx(41_890, rel=0.2)


@pytest.mark.parametrize("columns", [["c", "a"], ["b"]])
def test_projection_takes_columns_in_order(tmp_path, columns):
    table = {"a": [1, 2], "b": ["x", "y"], "c": [0.5, 1.5]}
    source = Parquet(write_parquet(tmp_path / "a.parquet", table), columns=columns)
    result = read_all(source)
    assert result.schema.names == columns
    assert result.to_pydict() == {name: table[name] for name in columns}


def test_projection_of_a_missing_column_names_those_there(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", {"a": [1], "b": [2]})
    with pytest.raises(UsageError, match=r"'z' is not in the input: the columns are a, b$"):
        Parquet(path, columns=["a", "z"]).schema()


@pytest.mark.parametrize("columns", ["a", ["a", "b", "a"]])
def test_projection_must_be_a_list_of_distinct_names(columns):
    with pytest.raises(UsageError):
        Parquet("a.parquet", columns=columns)


def test_names_with_dots_are_names(tmp_path):
    struct = pa.array([{"b": 7}])
    table = pa.table([pa.array([1]), struct, pa.array([3])], names=["a.b", "a", "c.d.e"])
    source = Parquet(write_parquet(tmp_path / "a.parquet", table), columns=["a.b", "c.d.e"])
    assert read_all(source).to_pylist() == [{"a.b": 1, "c.d.e": 3}]


def test_columns_without_nulls_are_not_nullable(tmp_path):
    table = {
        "full": [1, 2, 3, 4],
        "late": [1, 2, 3, None],
        "struct": [{"x": None}, {"x": 1}, {"x": 1}, {"x": 1}],
        "tight": [{"x": 0, "y": None}, {"x": 1, "y": 1}, {"x": 1, "y": 1}, {"x": 1, "y": 1}],
        "list": [[1], [2], [3], [4]],
    }
    source = Parquet(write_parquet(tmp_path / "a.parquet", table, row_group_size=2))
    nullable = {field.name: field.nullable for field in source.schema()}
    assert nullable == {"full": False, "late": True, "struct": True, "tight": False, "list": True}
    write_parquet(tmp_path / "b.parquet", table, write_statistics=False)
    assert Parquet(tmp_path / "b.parquet").schema().field("full").nullable
    write_parquet(tmp_path / "c.parquet", {name: [None] * 2 for name in table})
    both = Parquet([tmp_path / "a.parquet", tmp_path / "c.parquet"])
    assert all(field.nullable for field in both.schema())


@pytest.mark.parametrize("groups", [0, 1])
def test_file_without_rows_is_one_unit_and_one_batch(tmp_path, groups):
    schema = pa.schema([("x", pa.int64())])
    with pq.ParquetWriter(tmp_path / "a.parquet", schema) as writer:
        if groups:
            writer.write_table(schema.empty_table())
    source = Parquet(tmp_path / "a.parquet")
    (unit,) = units_of(source)
    assert (unit.name, unit.rows, unit.input_bytes >= 0) == ("a.parquet", 0, True)
    (batch,) = source.batches()
    assert (batch.num_rows, batch.data.schema.types) == (0, [pa.int64()])
    assert batch.origin is not None
    assert batch.origin.unit == "a.parquet"


def test_memory_does_not_grow_with_the_unit(tmp_path):
    rng = np.random.default_rng(0)
    table = {"x": rng.integers(0, 2**62, 1_000_000), "y": rng.random(1_000_000)}
    path = write_parquet(*(tmp_path / "a.parquet", table), row_group_size=10**6, compression="none")
    source = Parquet(path)
    (unit,), schema = units_of(source), source.schema()
    del table
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    held = [pool.bytes_allocated() - before for _ in source.read(unit, schema, batch_rows=16_384)]
    assert unit.input_bytes > 15_000_000
    assert max(held) < 8_000_000


def test_batch_size_is_kept_over_row_groups(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", {"x": list(range(100))}, row_group_size=7)
    sizes = [batch.num_rows for batch in Parquet(path).batches(batch_rows=32)]
    assert sizes == [32, 32, 32, 4]


def test_options_are_a_value(tmp_path):
    source = Parquet([tmp_path / "a.parquet"], columns=["x"])
    assert source.paths == (str(tmp_path / "a.parquet"),)
    assert source == Parquet(str(tmp_path / "a.parquet"), columns=("x",))
    assert dataclasses.replace(source, union=True) != source
