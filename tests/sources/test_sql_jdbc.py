"""Databases by their JDBC drivers: what is asked, what comes back, and what goes wrong."""

import itertools
import pickle
import socket

import pyarrow as pa
import pytest

from beam_tfrecord.errors import BeamTFRecordError, UsageError
from beam_tfrecord.options.sources import DatabaseOptions
from beam_tfrecord.sources.sql.database import ConnectionLost, Relation
from beam_tfrecord.sources.sql.jdbc import Jdbc
from beam_tfrecord.sources.sql.source import Sql
from tests.helpers.databases.jdbc_database import Database
from tests.helpers.databases.jdbc_drivers import H2, MARIADB, MYSQL, POSTGRES, driver_jars
from tests.helpers.databases.jdbc_mariadb import PASSWORD as MARIADB_PASSWORD
from tests.helpers.databases.jdbc_mariadb import USER as MARIADB_USER
from tests.helpers.databases.postgres import PASSWORD
from tests.helpers.databases.server import free_port
from tests.helpers.marks import needs

pytestmark = needs("databases")

names = itertools.count()


@pytest.fixture
def h2():
    """A database of the test's own, in memory."""
    url = f"jdbc:h2:mem:own{next(names)};DB_CLOSE_DELAY=-1"
    database = Database(url, driver_jars(H2))
    database.run("CREATE TABLE trips (id int PRIMARY KEY, fare numeric(8, 2), city varchar)")
    database.run("INSERT INTO trips SELECT x, x / 4.0, 'city ' || x FROM system_range(1, 1000)")
    return database


@pytest.fixture(scope="module")
def postgresql(postgres):
    url = f"jdbc:postgresql://127.0.0.1:{postgres.port}/postgres"
    return Database(url, driver_jars(POSTGRES), "tester", (("password", PASSWORD),))


@pytest.fixture(scope="module")
def maria(mariadb):
    secret = (("password", MARIADB_PASSWORD),)
    return Database(mariadb.url, driver_jars(MARIADB), MARIADB_USER, secret)


def test_what_a_driver_guarantees_is_told():
    assert Jdbc("jdbc:postgresql://h/db").guarantee == "one snapshot"
    assert Jdbc("jdbc:mariadb://u@h/db").guarantee == "one snapshot per partition"


def test_blocks_hold_all_rows_in_order_whatever_their_size(h2):
    with h2.engine().connect() as connection:
        relation = Relation("trips")
        columns = connection.describe(relation)
        sql = relation.select("id, fare, city", order_by="id")
        for batch_rows in (1, 7, 63, 64, 65, 1000, 5000):
            found = [rows.data for rows in connection.read(sql, columns, batch_rows=batch_rows)]
            assert {data.num_rows for data in found[:-1]} <= {batch_rows}
            table = pa.Table.from_batches(found)
            table.validate(full=True)
            assert table.column(0).to_pylist() == list(range(1, 1001))
            assert table.column(2).to_pylist() == [f"city {row}" for row in range(1, 1001)]
            assert str(table.column(1)[-1].as_py()) == "250.00"


def test_long_objects_of_many_characters_are_whole(h2):
    h2.run("CREATE TABLE long (c clob, b blob)")
    h2.run("INSERT INTO long SELECT REPEAT('😀é', 50001), CAST(REPEAT('x', 70000) AS blob)")
    with h2.engine().connect() as connection:
        columns = connection.describe(Relation("long"))
        (rows,) = connection.read("SELECT c, b FROM long", columns, batch_rows=10)
    assert rows.data.column(0).to_pylist() == ["😀é" * 50001]
    assert rows.data.column(1).to_pylist() == [b"x" * 70000]


def test_a_read_may_end_early(maria, postgresql, h2):
    series = {
        "mariadb": "SELECT seq AS n FROM seq_1_to_5000000",
        "postgresql": "SELECT n FROM generate_series(1, 5000000) AS s(n)",
        "h2": "SELECT x AS n FROM system_range(1, 5000000)",
    }
    for database in (maria, postgresql, h2):
        with database.engine().connect() as connection:
            sql = series[database.url.split(":")[1]]
            columns = connection.describe(Relation(connection.dialect.subquery(sql)))
            found = connection.read(sql, columns, batch_rows=100)
            assert next(found).data.column(0).to_pylist() == list(range(1, 101))
            found.close()


@pytest.mark.parametrize("where", ["url", "environment"])
def test_a_wrong_password_is_reported_and_not_shown(postgres, mariadb, where, monkeypatch):
    wrong = "wr0ng-s3cret"
    monkeypatch.setenv("OF_DATABASE", wrong)
    drivers = {f"jdbc:postgresql://127.0.0.1:{postgres.port}/postgres": POSTGRES}
    drivers[mariadb.url] = MARIADB
    for url, driver in drivers.items():
        options = DatabaseOptions(
            jars=driver_jars(driver), username="tester", password_env="OF_DATABASE"
        )
        if where == "url":
            url = f"{url}?password={wrong}"
            options = DatabaseOptions(jars=driver_jars(driver), username="tester")
        with pytest.raises(UsageError, match=r"(?i)password|denied") as caught:
            Jdbc(url, options).connect()
        assert wrong not in str(caught.value)
        assert "\n" not in str(caught.value)


