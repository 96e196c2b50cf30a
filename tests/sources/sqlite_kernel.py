"""The SQLite row kernel: the same rows, misfits and complaints as by way of Python values.

`test_sqlite_kernel` runs this file in a process of its own: where TensorFlow is loaded, the kernel
is not used.
"""

import gc
import sqlite3
import warnings

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_tfrecord.errors import DataError
from beam_tfrecord.sources.sql import sqlite as sql_sqlite
from beam_tfrecord.sources.sql import sqlite_columns
from beam_tfrecord.sources.sql.source import Sql
from beam_tfrecord.sources.sql.sqlite_columns import KernelConnection, can_read, library
from tests.helpers.effort import examples
from tests.helpers.reading import rows_in
from tests.sources.made_sql import make_database
from tests.sources.test_sql_sqlite import EXACT, MISFITS, column


def test_the_kernel_is_there():
    assert library() is not None


@pytest.fixture
def by_python(monkeypatch):
    """Have all rows come as Python values."""
    monkeypatch.setattr(sql_sqlite, "can_read", lambda columns: False)


@pytest.mark.usefixtures("by_python")
@pytest.mark.parametrize(("declared", "arrow", "stored", "expected"), EXACT)
def test_values_come_back_exactly_without_the_kernel(tmp_path, declared, arrow, stored, expected):
    source = column(tmp_path, declared, stored)
    assert source.schema() == pa.schema([("c", arrow)])
    assert [row["c"] for row in rows_in(source.batches())] == [*expected, None]


@pytest.mark.usefixtures("by_python")
@pytest.mark.parametrize(("declared", "good", "bad", "message"), MISFITS)
def test_misfits_are_rejects_without_the_kernel(tmp_path, declared, good, bad, message):
    source = column(tmp_path, declared, [good, bad, good])
    (scan,) = source.all_scans()
    (batch,) = source.read(source.units([scan])[0], source.merge([scan]))
    (reject,) = batch.rejects
    assert reject.message.startswith(f"column 'c' of t where id is 1 {message}")
    assert batch.num_rows == 3


VALUES = (
    st.none()
    | st.integers(-(2**63), 2**63 - 1)
    | st.sampled_from([2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, 0, 1, 2])
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"), max_size=5)
    | st.binary(max_size=5)
    | st.sampled_from(["2024-02-29", "2024-01-01 01:02:03.5", "01:02:03", "x" * 300])
)
TABLE = (
    "CREATE TABLE t (i INTEGER, r REAL, s TEXT, b BLOB, o BOOLEAN, d DATE, m TIMESTAMP, u TIME, "
    "j JSON)"
)


@settings(max_examples=examples(60), deadline=None)
@given(
    rows=st.lists(st.tuples(*[VALUES] * 9), max_size=30), batch_rows=st.sampled_from([1, 3, 1000])
)
def test_the_kernel_and_python_agree(tmp_path_factory, rows, batch_rows):
    path = make_database(tmp_path_factory.mktemp("t") / "a.db", TABLE, rows=rows)
    found = []
    for is_fast in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not is_fast:
                patch.setattr(sql_sqlite, "can_read", lambda columns: False)
            source = Sql(path, table="t")
            (scan,) = source.all_scans()
            assert is_fast is (sql_sqlite.can_read(scan.detail.columns))
            (unit,) = source.units([scan])
            batches = list(source.read(unit, source.merge([scan]), batch_rows=batch_rows))
            found.append(
                (
                    [batch.data for batch in batches],
                    [reject for batch in batches for reject in batch.rejects],
                )
            )
    assert found[0] == found[1]
    for data in found[0][0]:
        data.validate(full=True)


def test_a_column_of_decimals_is_left_to_python(tmp_path):
    source = column(tmp_path, "DECIMAL(4,2)", [1.25])
    assert not can_read(source.all_scans()[0].detail.columns)


def test_large_values_end_a_batch_early(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_columns, "_BATCH_BYTES", 2500)
    source = column(tmp_path, "TEXT", ["x" * 1000] * 9)
    (scan,) = source.all_scans()
    connection = source.engine.connect()
    columns = [*scan.detail.columns]
    sizes = [
        rows.data.num_rows for rows in connection.read('SELECT "c" FROM t', columns, batch_rows=100)
    ]
    connection.close()
    assert sizes == [3, 3, 3, 1]


def test_statements_that_fail_are_told_in_the_words_of_python(tmp_path):
    path = make_database(tmp_path / "a.db", "CREATE TABLE t (c INTEGER)", rows=[(1,), (2,)])
    connection = KernelConnection(f"file:{path}?mode=ro", busy_s=1)
    with pytest.raises(sqlite3.OperationalError, match="no such column: nope"):
        list(connection.read("SELECT nope FROM t", [], batch_rows=10))
    with pytest.raises(sqlite3.OperationalError, match="attempt to write a readonly database"):
        connection.execute("DELETE FROM t")
    connection.close()
    connection.close()
    with pytest.raises(sqlite3.OperationalError, match="unable to open database file"):
        KernelConnection(f"file:{tmp_path}/no/a.db?mode=ro", busy_s=1)


def test_a_reader_that_stops_early_leaves_nothing_open(tmp_path):
    source = column(tmp_path, "TEXT", ["x"] * 1000)
    (scan,) = source.all_scans()
    (unit,) = source.units([scan])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reading = source.read(unit, source.merge([scan]), batch_rows=10)
        next(reading)
        reading.close()
        gc.collect()
    with sqlite3.connect(tmp_path / "a.db", timeout=0.1) as writer:
        writer.execute("DELETE FROM t")


def test_a_text_in_the_middle_that_is_no_unicode(tmp_path):
    source = column(tmp_path, "TEXT", ["x"] * 50)
    with sqlite3.connect(tmp_path / "a.db") as writer:
        writer.execute("UPDATE t SET c = CAST(x'61ff' AS TEXT) WHERE id = 30")
    with pytest.raises(DataError, match=r"column 'c' in a\.db holds text that is not UTF-8"):
        list(source.batches(batch_rows=7))
