"""INT96 timestamps, as Spark, Hive and Impala write them: exact microseconds, or refused.

The values are told by DuckDB, which reads INT96 by itself, and from text.
"""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError
from beam_tfrecord.sources.parquet import Parquet
from tests.helpers.lazy import Lazy

duckdb = Lazy("duckdb")

NEAR = ["1970-01-01 00:00:00", "1677-09-22 01:02:03.000001", "2262-04-10 23:59:59.999999"]
FAR = ["9999-12-31 23:59:59.999999", "0001-01-01 00:00:00", "1677-09-20 00:00:00", "2262-04-12"]
EPOCH = datetime.datetime(1970, 1, 1)


def micros(text):
    """Return the microseconds since 1970 of a timestamp, without any of the libraries at test."""
    return (datetime.datetime.fromisoformat(text) - EPOCH) // datetime.timedelta(microseconds=1)


def timestamps(texts):
    values = [None if text is None else micros(text) for text in texts]
    return pa.array(values, pa.timestamp("us"))


def write(path, texts, **more):
    table = pa.table({"at": timestamps(texts), **more})
    pq.write_table(table, path, use_deprecated_int96_timestamps=True, row_group_size=2)
    return path


def read(*paths: Path) -> tuple[pa.DataType, list[int | None]]:
    source = Parquet([str(path) for path in paths])
    at = [batch.data.column("at") for batch in source.batches()]
    return source.schema().field("at").type, [v for a in at for v in a.cast("int64").to_pylist()]


@pytest.mark.parametrize("text", [NEAR[0], *FAR])
def test_they_are_read_in_microseconds(tmp_path, text):
    path = write(tmp_path / "x.parquet", [*NEAR, None, text])
    assert read(path) == (pa.timestamp("us"), [*map(micros, NEAR), None, micros(text)])


@pytest.mark.slow
def test_duckdb_reads_the_same(tmp_path):
    path = write(tmp_path / "x.parquet", [*NEAR, *FAR])
    told = duckdb.sql(f"SELECT epoch_us(\"at\") FROM '{path}'").fetchall()
    assert read(path)[1] == [value for (value,) in told]


def test_the_dataset_says_microseconds(tmp_path):
    path = write(tmp_path / "x.parquet", [*NEAR, *FAR])
    bt.write(path, tmp_path / "out")
    found = sorted(row["at"] for row in bt.load(tmp_path / "out").rows())
    assert found == sorted(map(datetime.datetime.fromisoformat, [*NEAR, *FAR]))
    assert bt.load(tmp_path / "out").schema.to_arrow().field("at").type == pa.timestamp("us")


US, NS = pa.timestamp("us"), pa.timestamp("ns")
NESTED = {
    "list": (pa.list_, lambda value: [value]),
    "fixed list": (lambda at: pa.list_(at, 1), lambda value: [value]),
    "struct": (lambda at: pa.struct({"n": pa.int64(), "a": at}), lambda at: {"n": 1, "a": at}),
    "map key": (lambda at: pa.map_(at, pa.string()), lambda value: [(value, "x")]),
    "map": (lambda at: pa.map_(at, at), lambda value: [(value, value)]),
    "map of struct": (
        lambda at: pa.map_(pa.string(), pa.struct({"a": at})),
        lambda value: [("x", {"a": value})],
    ),
    "map in struct": (
        lambda at: pa.struct({"m": pa.map_(pa.string(), at)}),
        lambda value: {"m": [("x", value)]},
    ),
    "dictionary": (lambda at: at, lambda value: value),
}
FINE_NS = 1_500_000_000_000_000_001


