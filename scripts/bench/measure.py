"""Runs one case of the benchmark in a process of its own, and watches its time and memory."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from cases import CASES
from processes import session_cpu, session_pss, session_rss
from tables import load_inputs
from work import Bench, Measured

SAMPLE_SECONDS = 0.05
# Linux counts ru_maxrss in KiB, macOS in bytes.
MAXRSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One run of one case; `error` is empty where it worked.

    Attributes:
        seconds: Wall time of the work itself, imports and preparation left out.
        process_seconds: Wall time from the start of the process to its end.
        cpu_seconds: Time of processors for the work, of all its processes.
        rows: Rows that went in.
        output_bytes: Bytes that came out.
        peak_rss: Highest sum of the resident bytes of all its processes, sampled. Pages that two
            processes share count twice.
        peak_pss: The same without counting pages twice, where that was asked for instead.
        maxrss_self: The kernel's own figure for the process alone, in bytes.
        maxrss_children: The same for the largest process it waited for.
        error: The last line of what went wrong.
    """

    seconds: float = 0.0
    process_seconds: float = 0.0
    cpu_seconds: float = 0.0
    rows: int = 0
    output_bytes: int = 0
    peak_rss: int = 0
    peak_pss: int = 0
    maxrss_self: int = 0
    maxrss_children: int = 0
    error: str = ""


def _cpu_seconds() -> float:
    times = os.times()
    ended = time.process_time() + times.children_user + times.children_system
    # Workers that still live count as well, in steps of a hundredth of a second.
    return max(ended, session_cpu(os.getsid(0)))


@contextlib.contextmanager
def _empty_folders(place: Path) -> Iterator[tuple[Path, Path]]:
    """Yield two empty folders of the same filesystem, which go with what was written there."""
    folder = Path(tempfile.mkdtemp(prefix="case-", dir=place))
    try:
        for name in ("out", "scratch"):
            (folder / name).mkdir()
        yield folder / "out", folder / "scratch"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure_here(prepare: Callable[[Path, Path], Measured], place: Path) -> dict[str, Any]:
    """Prepare and do some work in this process, which does nothing else.

    Args:
        prepare: Gets empty folders for the output and for what lies between.
        place: Folder for both.
    """
    with _empty_folders(place) as folders:
        measured = prepare(*folders)
        start, cpu_start = time.perf_counter(), _cpu_seconds()
        work = measured()
        seconds, cpu_seconds = time.perf_counter() - start, _cpu_seconds() - cpu_start
    largest = [
        resource.getrusage(who).ru_maxrss * MAXRSS_UNIT_BYTES
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "rows": work.rows,
        "output_bytes": work.output_bytes,
        "maxrss_self": largest[0],
        "maxrss_children": largest[1],
    }


def run_here(name: str, told: Path, place: Path, workers: int) -> dict[str, Any]:
    """Prepare and run a case in this process, which does nothing else."""
    inputs = load_inputs(told)
    return measure_here(
        lambda out, scratch: CASES[name].prepare(Bench(inputs, out, scratch, workers)), place
    )


def watch(
    command: Sequence[str],
    look: Callable[[int], object],
    *,
    environment: Mapping[str, str],
    timeout: float,
    cwd: Path | None = None,
) -> tuple[float, str, str]:
    """Run a command in a session of its own, and look at it until it ends.

    Args:
        command: The command.
        look: Called often with the session's number.
        environment: Of the command.
        timeout: Seconds until it is killed.
        cwd: Its directory.

    Returns:
        Seconds, standard output, and what went wrong.
    """
    os.sync()  # what was written before is not this one's to write back
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as erred:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=said, stderr=erred, env=environment, cwd=cwd, start_new_session=True
        )
        late = False
        while process.poll() is None:
            looked = time.perf_counter()
            look(process.pid)
            if looked - start > timeout:
                late = True
                os.killpg(process.pid, 9)
            # Looking takes a core of the machine for a twentieth of the time at most.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(SAMPLE_SECONDS, 19 * (time.perf_counter() - looked)))
        seconds = time.perf_counter() - start
        said.seek(0)
        erred.seek(0)
        lines = [line for line in erred.read().splitlines() if line.strip()]
        why = [line for line in lines if "Error" in line] or lines
        error = why[-1] if why else f"ended with {process.returncode}"
        if late:
            error = f"took more than {timeout:.0f} s"
        return seconds, said.read(), error if process.returncode else ""


def run_script(
    words: Sequence[str],
    *,
    timeout_seconds: float,
    checkout: Path | None = None,
    peak: Literal["peak_rss", "peak_pss"] = "peak_rss",
) -> Outcome:
    """Run a script of this directory in a new process and session, and sample it until it ends.

    Args:
        words: Name of the script, and its arguments.
        timeout_seconds: After these the run ends as an error.
        checkout: Root of the source tree whose package is measured; None: of this one.
        peak: The field of the outcome that is sampled.
    """
    here = Path(__file__).parent
    # Worker processes unpickle functions of these modules by name.
    paths = [str(here), str(checkout or here.parents[1]), os.environ.get("PYTHONPATH")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    sample = session_rss if peak == "peak_rss" else session_pss
    peaks = [0]
    seconds, said, error = watch(
        [sys.executable, str(here / words[0]), *words[1:]],
        lambda session: peaks.append(sample(session)),
        environment=environment,
        timeout=timeout_seconds,
    )
    if error:
        return Outcome(error=error)
    return Outcome(
        process_seconds=seconds, **{**json.loads(said.splitlines()[-1]), peak: max(peaks)}
    )


def run_case(
    name: str,
    *,
    told: Path,
    place: Path,
    workers: int,
    timeout_seconds: float,
    checkout: Path | None = None,
) -> Outcome:
    """Run a case in a new process and session, and sample what it holds until it ends.

    Args:
        name: Of the case.
        told: Description of the input, as `make_inputs` returns it.
        place: Folder for the output.
        workers: Threads or processes.
        timeout_seconds: After these the run ends as an error.
        checkout: Root of the source tree whose package is measured; None: of this one.
    """
    words = ["bench.py", "--run-here", name, str(told), str(place), "--workers", str(workers)]
    return run_script(words, timeout_seconds=timeout_seconds, checkout=checkout)
