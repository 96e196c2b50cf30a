"""The Parquet source: units, types and rows of real files, and files that are damaged."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_tfrecord.batch import table_of
from beam_tfrecord.errors import DataError, SchemaConflict, UsageError
from beam_tfrecord.sources import parquet as source_module
from beam_tfrecord.sources.base import Unit
from beam_tfrecord.sources.parquet import Parquet


def _write(path: Path, columns: Any, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    pq.write_table(table, path, **options)
    return path


def _units(source: Parquet) -> list[Unit]:
    return source.all_units(source.all_scans())


def _read(source: Parquet, **options: Any) -> pa.Table:
    return table_of(source.batches(**options), source.schema())


@pytest.fixture
def unit_bytes(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set the size of units."""
    return lambda size: monkeypatch.setattr(source_module, "UNIT_BYTES", size)


def _many_types() -> pa.Table:
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
            "pair": pa.array([[1.0, 2.0], [3.0, 4.0], None], pa.list_(pa.float32(), 2)),
            "struct": pa.array([{"x": 1, "y": None}, {"x": None, "y": "b"}, None]),
            "map": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64())),
        }
    )


def test_every_type_comes_back_as_it_was_written(tmp_path: Path) -> None:
    table = _many_types()
    result = _read(Parquet(_write(tmp_path / "a.parquet", table)))
    assert result.schema.names == table.schema.names
    assert result.schema.types == table.schema.types
    assert result.equals(table)


def test_dictionaries_are_read_as_values_unless_asked_for(tmp_path: Path) -> None:
    texts = pa.array(["a", "b", "a", None]).dictionary_encode()
    path = _write(tmp_path / "a.parquet", {"c": texts})
    source = Parquet(path)
    assert source.schema() == pa.schema([("c", pa.string())])
    assert _read(source)["c"].to_pylist() == ["a", "b", "a", None]
    kept = pa.schema([("c", pa.dictionary(pa.int32(), pa.string()))])
    (batch,) = source.read(_units(source)[0], kept)
    assert batch.data.schema == kept
    assert batch.data["c"].to_pylist() == ["a", "b", "a", None]


def test_units_are_neighbouring_row_groups(
    tmp_path: Path, unit_bytes: Callable[[int], None]
) -> None:
    rng = np.random.default_rng(0)
    numbers = pa.array(rng.integers(0, 2**60, 1000))
    path = _write(
        *(tmp_path / "a.parquet", {"x": numbers}),
        row_group_size=100,
        use_dictionary=False,
        compression="none",
    )
    sizes = pq.ParquetFile(path).metadata
    group_bytes = sizes.row_group(0).column(0).total_uncompressed_size
    unit_bytes(3 * group_bytes + 10)
    units = _units(Parquet(path))
    assert [(unit.name, unit.start, unit.stop, unit.rows) for unit in units] == [
        ("a.parquet:0", 0, 3, 300),
        ("a.parquet:1", 3, 6, 300),
        ("a.parquet:2", 6, 9, 300),
        ("a.parquet:3", 9, 10, 100),
    ]
    assert [unit.index for unit in units] == [0, 1, 2, 3]
    unit_bytes(1)
    assert [unit.rows for unit in _units(Parquet(path))] == [100] * 10
    unit_bytes(10**9)
    assert [unit.name for unit in _units(Parquet(path))] == ["a.parquet"]


def test_sizes_count_only_the_columns_that_are_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = {"x": rng.random(1000), "y": rng.random(1000).astype(np.float32)}
    path = _write(tmp_path / "a.parquet", table, compression="none", use_dictionary=False)
    both, one = (_units(Parquet(path, columns=c))[0].input_bytes for c in (None, ["y"]))
    assert 12_000 < both < 13_000
    assert 4_000 < one < 4_500


def test_estimate_of_encoded_bytes_is_near_the_truth(tmp_path: Path) -> None:
    native = pytest.importorskip("tensorflow").train
    count = 500
    columns = {
        "passenger_count": [i % 7 for i in range(count)],
        "fare": [float(i) / 3 for i in range(count)],
        "zone": [f"zone-{i}" for i in range(count)],
    }
    path = _write(tmp_path / "a.parquet", columns)
    true_bytes = 0
    for count, fare, zone in zip(*columns.values(), strict=True):
        feature = {
            "passenger_count": native.Feature(int64_list=native.Int64List(value=[count])),
            "fare": native.Feature(float_list=native.FloatList(value=[fare])),
            "zone": native.Feature(bytes_list=native.BytesList(value=[zone.encode()])),
        }
        example = native.Example(features=native.Features(feature=feature))
        true_bytes += 16 + len(example.SerializeToString())
    estimate = _units(Parquet(path))[0].encoded_bytes
    assert estimate == pytest.approx(true_bytes, rel=0.2)


