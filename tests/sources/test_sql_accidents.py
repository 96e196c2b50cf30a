"""Complete jobs of PostgreSQL, by either driver, while the database does not stand still."""

import contextlib
import signal
import threading
import time

import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import BeamTFRecordError
from tests.helpers.databases.jdbc_drivers import POSTGRES, driver_jars
from tests.helpers.databases.postgres import PASSWORD, postgres_server
from tests.helpers.databases.proxy import Proxy
from tests.helpers.datasets import ids
from tests.helpers.marks import needs

pytestmark = needs("databases")

ROWS = 20_000

WAYS = ["postgresql", "jdbc"]


def place_of(way, port):
    """URL and options of the same database by one of the drivers."""
    url = f"postgresql://tester:{PASSWORD}@127.0.0.1:{port}/postgres"
    if way == "postgresql":
        return f"{url}?sslmode=disable", {}
    return f"jdbc:{url}", {"jars": driver_jars(POSTGRES)}


@contextlib.contextmanager
def moving_on(server, table):
    """Delete the first row and append one, again and again; count how often."""
    has_ended, moves = threading.Event(), [0]

    def move():
        with server.connect() as connection, connection.cursor() as cursor:
            while not has_ended.is_set():
                cursor.execute(
                    f"WITH gone AS (DELETE FROM {table} WHERE id = (SELECT min(id) FROM {table}) "
                    f"RETURNING id) INSERT INTO {table} SELECT id + {ROWS}, 'new' FROM gone"
                )
                moves[0] += 1

    thread = threading.Thread(target=move)
    thread.start()
    try:
        yield moves
    finally:
        has_ended.set()
        thread.join()


@pytest.mark.parametrize("way", WAYS)
def test_a_dataset_is_one_moment_of_a_table_that_others_change(postgres, tmp_path, way):
    postgres.run(
        "DROP TABLE IF EXISTS moved",
        f"CREATE TABLE moved AS SELECT g AS id, 'old' AS t FROM generate_series(1, {ROWS}) AS g",
        "ALTER TABLE moved ADD PRIMARY KEY (id)",
    )
    url, options = place_of(way, postgres.port)
    with moving_on(postgres, "moved") as moves:
        while moves[0] < 10:
            time.sleep(0.01)
        options |= {"table": "moved", "partitions": 5}
        bt.write(url, tmp_path / "out", source_options=options)
        done = moves[0]
    found = sorted(ids(tmp_path / "out"))
    # At any moment the table holds as many ids as at first, one after the other.
    assert found == list(range(found[0], found[0] + ROWS))
    assert 10 < found[0] <= done


@pytest.mark.parametrize("way", WAYS)
def test_a_server_killed_amid_a_job_publishes_nothing_and_serves_the_next(tmp_path, way):
    with postgres_server() as server:
        server.run(
            "CREATE TABLE t AS SELECT g AS id, repeat('x', 200) AS x "
            f"FROM generate_series(1, {ROWS}) AS g",
            "ALTER TABLE t ADD PRIMARY KEY (id)",
        )

        def kill_at_the_fourth(number):
            # Connection 0 plans, and one of two readers has come to its end by then.
            if number == 3:
                server.stop(signal.SIGKILL)
                server.start()

        with Proxy(server.port, kill_at_the_fourth) as proxy:
            url, options = place_of(way, proxy.port)
            options |= {"table": "t", "partitions": 8}
            with pytest.raises(BeamTFRecordError, match="run the job again") as caught:
                bt.write(url, tmp_path / "out", source_options=options)
            assert "\n" not in str(caught.value)
            assert proxy.connections > 3
        assert not list((tmp_path / "out").glob("[!.]*"))
        url, options = place_of(way, server.port)
        bt.write(url, tmp_path / "out", source_options={**options, "table": "t"})
    assert sorted(ids(tmp_path / "out")) == list(range(1, ROWS + 1))
