"""Database servers, one of each for the whole run."""

import pytest

from beam_tfrecord.sources.sql.source import release_snapshots
from tests.helpers.databases import partitions
from tests.helpers.databases.jdbc_mariadb import mariadb_server
from tests.helpers.databases.postgres import binaries, postgres_server
from tests.helpers.marks import mark_users


def pytest_itemcollected(item):
    # H2 runs in the JVM.
    mark_users(item, {"postgres", "mariadb", "h2"}, "databases")


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL server; tests make tables of their own names."""
    pytest.importorskip("adbc_driver_postgresql")
    if binaries() is None:
        pytest.skip("PostgreSQL is not installed")
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb():
    """A MariaDB server, for the JDBC drivers of MariaDB and MySQL."""
    with mariadb_server() as server:
        yield server


@pytest.fixture(scope="module", params=["", "jdbc"])
def postgresql(request, postgres):
    """Return the server, read natively and through its JDBC driver."""
    return partitions.postgres(postgres, request.param)


@pytest.fixture(scope="module", params=["mariadb", "mysql"])
def maria(request, mariadb):
    """Return the server, read through either driver."""
    return partitions.mariadb(mariadb, request.param)


@pytest.fixture
def write(tmp_path):
    """What writes text or bytes to a file, and returns its path."""

    def put(text, name="a.csv"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(path)

    return put


@pytest.fixture(autouse=True)
def nothing_held():
    """Let go of the snapshots that a test planned with and did not read."""
    yield
    release_snapshots()