@pytest.mark.parametrize("columns", [["c", "a"], ["b"]])
def test_projection_takes_columns_in_order(tmp_path: Path, columns: list[str]) -> None:
    table = {"a": [1, 2], "b": ["x", "y"], "c": [0.5, 1.5]}
    source = Parquet(_write(tmp_path / "a.parquet", table), columns=columns)
    result = _read(source)
    assert result.schema.names == columns
    assert result.to_pydict() == {name: table[name] for name in columns}


def test_projection_of_a_missing_column_names_those_there(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.parquet", {"a": [1], "b": [2]})
    with pytest.raises(UsageError, match="column 'z' is not in the input: it has a, b"):
        Parquet(path, columns=["a", "z"]).schema()


@pytest.mark.parametrize("columns", ["a", ["a", "b", "a"]])
def test_projection_must_be_a_list_of_distinct_names(columns: Any) -> None:
    with pytest.raises(UsageError):
        Parquet("a.parquet", columns=columns)


def test_names_with_dots_are_names(tmp_path: Path) -> None:
    struct = pa.array([{"b": 7}])
    table = pa.table([pa.array([1]), struct, pa.array([3])], names=["a.b", "a", "c.d.e"])
    source = Parquet(_write(tmp_path / "a.parquet", table), columns=["a.b", "c.d.e"])
    assert _read(source).to_pylist() == [{"a.b": 1, "c.d.e": 3}]


def test_columns_without_nulls_are_not_nullable(tmp_path: Path) -> None:
    table = {
        "full": [1, 2, 3, 4],
        "late": [1, 2, 3, None],
        "struct": [{"x": None}, {"x": 1}, {"x": 1}, {"x": 1}],
        "tight": [{"x": 0}, {"x": 1}, {"x": 1}, {"x": 1}],
        "list": [[1], [2], [3], [4]],
    }
    source = Parquet(_write(tmp_path / "a.parquet", table, row_group_size=2))
    nullable = {field.name: field.nullable for field in source.schema()}
    assert nullable == {"full": False, "late": True, "struct": True, "tight": False, "list": True}
    _write(tmp_path / "b.parquet", table, write_statistics=False)
    assert Parquet(tmp_path / "b.parquet").schema().field("full").nullable
    _write(tmp_path / "c.parquet", {name: [None] * 2 for name in table})
    both = Parquet([tmp_path / "a.parquet", tmp_path / "c.parquet"])
    assert all(field.nullable for field in both.schema())


def test_files_join_by_name_in_the_order_of_the_first(tmp_path: Path) -> None:
    _write(tmp_path / "a.parquet", {"x": pa.array([1], pa.int8()), "t": ["p"]})
    other = {"t": pa.array(["q"], pa.large_string()), "x": pa.array([2**40], pa.int64())}
    _write(tmp_path / "b.parquet", other)
    source = Parquet(tmp_path)
    assert [(f.name, f.type) for f in source.schema()] == [
        ("x", pa.int64()),
        ("t", pa.large_string()),
    ]
    assert _read(source).to_pylist() == [{"x": 1, "t": "p"}, {"x": 2**40, "t": "q"}]


def test_merge_does_not_depend_on_order(tmp_path: Path) -> None:
    for index, arrow in enumerate([pa.int8(), pa.uint8(), pa.int32()]):
        _write(tmp_path / f"{index}.parquet", {"x": pa.array([1], arrow)})
    source = Parquet(tmp_path)
    digests = [source.infer(scan) for scan in source.all_scans()]
    merged = [source.merge(order) for order in itertools.permutations(digests)]
    assert all(schema == merged[0] for schema in merged)
    assert merged[0].field("x").type == pa.int32()


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
            {"x": ["1"]},
            "column 'x' is string in b.parquet but int64 in a.parquet: pass --schema",
        ),
        (
            {"x": [1], "y": [1]},
            {"x": [1]},
            "column 'y' is in a.parquet but not in b.parquet: pass --union to fill it with nulls",
        ),
        (
            {"x": [1]},
            {"x": [1], "y": [1]},
            "column 'y' is in b.parquet but not in a.parquet: pass --union to fill it with nulls",
        ),
    ],
)
def test_files_that_disagree_are_named(
    tmp_path: Path, first: Any, second: Any, message: str
) -> None:
    _write(tmp_path / "a.parquet", first)
    _write(tmp_path / "b.parquet", second)
    with pytest.raises(SchemaConflict) as caught:
        Parquet(tmp_path).schema()
    assert str(caught.value) == message


