"""DuckDB: its types value by value, and its files."""

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from beam_tfrecord.errors import DataError
from beam_tfrecord.sources.sql.source import Sql
from tests.helpers.lazy import Lazy
from tests.helpers.reading import rows_in

duckdb = Lazy("duckdb")

pytestmark = pytest.mark.slow

UTC = datetime.UTC
DAY = datetime.date
MOMENT = datetime.datetime
HUGE = 2**127 - 1

# Type, Arrow type, literals in SQL, and what comes out; a null is added to each.
EXACT = [
    ("TINYINT", pa.int8(), ["-128"], [-128]),
    ("BIGINT", pa.int64(), ["-9223372036854775808"], [-(2**63)]),
    ("UBIGINT", pa.uint64(), ["18446744073709551615"], [2**64 - 1]),
    ("HUGEINT", pa.string(), [str(HUGE)], [str(HUGE)]),
    ("FLOAT", pa.float32(), ["'inf'", "0.5"], [float("inf"), 0.5]),
    ("DOUBLE", pa.float64(), ["0.1", "5e-324"], [0.1, 5e-324]),
    ("DECIMAL(38,10)", pa.decimal128(38, 10), ["0.0000000001"], [Decimal("0.0000000001")]),
    ("BOOLEAN", pa.bool_(), ["true", "false"], [True, False]),
    ("VARCHAR", pa.string(), ["''", "'naïve 🦊'"], ["", "naïve 🦊"]),
    ("BLOB", pa.binary(), ["'\\x00\\xFF'"], [b"\0\xff"]),
    ("DATE", pa.date32(), ["'0001-01-01'", "'1582-10-10'"], [DAY(1, 1, 1), DAY(1582, 10, 10)]),
    ("TIME", pa.time64("us"), ["'23:59:59.999999'"], [datetime.time(23, 59, 59, 999999)]),
    ("TIME WITH TIME ZONE", pa.string(), ["'12:00:00+05'"], ["12:00:00+05"]),
    (
        "TIMESTAMP",
        pa.timestamp("us"),
        ["'2024-03-10 02:30:00.123456'"],
        [MOMENT(2024, 3, 10, 2, 30, 0, 123456)],
    ),
    (
        "TIMESTAMP WITH TIME ZONE",
        pa.timestamp("us", "UTC"),
        ["'2024-03-10 02:30:00+05'"],
        [MOMENT(2024, 3, 9, 21, 30, tzinfo=UTC)],
    ),
    ("INTERVAL", pa.string(), ["'1 day 2 hours'"], ["1 day 02:00:00"]),
    (
        "UUID",
        pa.string(),
        ["'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'"],
        ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    ),
    ("ENUM('sad', 'ok')", pa.string(), ["'ok'"], ["ok"]),
    ("BIT", pa.string(), ["'101'"], ["101"]),
    (
        "STRUCT(a INTEGER, b VARCHAR)",
        pa.struct([("a", pa.int32()), ("b", pa.string())]),
        ["{'a': 1, 'b': NULL}"],
        [{"a": 1, "b": None}],
    ),
]


def make_database(path, *statements):
    connection = duckdb.connect(str(path))
    for statement in statements:
        connection.execute(statement)
    connection.close()
    return path


def column(folder, declared, literals, **options):
    rows = ", ".join(f"({n}, {text})" for n, text in enumerate([*literals, "NULL"]))
    path = make_database(
        folder / "a.duckdb",
        f"CREATE TABLE t (n INTEGER PRIMARY KEY, c {declared})",
        f"INSERT INTO t VALUES {rows}",
    )
    return Sql(path, table="t", columns=["c"], ordered=True, **options)


@pytest.mark.parametrize(("declared", "arrow", "literals", "expected"), EXACT)
def test_values_come_back_exactly(tmp_path, declared, arrow, literals, expected):
    source = column(tmp_path, declared, literals)
    assert source.schema() == pa.schema([("c", arrow)])
    assert [row["c"] for row in rows_in(source.batches())] == [*expected, None]


@pytest.mark.parametrize(
    ("declared", "shown"), [("DATE", "infinity"), ("TIMESTAMP", "-infinity"), ("TIME", "24:00:00")]
)
def test_what_arrow_cannot_hold_is_a_reject_or_text(tmp_path, declared, shown):
    source = column(tmp_path, declared, [f"'{shown}'"])
    (scan,) = source.all_scans()
    (batch,) = source.read(source.units([scan])[0], source.merge([scan]))
    assert [reject.value for reject in batch.rejects] == [shown]
    as_text = Sql(source.url, table="t", columns=["c"], types={"c": "text"}, ordered=True)
    assert rows_in(as_text.batches()) == [{"c": shown}, {"c": None}]


def test_arrays_are_refused_or_text_or_lists(tmp_path):
    refused = column(tmp_path, "INTEGER[]", ["[1, NULL, 3]", "[]"])
    with pytest.raises(DataError, match=r"column 'c' of t is INTEGER\[\]: an array is read with"):
        refused.schema()
    text = Sql(refused.url, table="t", columns=["c"], arrays="text", ordered=True)
    assert [row["c"] for row in rows_in(text.batches())] == ["[1, NULL, 3]", "[]", None]
    lists = Sql(refused.url, table="t", columns=["c"], arrays="list", ordered=True)
    assert [row["c"] for row in rows_in(lists.batches())] == [[1, None, 3], [], None]


def test_a_file_that_changed_is_not_read_on(tmp_path):
    path = make_database(tmp_path / "a.duckdb", "CREATE TABLE t AS SELECT range AS n FROM range(9)")
    source = Sql(path, table="t", partitions=2)
    (scan,) = source.all_scans()
    source.release()
    make_database(path, "INSERT INTO t SELECT range FROM range(100000)")
    with pytest.raises(DataError, match=r"a\.duckdb was changed while it was read"):
        list(source.read(source.units([scan])[0], source.merge([scan])))


def test_dates_that_python_cannot_hold_are_shown(tmp_path):
    path = tmp_path / "a.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT DATE '20000-01-01' AS d")
    source = Sql(path, table="t", types={"d": "timestamp[ns]"})
    (scan,) = source.all_scans()
    (batch,) = source.read(source.units([scan])[0], source.merge([scan]))
    (reject,) = batch.rejects
    assert reject.message == (
        "column 'd' of t is '20000-01-01', which timestamp[ns] cannot hold: pass --types d=text"
    )


def test_a_query_may_return_nulls_of_columns_that_have_none(tmp_path):
    path = tmp_path / "a.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n DATE NOT NULL)")
    assert [field.nullable for field in Sql(path, table="t").schema()] == [False, False]
    query = "SELECT a.id, b.n FROM t AS a LEFT JOIN t AS b ON b.id = a.id + 1"
    assert [field.nullable for field in Sql(path, query=query).schema()] == [True, True]
