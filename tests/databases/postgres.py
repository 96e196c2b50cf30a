"""A PostgreSQL server of the tests' own: a free port on loopback, stopped by its process."""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PASSWORD = "s3cr3t-of-postgres"
START_S = 30.0


def binaries() -> Path | None:
    """Return the directory of PostgreSQL's programs, or None where it is not installed."""
    found = [Path(path) for path in sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)]
    if on_path := shutil.which("initdb"):
        found.append(Path(os.path.realpath(on_path)).parent)
    return next((path for path in found if (path / "postgres").exists()), None)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def unprivileged() -> dict[str, Any]:
    """Return the arguments of `Popen` that give up root: servers refuse to run as it."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = names.get("postgres") or names["nobody"]
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


class PostgresServer:
    """A server with the databases ``postgres`` and the user ``tester`` with a password."""

    def __init__(self, directory: Path) -> None:
        self._bin = binaries()
        self._directory = directory
        self._data = directory / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        """URL of the user with the password, without it."""
        return f"postgresql://tester@127.0.0.1:{self.port}/postgres"

    @property
    def full_url(self) -> str:
        """URL with the password inside."""
        return f"postgresql://tester:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    def create(self) -> None:
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

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        assert self._bin is not None
        log = (self._directory / "log").open("ab")
        self._process = subprocess.Popen(
            [
                *(self._bin / "postgres", "-D", self._data, "-p", str(self.port)),
                *("-h", "127.0.0.1", "-k", "", "-F"),
                *("-c", "full_page_writes=off", "-c", "max_connections=60"),
                # Statistics change bounds: only where a test says so.
                *("-c", "autovacuum=off"),
                *("-c", "shared_buffers=64MB", "-c", "timezone=America/New_York"),
            ],
            stdout=log,
            stderr=log,
            cwd=self._directory,
            **unprivileged(),
        )
        log.close()
        ends = time.monotonic() + START_S
        while True:
            with contextlib.suppress(Exception):
                self.run("SELECT 1")
                return
            if self._process.poll() is not None or time.monotonic() > ends:
                raise RuntimeError((self._directory / "log").read_text()[-2000:])
            time.sleep(0.1)

    def connect(self) -> Any:
        """Return a connection that commits each statement."""
        import adbc_driver_postgresql.dbapi as driver

        return driver.connect(self.full_url, autocommit=True)

    def run(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own."""
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: by SIGINT orderly, by SIGQUIT as in a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_S)
            self._process = None


@contextlib.contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Run a new server until the block ends."""
    directory = Path(tempfile.mkdtemp(prefix="beam-tfrecord-postgres-"))
    server = PostgresServer(directory)
    try:
        server.create()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)
