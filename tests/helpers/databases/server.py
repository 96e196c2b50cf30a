"""A database server of the tests' own: a free port on loopback, stopped by its process."""

from __future__ import annotations

import abc
import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TypeVar

START_S = 30.0
_WATCHDOG = Path(__file__).with_name("watchdog.py")


def free_port():
    """Return a port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def unprivileged():
    """Return the arguments of `Popen` that give up root: servers refuse to run as it."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = names.get("postgres") or names["nobody"]
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _dropping_root():
    """Return the command that gives up root before another one.

    `Popen` would fork for it. A fork beside threads of gRPC has crashed in gRPC's own handlers.
    """
    if not (who := unprivileged()):
        return []
    return ["setpriv", f"--reuid={who['user']}", f"--regid={who['group']}", "--clear-groups"]


class Server(abc.ABC):
    """A server with all its files in one directory."""

    def __init__(self, directory):
        self._directory = directory
        self._process = None
        self._watchdog = None
        self.port = free_port()

    @abc.abstractmethod
    def create(self):
        """Make the data directory."""

    @abc.abstractmethod
    def words(self):
        """Return the command that runs it."""

    @abc.abstractmethod
    def answers(self):
        """Ask it something, and raise where there is no answer."""

    def environment(self) -> dict[str, str] | None:
        """Return the environment that it runs in; None: that of the tests."""
        return None

    def start(self):
        """Start the server, and wait until it answers."""
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_dropping_root(), *self.words()],
                stdout=log,
                stderr=log,
                cwd=self._directory,
                env=self.environment(),
            )
        self._watchdog = self._watched(self._process.pid)
        ends = time.monotonic() + START_S
        while True:
            with contextlib.suppress(Exception):
                self.answers()
                return
            if self._process.poll() is not None or time.monotonic() > ends:
                raise RuntimeError((self._directory / "log").read_text()[-2000:])
            time.sleep(0.1)

    def _watched(self, server: int) -> subprocess.Popen[bytes]:
        """Have the server stopped when this process ends, in whatever way."""
        words = [sys.executable, "-I", "-S", _WATCHDOG]
        # Ctrl-C is for the tests, which then stop the server themselves.
        words += [str(os.getpid()), str(server), self._directory]
        return subprocess.Popen(words, cwd="/", start_new_session=True)

    def stop(self, how=signal.SIGTERM):
        """Stop the server."""
        if self._watchdog is not None:
            self._watchdog.kill()
            self._watchdog.wait()
            self._watchdog = None
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_S)
            self._process = None


S = TypeVar("S", bound=Server)


@contextlib.contextmanager
def running(make, name):
    """Run a new server until the block ends."""
    directory = Path(tempfile.mkdtemp(prefix=f"beam-tfrecord-{name}-"))
    server = make(directory)
    try:
        server.create()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)