def test_union_fills_missing_columns_with_nulls(tmp_path: Path) -> None:
    _write(tmp_path / "a.parquet", {"x": [1]})
    _write(tmp_path / "b.parquet", {"x": [2], "y": ["p"]})
    source = Parquet(tmp_path, union=True)
    assert source.schema() == pa.schema(
        [pa.field("x", pa.int64(), nullable=False), pa.field("y", pa.string())]
    )
    assert _read(source).to_pylist() == [{"x": 1, "y": None}, {"x": 2, "y": "p"}]


def test_given_schema_rejects_values_that_do_not_fit(tmp_path: Path) -> None:
    source = Parquet(_write(tmp_path / "a.parquet", {"x": [1, 300, 3, -1], "y": list("abcd")}))
    schema = pa.schema([("y", pa.string()), ("x", pa.uint8())])
    batches = list(source.read(_units(source)[0], schema, batch_rows=3))
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
        "column 'x' is 300 in row 1 of a.parquet, which is not uint8 exactly: correct --schema"
    )


def test_given_schema_that_needs_rounding_is_refused(tmp_path: Path) -> None:
    source = Parquet(_write(tmp_path / "a.parquet", {"x": [0.5]}))
    with pytest.raises(SchemaConflict, match=r"column 'x' is double in a\.parquet but float in"):
        list(source.read(_units(source)[0], pa.schema([("x", pa.float32())])))
    with pytest.raises(DataError, match=r"column 'z' of the schema is not in a\.parquet"):
        list(source.read(_units(source)[0], pa.schema([("z", pa.float32())])))


def test_partitions_become_columns(tmp_path: Path) -> None:
    _write(tmp_path / "t/year=2023/city=Oslo/a.parquet", {"x": [1, 2]})
    _write(tmp_path / "t/year=2024/city=__HIVE_DEFAULT_PARTITION__/a.parquet", {"x": [3]})
    source = Parquet(tmp_path / "t")
    assert source.schema().types == [pa.int64(), pa.int64(), pa.string()]
    assert _read(source).to_pylist() == [
        {"x": 1, "year": 2023, "city": "Oslo"},
        {"x": 2, "year": 2023, "city": "Oslo"},
        {"x": 3, "year": 2024, "city": None},
    ]
    assert [unit.name for unit in _units(source)] == [
        "year=2023/city=Oslo/a.parquet",
        "year=2024/city=__HIVE_DEFAULT_PARTITION__/a.parquet",
    ]
    only = Parquet(tmp_path / "t", columns=["year"])
    assert _read(only).to_pydict() == {"year": [2023, 2023, 2024]}


def test_partitions_agree_with_pyarrow(tmp_path: Path) -> None:
    table = pa.table({"x": range(6), "k": [3, 1, 2, 3, 1, 2], "name": list("a b/=")[:5] + ["ü"]})
    pq.write_to_dataset(table, tmp_path / "d", partition_cols=["k", "name"])
    ours = _read(Parquet(tmp_path / "d")).sort_by("x")
    assert ours.to_pylist() == table.select(["x", "k", "name"]).sort_by("x").to_pylist()


def test_column_in_file_and_path_is_refused(tmp_path: Path) -> None:
    _write(tmp_path / "x=1/a.parquet", {"x": [1], "y": [2]})
    with pytest.raises(SchemaConflict, match="column 'x' is both in the data and in the path"):
        Parquet(tmp_path).schema()
    assert _read(Parquet(tmp_path, columns=["y"])).to_pylist() == [{"y": 2}]


