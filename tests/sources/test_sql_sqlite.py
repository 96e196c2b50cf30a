"""SQLite: its types value by value, and the one moment that all rows are of."""

import contextlib
import dataclasses
import datetime
import sqlite3
import subprocess
import sys
import threading
from decimal import Decimal

import pyarrow as pa
import pytest

from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.sources.sql.source import Sql
from tests.helpers.reading import rows_in
from tests.sources.made_sql import make_database

INT64 = (-(2**63), 2**63 - 1)
US = pa.timestamp("us")

# Declared type, Arrow type, what is stored, and what comes out.
EXACT = [
    ("INTEGER", pa.int64(), [*INT64, 0], [*INT64, 0]),
    ("REAL", pa.float64(), [1e308, -5e-324, float("inf"), 3], [1e308, -5e-324, float("inf"), 3.0]),
    ("NUMERIC", pa.float64(), [2**53, 0.5], [2.0**53, 0.5]),
    ("VARCHAR(3)", pa.string(), ["", "longer", "naïve 🦊", "7"], ["", "longer", "naïve 🦊", "7"]),
    ("CLOB", pa.string(), ["x\0y"], ["x\0y"]),
    ("BLOB", pa.binary(), [b"", b"\0\xff"], [b"", b"\0\xff"]),
    ("BOOLEAN", pa.bool_(), [0, 1, "1"], [False, True, True]),
    (
        "DECIMAL(10,2)",
        pa.decimal128(10, 2),
        [12345678.91, -0.01, 5, "99999999.99"],
        [Decimal("12345678.91"), Decimal("-0.01"), Decimal("5.00"), Decimal("99999999.99")],
    ),
    (
        "DATE",
        pa.date32(),
        ["0001-01-01", "1582-10-10", "9999-12-31"],
        [datetime.date(1, 1, 1), datetime.date(1582, 10, 10), datetime.date(9999, 12, 31)],
    ),
    (
        "TIMESTAMP",
        US,
        ["2024-03-10 02:30:00.123456", "0001-01-01T00:00:00"],
        [datetime.datetime(2024, 3, 10, 2, 30, 0, 123456), datetime.datetime(1, 1, 1)],
    ),
    ("TIME", pa.time64("us"), ["23:59:59.999999"], [datetime.time(23, 59, 59, 999999)]),
    ("JSON", pa.string(), ['{"a": [1]}'], ['{"a": [1]}']),
    # No type is declared: that of all values.
    ("", pa.int64(), [1, 2], [1, 2]),
    ("", pa.float64(), [1, 2.5], [1.0, 2.5]),
    ("", pa.string(), ["x"], ["x"]),
    ("", pa.binary(), [b"x"], [b"x"]),
    ("", pa.null(), [], []),
]


def column(path, declared, values, **options):
    """Return the source of a table of one column, with a null at its end."""
    make_database(
        path / "a.db",
        f"CREATE TABLE t (id INTEGER PRIMARY KEY, c {declared})",
        rows=[*enumerate(values), (len(values), None)],
    )
    return Sql(path / "a.db", table="t", columns=["c"], **options)


@pytest.mark.parametrize(("declared", "arrow", "stored", "expected"), EXACT)
def test_values_come_back_exactly(tmp_path, declared, arrow, stored, expected):
    source = column(tmp_path, declared, stored)
    assert source.schema() == pa.schema([("c", arrow)])
    assert [row["c"] for row in rows_in(source.batches())] == [*expected, None]


# Declared type, a value that fits, one that does not, and what is said of it.
MISFITS = [
    ("INTEGER", 1, "abc", "is text 'abc', which int64 cannot hold: pass --types c=text"),
    ("INTEGER", 1, 1.5, "is real '1.5', which int64 cannot hold"),
    ("NUMERIC", 1, 2**53 + 1, "is integer '9007199254740993', which double cannot hold"),
    ("TEXT", "x", b"y", "is blob '79', which string cannot hold"),
    ("BLOB", b"x", "y", "is text 'y', which binary cannot hold"),
    ("BOOLEAN", 1, 2, "is integer '2', which bool cannot hold"),
    ("DECIMAL(4,2)", 1.25, 1.255, "is real '1.255', which decimal128(4, 2) cannot hold"),
    # Arrow makes 0 of a number that is 39 digits finer than the type.
    ("DECIMAL(38,19)", 0.5, 1e-58, "is real '1e-58', which decimal128(38, 19) cannot hold"),
    ("DATE", "2024-01-31", "2024-02-31", "is text '2024-02-31'"),
    ("TIMESTAMP", "2024-01-01 00:00:00", "2024-01-01 00:00:00.1234567", "is text"),
    ("TIMESTAMP", "2024-01-01 00:00:00", "2024-01-01T00:00:00+05:00", "is text"),
    ("TIME", "12:00:00", "24:00:00", "is text '24:00:00'"),
]


