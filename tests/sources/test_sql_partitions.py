"""Partitions by keys of every type of every database are exactly the table."""

import logging
import random

import pytest

from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.sql.source import Sql
from tests.helpers.databases import keys, partitions
from tests.helpers.databases.partitions import check_partitions


def check(database, declared):
    """Check a table with enough rows and cuts that a cut out of order is seen."""
    check_partitions(database, declared, random.Random(declared), rows=(60,), partitions=(9,))


@pytest.fixture(scope="module")
def duckdb(tmp_path_factory):
    return partitions.duckdb(tmp_path_factory.mktemp("keys") / "keys.duckdb")


@pytest.fixture(scope="module")
def h2():
    return partitions.h2("keys")


@pytest.mark.parametrize("declared", keys.DUCKDB)
@pytest.mark.slow
def test_duckdb(duckdb, declared):
    check(duckdb, declared)


@pytest.mark.parametrize("declared", keys.POSTGRES)
def test_postgres(postgresql, declared):
    check(postgresql, declared)


@pytest.mark.parametrize("declared", keys.MARIADB)
def test_mariadb(maria, declared):
    check(maria, declared)


@pytest.mark.parametrize("declared", keys.H2)
def test_h2(h2, declared):
    check(h2, declared)


def read_numbers(source, column=0):
    return sorted(row for b in source.batches() for row in b.data.column(column).to_pylist())


@pytest.mark.parametrize("declared", keys.POSTGRES_UNORDERED)
def test_a_type_that_postgres_cannot_order_is_refused_with_its_column(postgresql, declared):
    values = keys.POSTGRES_UNORDERED[declared]
    rows = ", ".join(f"({value}, 1)" for value in values)
    postgresql.run("DROP TABLE IF EXISTS keyed", f"CREATE TABLE keyed (k {declared}, n int)")
    postgresql.run(f"INSERT INTO keyed VALUES {rows}")
    source = Sql(**postgresql.source, table="keyed", partition_column="k", partitions=2)
    with pytest.raises(UsageError, match=r"keyed cannot be cut by 'k', which is .*could not ident"):
        source.all_scans()


def test_by_jdbc_a_text_is_read_over_one_connection(maria, h2, caplog):
    for database in (maria, h2):
        database.run(
            "DROP TABLE IF EXISTS keyed",
            "CREATE TABLE keyed (k varchar(9), n int)",
            "INSERT INTO keyed VALUES ('a', 1), ('B', 2), (NULL, 3)",
        )
        key, number = ("K", "N") if database.upper else ("k", "n")
        options = {"table": "keyed", "partition_column": key, "columns": [number], "partitions": 9}
        with caplog.at_level(logging.WARNING):
            assert read_numbers(Sql(**database.source, **options)) == [1, 2, 3]
        assert f"is read over one connection: '{key}', which is " in caplog.text
        caplog.clear()


def test_a_key_that_an_outer_join_leaves_empty_is_not_lost(postgresql, h2, maria):
    for database in (postgresql, h2, maria):
        database.run(
            "DROP TABLE IF EXISTS keyed",
            "DROP TABLE IF EXISTS other",
            "CREATE TABLE keyed (n int NOT NULL)",
            "CREATE TABLE other (k int PRIMARY KEY)",
            "INSERT INTO keyed VALUES (1), (2), (3), (4), (5), (6)",
            "INSERT INTO other VALUES (2), (3), (4)",
        )
        query = "SELECT n, k FROM keyed LEFT JOIN other ON n = k"
        key = "K" if database.upper else "k"
        source = Sql(**database.source, query=query, partition_column=key, partitions=2)
        assert read_numbers(source) == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
def test_a_column_of_duckdb_named_like_the_number_of_a_row(duckdb):
    duckdb.run("CREATE OR REPLACE TABLE keyed AS SELECT range n, NULL::int AS rowid FROM range(20)")
    source = Sql(**duckdb.source, table="keyed", partitions=4, row_count=False)
    assert read_numbers(source) == list(range(20))
