"""Arrays of databases as lists: of one dimension, from any bound on, and without odd moments."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

from beam_tfrecord.errors import UsageError
from beam_tfrecord.rows.batch import Reject
from beam_tfrecord.sources.sql.source import Sql
from tests.helpers.databases import partitions
from tests.helpers.databases.partitions import KeyedDatabase


@pytest.fixture(scope="module")
def postgresql(postgres):
    return partitions.postgres(postgres)


def read(database: KeyedDatabase, **options: Any) -> tuple[list[dict[str, Any]], list[Reject]]:
    source = Sql(**{**database.source, "arrays": "list", "table": "arrays", **options})
    scans = source.all_scans()
    (unit,) = source.all_units(scans)
    try:
        (batch,) = source.read(unit, source.schema(scans))
    finally:
        source.release()
    return sorted(batch.rows(), key=lambda row: row["id"]), list(batch.rejects)


def make(database, declared, *literals):
    rows = ", ".join(f"({number}, {literal})" for number, literal in enumerate(literals))
    database.run(
        "DROP TABLE IF EXISTS arrays",
        f"CREATE TABLE arrays (id int PRIMARY KEY, v {declared})",
        f"INSERT INTO arrays VALUES {rows}",
    )


@pytest.mark.parametrize(
    ("declared", "item", "values"),
    [("int[]", pa.int32(), [1, None, 2]), ("text[]", pa.string(), ["1", None, "2"])],
)
def test_arrays_of_postgres_begin_anywhere_and_have_one_dimension(
    postgresql, declared, item, values
):
    make(
        *(postgresql, declared, "'{1,NULL,2}'", "'[5:7]={1,NULL,2}'", "'[-1:1]={1,NULL,2}'"),
        *("'{}'", "NULL", "'{2}'"),
    )
    found, _ = read(postgresql)
    expected = [values, values, values, [], None, values[2:]]
    assert [row["v"] for row in found] == expected
    for literal, text in {
        "'{{1,2},{3,4}}'": "{{1,2},{3,4}}",
        "'[0:0][3:4]={{1,2}}'": "[0:0][3:4]={{1,2}}",
    }.items():
        make(postgresql, declared, literal)
        message = "}} has more than one dimension, so it is not a list: pass --types v=text"
        with pytest.raises(UsageError, match=message):
            read(postgresql)
        texts, none = read(postgresql, types={"v": "text"})
        assert ([row["v"] for row in texts], none) == ([text], [])


@pytest.mark.parametrize(
    ("declared", "bad", "good"),
    [
        ("date[]", "'{2024-01-01,infinity}'", "'{2024-01-01,NULL}'"),
        ("timestamp[]", "'{-infinity}'", "'{2024-01-01}'"),
        ("timestamptz[]", "'{infinity}'", "'{2024-01-01}'"),
        ("time[]", "'{24:00}'", "'{23:59:59.999999}'"),
    ],
)
def test_what_is_no_moment_is_none_inside_an_array_of_postgres(postgres, declared, bad, good):
    database = partitions.postgres(postgres)
    make(database, declared, good, bad, "NULL", "'{}'", good)
    found, (reject,) = read(database)
    assert [row["id"] for row in found] == [0, 2, 3, 4]
    assert found[0]["v"] == found[3]["v"]
    assert found[1]["v"] is None
    assert (reject.row, reject.column) == (1, "v")
    assert re.search(r"holds '(-?infinity|24:00:00)', which list<item: ", reject.message)


@pytest.mark.slow
def test_what_is_no_moment_is_none_at_any_depth_of_duckdb(tmp_path):
    database = partitions.duckdb(tmp_path / "arrays.duckdb")
    day, never = "DATE '2024-01-01'", "DATE 'infinity'"
    for declared, form in {
        "DATE[]": "[{}, NULL]",
        "DATE[2]": "[{}, NULL]",
        "DATE[][]": "[[], NULL, [{}]]",
        "STRUCT(a INT, d DATE)": "{{'a': 1, 'd': {}}}",
        "STRUCT(a INT, d DATE[])[]": "[{{'a': 1, 'd': [{}]}}, NULL]",
        "MAP(INT, DATE)": "MAP {{1: {}}}",
        "MAP(DATE, TIME)": "MAP {{{}: TIME '24:00:00'}}",
    }.items():
        is_time = "24:00" in form
        good = "MAP {DATE '2024-01-01': TIME '23:00:00'}" if is_time else form.format(day)
        make(database, declared, good, form.format(day if is_time else never), "NULL", good)
        found, (reject,) = read(database)
        assert [row["id"] for row in found] == [0, 2, 3]
        assert found[0]["v"] == found[2]["v"]
        assert (reject.row, found[1]["v"]) == (1, None)