@pytest.mark.parametrize(("declared", "good", "bad", "message"), MISFITS)
def test_a_value_of_another_type_is_a_reject(tmp_path, declared, good, bad, message):
    source = column(tmp_path, declared, [good, bad, good])
    (scan,) = source.all_scans()
    (batch,) = source.read(source.units([scan])[0], source.merge([scan]))
    (reject,) = batch.rejects
    assert (reject.unit, reject.row, reject.column, reject.code) == ("t", 1, "c", "bad-value")
    assert reject.message.startswith(f"column 'c' of t where id is 1 {message}")
    assert batch.data.column(0).null_count == 1
    assert batch.num_rows == 3
    assert batch.origin is not None
    assert batch.origin.row_numbers(3).tolist() == [0, 2, 3]


@pytest.mark.parametrize(
    ("arrow", "good", "bad"),
    [
        ("float", [1.5, 2.0**-149, 2**24, 2**62], [0.1, 1e300, 1e-50, 16777217, 2**53 + 1]),
        ("halffloat", [1.5, 2048], [0.1, 1e300, 65520, 2049]),
    ],
)
def test_a_number_that_a_narrower_float_does_not_hold_is_a_reject(tmp_path, arrow, good, bad):
    source = column(tmp_path, "NUMERIC", [*bad, *good], types={"c": arrow})
    (scan,) = source.all_scans()
    (batch,) = source.read(source.units([scan])[0], source.merge([scan]))
    assert [reject.row for reject in batch.rejects] == list(range(len(bad)))
    assert batch.data.column(0).to_pylist() == [*good, None]
    exact = dataclasses.replace(source, where=f"id >= {len(bad)}")
    assert [row["c"] for row in rows_in(exact.batches())] == [*good, None]


def test_mixed_values_are_text_where_asked(tmp_path):
    source = column(tmp_path, "INTEGER", [1, "abc", 0.1, INT64[0]], types={"c": "text"})
    found = [row["c"] for row in rows_in(source.batches())]
    assert found == ["1", "abc", "0.1", str(INT64[0]), None]


def test_an_untyped_column_of_several_kinds_is_refused(tmp_path):
    source = column(tmp_path, "", [1, "abc"])
    message = "column 'c' of t is untyped: it holds values of several kinds: pass --types c=text"
    with pytest.raises(DataError, match=message):
        source.schema()


# Declared type, type that is asked for, what is stored, and the advice.
ADVICE = [
    ("", None, [1, b"x"], "pass --types c=bytes"),
    ("", "text", ["a", b"x"], "pass --types c=bytes"),
    ("TEXT", None, ["a", b"x"], "pass --types c=bytes"),
    ("INTEGER", None, [1, b"x"], "pass --types c=bytes"),
    ("INTEGER", None, [1, "x"], "pass --types c=text"),
    ("VARCHAR(9)", "float64", ["0.1"], "pass --types c=text"),
    ("TEXT", "date32", ["soon"], "pass --types c=text"),
]


@pytest.mark.parametrize(("declared", "asked", "values", "advice"), ADVICE)
def test_advice_for_a_value_helps(tmp_path, declared, asked, values, advice):
    source = column(tmp_path, declared, values, types={"c": asked} if asked else {})
    try:
        (said,) = {reject.message for batch in source.batches() for reject in batch.rejects}
    except DataError as refused:
        said = str(refused)
    assert said.endswith(f": {advice}")
    cured = dataclasses.replace(source, types={"c": advice.partition("=")[2]})
    assert len(rows_in(cured.batches())) == len(values) + 1


def test_text_that_is_no_unicode_is_told(tmp_path):
    make_database(
        tmp_path / "a.db", "CREATE TABLE t (c TEXT)", "INSERT INTO t VALUES (CAST(x'ff41' AS TEXT))"
    )
    with pytest.raises(DataError, match=r"column 'c' in a\.db .* not UTF-8: pass --types c=bytes"):
        list(Sql(tmp_path / "a.db", table="t").batches())
    source = Sql(tmp_path / "a.db", table="t", types={"c": "bytes"})
    assert rows_in(source.batches()) == [{"c": b"\xffA"}]


def test_views_and_tables_without_rowid(tmp_path):
    path = make_database(
        tmp_path / "a.db",
        "CREATE TABLE t (a TEXT, b INTEGER, PRIMARY KEY (a, b)) WITHOUT ROWID",
        "CREATE VIEW v AS SELECT b, a FROM t WHERE b > 1",
        rows=[(f"k{n % 3}", n) for n in range(9)],
    )
    assert sorted(row["b"] for row in rows_in(Sql(path, table="t").batches())) == list(range(9))
    assert sorted(row["b"] for row in rows_in(Sql(path, table="v").batches())) == list(range(2, 9))


@pytest.mark.parametrize("asked", [{"table": "v"}, {"query": "SELECT * FROM t"}])
def test_values_type_what_a_view_declares_as_blob(tmp_path, asked):
    path = make_database(
        tmp_path / "a.db",
        "CREATE TABLE t (number BLOB, word BLOB, bytes BLOB, unset BLOB)",
        "CREATE VIEW v AS SELECT * FROM t",
        rows=[(1.5, "x", b"y", None), (2, "z", None, None)],
    )
    batches = list(Sql(path, **asked).batches())
    assert rows_in(batches) == [
        {"number": 1.5, "word": "x", "bytes": b"y", "unset": None},
        {"number": 2.0, "word": "z", "bytes": None, "unset": None},
    ]
    types = [pa.float64(), pa.string(), pa.binary(), pa.binary()]
    assert batches[0].data.schema.types == types


