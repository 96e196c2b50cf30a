"""Databases by their JDBC drivers: what is asked, what comes back, and what goes wrong."""

import itertools
import pickle
import random
import socket

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import BeamTFRecordError, UsageError
from beam_tfrecord.options.sources import DatabaseOptions
from beam_tfrecord.sources.sql import read as sql_read
from beam_tfrecord.sources.sql.database import (
    ConnectionLost,
    Relation,
    SnapshotLost,
)
from beam_tfrecord.sources.sql.jdbc import Jdbc
from beam_tfrecord.sources.sql.plan import ranges
from beam_tfrecord.sources.sql.source import Sql
from tests.helpers.databases.jdbc_database import Database
from tests.helpers.databases.jdbc_drivers import H2, MARIADB, MYSQL, POSTGRES, driver_jars
from tests.helpers.databases.jdbc_mariadb import PASSWORD as MARIADB_PASSWORD
from tests.helpers.databases.jdbc_mariadb import USER as MARIADB_USER
from tests.helpers.databases.postgres import PASSWORD
from tests.helpers.databases.proxy import Proxy
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


def ids_of(connection, relation):
    return [row[0] for row in connection.fetch(relation.select("id", order_by="id"))]


def test_engine_knows_nothing_but_its_url_and_options_until_it_connects():
    engine = Jdbc("jdbc:postgresql://db.example:5432/shop?ssl=true", DatabaseOptions(username="u"))
    assert pickle.loads(pickle.dumps(engine)) == engine
    assert (engine.place, engine.scheme) == ("jdbc:postgresql://db.example:5432/shop", "postgresql")
    assert (engine.guarantee, engine.path) == ("one snapshot", None)
    assert Jdbc("jdbc:h2:mem:x;MODE=MySQL").place == "jdbc:h2:mem:x"
    assert Jdbc("jdbc:mariadb://u@h/db").place == "jdbc:mariadb://h/db"
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


def test_a_result_without_rows(h2):
    with h2.engine().connect() as connection:
        relation = Relation("trips", "id < 0")
        columns = connection.describe(relation)
        assert list(connection.read(relation.select("*"), columns, batch_rows=10)) == []
        assert connection.fetch(relation.select("COUNT(*)")) == [(0,)]


def test_blocks_end_by_bytes_too(h2):
    # 8 MiB a block: rows of 3 MB make blocks of 3 rows.
    sql = "SELECT REPEAT('x', 3000000) AS long FROM system_range(1, 7)"
    with h2.engine().connect() as connection:
        columns = connection.describe(Relation(connection.dialect.subquery(sql)))
        found = list(connection.read(sql, columns, batch_rows=1000))
    assert [rows.data.num_rows for rows in found] == [3, 3, 1]
    assert {len(text) for rows in found for text in rows.data.column(0).to_pylist()} == {3000000}


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


def test_tables_are_found_as_people_write_them(h2, postgresql, maria):
    h2.run(
        'CREATE TABLE "A b" (x int, y int, PRIMARY KEY (y, x))', "CREATE VIEW v AS SELECT 1 AS x"
    )
    with h2.engine().connect() as connection:
        assert connection.find_table("trips").sql == '"PUBLIC"."TRIPS"'
        assert connection.find_table("Public.Trips").key == ("ID",)
        assert connection.find_table('"A b"').key == ("Y", "X")
        assert connection.find_table("v").key == ()
        with pytest.raises(UsageError, match=r"table 'tripps' is not in jdbc:h2:mem:\w+: did you "):
            connection.find_table("tripps")
        with pytest.raises(UsageError, match=r"did you mean 'PUBLIC.TRIPS'\?"):
            connection.find_table('"trips"')
    postgresql.run("DROP SCHEMA IF EXISTS s CASCADE", "CREATE SCHEMA s", "CREATE TABLE s.t (a int)")
    postgresql.run('CREATE TABLE s."Ünï" (a int PRIMARY KEY)', 'CREATE TABLE s."it\'s" (a int)')
    with postgresql.engine().connect() as connection:
        assert connection.find_table("S.T").name == "s.t"
        assert connection.find_table('s."Ünï"').key == ("a",)
        assert connection.find_table('s."it\'s"').sql == '"s"."it\'s"'
        with pytest.raises(UsageError, match=r"did you mean .s\.it.s"):
            connection.find_table('"it\'s"')
    maria.run("CREATE OR REPLACE TABLE `of maria` (a int PRIMARY KEY)")
    with maria.engine().connect() as connection:
        found = connection.find_table("`of maria`")
        assert (found.sql, found.name, found.key) == ("`t`.`of maria`", "of maria", ("a",))


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT * FROM nowhere", "NOWHERE"),
        ("DELETE FROM trips", "DELETE"),
        ("SELECT 1; DELETE FROM trips", "DELETE"),
        ("SELECT nothing FROM trips", "NOTHING"),
    ],
)
def test_wrong_statements_are_told_in_one_line(h2, statement, message):
    with h2.engine().connect() as connection:
        with pytest.raises(UsageError, match=message) as caught:
            connection.describe(Relation(connection.dialect.subquery(statement)))
        assert "\n" not in str(caught.value)
        assert connection.fetch("SELECT COUNT(*) FROM trips") == [(1000,)]


