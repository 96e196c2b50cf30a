"""INT96 timestamps, as Spark, Hive and Impala write them: exact, or refused.

The values are told by DuckDB, which reads INT96 by itself, and from text.
"""

from __future__ import annotations

import datetime
import errno
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError, RejectedRows, SchemaConflict
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.parquet import footer as open_module
from beam_tfrecord.sources.parquet import int96
from beam_tfrecord.sources.parquet.footer import side_by_side
from beam_tfrecord.sources.parquet.source import Parquet
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


def test_nanoseconds_stay_where_they_hold_every_value(tmp_path):
    path = write(tmp_path / "x.parquet", [*NEAR, None])
    assert read(path) == (pa.timestamp("ns"), [*(micros(text) * 1000 for text in NEAR), None])


@pytest.mark.parametrize("text", FAR)
def test_what_they_do_not_hold_is_read_in_microseconds(tmp_path, text):
    path = write(tmp_path / "x.parquet", [*NEAR, None, text])
    unit, values = read(path)
    assert unit == pa.timestamp("us")
    assert values == [*map(micros, NEAR), None, micros(text)]


@pytest.mark.slow
def test_duckdb_reads_the_same(tmp_path):
    path = write(tmp_path / "x.parquet", [*NEAR, *FAR])
    told = duckdb.sql(f"SELECT epoch_us(\"at\") FROM '{path}'").fetchall()
    assert read(path)[1] == [value for (value,) in told]


def test_one_file_decides_for_all(tmp_path):
    near, far = write(tmp_path / "a.parquet", NEAR), write(tmp_path / "b.parquet", FAR)
    assert read(near, far) == (pa.timestamp("us"), [*map(micros, NEAR), *map(micros, FAR)])


def test_the_dataset_says_microseconds(tmp_path):
    path = write(tmp_path / "x.parquet", [*NEAR, *FAR])
    bt.write(path, tmp_path / "out")
    found = sorted(row["at"] for row in bt.load(tmp_path / "out").rows())
    assert found == sorted(map(datetime.datetime.fromisoformat, [*NEAR, *FAR]))
    assert bt.load(tmp_path / "out").schema.to_arrow().field("at").type == pa.timestamp("us")


def test_inside_lists_and_structs(tmp_path):
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


US, NS = pa.timestamp("us"), pa.timestamp("ns")
NESTED = {
    "list": (pa.list_, lambda value: [value]),
    "large list": (pa.large_list, lambda value: [value]),
    "list view": (pa.list_view, lambda value: [value]),
    "large list view": (pa.large_list_view, lambda value: [value]),
    "fixed list": (lambda at: pa.list_(at, 1), lambda value: [value]),
    "struct": (lambda at: pa.struct({"n": pa.int64(), "a": at}), lambda at: {"n": 1, "a": at}),
    "map key": (lambda at: pa.map_(at, pa.string()), lambda value: [(value, "x")]),
    "map value": (lambda at: pa.map_(pa.string(), at), lambda value: [("x", value)]),
    "map": (lambda at: pa.map_(at, at), lambda value: [(value, value)]),
    "map of list": (lambda at: pa.map_(pa.string(), pa.list_(at)), lambda at: [("x", [at])]),
    "map of struct": (
        lambda at: pa.map_(pa.string(), pa.struct({"a": at})),
        lambda value: [("x", {"a": value})],
    ),
    "map of map": (
        lambda at: pa.map_(pa.string(), pa.map_(pa.int8(), at)),
        lambda value: [("x", [(1, value)])],
    ),
    "list of map": (
        lambda at: pa.list_(pa.map_(pa.string(), at)),
        lambda value: [[("x", value)]],
    ),
    "map in struct": (
        lambda at: pa.struct({"m": pa.map_(pa.string(), at)}),
        lambda value: {"m": [("x", value)]},
    ),
    "dictionary": (lambda at: at, lambda value: value),
}
if int(pa.__version__.partition(".")[0]) < 25:
    # Earlier versions cannot write list views to Parquet.
    del NESTED["list view"], NESTED["large list view"]
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
@pytest.mark.parametrize(
    ("unit", "value"), [(US, 0), (US, micros(FAR[0])), (NS, FINE_NS)], ids=["near", "far", "fine"]
)
@pytest.mark.parametrize("kind", NESTED)
def test_every_column_has_the_unit_that_holds_it(tmp_path, kind, unit, value, store_schema):
    table = write_nested(tmp_path / "x.parquet", kind, unit, value, store_schema=store_schema)
    batches = [batch.data for batch in Parquet(str(tmp_path / "x.parquet")).batches()]
    for name, expected in (("in", US if value == micros(FAR[0]) else NS), ("at", US)):
        array = pa.chunked_array([batch.column(name) for batch in batches])
        assert str(expected) in str(array.type)
        other = NS if expected == US else US
        assert str(other) not in str(array.type)
        assert list(map(instants, array)) == list(map(instants, table.column(name)))
    assert [row for batch in batches for row in batch.column("in.x").to_pylist()] == [1, 2, 3, 4]


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


@pytest.mark.slow
def test_the_dataset_holds_far_and_fine_columns_beside_a_map(tmp_path):
    columns = {
        "map": pa.array([[("k", 0)]], pa.map_(pa.string(), US)),
        "far": pa.array([micros(FAR[0])], US),
        "fine": pa.array([FINE_NS], NS),
    }
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table(columns), path, use_deprecated_int96_timestamps=True)
    assert duckdb.sql(f"SELECT epoch_us(far) FROM '{path}'").fetchall() == [(micros(FAR[0]),)]
    bt.write(path, tmp_path / "out")
    stored = bt.load(tmp_path / "out").arrow()
    assert stored.column("far").cast("int64").to_pylist() == [micros(FAR[0])]
    assert stored.column("fine").cast("int64").to_pylist() == [FINE_NS]
    assert str(stored.schema.field("map").type) == "map<string, timestamp[ns]>"