@pytest.mark.parametrize("kind", ["VIRTUAL", "STORED"])
@pytest.mark.parametrize("asked", [{"table": "t"}, {"table": "v"}, {"query": "SELECT * FROM t"}])
def test_generated_columns_are_read(tmp_path, kind, asked):
    path = make_database(
        tmp_path / "a.db",
        f"CREATE TABLE t (id INTEGER PRIMARY KEY, b INT GENERATED ALWAYS AS (a * 2) {kind}, "
        f"a INT, rowid TEXT NOT NULL AS (a || 'x') {kind}, u REAL AS (a / 2.0) {kind})",
        "CREATE VIEW v AS SELECT * FROM t",
        rows=[(n, n + 1) for n in range(3)],
    )
    expected = [
        {"id": n, "b": 2 * n + 2, "a": n + 1, "rowid": f"{n + 1}x", "u": (n + 1) / 2}
        for n in range(3)
    ]
    assert rows_in(Sql(path, **asked).batches()) == expected
    chosen = Sql(path, columns=["b"], partition_column="b", ordered=True, **asked)
    assert rows_in(chosen.batches()) == [{"b": 2}, {"b": 4}, {"b": 6}]


# --- one moment


def grown(path, *, journal):
    """Return a connection that can write to a table of 1000 rows."""
    make_database(
        path,
        f"PRAGMA journal_mode={journal}",
        "CREATE TABLE t (id INTEGER PRIMARY KEY, x INTEGER)",
        rows=[(i, 0) for i in range(1000)],
    )
    return sqlite3.connect(path, timeout=0.1)


def test_a_job_among_writers_is_of_one_moment(tmp_path):
    writer = grown(tmp_path / "a.db", journal="wal")
    writer.close()
    done = threading.Event()
    totals = []

    def write():
        # Every commit moves one from a row to another: the sum of a moment is always 0.
        with sqlite3.connect(tmp_path / "a.db", timeout=5) as connection:
            number = 0
            while not done.is_set():
                connection.execute("UPDATE t SET x = x + 1 WHERE id = ?", (number % 1000,))
                connection.execute("UPDATE t SET x = x - 1 WHERE id = ?", (number * 7 % 1000,))
                connection.commit()
                number += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(5):
            source = Sql(tmp_path / "a.db", table="t")
            totals.append(sum(row["x"] for row in rows_in(source.batches())))
    finally:
        done.set()
        thread.join()
    assert totals == [0] * 5


def test_a_read_does_not_drop_other_locks_of_the_process(tmp_path):
    # A second copy of SQLite in the process, opening and closing the file, would drop them.
    path = make_database(tmp_path / "a.db", "CREATE TABLE t (x INTEGER)", rows=[(1,)])
    code = "import sqlite3, sys; sqlite3.connect(sys.argv[1], 0).execute('DELETE FROM t')"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE t SET x = 2")
        assert rows_in(Sql(path, table="t").batches()) == [{"x": 1}]
        done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
        assert "database is locked" in done.stderr
        writer.execute("COMMIT")
    assert rows_in(Sql(path, table="t").batches()) == [{"x": 2}]


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(UsageError, match=r"nope\.db': no such file: check the path"):
        Sql(f"sqlite:///{tmp_path}/nope.db", table="t").all_scans()
    (tmp_path / "x.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(DataError, match=r"cannot read x\.db \(file is not a database"):
        Sql(tmp_path / "x.db", table="t").all_scans()


def test_a_long_statement_is_given_up(tmp_path):
    path = make_database(tmp_path / "a.db", "CREATE TABLE t (x)")
    endless = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    source = Sql(path, query=f"SELECT COUNT(*) AS n FROM ({endless})", statement_timeout_s=0.2)
    with pytest.raises(UsageError, match=r"a\.db ran into the time limit: raise --statement-time"):
        source.all_scans()


def test_statements_at_the_start_of_a_session(tmp_path):
    path = make_database(tmp_path / "a.db", "CREATE TABLE t (x TEXT)", rows=[("A",), ("a",)])
    options = {"table": "t", "where": "x LIKE 'a'"}
    assert len(rows_in(Sql(path, **options).batches())) == 2
    session = ["PRAGMA case_sensitive_like=ON"]
    assert rows_in(Sql(path, session_init=session, **options).batches()) == [{"x": "a"}]


@pytest.mark.parametrize("form", ["{}", "sqlite:///{}", "sqlite:{}"])
def test_ways_to_name_a_file(tmp_path, form):
    path = make_database(tmp_path / "a b%.db", "CREATE TABLE t (x INTEGER)", rows=[(1,)])
    text = str(path) if form == "{}" else str(path).replace("%", "%25")
    assert rows_in(Sql(form.format(text), table="t").batches()) == [{"x": 1}]
