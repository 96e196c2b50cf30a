"""The Parquet source: units, types and rows of one file."""

import numpy as np
import pyarrow as pa

from beam_tfrecord.sources.parquet import Parquet
from tests.helpers.reading import read_all, units_of
from tests.sources.made_parquet import write_parquet


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