def test_a_connection_cannot_write(postgresql, maria):
    for database in (postgresql, maria):
        database.run("DROP TABLE IF EXISTS safe", "CREATE TABLE safe (a int)")
        with (
            database.engine().connect() as connection,
            pytest.raises(UsageError, match=r"(?i)read.only"),
        ):
            connection.run("INSERT INTO safe VALUES (1)")


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


def test_a_password_from_the_environment_opens(postgres, monkeypatch):
    monkeypatch.setenv("OF_DATABASE", PASSWORD)
    options = DatabaseOptions(
        jars=driver_jars(POSTGRES), username="tester", password_env="OF_DATABASE"
    )
    url = f"jdbc:postgresql://127.0.0.1:{postgres.port}/postgres"
    with Jdbc(url, options).connect() as connection:
        assert connection.fetch("SELECT current_user::text") == [("tester",)]


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
    with pytest.raises(UsageError, match=r"pass --jar driver.jar or org.postgresql:postgresql:VER"):
        Jdbc("jdbc:postgresql://h/db", DatabaseOptions(jars=h2)).connect()
    with pytest.raises(
        UsageError, match=r"no jdbc driver for jdbc:nowhere:x: pass --jar driver.jar$"
    ):
        Jdbc("jdbc:nowhere:x", DatabaseOptions(jars=h2)).connect()
    with pytest.raises(UsageError, match=r"no jdbc driver 'org.none.Driver' for jdbc:h2:mem:x"):
        Jdbc("jdbc:h2:mem:x", DatabaseOptions(jars=h2, driver="org.none.Driver")).connect()
    with pytest.raises(UsageError, match=r"cannot read driver jar '.*none.jar': no such file"):
        Jdbc("jdbc:h2:mem:x", DatabaseOptions(jars=(f"{tmp_path}/none.jar",))).connect()
    for product in ("sqlite", "duckdb"):
        with pytest.raises(UsageError, match=f"which changes values: pass {product}:///file"):
            Jdbc(f"jdbc:{product}:x").connect()


def test_a_driver_by_its_class(h2):
    with h2.engine(driver="org.h2.Driver").connect() as connection:
        assert connection.fetch("SELECT 1") == [(1,)]


def test_session_statements_and_limits(h2, postgresql):
    engine = h2.engine(session_init=("SET @a = 7", "SET @b = 8"))
    with engine.connect() as connection:
        assert connection.fetch("SELECT @a + @b") == [(15,)]
    with (
        postgresql.engine(statement_timeout_s=0.05).connect() as connection,
        pytest.raises(UsageError, match=r"ran into the time limit: raise --statement-timeout"),
    ):
        connection.fetch("SELECT pg_sleep(30)")


