"""A real Flink cluster for tests, started by `pipelines/flink/up` and ended with all it started."""

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
from pathlib import Path

import beam_tfrecord as bt

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "pipelines" / "flink"
# Far beyond what a loaded machine takes: no test is to fail for that.
WRITE_S = 480
# A little more than is taken for small, which would run in one worker.
_ROWS = 250_000
SPLIT = ("--split", "train=0.9,test=0.1", "--shards", "6")

# A function that stands still at one row while the gate is shut, and says in which process.
_GATED = """
import os, time
def gated(row):
    if row["id"] == 100_000 and not os.path.exists({open!r}):
        with open({met!r} + ".part", "w") as file:
            file.write(str(os.getpid()))
        os.replace({met!r} + ".part", {met!r})
        while not os.path.exists({open!r}):
            time.sleep(0.02)
    return row
"""


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
    def master(self):
        """``host:port`` of Flink."""
        return self.arguments[self.arguments.index("--flink-master") + 1]

    @property
    def options(self):
        """What `bt.write` takes as ``pipeline_options``, besides ``runner="flink"``."""
        endpoint = self.arguments[self.arguments.index("--job-endpoint") + 1]
        return [f"--flink_master={self.master}", f"--job_endpoint={endpoint}"]

    def get(self, path):
        """Ask Flink."""
        with urllib.request.urlopen(f"http://{self.master}{path}", timeout=5) as answer:
            return json.load(answer)

    def jobs(self):
        """Return all jobs, the last one last."""
        return sorted(self.get("/v1/jobs/overview")["jobs"], key=lambda job: job["start-time"])

    def state_of(self, job):
        """Return the state of a job."""
        return str(self.get(f"/v1/jobs/{job}")["state"])

    def task_managers(self):
        """Return the process ids of TaskManagers that run."""
        text = next((self.state / "pid").glob("*taskexecutor*")).read_text()
        return [pid for pid in map(int, text.split()) if is_running(pid)]

    def start_task_manager(self):
        """Start another one."""
        code = "import cluster, pathlib, sys; cluster.start_task_manager(pathlib.Path(sys.argv[1]))"
        command = [sys.executable, "-c", code, str(self.state)]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(SCRIPTS)})

    def workers(self, task_managers=None):
        """Return the process ids of Python workers of this cluster, or of some TaskManagers."""
        managers = self.task_managers() if task_managers is None else task_managers
        return children(children(managers))

    def task_manager_of(self, worker):
        """Return the process id of the TaskManager that a worker belongs to."""
        return parent(parent(worker))

    def kill(self, task_manager, workers):
        """Kill a TaskManager with workers that are known already, as the loss of a host does."""
        for pid in (*workers, task_manager):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def await_rest(self):
        """Wait until no job runs, all TaskManagers are there, and no worker of a job is left."""
        wait_for(lambda: self.get("/v1/overview")["slots-available"] == 4, what="slots are free")
        wait_for(lambda: not self.workers(), what="workers are gone")


class Gate:
    """A map function that stops at a row until it is let go on.

    Args:
        directory: Where its file is written.
    """

    def __init__(self, directory):
        self._open, self._met = directory / "open", directory / "met"
        text = _GATED.format(open=str(self._open), met=str(self._met))
        (directory / "gated.py").write_text(text)
        self.words = ("--map", f"{directory}/gated.py:gated")

    def met(self):
        """Wait until a worker stands at the row; return its process id."""
        wait_for(self._met.exists, what="the map function is called")
        return int(self._met.read_text())

    def open(self):
        """Let all go on, for good."""
        self._open.touch()


@contextlib.contextmanager
def running_cluster(state):
    """Run a cluster until the block ends."""
    started = subprocess.run(
        [sys.executable, str(SCRIPTS / "up"), str(state)], capture_output=True, text=True
    )
    try:
        assert started.returncode == 0, started.stderr
        yield Cluster(state, tuple(shlex.split(started.stdout.splitlines()[-1])))
    finally:
        subprocess.run([sys.executable, str(SCRIPTS / "down"), str(state)], check=True)


def write_trips(directory):
    """Write a CSV file of several units; return its path."""
    path = directory / "trips.csv"
    with open(path, "w") as file:
        file.write("id,fare,city\n")
        for i in range(_ROWS):
            file.write(f"{i},{i * 7919 % 100_003 / 100},town-{i % 97:060}\n")
    return path


def written_here(trips, directory):
    """Return the files of a dataset of the trips, written by one process, without a map."""
    bt.write(trips, directory / "out", splits="train=0.9,test=0.1", shards=6)
    return data_of(directory / "out")


def data_of(output):
    """Return the shards of a dataset by name."""
    shards = [shard.path for shard in bt.Manifest.load(str(output / "manifest.json")).shards]
    return {name: (output / name).read_bytes() for name in shards}


def leftovers(output):
    """Return what is hidden in a directory, where jobs keep what is not done."""
    return [name for name in os.listdir(output) if name.startswith(".")]


def children(parents):
    """Return the ids of the child processes of some."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, IndexError, ValueError):
            if entry.name.isdecimal() and parent(int(entry.name)) in parents:
                found.append(int(entry.name))
    return found


def parent(pid):
    """Return the id of the process that a process is a child of."""
    # The name in brackets may hold anything.
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_running(pid):
    """Tell whether a process runs, and is not only waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def start_writing(*words, cwd, path=None, command="write"):
    """Start a command of ``beam-tfrecord`` as a user does, with a SIGINT that it hears.

    Args:
        *words: Its arguments.
        cwd: Where.
        command: Name of the command.
        path: A further directory of modules that it finds, and workers do not.
    """
    places = os.pathsep.join(str(place) for place in (ROOT, path) if place is not None)
    return subprocess.Popen(
        [sys.executable, "-m", "beam_tfrecord", command, *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": places},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def finish(process, timeout_s=WRITE_S):
    """Wait for a command; return its exit code and what it said."""
    try:
        _, said = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        _, said = process.communicate()
        raise AssertionError(f"not ended after {timeout_s} s: {said}") from None
    return process.returncode, said


def wait_for(condition, timeout_s=180, what=""):
    """Wait until something is true, and return it."""
    until_s = time.monotonic() + timeout_s
    while time.monotonic() < until_s:
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError(f"not so after {timeout_s} s: {what}")
