"""Beam's job server for Flink, started from a jar where no running one is named."""

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

from beam_tfrecord.errors import UsageError

_READY_S = 60.0
_END_S = 5.0
_OPENS = ("java.lang", "java.nio", "java.util", "sun.nio.ch")


@contextlib.contextmanager
def job_server(jar: str, flink_master: str, artifacts: str | None) -> Iterator[str]:
    """Run a job server until the block ends; give its ``host:port``.

    Args:
        jar: Path of the job server's jar.
        flink_master: ``host:port`` of the cluster.
        artifacts: Directory for what is staged, which all workers share and which outlives this
            process; None: a temporary one.

    Raises:
        UsageError: There is no Java or no such jar, or it does not start.
    """
    java = shutil.which("java")
    if java is None:
        raise UsageError(
            "there is no java on this machine: install a Java runtime, or name a job server that "
            "runs elsewhere (--job-endpoint)"
        )
    if not os.path.isfile(jar):
        raise UsageError(f"there is no job server {jar!r}: correct --job-server-jar")
    with contextlib.ExitStack() as stack:
        own = artifacts or stack.enter_context(tempfile.TemporaryDirectory(prefix="beam-tfrecord-"))
        log = stack.enter_context(tempfile.TemporaryFile())
        port = _free_port()
        process = subprocess.Popen(
            [
                java,
                "-Xmx256m",
                *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENS),
                "-jar",
                jar,
                f"--flink-master={flink_master}",
                "--job-host=localhost",
                f"--job-port={port}",
                "--artifact-port=0",
                "--expansion-port=0",
                f"--artifacts-dir={own}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Ctrl-C is for us: the server is needed to cancel what it has started.
            start_new_session=True,
        )
        stack.callback(_end, process)
        _await(process, port, jar)
        yield f"localhost:{port}"


def answers(address: str) -> bool:
    """Tell whether something listens at ``host:port``."""
    host, _, port = address.rpartition(":")
    with (
        contextlib.suppress(OSError, ValueError),
        socket.create_connection((host, int(port)), timeout=2),
    ):
        return True
    return False


def _await(process: subprocess.Popen[bytes], port: int, jar: str) -> None:
    until_s = time.monotonic() + _READY_S
    while not answers(f"localhost:{port}"):
        if process.poll() is not None:
            raise UsageError(
                f"job server {jar!r} ended at once with code {process.returncode}: it is none for "
                "this Java or not Beam's job server for Flink"
            )
        if time.monotonic() > until_s:
            raise UsageError(f"job server {jar!r} is not ready after {_READY_S:.0f} seconds")
        time.sleep(0.2)


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return int(one.getsockname()[1])
