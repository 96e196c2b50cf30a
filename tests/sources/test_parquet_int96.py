"""INT96 timestamps, as Spark, Hive and Impala write them: exact, or refused.

The values are told by DuckDB, which reads INT96 by itself, and from text.
"""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError, RejectedRows
from beam_tfrecord.sources.parquet.source import Parquet

NEAR = ["1970-01-01 00:00:00", "1677-09-22 01:02:03.000001", "2262-04-10 23:59:59.999999"]
FAR = ["9999-12-31 23:59:59.999999", "0001-01-01 00:00:00", "1677-09-20 00:00:00", "2262-04-12"]
EPOCH = datetime.datetime(1970, 1, 1)


def micros(text: str) -> int:
    """Return the microseconds since 1970 of a timestamp, without any of the libraries at test."""
    return (datetime.datetime.fromisoformat(text) - EPOCH) // datetime.timedelta(microseconds=1)


def timestamps(texts: list[str | None]) -> pa.Array:
    values = [None if text is None else micros(text) for text in texts]
    return pa.array(values, pa.timestamp("us"))


def write(path: Path, texts: list[str | None], **more: pa.Array) -> Path:
    table = pa.table({"at": timestamps(texts), **more})
    pq.write_table(table, path, use_deprecated_int96_timestamps=True, row_group_size=2)
    return path


def read(*paths: Path) -> tuple[pa.DataType, list[int | None]]:
    source = Parquet([str(path) for path in paths])
    at = [batch.data.column("at") for batch in source.batches()]
    return source.schema().field("at").type, [v for a in at for v in a.cast("int64").to_pylist()]


def test_nanoseconds_stay_where_they_hold_every_value(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", [*NEAR, None])
    assert read(path) == (pa.timestamp("ns"), [*(micros(text) * 1000 for text in NEAR), None])


@pytest.mark.parametrize("text", FAR)
def test_what_they_do_not_hold_is_read_in_microseconds(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "x.parquet", [*NEAR, None, text])
    unit, values = read(path)
    assert unit == pa.timestamp("us")
    assert values == [*map(micros, NEAR), None, micros(text)]


def test_duckdb_reads_the_same(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    path = write(tmp_path / "x.parquet", [*NEAR, *FAR])
    told = duckdb.sql(f"SELECT epoch_us(\"at\") FROM '{path}'").fetchall()
    assert read(path)[1] == [value for (value,) in told]


def test_one_file_decides_for_all(tmp_path: Path) -> None:
    near, far = write(tmp_path / "a.parquet", NEAR), write(tmp_path / "b.parquet", FAR)
    assert read(near, far) == (pa.timestamp("us"), [*map(micros, NEAR), *map(micros, FAR)])


def test_the_dataset_says_microseconds(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", [*NEAR, *FAR])
    bt.write(path, tmp_path / "out")
    found = sorted(row["at"] for row in bt.load(tmp_path / "out").rows())
    assert found == sorted(map(datetime.datetime.fromisoformat, [*NEAR, *FAR]))
    assert bt.load(tmp_path / "out").schema.to_arrow().field("at").type == pa.timestamp("us")


def test_inside_lists_and_structs(tmp_path: Path) -> None:
    lists = pa.array(
        [[micros(FAR[0])], None, [micros(NEAR[0]), None]], pa.list_(pa.timestamp("us"))
    )
    structs = pa.StructArray.from_arrays([timestamps([FAR[1], None, NEAR[1]])], ["in"])
    path = write(tmp_path / "x.parquet", NEAR, many=lists, struct=structs)
    (batch,) = Parquet(str(path)).batches()
    assert batch.data.column("many").type.value_type == pa.timestamp("us")
    assert batch.data.column("many").flatten().cast("int64").to_pylist() == [
        micros(FAR[0]),
        micros(NEAR[0]),
        None,
    ]
    assert batch.data.column("struct").field(0).cast("int64").to_pylist() == [
        micros(FAR[1]),
        None,
        micros(NEAR[1]),
    ]


def test_only_columns_that_are_read_decide(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", NEAR, far=timestamps(FAR[:3]))
    assert Parquet(str(path), columns=["at"]).schema().field("at").type == pa.timestamp("ns")


def write_nanos(path: Path, *columns: list[int]) -> Path:
    """Write INT96s of whole nanoseconds."""
    named = {f"c{i}": pa.array(values, pa.timestamp("ns")) for i, values in enumerate(columns)}
    pq.write_table(pa.table(named), path, use_deprecated_int96_timestamps=True)
    return path


def test_nanoseconds_are_never_cut(tmp_path: Path) -> None:
    fine = write_nanos(tmp_path / "a.parquet", [1_234_567_891, -1])
    (batch,) = Parquet(str(fine)).batches()
    assert batch.data.column(0).cast("int64").to_pylist() == [1_234_567_891, -1]
    far = pa.table({"c0": timestamps(FAR[:1])})
    pq.write_table(far, tmp_path / "b.parquet", use_deprecated_int96_timestamps=True)
    with pytest.raises(RejectedRows, match=r"'c0' is .* in row 0 of a.parquet, which is not times"):
        bt.write(tmp_path, tmp_path / "out")


def test_a_file_that_needs_two_units_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    write(path, [FAR[0]])
    # The nanosecond of the day are the first eight bytes of an INT96.
    nanos = ((23 * 60 + 59) * 60 + 59) * 10**9 + 999_999_000
    data = path.read_bytes()
    assert data.count(nanos.to_bytes(8, "little")) == 1
    path.write_bytes(data.replace(nanos.to_bytes(8, "little"), (nanos + 999).to_bytes(8, "little")))
    with pytest.raises(
        DataError, match="outside the years 1677 to 2262 and others finer than a mi"
    ):
        Parquet(str(path)).schema()


def test_days_beyond_all_units_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    write(path, [NEAR[0]])
    data, day = path.read_bytes(), (2_440_588).to_bytes(4, "little")
    assert data.count(day) == 1
    path.write_bytes(data.replace(day, (2**31 - 1).to_bytes(4, "little")))
    with pytest.raises(DataError, match="that microseconds since 1970 cannot count"):
        Parquet(str(path)).schema()
