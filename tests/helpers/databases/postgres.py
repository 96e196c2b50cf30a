"""A PostgreSQL server of the tests' own: a free port on loopback, stopped by its process."""

import glob
import os
import shutil
import signal
import subprocess
from pathlib import Path

from tests.helpers.databases.server import Server, running, unprivileged

PASSWORD = "s3cr3t-of-postgres"


def binaries():
    """Return the directory of PostgreSQL's programs, or None where it is not installed."""
    found = [Path(path) for path in sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)]
    if on_path := shutil.which("initdb"):
        found.append(Path(os.path.realpath(on_path)).parent)
    return next((path for path in found if (path / "postgres").exists()), None)


class PostgresServer(Server):
    """A server with the databases ``postgres`` and the user ``tester`` with a password."""

    def __init__(self, directory):
        super().__init__(directory)
        self._bin = binaries()
        self._data = directory / "data"

    @property
    def url(self):
        """URL of the user with the password, without it."""
        return f"postgresql://tester@127.0.0.1:{self.port}/postgres"

    @property
    def full_url(self):
        """URL with the password inside."""
        return f"postgresql://tester:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    def create(self):
        """Make the data directory."""
        assert self._bin is not None
        who = unprivileged()
        if who:
            os.chown(self._directory, who["user"], who["group"])
        secret = self._directory / "password"
        secret.write_text(PASSWORD)
        if who:
            os.chown(secret, who["user"], who["group"])
        subprocess.run(
            [
                self._bin / "initdb",
                *("-D", self._data, "-U", "tester", "--auth=scram-sha-256", "-E", "UTF8"),
                *("--pwfile", secret, "--locale=C.UTF-8", "-N"),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=self._directory,
            **who,
        )

    def words(self):
        """Return the command that runs it."""
        assert self._bin is not None
        return [
            *(self._bin / "postgres", "-D", self._data, "-p", str(self.port)),
            *("-h", "127.0.0.1", "-k", "", "-F"),
            *("-c", "full_page_writes=off", "-c", "max_connections=60"),
            # Statistics change bounds: only where a test says so.
            *("-c", "autovacuum=off"),
            *("-c", "shared_buffers=64MB", "-c", "timezone=America/New_York"),
        ]

    def answers(self):
        """Ask it something, and raise where there is no answer."""
        self.run("SELECT 1")

    def connect(self):
        """Return a connection that commits each statement."""
        import adbc_driver_postgresql.dbapi as driver

        return driver.connect(self.full_url, autocommit=True)

    def run(self, *statements):
        """Run statements, each in a transaction of its own."""
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def stop(self, how=signal.SIGINT):
        """Stop the server: by SIGINT orderly, by SIGQUIT as in a crash."""
        super().stop(how)


def postgres_server():
    """Run a new server until the block ends."""
    return running(PostgresServer, "postgres")
