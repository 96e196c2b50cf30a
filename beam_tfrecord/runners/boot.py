"""Starts and supervises a Python worker for a runner: the program ``beam-tfrecord-boot``.

A runner starts this program in place of the entry point of a container (Beam's container contract),
as a command (environment PROCESS) or through a pool of workers (EXTERNAL). The program first checks
whether the machine is as the launcher, the process that started the job, expects. Each kind of
mismatch has an exit code of its own, since a runner reports no more of a worker that does not
start.

Then it becomes the *supervisor* of the worker (`boot_worker`), its child process: it reads all
output of the worker so that no pipe fills up, passes signals on, and ends the worker when the
runner has ended. A worker that a runner starts directly cannot leave this to Linux, which would end
it with the *thread* that started it: runners start workers from threads that end early. The
supervisor imports nothing heavy.

Environment variables:
    BEAM_TFRECORD_BOOT_LOG: File to append the output of workers to; ``{id}`` is the worker's id.
    BEAM_TFRECORD_BOOT_CACHE: Directory of installed packages; by default in the temporary one.
    BEAM_TFRECORD_BOOT_GRACE_S: Seconds that a worker has to end before it is killed.
    BEAM_TFRECORD_BOOT_EXPECT: The launcher's expectations of this machine (see `expectation`).
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.metadata
import json
import os
import platform
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any, NoReturn

LOG, GRACE_S = "BEAM_TFRECORD_BOOT_LOG", "BEAM_TFRECORD_BOOT_GRACE_S"
EXPECT = "BEAM_TFRECORD_BOOT_EXPECT"
# The supervisor passes its task to the worker in this variable.
TASK = "BEAM_TFRECORD_BOOT_TASK"
# File in the directory of a job: why a worker cannot load the user's code.
UNLOADABLE = "unloadable"

_LOOK_EVERY_S = 0.2
_DEFAULT_GRACE_S = 5.0
# A pipe that is ready for writing accepts this many bytes without blocking (PIPE_BUF).
_CHUNK_BYTES = 4096
# Seconds after the end of a job until its worker is ended, and seconds between two checks.
_FORGOTTEN_S, _LOOK_FOR_JOB_S = 15.0, 3.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

# Exit codes that shells, signals and Python itself do not use.
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
    """Return the launcher's expectations of its workers; in JSON they are the value of `EXPECT`.

    The versions of Python and of Beam are those of this process.
    """
    here = found()
    expected = {"python": here["python"], "beam": here["beam"]}
    optional = {"probe": probe, "directory": directory}
    return {**expected, **{key: value for key, value in optional.items() if value}}


def expected_here() -> dict[str, str]:
    """Return the expectations of this worker's launcher; empty if it has none."""
    return dict(json.loads(os.environ.get(EXPECT) or "{}"))


def found() -> dict[str, str]:
    """Return the versions of Python and Beam on this machine; that of Beam may be empty."""
    beam = ""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        beam = importlib.metadata.version("apache-beam")
    return {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "beam": ".".join(beam.split(".")[:2]),
    }


def fault_of(expected: Mapping[str, str], here: Mapping[str, str]) -> int:
    """Return the exit code of the first mismatch between expectations and facts; 0 if none."""
    if not here["beam"]:
        return NOT_INSTALLED
    if expected.get("python", here["python"]) != here["python"]:
        return PYTHON_DIFFERS
    if expected.get("beam", here["beam"]) != here["beam"]:
        return BEAM_DIFFERS
    return NOT_SHARED if "probe" in expected and not os.path.exists(expected["probe"]) else 0


def check_here() -> int:
    """Compare this machine with the launcher's expectations, and print the first mismatch."""
    expected = expected_here()
    if code := fault_of(expected, found()):
        print(f"boot: {fault_text(code, expected)}", file=sys.stderr, flush=True)  # noqa: T201
    return code


def fault_text(code: int, expected: Mapping[str, str]) -> str:
    """Return the message for an exit code of `FAULTS`."""
    return FAULTS[code].format(**{"python": "?", "beam": "?", "probe": "?", **expected})


def unloadable_line(error: str) -> str:
    """Return the message that a worker cannot load the user's code because of `error`."""
    return (
        f"a worker cannot load your code ({error}): install what is missing where workers run, or "
        "keep it beside the file of your function"
    )


@dataclasses.dataclass(frozen=True)
class Task:
    """A runner's request for a worker, and the supervisor's additions to it."""

    id: str
    provision_endpoint: str
    logging_endpoint: str = ""
    artifact_endpoint: str = ""
    control_endpoint: str = ""
    directory: str = ""
    supervisor: int = 0