def test_no_part_of_a_password_is_in_a_message_that_is_cut(h2, monkeypatch):
    password = "s3cret-of-h2"
    monkeypatch.setenv("OF_DATABASE", password)
    h2.run(f"CREATE USER reader PASSWORD '{password}' ADMIN")
    options = DatabaseOptions(jars=driver_jars(H2), username="reader", password_env="OF_DATABASE")
    with Jdbc(h2.url, options).connect() as connection, pytest.raises(UsageError) as caught:
        connection.run("SELEC " + f"'{password}' " * 60)
    assert "s3c" not in str(caught.value)


@pytest.mark.parametrize("driver", [POSTGRES, MARIADB, MYSQL])
def test_a_user_inside_the_url(postgres, mariadb, driver):
    port = postgres.port if driver == POSTGRES else mariadb.port
    password = PASSWORD if driver == POSTGRES else MARIADB_PASSWORD
    scheme = {POSTGRES: "postgresql", MARIADB: "mariadb", MYSQL: "mysql"}[driver]
    name = "postgres" if driver == POSTGRES else "t"
    url = f"jdbc:{scheme}://tester:{password}@127.0.0.1:{port}/{name}"
    source = Sql(url, query="SELECT 7 AS n", jars=driver_jars(driver))
    assert [batch.data.to_pylist() for batch in source.batches()] == [[{"n": 7}]]
    assert password not in repr(source) + str(pickle.dumps(source))


def test_a_server_that_is_not_there(postgresql):
    for driver, scheme in ((POSTGRES, "postgresql"), (MARIADB, "mariadb")):
        options = DatabaseOptions(jars=driver_jars(driver), username="u")
        with pytest.raises(ConnectionLost) as caught:
            Jdbc(f"jdbc:{scheme}://127.0.0.1:{free_port()}/x", options).connect()
        assert "\n" not in str(caught.value)
        with pytest.raises(UsageError, match=r"no such host: correct the URL"):
            Jdbc(f"jdbc:{scheme}://no-such-host.invalid/x", options).connect()
    options = DatabaseOptions(jars=postgresql.jars, username="tester")
    with pytest.raises(UsageError, match='database "nowhere" does not exist'):
        Jdbc(
            postgresql.url.replace("/postgres", "/nowhere"),
            DatabaseOptions(
                jars=postgresql.jars, username="tester", properties=postgresql.properties
            ),
        ).connect()


def test_a_server_that_says_nothing(monkeypatch):
    monkeypatch.setattr("beam_tfrecord.sources.sql.jdbc._CONNECT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"jdbc:postgresql://127.0.0.1:{listener.getsockname()[1]}/x"
        with pytest.raises(ConnectionLost, match=r"no answer within 0.5 seconds"):
            Jdbc(url, DatabaseOptions(jars=driver_jars(POSTGRES), username="u")).connect()


def test_databases_in_files_are_not_made_by_reading(tmp_path):
    with pytest.raises(BeamTFRecordError):
        Jdbc(f"jdbc:h2:{tmp_path}/none", DatabaseOptions(jars=driver_jars(H2))).connect()
    assert list(tmp_path.iterdir()) == []


def test_missing_drivers_are_told_with_the_cure(tmp_path):
    h2 = driver_jars(H2)
    with pytest.raises(UsageError, match=r"no jdbc driver for jdbc:nowhere:x: pass --jar driver"):
        Jdbc("jdbc:nowhere:x", DatabaseOptions(jars=h2)).connect()
    with pytest.raises(UsageError, match=r"no jdbc driver 'org.none.Driver' for jdbc:h2:mem:x"):
        Jdbc("jdbc:h2:mem:x", DatabaseOptions(jars=h2, driver="org.none.Driver")).connect()
    with pytest.raises(UsageError, match=r"cannot read driver jar '.*none.jar': no such file"):
        Jdbc("jdbc:h2:mem:x", DatabaseOptions(jars=(f"{tmp_path}/none.jar",))).connect()
    for product in ("sqlite", "duckdb"):
        with pytest.raises(UsageError, match=f"which changes values: pass {product}:///file"):
            Jdbc(f"jdbc:{product}:x").connect()


def test_session_statements_and_limits(h2, postgresql):
    engine = h2.engine(session_init=("SET @a = 7", "SET @b = 8"))
    with engine.connect() as connection:
        assert connection.fetch("SELECT @a + @b") == [(15,)]
    with (
        postgresql.engine(statement_timeout_s=0.05).connect() as connection,
        pytest.raises(UsageError, match=r"ran into the time limit: raise --statement-timeout"),
    ):
        connection.fetch("SELECT pg_sleep(30)")


def test_a_dropped_connection_is_told_as_such(postgresql):
    with postgresql.engine().connect() as connection:
        ((pid,),) = connection.fetch("SELECT pg_backend_pid()")
        postgresql.run(f"SELECT pg_terminate_backend({pid})")
        with pytest.raises(ConnectionLost):
            connection.fetch("SELECT 1")
