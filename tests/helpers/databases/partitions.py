"""Databases with tables of keys of every type, and a check that partitions are exactly a table.

The rows of a table are numbered; what the partitions hold is compared with what one plain query
returns. Rows are not counted by the code under test, so that nothing else can notice a fault.
"""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beam_tfrecord.sources.sql.database import store_password
from beam_tfrecord.sources.sql.plan import make_plan
from beam_tfrecord.sources.sql.source import Sql, release_snapshots
from tests.helpers.databases import jdbc_mariadb, keys
from tests.helpers.databases.jdbc_database import Database
from tests.helpers.databases.jdbc_drivers import H2, MARIADB, MYSQL, POSTGRES, driver_jars
from tests.helpers.databases.postgres import PASSWORD


@dataclasses.dataclass(frozen=True)
class KeyedDatabase:
    """A database to make tables in, and a driver to read them with.

    Attributes:
        types: Literals of keys, by declared type.
        run: Runs statements that write.
        source: Arguments of `Sql`, with the URL as ``paths``.
        after: Statements after the rows are in, such as ``ANALYZE``; a table gets one of them.
        upper: True where the database writes names that are not quoted in capitals.
    """

    types: Mapping[str, Sequence[str]]
    run: Callable[..., None]
    source: Mapping[str, Any]
    after: Sequence[str] = ("",)
    upper: bool = False


def check_partitions(
    database, declared, chance, *, rows=(3, 20, 90), partitions=(2, 3, 5, 8), is_read=False
):
    """Make a table with a key of a type, and compare its partitions with the table.

    Args:
        database: Where to make it.
        declared: The type of the key.
        chance: Chooses the rows, and how they are read.
        rows: Numbers of rows with a key, of which one is chosen.
        partitions: Numbers of partitions, of which one is chosen.
        is_read: Also read the partitions as a job does.

    Returns:
        The number of partitions.

    Raises:
        AssertionError: A row is missing, or is there twice.
    """
    literals = database.types[declared]
    count = chance.choice(rows)
    picked = [chance.choice(literals) for _ in range(count)]
    nulls = chance.choice((0, 1, count // 4))
    picked += ["NULL"] * nulls
    chance.shuffle(picked)
    needed = " NOT NULL" if not nulls and chance.random() < 0.5 else ""
    made = ", ".join(f"({key}, {number})" for number, key in enumerate(picked))
    after = chance.choice(database.after)
    database.run(
        "DROP TABLE IF EXISTS keyed",
        f"CREATE TABLE keyed (k {declared}{needed}, n int)",
        f"INSERT INTO keyed VALUES {made}",
        *([after] if after else []),
    )
    form = chance.choice(("table", "table", "query", "where"))
    expected = list(range(len(picked)))
    asked = {"table": "keyed"}
    if form == "query":
        asked = {"query": "SELECT k, n FROM keyed"}
    elif form == "where":
        asked["where"] = "n % 3 > 0"
        expected = [number for number in expected if number % 3]
    key, number = ("K", "N") if database.upper else ("k", "n")
    source = Sql(
        **asked,
        **database.source,
        partition_column=key,
        partitions=chance.choice(partitions),
        columns=[number],
        row_count=False,
        ordered=chance.random() < 0.3,
    )
    try:
        # One connection for all partitions: a reader of its own for each costs more than the rest.
        with source.engine.connect() as connection:
            plan = make_plan(connection, source, source.columns)
            asked_for = [
                plan.relation.select(number, partition.condition) for partition in plan.partitions
            ]
            found = [n for sql in asked_for for (n,) in connection.fetch(sql)]
        if is_read:
            found = [n for batch in source.batches() for n in batch.data.column(0).to_pylist()]
    finally:
        release_snapshots()
    assert sorted(found) == expected, (declared, form, after, asked_for)
    return len(asked_for)


def sqlite(path):
    """Return a SQLite file."""

    def run(*statements):
        connection = sqlite3.connect(path)
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()

    return KeyedDatabase({}, run, {"paths": str(path)})


def duckdb(path):
    """Return a DuckDB file."""
    import duckdb as driver

    def run(*statements):
        with driver.connect(str(path)) as connection:
            for statement in statements:
                connection.execute(statement)

    source = {"paths": f"duckdb:///{path}", "arrays": "text"}
    return KeyedDatabase(keys.DUCKDB, run, source)


_POSTGRES_TYPES = (
    "DROP TABLE IF EXISTS keyed, one CASCADE",
    "DROP TYPE IF EXISTS mood CASCADE",
    "DROP TYPE IF EXISTS pair CASCADE",
    "DROP DOMAIN IF EXISTS small CASCADE",
    "CREATE TYPE mood AS ENUM ('sad', 'ok', 'Happy', 'so')",
    "CREATE TYPE pair AS (a int, b text)",
    "CREATE DOMAIN small AS int",
    "CREATE COLLATION IF NOT EXISTS no_case "
    "(provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
)


def postgres(server, driver=""):
    """Return a PostgreSQL server, read natively or through its JDBC driver."""
    server.run(*_POSTGRES_TYPES)
    source = {"paths": server.url, "arrays": "text"}
    store_password(server.url, PASSWORD)
    if driver:
        source["paths"] = f"jdbc:postgresql://127.0.0.1:{server.port}/postgres"
        source |= {"jars": driver_jars(POSTGRES), "username": "tester"}
        source["properties"] = {"password": PASSWORD}
    return KeyedDatabase(keys.POSTGRES, server.run, source, ("", "ANALYZE keyed"))


def mariadb(server, driver):
    """Return a MariaDB server, read through the driver ``mariadb`` or ``mysql``."""
    secret = {"password": jdbc_mariadb.PASSWORD}
    maker = Database(
        f"{server.url}?sessionVariables=sql_mode=''",
        driver_jars(MARIADB),
        jdbc_mariadb.USER,
        tuple(secret.items()),
    )
    url = server.url.replace("jdbc:mariadb", f"jdbc:{driver}")
    jars = driver_jars(MARIADB if driver == "mariadb" else MYSQL)
    source = {"paths": url, "jars": jars, "username": jdbc_mariadb.USER, "properties": secret}
    return KeyedDatabase(keys.MARIADB, maker.run, source)


def h2(name):
    """Return an H2 database in memory."""
    maker = Database(f"jdbc:h2:mem:{name};DB_CLOSE_DELAY=-1", driver_jars(H2))
    source = {"paths": maker.url, "jars": maker.jars, "arrays": "text"}
    return KeyedDatabase(keys.H2, maker.run, source, upper=True)