def parse_task(words: Sequence[str]) -> tuple[Task, str]:
    """Return the task in a command line, and the directory for the directories of workers.

    The directory (``--semi_persist_dir``) is empty if the command line names none. Some runners
    pass values in quotes, but refuse an id with quotes, so quotes are removed.
    """
    parser = argparse.ArgumentParser("beam-tfrecord-boot", allow_abbrev=False)
    for name in ("id", "provision_endpoint"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("logging_endpoint", "artifact_endpoint", "control_endpoint", "semi_persist_dir"):
        parser.add_argument(f"--{name}", default="")
    # Unknown flags are ignored: later versions of runners may pass more.
    given, _ = parser.parse_known_args(words)
    values = {name: value.strip("'\"") for name, value in vars(given).items()}
    directory = values.pop("semi_persist_dir")
    return Task(**values), directory


def supervise(task: Task) -> int:
    """Run one worker until it has ended."""
    runner = os.getppid()
    signals: list[int] = []
    for number in _SIGNALS:
        signal.signal(number, lambda got, _: signals.append(got))
    worker = subprocess.Popen(
        [sys.executable, "-u", "-m", "beam_tfrecord.runners.boot_worker"],
        env={**os.environ, TASK: json.dumps(dataclasses.asdict(task))},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    output = _background(hand_on, worker.stdout, _log_path(task.id))
    if (probe := expected_here().get("probe")) is not None:
        # In a thread, since a shared directory may not answer for a long time.
        _background(_watch_job, probe, signals)
    _await_end(worker, runner, signals)
    # Also ends processes that the worker has started.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    output.join(timeout=2)
    code = worker.returncode
    return code if code >= 0 else 128 - code


def _await_end(worker: subprocess.Popen[bytes], runner: int, signals: Sequence[int]) -> None:
    """Wait for a worker to end, and end it if necessary.

    The first signal is passed on to the worker. The worker is killed if it does not end in time
    after that, or if the runner has ended.
    """
    deadline_s: float | None = None
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.wait(_LOOK_EVERY_S)
            return
        if os.getppid() != runner:
            # Killing is safe: nobody waits for a result, and incomplete files are ignored.
            worker.kill()
        elif signals and deadline_s is None:
            worker.send_signal(signals[0])
            deadline_s = time.monotonic() + float(os.environ.get(GRACE_S, _DEFAULT_GRACE_S))
        elif deadline_s is not None and time.monotonic() > deadline_s:
            worker.kill()


def _watch_job(probe: str, signals: list[int]) -> None:
    """Wait until the job of a worker is over, then add SIGTERM to the supervisor's signals.

    The job is over when its file `probe` has been missing for a while. Runners themselves may
    forget a worker that was being started when its step was cancelled.
    """
    seen_s = time.monotonic()
    while time.monotonic() - seen_s < _FORGOTTEN_S:
        try:
            os.stat(probe)
            seen_s = time.monotonic()
        except FileNotFoundError:
            pass
        except OSError:
            # An error of the file system does not mean that the job is over.
            seen_s = time.monotonic()
        time.sleep(_LOOK_FOR_JOB_S)
    signals.append(signal.SIGTERM)


def _background(function: Any, *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    return thread


def hand_on(source: IO[bytes], log: str | None) -> None:
    """Copy the output of a worker to stderr, and to a log file.

    The runner may have opened a pipe for stderr that it does not read. Output that the pipe does
    not accept is dropped, so that the worker never waits.
    """
    wait_s = 1.0
    with open(log, "ab", buffering=0) if log else contextlib.nullcontext() as file:
        while chunk := os.read(source.fileno(), _CHUNK_BYTES):
            with contextlib.suppress(OSError):
                if file is not None:
                    file.write(chunk)
            with contextlib.suppress(OSError):
                is_ready = bool(select.select([], [2], [], wait_s)[1])
                if is_ready:
                    os.write(2, chunk)
                wait_s = 1.0 if is_ready else 0.0


def _log_path(worker_id: str) -> str | None:
    if not (path := os.environ.get(LOG)):
        return None
    return path.replace("{id}", "".join(c if c.isalnum() or c in "-_." else "_" for c in worker_id))


def main() -> NoReturn:
    """Check this machine, then run a worker until it ends."""
    task, root = parse_task(sys.argv[1:])
    if code := check_here():
        raise SystemExit(code)
    with tempfile.TemporaryDirectory(
        prefix="beam-tfrecord-worker-", dir=root or None, ignore_cleanup_errors=True
    ) as directory:
        code = supervise(dataclasses.replace(task, directory=directory, supervisor=os.getpid()))
    raise SystemExit(code)


if __name__ == "__main__":
    main()
