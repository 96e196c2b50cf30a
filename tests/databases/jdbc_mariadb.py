"""A MariaDB server of the tests' own: Debian's programs, unpacked and not installed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.databases.postgres import free_port, unprivileged

USER = "tester"
PASSWORD = "s3cr3t-of-mariadb"
START_S = 30.0

_ACCOUNT = (
    "INSERT INTO global_priv VALUES ('%', '{user}', JSON_OBJECT('access', 1073741823, 'plugin', "
    "'mysql_native_password', 'authentication_string', PASSWORD('{password}')));"
)
_TABLES = (
    "mysql_system_tables.sql",
    "mysql_performance_tables.sql",
    "mysql_system_tables_data.sql",
)


def programs() -> Path:
    """Return the directory that holds ``usr/sbin/mariadbd``, or skip where it cannot be had."""
    if Path("/usr/sbin/mariadbd").exists():
        return Path("/")
    # Readable by the user that runs it, which the home directory of root is not.
    root = Path(tempfile.gettempdir()) / f"beam_tfrecord-mariadb-{os.getuid()}"
    if not (root / "usr/sbin/mariadbd").exists():
        if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
            pytest.skip("there is no MariaDB, and no Debian to take it from")
        _unpack(root)
    return root


def _unpack(root: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        listed = subprocess.run(
            ["apt-cache", "depends", "mariadb-server-core"],
            capture_output=True,
            text=True,
            check=False,
        )
        needed = [line.split()[-1] for line in listed.stdout.splitlines() if "Depends: lib" in line]
        missing = [name for name in needed if not _is_installed(name)]
        done = subprocess.run(
            ["apt-get", "download", "mariadb-server-core", *missing],
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            pytest.skip(f"MariaDB cannot be downloaded: {done.stderr.splitlines()[-1:]}")
        unpacked = Path(f"{root}.{os.getpid()}")
        for package in sorted(Path(directory).glob("*.deb")):
            subprocess.run(["dpkg", "-x", package, unpacked], check=True)
        unpacked.chmod(0o755)
        shutil.rmtree(root, ignore_errors=True)
        unpacked.rename(root)


def _is_installed(package: str) -> bool:
    return subprocess.run(["dpkg", "-s", package], capture_output=True, check=False).returncode == 0


class MariaDbServer:
    """A server with the database ``t`` and a user that may do everything."""

    def __init__(self, directory: Path) -> None:
        self._root = programs()
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        """URL of the database, without user and password."""
        return f"jdbc:mariadb://127.0.0.1:{self.port}/t"

    def _command(self, *arguments: str) -> list[str]:
        usr = self._root / "usr"
        return [
            *(f"{usr}/sbin/mariadbd", "--no-defaults", f"--basedir={usr}"),
            *(f"--lc-messages-dir={usr}/share/mysql", f"--datadir={self._directory}/data"),
            *("--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0"),
            *("--skip-name-resolve", "--character-set-server=utf8mb4", *arguments),
        ]

    def _environment(self) -> dict[str, str]:
        found = sorted({str(one.parent) for one in (self._root / "usr/lib").glob("*/*.so.*")})
        return {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": ":".join(found)}

    def create(self) -> None:
        """Make the data directory, the system tables and the user."""
        data = self._directory / "data"
        data.mkdir()
        who = unprivileged()
        for path in (self._directory, data) if who else ():
            os.chown(path, who["user"], who["group"])
        share = self._root / "usr/share/mysql"
        tables = "".join((share / name).read_text(encoding="utf-8") for name in _TABLES)
        account = _ACCOUNT.format(user=USER, password=PASSWORD)
        done = subprocess.run(
            self._command("--bootstrap", "--log-warnings=0"),
            input=f"CREATE DATABASE mysql;\nUSE mysql;\n{tables}\nCREATE DATABASE t;\n{account}\n",
            text=True,
            capture_output=True,
            env=self._environment(),
            check=False,
            **who,
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr[-2000:])

    def start(self) -> None:
        """Start the server, and wait until it listens."""
        log = (self._directory / "log").open("ab")
        self._process = subprocess.Popen(
            self._command(
                *("--bind-address=127.0.0.1", f"--port={self.port}"),
                *(f"--socket={self._directory}/data/socket", "--default-time-zone=-05:00"),
            ),
            stdout=log,
            stderr=log,
            env=self._environment(),
            **unprivileged(),
        )
        log.close()
        ends = time.monotonic() + START_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            if self._process.poll() is not None or time.monotonic() > ends:
                raise RuntimeError((self._directory / "log").read_text()[-2000:])
            time.sleep(0.1)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop the server."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_S)
            self._process = None


@contextlib.contextmanager
def mariadb_server() -> Iterator[MariaDbServer]:
    """Run a new server until the block ends."""
    directory = Path(tempfile.mkdtemp(prefix="beam-tfrecord-mariadb-"))
    server = MariaDbServer(directory)
    try:
        server.create()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)
