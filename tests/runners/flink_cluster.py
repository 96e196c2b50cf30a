"""A real Flink cluster for tests, started by `pipelines/flink/up` and ended with all it started."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "pipelines" / "flink"
WRITE_S = 240


@dataclasses.dataclass(frozen=True)
class Cluster:
    """A running cluster.

    Attributes:
        state: Its state directory.
        arguments: What `up` printed: arguments for ``beam-tfrecord write``.
    """

    state: Path
    arguments: tuple[str, ...]

    @property
    def master(self) -> str:
        """``host:port`` of Flink."""
        return self.arguments[self.arguments.index("--flink-master") + 1]

    @property
    def options(self) -> list[str]:
        """What `bt.write` takes as ``pipeline_options``, besides ``runner="flink"``."""
        endpoint = self.arguments[self.arguments.index("--job-endpoint") + 1]
        return [f"--flink_master={self.master}", f"--job_endpoint={endpoint}"]

    def get(self, path: str) -> Any:
        """Ask Flink."""
        with urllib.request.urlopen(f"http://{self.master}{path}", timeout=5) as answer:
            return json.load(answer)

    def jobs(self) -> list[dict[str, Any]]:
        """Return all jobs, the last one last."""
        return sorted(self.get("/v1/jobs/overview")["jobs"], key=lambda job: job["start-time"])

    def task_managers(self) -> list[int]:
        """Return the process ids of TaskManagers that run."""
        text = next((self.state / "pid").glob("*taskexecutor*")).read_text()
        return [pid for pid in map(int, text.split()) if is_running(pid)]

    def start_task_manager(self) -> None:
        """Start another one."""
        code = "import cluster, pathlib, sys; cluster.start_task_manager(pathlib.Path(sys.argv[1]))"
        command = [sys.executable, "-c", code, str(self.state)]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(SCRIPTS)})

    def workers(self) -> list[int]:
        """Return the process ids of Python workers of this cluster."""
        return [pid for boot in children(self.task_managers()) for pid in children([boot])]


@contextlib.contextmanager
def running_cluster(state: Path) -> Iterator[Cluster]:
    """Run a cluster until the block ends."""
    started = subprocess.run(
        [sys.executable, str(SCRIPTS / "up"), str(state)], capture_output=True, text=True
    )
    try:
        assert started.returncode == 0, started.stderr
        yield Cluster(state, tuple(shlex.split(started.stdout.splitlines()[-1])))
    finally:
        subprocess.run([sys.executable, str(SCRIPTS / "down"), str(state)], check=True)


def children(parents: Sequence[int]) -> list[int]:
    """Return the ids of the child processes of some."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, IndexError, ValueError):
            if entry.name.isdecimal():
                # The name in brackets may hold anything.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) in parents:
                    found.append(int(entry.name))
    return found


def is_running(pid: int) -> bool:
    """Tell whether a process runs, and is not only waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def start_writing(*words: str, cwd: Path) -> subprocess.Popen[str]:
    """Start ``beam-tfrecord write`` as a user does, with a SIGINT that it hears."""
    return subprocess.Popen(
        [sys.executable, "-m", "beam_tfrecord", "write", *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def finish(process: subprocess.Popen[str], timeout_s: float = WRITE_S) -> tuple[int, str]:
    """Wait for a command; return its exit code and what it said."""
    try:
        _, said = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        _, said = process.communicate()
        raise AssertionError(f"not ended after {timeout_s} s: {said}") from None
    return process.returncode, said


def wait_for(condition: Callable[[], Any], timeout_s: float = 90, what: str = "") -> Any:
    """Wait until something is true, and return it."""
    until_s = time.monotonic() + timeout_s
    while time.monotonic() < until_s:
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError(f"not so after {timeout_s} s: {what}")