@pytest.mark.parametrize("columns", [["far"], ["at"], ["at", "far"], ["n", "far"], ["n"]])
def test_columns_decide_for_themselves_alone(tmp_path, columns):
    path = write(tmp_path / "x.parquet", NEAR, far=timestamps(FAR[:3]), n=pa.array([1, 2, 3]))
    source = Parquet(str(path), columns=columns)
    units = {"at": NS, "far": US, "n": pa.int64()}
    assert {field.name: field.type for field in source.schema()} == {n: units[n] for n in columns}
    table = pa.Table.from_batches([batch.data for batch in source.batches()])
    if "far" in columns:
        assert table.column("far").cast("int64").to_pylist() == list(map(micros, FAR[:3]))
    if "at" in columns:
        assert table.column("at").cast("int64").to_pylist() == [1000 * micros(t) for t in NEAR]


def test_files_that_lack_the_far_column_join(tmp_path):
    write(tmp_path / "a.parquet", NEAR)
    write(tmp_path / "b.parquet", NEAR, far=timestamps(FAR[:3]))
    source = Parquet(str(tmp_path), union=True)
    table = pa.Table.from_batches([batch.data for batch in source.batches()])
    assert (table.schema.field("at").type, table.schema.field("far").type) == (NS, US)
    assert table.column("far").cast("int64").to_pylist() == [None] * 3 + list(map(micros, FAR[:3]))


@pytest.mark.parametrize("kind", NESTED)
def test_one_nested_file_decides_for_all_or_they_are_refused(tmp_path, kind):
    far = write_nested(tmp_path / "b.parquet", kind, US, micros(FAR[0]))
    near = write_nested(tmp_path / "a.parquet", kind, US, micros(NEAR[1]))
    expected = list(map(instants, pa.chunked_array(near["in"].chunks + far["in"].chunks)))
    source = Parquet(str(tmp_path))
    if "view" in kind:
        with pytest.raises(SchemaConflict, match="change it to"):
            list(source.batches())
    else:
        found = [batch.data.column("in") for batch in source.batches()]
        assert list(map(instants, pa.chunked_array(found))) == expected
    write_nested(tmp_path / "a.parquet", kind, NS, FINE_NS)
    with pytest.raises(DataError, match=r"column 'in' is .* in a.parquet row 2|change it to"):
        list(source.batches())


def test_what_cannot_be_looked_at_never_means_nanoseconds(tmp_path, monkeypatch):
    path = write(tmp_path / "x.parquet", NEAR, far=pa.array([[micros(FAR[0])]] * 3, pa.list_(US)))
    monkeypatch.setattr(int96, "is_list", lambda _: False)
    with pytest.raises(DataError, match=r"column 'far' of x.parquet holds .* inside list<"):
        Parquet(str(path)).schema()


def test_a_damaged_page_is_told_by_the_look_at_it(tmp_path):
    path = write(tmp_path / "x.parquet", [*NEAR, FAR[0]])
    column = pq.ParquetFile(path).metadata.row_group(1).column(0)
    data = bytearray(path.read_bytes())
    at = column.dictionary_page_offset
    data[at : at + column.total_compressed_size] = bytes(column.total_compressed_size)
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"^cannot read row group 1 of x\.parquet \(.+\): write "):
        Parquet(str(path)).schema()


def test_columns_of_different_lengths_are_refused():
    long, short = (pa.record_batch({name: range(n)}) for name, n in (("a", 3), ("b", 2)))
    rows = side_by_side(InputFile("x", "x", 1), [long], iter([short.slice(2), short]))
    assert next(rows).to_pydict() == {"a": [0, 1], "b": [0, 1]}
    with pytest.raises(DataError, match="x is damaged, or changed while it was read"):
        next(rows)


def test_faults_of_the_system_while_looking_are_not_hidden(tmp_path, monkeypatch):
    path = write(tmp_path / "x.parquet", FAR)

    def fail(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(open_module, "_row_groups", fail)
    with pytest.raises(OSError, match="Input/output") as caught:
        Parquet(str(path)).schema()
    assert caught.value.errno == errno.EIO


def write_nanos(path, *columns):
    """Write INT96s of whole nanoseconds."""
    named = {f"c{i}": pa.array(values, pa.timestamp("ns")) for i, values in enumerate(columns)}
    pq.write_table(pa.table(named), path, use_deprecated_int96_timestamps=True)
    return path


def test_nanoseconds_are_never_cut(tmp_path):
    fine = write_nanos(tmp_path / "a.parquet", [1_234_567_891, -1])
    (batch,) = Parquet(str(fine)).batches()
    assert batch.data.column(0).cast("int64").to_pylist() == [1_234_567_891, -1]
    far = pa.table({"c0": timestamps(FAR[:1])})
    pq.write_table(far, tmp_path / "b.parquet", use_deprecated_int96_timestamps=True)
    with pytest.raises(RejectedRows, match=r"'c0' is .* in a.parquet row 0, which is not times"):
        bt.write(tmp_path, tmp_path / "out")


def test_a_file_that_needs_two_units_is_refused(tmp_path):
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


def test_days_beyond_all_units_are_refused(tmp_path):
    path = tmp_path / "x.parquet"
    write(path, [NEAR[0]])
    data, day = path.read_bytes(), (2_440_588).to_bytes(4, "little")
    assert data.count(day) == 1
    path.write_bytes(data.replace(day, (2**31 - 1).to_bytes(4, "little")))
    with pytest.raises(DataError, match="that microseconds since 1970 cannot count"):
        Parquet(str(path)).schema()
