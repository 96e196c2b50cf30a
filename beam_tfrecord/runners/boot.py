"""``beam-tfrecord-boot``: starts a Python worker where a runner asks for one, without a container.

A runner starts this program as it would start the entry point of a container (Beam's container
contract): by a command of its own (environment PROCESS) or through a pool of workers (EXTERNAL).
This process stays small and imports nothing heavy. It starts the worker (`boot_worker`) as its
child, reads all that the worker prints so that no pipe ever fills up, passes signals on, and ends
the worker when the runner is gone. The worker must not ask the system for that itself: Linux ties
such a wish to the *thread* that started it, and runners start workers from threads that end early.

Environment variables:
    BEAM_TFRECORD_BOOT_LOG: File to append the output of workers to; ``{id}`` is the worker's.
    BEAM_TFRECORD_BOOT_CACHE: Directory of installed packages; by default below the temporary one.
    BEAM_TFRECORD_BOOT_GRACE_S: Seconds that a worker has to end before it is killed.
    BEAM_TFRECORD_BOOT_EXPECT: What the launcher expects to find here (see `boot_checks`).
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import importlib.metadata
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any, NoReturn

LOG, GRACE_S = "BEAM_TFRECORD_BOOT_LOG", "BEAM_TFRECORD_BOOT_GRACE_S"
# How the supervisor tells the worker what it was asked to do.
TASK = "BEAM_TFRECORD_BOOT_TASK"

_LOOK_EVERY_S = 0.2
_DEFAULT_GRACE_S = 5.0
_HELD_LINES = 1000
_PREFIX = "beam-tfrecord-worker-"
# A worker whose job is over this long is one that its runner has forgotten.
_FORGOTTEN_S, _LOOK_FOR_JOB_S = 15.0, 3.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclasses.dataclass(frozen=True)
class Task:
    """What a runner asks for.

    Attributes:
        id: Of the worker, as the runner gave it but for quotes.
        provision_endpoint: Where the rest is told.
        logging_endpoint: As given; what provision tells goes before it.
        artifact_endpoint: Likewise.
        control_endpoint: Likewise.
        directory: Of this worker alone; what was staged is below it.
        supervisor: Id of the process that started the worker.
    """

    id: str
    provision_endpoint: str
    logging_endpoint: str = ""
    artifact_endpoint: str = ""
    control_endpoint: str = ""
    directory: str = ""
    supervisor: int = 0


def parse_task(words: Sequence[str]) -> tuple[Task, str]:
    """Return the task in a command line, and the directory that outlives workers (or nothing).

    Some runners pass quotes along with the values, and an id with quotes is refused by them.
    """
    parser = argparse.ArgumentParser("beam-tfrecord-boot", allow_abbrev=False)
    for name in ("id", "provision_endpoint"):
        parser.add_argument(f"--{name}", required=True, type=_unquoted)
    for name in ("logging", "artifact", "control"):
        parser.add_argument(f"--{name}_endpoint", default="", type=_unquoted)
    parser.add_argument("--semi_persist_dir", default="", type=_unquoted)
    # Runners of later versions may tell more than there is today.
    given, _ = parser.parse_known_args(words)
    values = vars(given)
    directory = values.pop("semi_persist_dir")
    return Task(**values), directory


def _unquoted(text: str) -> str:
    return text.strip("'\"")


class Supervisor:
    """Starts one worker, and stays until it has ended.

    Args:
        task: What the worker is to do.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._runner = os.getppid()
        self._signals: list[int] = []
        self._job = Job(expected_here().get("probe"))

    def run(self) -> int:
        """Run the worker; return its exit code, 128 more than the signal that ended it."""
        for number in _SIGNALS:
            signal.signal(number, lambda got, _: self._signals.append(got))
        told = {**dataclasses.asdict(self._task), "supervisor": os.getpid()}
        worker = subprocess.Popen(
            [sys.executable, "-u", "-m", "beam_tfrecord.runners.boot_worker"],
            env={**os.environ, TASK: json.dumps(told)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert worker.stdout is not None
        output = Output(worker.stdout, _log_path(self._task.id))
        self._wait(worker)
        # Whatever the worker has started itself goes with it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        output.finish()
        code = worker.returncode
        return code if code >= 0 else 128 - code

    def _wait(self, worker: subprocess.Popen[bytes]) -> None:
        deadline_s: float | None = None
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(_LOOK_EVERY_S)
                return
            if os.getppid() != self._runner:
                # Nobody waits for a result any more, and files are whole or of no account.
                worker.kill()
            elif (self._signals or self._job.is_over) and deadline_s is None:
                worker.send_signal(self._signals[0] if self._signals else signal.SIGTERM)
                deadline_s = time.monotonic() + _grace_s()
            elif deadline_s is not None and time.monotonic() > deadline_s:
                worker.kill()


class Job:
    """Looks whether the job of a worker still is: while it is, so is a file of it.

    Runners may lose a worker that was being started when its step was cancelled, and never end it.

    Args:
        probe: That file; None: nobody knows.
    """

    def __init__(self, probe: str | None) -> None:
        self.is_over = False
        if probe is not None:
            # A shared directory may not answer; that must hold up nothing else.
            threading.Thread(target=self._look, args=(probe,), daemon=True).start()

    def _look(self, probe: str) -> None:
        seen_s = time.monotonic()
        while time.monotonic() - seen_s < _FORGOTTEN_S:
            try:
                os.stat(probe)
            except FileNotFoundError:
                pass
            except OSError:
                # A file system that fails tells nothing of the job.
                seen_s = time.monotonic()
            else:
                seen_s = time.monotonic()
            time.sleep(_LOOK_FOR_JOB_S)
        self.is_over = True


class Output:
    """Reads what a worker prints, always, and hands on what can be handed on.

    Whoever started us may have opened a pipe and never read it. So one thread reads and another
    one writes: when that cannot go on, the oldest lines are dropped.

    Args:
        source: What the worker prints.
        log: File to append to; None: none.
    """

    def __init__(self, source: IO[bytes], log: str | None) -> None:
        self._source = source
        self._log = open(log, "ab", buffering=0) if log else None  # noqa: SIM115 - kept open
        self._lines: collections.deque[bytes] = collections.deque(maxlen=_HELD_LINES)
        self._more = threading.Event()
        self._is_over = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._reader.start()
        self._writer.start()

    def _read(self) -> None:
        while chunk := os.read(self._source.fileno(), 65536):
            if self._log is not None:
                self._log.write(chunk)
            self._lines.append(chunk)
            self._more.set()
        self._is_over = True
        self._more.set()

    def _write(self) -> None:
        while not (self._is_over and not self._lines):
            self._more.wait()
            self._more.clear()
            with contextlib.suppress(OSError):
                while self._lines:
                    os.write(2, self._lines.popleft())

    def finish(self) -> None:
        """Wait until all is handed on, as far as anybody takes it."""
        self._reader.join(timeout=2)
        self._writer.join(timeout=0.5)


def sweep(root: str) -> None:
    """Remove the directories of workers whose supervisors were killed."""
    for name in os.listdir(root):
        pid = name.removeprefix(_PREFIX).partition("-")[0]
        if name.startswith(_PREFIX) and pid.isdecimal() and not _is_running(int(pid)):
            shutil.rmtree(os.path.join(root, name), ignore_errors=True)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _log_path(worker_id: str) -> str | None:
    if not (path := os.environ.get(LOG)):
        return None
    return path.replace("{id}", "".join(c if c.isalnum() or c in "-_." else "_" for c in worker_id))


def _grace_s() -> float:
    return float(os.environ.get(GRACE_S, _DEFAULT_GRACE_S))


def main() -> NoReturn:
    """Run the program."""
    if sys.argv[1:] == ["--check"]:
        print(json.dumps(found()))  # noqa: T201 - what the option is for
        raise SystemExit(check_here())
    task, root = parse_task(sys.argv[1:])
    if code := check_here():
        raise SystemExit(code)
    root = root or tempfile.gettempdir()
    sweep(root)
    directory = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=root)
    try:
        code = Supervisor(dataclasses.replace(task, directory=directory)).run()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    raise SystemExit(code)


if __name__ == "__main__":
    main()


EXPECT = "BEAM_TFRECORD_BOOT_EXPECT"

# Free of the codes that shells, signals and Python itself use.
PYTHON_DIFFERS, BEAM_DIFFERS, NOT_SHARED, NOT_INSTALLED, PACKAGE_FAILS = 81, 82, 83, 84, 85

FAULTS: Mapping[int, str] = {
    PYTHON_DIFFERS: (
        "a worker has another version of Python than this machine (here {python}): "
        "install the same minor version there, or launch from such a machine"
    ),
    BEAM_DIFFERS: (
        "a worker has another version of apache-beam than this machine (here {beam}): "
        "install the same minor version there"
    ),
    NOT_SHARED: (
        "a worker does not see the output directory {probe!r}: write to a directory that all "
        "workers share under one path, or to gs:// or s3://"
    ),
    NOT_INSTALLED: "apache-beam is not installed for the Python of the worker command: install it",
    PACKAGE_FAILS: (
        "a package that was sent cannot be installed on a worker: see the worker's log, and pass "
        "a wheel that suits its platform"
    ),
}


def expectation(probe: str | None, directory: str = "") -> dict[str, str]:
    """Return what a launcher expects of its workers, and where they tell of what they cannot do.

    Args:
        probe: A file that workers must be able to see; None: there is none.
        directory: Temporary directory of the job; empty where there is none.
    """
    expected = {key: str(value) for key, value in found().items() if key in ("python", "beam")}
    told = {"probe": probe, "directory": directory}
    return expected | {key: value for key, value in told.items() if value}


def expected_here() -> dict[str, str]:
    """Return what a launcher has said that it expects; empty where none has."""
    return dict(json.loads(os.environ.get(EXPECT) or "{}"))


def found() -> dict[str, Any]:
    """Return what there is on this machine: versions, and the host's name."""
    return {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "beam": _beam_minor(),
        "host": platform.node(),
        "executable": sys.executable,
    }


def _beam_minor() -> str:
    try:
        version = importlib.metadata.version("apache-beam")
    except importlib.metadata.PackageNotFoundError:
        return ""
    return ".".join(version.split(".")[:2])


def fault_of(expected: Mapping[str, str], here: Mapping[str, Any]) -> int:
    """Return the exit code for what is not as expected; 0 where all is."""
    if not here["beam"]:
        return NOT_INSTALLED
    if expected.get("python", here["python"]) != here["python"]:
        return PYTHON_DIFFERS
    if expected.get("beam", here["beam"]) != here["beam"]:
        return BEAM_DIFFERS
    probe = expected.get("probe")
    return NOT_SHARED if probe is not None and not os.path.exists(probe) else 0


def check_here() -> int:
    """Compare this machine with what is expected; return an exit code, 0 where all is well."""
    expected = expected_here()
    if code := fault_of(expected, found()):
        print(f"boot: {fault_text(code, expected)}", file=sys.stderr, flush=True)  # noqa: T201
        return code
    return 0


def fault_text(code: int, expected: Mapping[str, str]) -> str:
    """Return the line for an exit code of `check_here`."""
    blank = {"python": "?", "beam": "?", "probe": "?"}
    return FAULTS[code].format(**{**blank, **expected})
