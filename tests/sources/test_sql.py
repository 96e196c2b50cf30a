"""The SQL source over SQLite and DuckDB: partitions, numbers, order, drops, counts, complaints."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterator

import pyarrow as pa
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import BeamTFRecordError, DataError, TargetExists, UsageError
from beam_tfrecord.sources.sql import source as sql_read
from beam_tfrecord.sources.sql.database import ConnectionLost, Engine
from beam_tfrecord.sources.sql.source import Sql, read_partition
from beam_tfrecord.sources.sql.values import SqlColumn, SqlRows
from tests.helpers.lazy import Lazy
from tests.helpers.reading import rows_in
from tests.sources.made_sql import conditions, make_database

duckdb = Lazy("duckdb")


@pytest.fixture
def trips(tmp_path):
    """A file with 1000 trips, every tenth without a zone."""
    rows = [(i, i * 7 % 1000 / 8, None if i % 10 == 0 else f"z{i % 7}") for i in range(1000)]
    return make_database(
        tmp_path / "trips.db",
        "CREATE TABLE t (id INTEGER PRIMARY KEY, fare REAL, zone TEXT)",
        rows=rows,
    )


@pytest.fixture
def parts(tmp_path):
    """The same trips in DuckDB, which reads partitions; zones are numbers."""
    path = tmp_path / "parts.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, fare DOUBLE, zone INTEGER)")
        connection.execute(
            "INSERT INTO t SELECT i, i * 7 % 1000 / 8, CASE WHEN i % 10 > 0 THEN i % 7 END "
            "FROM range(1000) AS n(i)"
        )
    return f"duckdb:///{path}"


# --- partitions


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "rowid"),
        ({"ordered": True}, '"id"'),
        ({"where": "id >= 0"}, '"id"'),
        ({"partition_column": "id"}, '"id"'),
    ],
)
def test_a_table_is_cut_by_the_position_of_its_rows_or_by_its_key(parts, options, name):
    assert conditions(Sql(parts, table="t", partitions=3, **options)) == [
        (f"{name} < 333", 333),
        (f"{name} >= 333 AND {name} < 666", 333),
        (f"{name} >= 666", 334),
    ]


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_rows_without_a_key_count_among_the_connections(parts, most):
    source = Sql(parts, table="t", partition_column="zone", partitions=4, max_connections=most)
    found = conditions(source)
    assert len(found) <= most
    assert sum(count or 0 for _, count in found) == 1000


def test_a_query_is_partitioned_too(parts):
    query = "SELECT id, fare * 2 AS twice FROM t WHERE zone = 3 -- only these;"
    source = Sql(parts, query=query, partition_column="id", partitions=3)
    assert [rows for _, rows in conditions(source)] == [42, 43, 43, 0]
    expected = [i for i in range(1000) if i % 7 == 3 and i % 10]
    assert sorted(row["id"] for row in rows_in(source.batches())) == expected
    assert source.schema() == pa.schema([("id", pa.int64()), ("twice", pa.float64())])


def test_where_and_columns_are_left_to_the_database(trips):
    source = Sql(trips, table="t", where="id < 3 OR id = 7", columns=["zone", "id"])
    assert rows_in(source.batches()) == [
        {"zone": None, "id": 0},
        {"zone": "z1", "id": 1},
        {"zone": "z2", "id": 2},
        {"zone": "z0", "id": 7},
    ]


def test_lost_rows_between_partitions_are_seen(parts, monkeypatch):
    monkeypatch.setattr(
        "beam_tfrecord.sources.sql.plan.ranges", lambda name, cuts, **_: [f"{name} > 5"]
    )
    message = "the partitions of t hold 994 rows but it has 1,000"
    with pytest.raises(DataError, match=message):
        Sql(parts, table="t", partitions=2).all_scans()


# --- numbers, places and order


def test_a_key_of_integers_numbers_the_rows(parts):
    for partitions in (1, 4):
        source = Sql(parts, table="t", partitions=partitions, columns=["zone"])
        found = []
        for batch in source.batches(batch_rows=64):
            assert batch.origin is not None
            assert batch.origin.unit == "t"
            assert batch.data.schema.names == ["zone"]
            found += batch.origin.row_numbers(batch.num_rows).tolist()
        assert found == list(range(1000))


@pytest.mark.slow
def test_source_order_is_that_of_the_key(parts, tmp_path):
    for name, options in {"direct": {}, "exchange": {"shards": 3}}.items():
        out = tmp_path / name
        asked = {"query": "SELECT -id AS id FROM t", "partition_column": "id", "partitions": 3}
        bt.write(parts, out, shuffle=False, source_options=asked, **options)
        assert [row["id"] for row in bt.load(out).rows()] == list(range(-999, 1))


# --- the manifest, and being done already


@pytest.mark.slow
def test_a_database_is_never_taken_for_done(trips, tmp_path):
    out = tmp_path / "out"
    manifest = bt.write(trips, out, source_options={"table": "t"})
    assert manifest.fingerprint == ""
    assert manifest.source == {
        "kind": "sql",
        "files": [{"path": "trips.db", "bytes": trips.stat().st_size}],
        "table": "t",
        "snapshot": "one snapshot",
    }
    with pytest.raises(TargetExists, match=r"another output \(the input may have changed: a data"):
        bt.write(trips, out, source_options={"table": "t"})
    again = bt.write(trips, out, overwrite=True, source_options={"table": "t"})
    assert again == manifest


def test_plan_tells_the_rows_and_holds_nothing(parts, tmp_path):
    planned = bt.plan(parts, tmp_path / "out", source_options={"table": "t", "partitions": 4})
    assert planned["input"]["rows"] == 1000
    assert planned["units"] == 4
    assert planned["place"] == "origin"
    assert planned["passes"] == ["ask the catalog and count", "read and encode"]
    query = {"query": "SELECT fare FROM t"}
    assert bt.plan(parts, tmp_path / "out", source_options=query)["place"] == "bytes"
    assert sql_read._holders == {}


def test_a_unit_does_not_grow_with_the_number_of_partitions(parts):
    sizes = []
    for partitions in (2, 20):
        source = Sql(parts, table="t", partitions=partitions)
        units = source.all_units(source.all_scans())
        source.release()
        assert len(units) == partitions
        sizes.append(max(len(pickle.dumps(unit)) for unit in units))
    assert sizes[1] < sizes[0] + 100


# --- dropped connections and counts


class Flaky(Engine):
    """An engine whose connections return some batches of numbers each, and break on demand."""

    def __init__(self, *attempts):
        self.attempts = list(attempts)
        self.snapshots = []

    address = "flaky"

    def connect(self, *, snapshot=""):
        self.snapshots.append(snapshot)
        return FlakyConnection(*self.attempts.pop(0))


class FlakyConnection:
    def __init__(self, numbers, breaks):
        self._numbers, self._breaks = numbers, breaks

    def fetch(self, sql):
        assert sql == 'SELECT COUNT(*) FROM "t"'
        return [(len(self._numbers),)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def read(self, sql: str, columns: object, *, batch_rows: int) -> Iterator[SqlRows]:
        for start in range(0, len(self._numbers), 3):
            yield numbered(self._numbers[start : start + 3])
        if self._breaks:
            raise ConnectionLost("server closed the connection unexpectedly")


def numbered(numbers):
    return SqlRows(pa.record_batch({"n": pa.array(numbers, pa.int64())}))


def read_flaky(monkeypatch, tmp_path, *attempts, snapshot="token"):
    monkeypatch.setattr(sql_read, "FIRST_PAUSE_S", 0)
    path = tmp_path / "f.db"
    if not path.exists():
        make_database(path, "CREATE TABLE t (n INTEGER)", rows=[(i,) for i in range(10)])
    (scan,) = Sql(path, table="t").all_scans()
    columns = [SqlColumn("n", "INTEGER", pa.int64(), True, '"n"')]
    engine = Flaky(*attempts)
    plan = dataclasses.replace(scan.detail, snapshot=snapshot)
    found = list(read_partition(engine, plan, columns, batch_rows=4))
    assert set(engine.snapshots) == {snapshot}
    assert not engine.attempts
    return [n for rows in found for n in rows.data.column(0).to_pylist()]


def test_a_dropped_connection_doubles_no_row(monkeypatch, tmp_path):
    every = range(10)
    broken = [(every[:stop], True) for stop in (0, 3, 9, 6)]
    found = read_flaky(monkeypatch, tmp_path, *broken, (every, False))
    assert found == list(range(10))


def test_another_order_after_a_drop_is_seen(monkeypatch, tmp_path):
    every = list(range(10))
    with pytest.raises(DataError, match="then came in another order"):
        read_flaky(monkeypatch, tmp_path, (every[:9], True), (every[::-1], False))


def test_drops_without_end_are_reported(monkeypatch, tmp_path):
    with pytest.raises(DataError, match="the connection to flaky dropped 6 times: server closed"):
        read_flaky(monkeypatch, tmp_path, *[(range(3), True)] * 6)


@pytest.mark.parametrize("count", [9, 11])
def test_another_count_of_rows_is_seen(monkeypatch, tmp_path, count):
    with pytest.raises(DataError, match=rf"gave {count} rows but 10 were counted"):
        read_flaky(monkeypatch, tmp_path, (range(count), False))


def test_without_a_snapshot_a_partition_is_of_one_moment_or_fails(monkeypatch, tmp_path):
    # Others added two rows after the plan, and the first attempt broke before it gave any.
    attempts = [(range(0), True), (range(12), False)]
    found = read_flaky(monkeypatch, tmp_path, *attempts, snapshot="")
    assert found == list(range(12))
    with pytest.raises(DataError, match="the snapshot it read is gone"):
        read_flaky(monkeypatch, tmp_path, (range(9), True), (range(12), False), snapshot="")


# --- complaints


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "pass --table or --query, to say what to read"),
        ({"table": "t", "query": "SELECT 1"}, "pass --table or --query, not both"),
        ({"table": "t", "partitions": 0}, "--partitions 0 is less than 1"),
        ({"table": "t", "columns": "id"}, "columns 'id' is one string"),
        ({"table": "t", "types": {"a": "what"}}, "'what' is not a type"),
    ],
)
def test_options_that_do_not_fit(options, message):
    with pytest.raises(UsageError, match=message):
        Sql("sqlite:///a.db", **options)


def test_without_a_table_the_tables_are_listed(trips):
    with pytest.raises(UsageError, match=r"to say what to read: the tables are t$"):
        Sql(trips)


def test_an_unknown_database_is_refused_without_connecting():
    with pytest.raises(UsageError, match="cannot read 'mongodb://'"):
        Sql("mongodb://host/x", table="t")
    with pytest.raises(UsageError, match="2 databases: read one at a time"):
        Sql(["a.db", "b.db"], table="t")


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"table": "T2"}, UsageError, "table 'T2' is not in trips.db: did you mean 't'"),
        (
            {"table": "t", "columns": ["nope"]},
            UsageError,
            "column 'nope' of --columns is not in the input: the columns are id, fare, zone",
        ),
        (
            {"table": "t", "partition_column": "nope"},
            UsageError,
            "column 'nope' of --partition-column is not in the input: the columns are id, fare",
        ),
        ({"table": "t", "where": "nope = 1"}, UsageError, "no such column: nope: correct --where$"),
        ({"query": "DELETE FROM t"}, UsageError, "correct --query, which has to be one SELECT$"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(trips, options, kind, message):
    with pytest.raises(BeamTFRecordError, match=message) as caught:
        Sql(trips, **options).all_scans()
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)
