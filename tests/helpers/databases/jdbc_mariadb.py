"""A MariaDB server of the tests' own: Debian's programs, unpacked and not installed."""

from __future__ import annotations

import os
import socket
import subprocess

from tests.helpers.databases.server import Server, running, unprivileged
from tests.helpers.debian import unpacked

USER = "tester"
PASSWORD = "s3cr3t-of-mariadb"

_ACCOUNT = (
    "INSERT INTO global_priv VALUES ('%', '{user}', JSON_OBJECT('access', 1073741823, 'plugin', "
    "'mysql_native_password', 'authentication_string', PASSWORD('{password}')));"
)
_TABLES = (
    "mysql_system_tables.sql",
    "mysql_performance_tables.sql",
    "mysql_system_tables_data.sql",
)


class MariaDbServer(Server):
    """A server with the database ``t`` and a user that may do everything."""

    def __init__(self, directory):
        super().__init__(directory)
        self._root = unpacked("mariadb-server-core", "usr/sbin/mariadbd")

    @property
    def url(self):
        """URL of the database, without user and password."""
        return f"jdbc:mariadb://127.0.0.1:{self.port}/t"

    def _command(self, *arguments):
        usr = self._root / "usr"
        return [
            *(f"{usr}/sbin/mariadbd", "--no-defaults", f"--basedir={usr}"),
            *(f"--lc-messages-dir={usr}/share/mysql", f"--datadir={self._directory}/data"),
            # A server that starts takes away all temporary tables where it keeps its own.
            f"--tmpdir={self._directory}/tmp",
            *("--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0"),
            *("--skip-name-resolve", "--character-set-server=utf8mb4", *arguments),
        ]

    def environment(self) -> dict[str, str]:
        """Return the environment that it runs in, with the libraries that it was packed with."""
        found = sorted({str(one.parent) for one in (self._root / "usr/lib").glob("*/*.so.*")})
        return {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": ":".join(found)}

    def create(self):
        """Make the directories, the system tables and the user."""
        made = self._directory / "data", self._directory / "tmp"
        for path in made:
            path.mkdir()
        who = unprivileged()
        for path in (self._directory, *made) if who else ():
            os.chown(path, who["user"], who["group"])
        share = self._root / "usr/share/mysql"
        tables = "".join((share / name).read_text(encoding="utf-8") for name in _TABLES)
        account = _ACCOUNT.format(user=USER, password=PASSWORD)
        done = subprocess.run(
            self._command("--bootstrap", "--log-warnings=0"),
            input=f"CREATE DATABASE mysql;\nUSE mysql;\n{tables}\nCREATE DATABASE t;\n{account}\n",
            text=True,
            capture_output=True,
            env=self.environment(),
            check=False,
            **who,
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr[-2000:])

    def words(self):
        """Return the command that runs it."""
        return self._command(
            *("--bind-address=127.0.0.1", f"--port={self.port}"),
            *(f"--socket={self._directory}/data/socket", "--default-time-zone=-05:00"),
        )

    def answers(self):
        """Connect to it, and raise where nobody listens."""
        socket.create_connection(("127.0.0.1", self.port)).close()


def mariadb_server():
    """Run a new server until the block ends."""
    return running(MariaDbServer, "mariadb")