def test_connections_of_postgres_share_a_moment(postgresql):
    postgresql.run("DROP TABLE IF EXISTS moment", "CREATE TABLE moment AS SELECT 1 AS id")
    engine = postgresql.engine()
    with engine.connect() as holder:
        snapshot = holder.export_snapshot()
        postgresql.run("INSERT INTO moment VALUES (2)")
        with engine.connect(snapshot=snapshot) as joined:
            assert ids_of(joined, Relation("moment")) == [1]
        with engine.connect() as later:
            assert ids_of(later, Relation("moment")) == [1, 2]
    with pytest.raises(SnapshotLost, match="run the job again"):
        engine.connect(snapshot=snapshot)


def test_a_connection_sees_one_moment(h2, maria):
    maria.run(
        "CREATE OR REPLACE TABLE moment (id int PRIMARY KEY)", "INSERT INTO moment VALUES (1)"
    )
    h2.run("CREATE TABLE moment (id int PRIMARY KEY)", "INSERT INTO moment VALUES (1)")
    for database in (maria, h2):
        with database.engine().connect() as connection:
            assert ids_of(connection, Relation("moment")) == [1]
            database.run("INSERT INTO moment VALUES (2)")
            assert ids_of(connection, Relation("moment")) == [1]
            assert connection.export_snapshot() == ""


def test_a_dropped_connection_is_told_as_such(postgresql):
    with postgresql.engine().connect() as connection:
        ((pid,),) = connection.fetch("SELECT pg_backend_pid()")
        postgresql.run(f"SELECT pg_terminate_backend({pid})")
        with pytest.raises(ConnectionLost):
            connection.fetch("SELECT 1")


KEYS = {
    "int": "n",
    "numeric(20, 3)": "n + 0.125",
    "date": "DATE '2000-01-01' + CAST(n AS int)",
    "timestamp": "TIMESTAMP '2000-01-01 00:00:00.125' + CAST(n AS int) * INTERVAL '1' HOUR",
    "varchar(50)": "'k''\\' || n",
    "float8": "n / 3.0",
}


@pytest.mark.parametrize("declared", KEYS)
def test_partitions_of_any_key_are_exactly_the_table(h2, postgresql, declared):
    rows = {
        "h2": "SELECT x AS n FROM system_range(1, 500)",
        "postgresql": "SELECT n FROM generate_series(1, 500) AS s(n)",
    }
    for database in (h2, postgresql):
        kind = database.url.split(":")[1]
        key = declared if kind == "postgresql" else declared.replace("float8", "double precision")
        database.run(
            "DROP TABLE IF EXISTS keyed",
            f"CREATE TABLE keyed (k {key}, n int)",
            f"INSERT INTO keyed SELECT {KEYS[declared]}, n FROM ({rows[kind]}) AS s",
            "INSERT INTO keyed VALUES (NULL, 0), (NULL, -1)",
        )
        column = "k" if kind == "postgresql" else "K"
        source = Sql(
            database.url,
            table="keyed",
            jars=database.jars,
            username=database.username,
            properties=dict(database.properties),
            partition_column=column,
            partitions=5,
        )
        is_cut = kind == "postgresql" or declared not in ("varchar(50)", "float8")
        assert len(source.all_units(source.all_scans())) == (6 if is_cut else 1)
        source.release()
        found = [row for batch in source.batches() for row in batch.data.column(1).to_pylist()]
        assert sorted(found) == list(range(-1, 501))


def test_a_table_of_postgres_without_a_key_is_cut_by_pages(postgresql):
    postgresql.run(
        "DROP TABLE IF EXISTS heap",
        "CREATE TABLE heap AS SELECT n, repeat('x', 500) AS t FROM generate_series(1, 900) s(n)",
        "DELETE FROM heap WHERE n % 7 = 0",
    )
    with postgresql.engine().connect() as connection:
        relation = Relation("heap", table=connection.find_table("heap"))
        cuts = connection.row_cuts(relation, 4)
        assert cuts is not None
        conditions = ranges(*cuts, nullable=False)
        found = [connection.fetch(relation.select("n", one)) for one in conditions]
    assert len(conditions) == 4
    assert all(found)
    assert sorted(n for part in found for (n,) in part) == [n for n in range(1, 901) if n % 7]