def write_nested(path, kind, unit, value, **options):
    """Write a column of a kind, and one that is far, beside one whose dictionaries cut batches."""
    arrow, wrap = NESTED[kind]
    rows = [wrap(0), None, wrap(value), wrap(0)]
    nested = pa.array([wrap(0) if "fixed" in kind and r is None else r for r in rows], arrow(unit))
    table = pa.table(
        {
            "word": pa.array(["x", "y", "x", "z"]).dictionary_encode(),
            "in": nested.dictionary_encode() if kind == "dictionary" else nested,
            "in.x": pa.array([1, 2, 3, 4]),
            "at": timestamps(["1970-01-01", None, FAR[0], FAR[1]]),
        }
    )
    pq.write_table(table, path, use_deprecated_int96_timestamps=True, row_group_size=3, **options)
    return table


@pytest.mark.parametrize("store_schema", [True, False])
@pytest.mark.parametrize("value", [0, micros(FAR[0])], ids=["near", "far"])
@pytest.mark.parametrize("kind", NESTED)
def test_they_are_read_in_any_column(tmp_path, kind, value, store_schema):
    table = write_nested(tmp_path / "x.parquet", kind, US, value, store_schema=store_schema)
    batches = [batch.data for batch in Parquet(str(tmp_path / "x.parquet")).batches()]
    for name in ("in", "at"):
        array = pa.chunked_array([batch.column(name) for batch in batches])
        assert str(US) in str(array.type)
        assert list(map(instants, array)) == list(map(instants, table.column(name)))
    assert [row for batch in batches for row in batch.column("in.x").to_pylist()] == [1, 2, 3, 4]


@pytest.mark.parametrize("kind", NESTED)
def test_what_is_finer_than_microseconds_is_refused_in_any_column(tmp_path, kind):
    write_nested(tmp_path / "x.parquet", kind, NS, FINE_NS)
    source = Parquet(str(tmp_path / "x.parquet"))
    with pytest.raises(DataError, match=r"'in' of x\.parquet holds an INT96 timestamp that is"):
        list(source.batches())
    others = Parquet(str(tmp_path / "x.parquet"), columns=["at", "in.x"])
    assert sum(batch.num_rows for batch in others.batches()) == 4


@pytest.mark.skipif(
    int(pa.__version__.partition(".")[0]) < 25, reason="cannot write list views to Parquet"
)
def test_those_in_list_views_are_refused(tmp_path):
    views = pa.array([[0]], pa.list_view(US))
    pq.write_table(
        pa.table({"in": views}), tmp_path / "x.parquet", use_deprecated_int96_timestamps=True
    )
    with pytest.raises(DataError, match=r"'in' of x\.parquet holds .* or in a list view: leave"):
        list(Parquet(str(tmp_path / "x.parquet")).batches())


def instants(scalar):
    """Return a value with its timestamps as whole nanoseconds since 1970."""
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.DictionaryScalar):
        return instants(scalar.value)
    if isinstance(scalar, pa.TimestampScalar):
        return scalar.value * {"us": 1000, "ns": 1}[scalar.type.unit]
    if isinstance(scalar, pa.StructScalar):
        return [instants(value) for value in scalar.values()]
    if pa.types.is_nested(scalar.type):
        return [instants(value) for value in scalar.values]
    return scalar.as_py()


def test_a_damaged_page_is_told(tmp_path):
    path = write(tmp_path / "x.parquet", [*NEAR, FAR[0]])
    column = pq.ParquetFile(path).metadata.row_group(1).column(0)
    data = bytearray(path.read_bytes())
    at = column.dictionary_page_offset
    data[at : at + column.total_compressed_size] = bytes(column.total_compressed_size)
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"^cannot read x\.parquet from row 0 on \(.+\): write "):
        read(path)


def test_days_beyond_microseconds_are_refused(tmp_path):
    path = tmp_path / "x.parquet"
    write(path, [NEAR[0]])
    data, day = path.read_bytes(), (2_440_588).to_bytes(4, "little")
    assert data.count(day) == 1
    path.write_bytes(data.replace(day, (2**31 - 1).to_bytes(4, "little")))
    with pytest.raises(DataError, match=r"'at' of x\.parquet holds .* too far from 1970"):
        read(path)
