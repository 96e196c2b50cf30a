"""Tables by odd names, and rows named by what finds them again."""

from __future__ import annotations

import dataclasses
import sqlite3

import pytest

from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.sql.source import Sql
from tests.helpers.databases import partitions
from tests.helpers.databases.partitions import KeyedDatabase
from tests.helpers.reading import rejects_of

ODD = 'Mixed"Case.tbl'


def numbers(database: KeyedDatabase, table: str) -> list[int]:
    source = Sql(**database.source, table=table, partitions=2)
    return sorted(row for b in source.batches() for row in b.data.column(0).to_pylist())


@pytest.mark.parametrize("driver", ["", "jdbc"])
def test_odd_names_of_postgres(postgres, driver):
    database = partitions.postgres(postgres, driver)
    for name, written in {
        ODD: (ODD, '"Mixed""Case.tbl"', 'public."Mixed""Case.tbl"'),
        "a.b.c.d": ("a.b.c.d", '"a.b.c.d"'),
        "it's; DROP": ("it's; DROP", '"it\'s; DROP"'),
    }.items():
        quoted = '"' + name.replace('"', '""') + '"'
        database.run(f"DROP TABLE IF EXISTS {quoted}", f"CREATE TABLE {quoted} (n int PRIMARY KEY)")
        database.run(f"INSERT INTO {quoted} VALUES (1), (2)")
        for table in written:
            assert numbers(database, table) == [1, 2]
    with pytest.raises(UsageError, match=r"table 'Mixed\"Case' is not in "):
        numbers(database, 'Mixed"Case')


@pytest.mark.parametrize("driver", ["", "jdbc"])
def test_names_of_postgres_follow_the_search_path(postgres, driver):
    database = partitions.postgres(postgres, driver)
    database.run(
        "DROP SCHEMA IF EXISTS pathed, other CASCADE",
        "CREATE SCHEMA pathed",
        "CREATE SCHEMA other",
        "DROP TABLE IF EXISTS here, twice",
        "CREATE TABLE here AS SELECT 1 AS n",
        "CREATE TABLE twice AS SELECT 2 AS n",
        "CREATE TABLE pathed.twice AS SELECT 3 AS n",
        "CREATE TABLE other.there AS SELECT 4 AS n",
    )

    def found(table, path):
        set_path = {"session_init": [f"SET search_path TO {path}"]} if path else {}
        return numbers(dataclasses.replace(database, source=database.source | set_path), table)

    assert found("twice", "") == found("twice", "public, pathed") == [2]
    assert found("twice", "pathed") == found("twice", "pathed, public") == [3]
    assert found("here", "pathed, public") == found("public.here", "pathed") == [1]
    assert found("other.there", "") == [4]
    for table, path in (("here", "pathed"), ("there", ""), ("there", "pathed, public")):
        with pytest.raises(UsageError, match=rf"table '{table}' is not in .*: did you mean '\w+\."):
            found(table, path)


@pytest.mark.slow
def test_odd_names_elsewhere(mariadb, tmp_path):
    databases = [partitions.sqlite(tmp_path / "names.db"), partitions.h2("names")]
    databases += [partitions.mariadb(mariadb, driver) for driver in ("mariadb", "mysql")]
    databases.append(partitions.duckdb(tmp_path / "names.duckdb"))
    for database in databases:
        quoted = f"`{ODD}`" if "username" in database.source else '"Mixed""Case.tbl"'
        database.run(f"DROP TABLE IF EXISTS {quoted}", f"CREATE TABLE {quoted} (n int PRIMARY KEY)")
        database.run(f"INSERT INTO {quoted} VALUES (1), (2)")
        assert numbers(database, ODD) == [1, 2]


def table_rejects(tmp_path, declared, *rows, **options):
    path = tmp_path / "rejects.db"
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE t ({declared}")
        for row in rows:
            connection.execute(f"INSERT INTO t VALUES ({row})")
    source = Sql(path, **({"table": "t"} | options))
    return rejects_of(source)


@pytest.mark.parametrize(
    ("declared", "row", "where", "number"),
    [
        ("x INT)", "'bad'", "", -1),
        ("id INTEGER PRIMARY KEY, x INT)", "7, 'bad'", " where id is 7", 7),
        ("id INT PRIMARY KEY, x INT)", "NULL, 'bad'", "", -1),
        ("id TEXT PRIMARY KEY, x INT)", "'k', 'bad'", "", -1),
    ],
)
def test_a_reject_of_sqlite_names_its_row(tmp_path, declared, row, where, number):
    (reject,) = table_rejects(tmp_path, declared, row)
    assert reject.message.startswith(f"column 'x' of t{where} is text 'bad'")
    assert (reject.unit, reject.row) == ("t", number)


def test_a_reject_of_the_key_itself_names_no_other_row(tmp_path):
    (reject,) = table_rejects(tmp_path, "id INT PRIMARY KEY, x INT)", "'k', 1", "2, 2")
    assert reject.message.startswith("column 'id' of t is text 'k', which int64 cannot hold")


def test_rows_without_a_key_do_not_move_for_their_names(tmp_path):
    path = tmp_path / "place.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x INT)")
        connection.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(9)])
    (batch,) = Sql(path, table="t").batches()
    assert (batch.origin, batch.data.schema.names) == (None, ["x"])