def test_statistics_of_postgres_cut_a_skewed_key_evenly(postgresql):
    postgresql.run(
        "DROP TABLE IF EXISTS skewed",
        "CREATE TABLE skewed AS SELECT n * n * n AS k FROM generate_series(1, 3000::bigint) s(n)",
        "ANALYZE skewed",
    )
    with postgresql.engine().connect() as connection:
        table = connection.find_table("skewed")
        relation = Relation(table.sql, table=table)
        (column,) = connection.describe(relation)
        cuts = connection.cut_points(relation, "k", connection.literal_of(column), 3)
        counts = connection.fetch(
            relation.select(
                f"SUM((k < {cuts[0]})::int), SUM((k >= {cuts[0]} AND k < {cuts[1]})::int)"
            )
        )
    assert [abs(count - 1000) < 100 for count in counts[0]] == [True, True]


def test_connections_cut_at_random_moments_lose_no_row_and_double_none(
    postgres, postgresql, monkeypatch
):
    monkeypatch.setattr(sql_read, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(sql_read, "ATTEMPTS", 40)
    postgresql.run("DROP TABLE IF EXISTS cut")
    postgresql.run(
        "CREATE TABLE cut AS SELECT n AS id, repeat('x', 200) AS t "
        "FROM generate_series(1, 4000) AS s(n)",
        "ALTER TABLE cut ADD PRIMARY KEY (id)",
    )
    moments = random.Random(0)

    def cut_after(number):
        # The first connection plans, and holds the moment: it stays, and one in four others.
        stays = number == 0 or moments.random() < 0.25
        return None if stays else moments.randrange(300, 400_000)

    cuts = 0
    while cuts < 20:
        with Proxy(postgres.port, cut_after) as proxy:
            source = Sql(
                f"jdbc:postgresql://127.0.0.1:{proxy.port}/postgres",
                table="cut",
                jars=postgresql.jars,
                username="tester",
                properties=dict(postgresql.properties),
                partitions=3,
                fetch_rows=100,
            )
            found = [row for batch in source.batches() for row in batch.data.column(0).to_pylist()]
            cuts += proxy.cuts
        assert sorted(found) == list(range(1, 4001))


def test_values_that_do_not_fit_are_rejects_of_their_rows(h2):
    h2.run("CREATE TABLE bad (id int PRIMARY KEY, n numeric(20, 2))")
    h2.run("INSERT INTO bad VALUES (1, 5), (2, 5.25), (3, NULL)")
    source = Sql(h2.url, table="bad", jars=h2.jars, types={"N": "int64"})
    scans = source.all_scans()
    (unit,) = source.all_units(scans)
    (batch,) = source.read(unit, source.schema(scans))
    assert batch.data.to_pylist() == [{"ID": 1, "N": 5}, {"ID": 3, "N": None}]
    (reject,) = batch.rejects
    assert (reject.row, reject.column, reject.value) == (2, "N", "5.25")
    assert "is '5.25', which int64 cannot hold" in reject.message


def test_a_dataset_by_jdbc_is_that_of_the_same_rows_in_parquet(h2, tmp_path):
    source = Sql(h2.url, query='SELECT id AS "id", city AS "city" FROM trips', jars=h2.jars)
    table = pa.Table.from_batches([batch.data for batch in source.batches()])
    pq.write_table(table, tmp_path / "trips.parquet")
    options = {"query": source.query, "jars": h2.jars, "partition_column": "id", "partitions": 4}
    of_jdbc = bt.write(h2.url, tmp_path / "jdbc", key=["id"], shards=3, source_options=options)
    bt.write(tmp_path / "trips.parquet", tmp_path / "parquet", key=["id"], shards=3)
    for name in sorted(path.name for path in (tmp_path / "parquet").glob("*.tfrecord")):
        assert (tmp_path / "jdbc" / name).read_bytes() == (tmp_path / "parquet" / name).read_bytes()
    assert sum(split.examples for split in of_jdbc.splits.values()) == 1000