@pytest.mark.parametrize("groups", [0, 1])
def test_file_without_rows_is_one_unit_and_one_batch(tmp_path: Path, groups: int) -> None:
    schema = pa.schema([("x", pa.int64())])
    with pq.ParquetWriter(tmp_path / "a.parquet", schema) as writer:
        if groups:
            writer.write_table(schema.empty_table())
    source = Parquet(tmp_path / "a.parquet")
    (unit,) = _units(source)
    assert (unit.name, unit.rows, unit.input_bytes >= 0) == ("a.parquet", 0, True)
    (batch,) = source.batches()
    assert (batch.num_rows, batch.data.schema.types) == (0, [pa.int64()])
    assert batch.origin is not None
    assert batch.origin.unit == "a.parquet"


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pa.table([pa.array([1]), pa.array([2])], names=["x", "x"])
    with pytest.raises(DataError, match=r"a\.parquet has two columns named 'x'"):
        Parquet(_write(tmp_path / "a.parquet", table)).schema()


def _flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: b"id,name\n1,a\n" * 9,
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: data[:-60] + b"\xff" * 20 + data[-40:],
        lambda data: data[:-8] + b"\xff\xff\xff\x7fPAR1",
        lambda data: data[:-4] + b"PARE",
    ],
    ids=["empty", "text", "cut-end", "half", "footer", "length", "encrypted"],
)
def test_file_that_is_not_whole_is_named(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = _write(tmp_path / "trips 1.parquet", {"x": list(range(100))})
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError) as caught:
        Parquet(path).all_scans()
    message = str(caught.value)
    assert message.startswith("trips 1.parquet is not a whole parquet file (")
    assert message.endswith("): write it anew, or leave it out")
    assert "\n" not in message


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_damaged_page_is_named_by_its_row_group(tmp_path: Path, compression: str) -> None:
    path = _write(
        *(tmp_path / "a.parquet", {"x": list(range(1000)), "y": [str(i) for i in range(1000)]}),
        row_group_size=100,
        compression=compression,
        write_page_checksum=True,
    )
    column = pq.ParquetFile(path).metadata.row_group(7).column(1)
    at = column.data_page_offset + column.total_compressed_size // 2
    path.write_bytes(_flip(path.read_bytes(), at))
    source = Parquet(path)
    (unit,) = _units(source)
    with pytest.raises(DataError, match=r"^row group 7 of a\.parquet is damaged \(.+\): write the"):
        list(source.read(unit, source.schema(), batch_rows=64))
    assert Parquet(path, columns=["x"]).schema().names == ["x"]
    assert len(_read(Parquet(path, columns=["x"]))) == 1000


def test_damaged_page_header_is_named(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.parquet", {"x": list(range(1000))})
    path.write_bytes(_flip(path.read_bytes(), 4))
    source = Parquet(path)
    with pytest.raises(DataError, match=r"^row group 0 of a\.parquet is damaged"):
        list(source.batches())


def test_faults_of_the_system_stay_what_they_are(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.parquet", {"x": [1]})
    source = Parquet(path)
    (unit,), schema = _units(source), source.schema()
    path.unlink()
    with pytest.raises(FileNotFoundError):
        list(source.read(unit, schema))


def test_file_that_changed_since_planning_is_refused(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.parquet", {"x": [1, 2, 3]}, row_group_size=1)
    source = Parquet(path)
    (unit,), schema = _units(source), source.schema()
    for rows in ([1], [1, 2, 3, 4, 5]):
        _write(path, {"x": rows}, row_group_size=2)
        with pytest.raises(DataError, match=r"a\.parquet changed while it was read: run again"):
            list(source.read(unit, schema))


def test_memory_does_not_grow_with_the_unit(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = {"x": rng.integers(0, 2**62, 1_000_000), "y": rng.random(1_000_000)}
    path = _write(
        *(tmp_path / "a.parquet", table), row_group_size=10**6, compression="none"
    )
    source = Parquet(path)
    (unit,), schema = _units(source), source.schema()
    del table
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    held = [pool.bytes_allocated() - before for _ in source.read(unit, schema, batch_rows=16_384)]
    assert unit.input_bytes > 15_000_000
    assert max(held) < 8_000_000


def test_batch_size_is_kept_over_row_groups(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.parquet", {"x": list(range(100))}, row_group_size=7)
    sizes = [batch.num_rows for batch in Parquet(path).batches(batch_rows=32)]
    assert sizes == [32, 32, 32, 4]


def test_options_are_a_value(tmp_path: Path) -> None:
    source = Parquet([tmp_path / "a.parquet"], columns=["x"])
    assert source.paths == (str(tmp_path / "a.parquet"),)
    assert source == Parquet(str(tmp_path / "a.parquet"), columns=("x",))
    assert dataclasses.replace(source, union=True) != source
