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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cases import CASES
from tables import load_inputs
from work import Bench

SAMPLE_SECONDS = 0.05
# Linux counts ru_maxrss in KiB, macOS in bytes.
MAXRSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One run of one case; `error` is empty where it worked.

    Attributes:
        seconds: Wall time of the work itself, imports and preparation left out.
        process_seconds: Wall time from the start of the process to its end.
        cpu_seconds: Time of processors for the work, of all its processes that have ended.
        rows: Rows that went in.
        output_bytes: Bytes that came out.
        peak_rss: Highest sum of the resident bytes of all its processes, sampled. Pages that two
            processes share count twice.
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
    maxrss_self: int = 0
    maxrss_children: int = 0
    error: str = ""


def session_rss(session: int) -> int:
    """Return the resident bytes of all processes of a session, 0 where /proc is missing.

    The session is field 6 and the resident pages are field 24 of `/proc/PID/stat` (proc(5));
    the name, field 2, is in brackets and may hold anything.
    """
    pages = 0
    for entry in Path("/proc").glob("[0-9]*/stat"):
        # A process may end between the listing and the look at it.
        with contextlib.suppress(OSError):
            fields = entry.read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == session:
                pages += int(fields[21])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _cpu_seconds() -> float:
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


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


def run_here(name: str, told: Path, place: Path, workers: int) -> dict[str, Any]:
    """Prepare and run a case in this process, which does nothing else."""
    with _empty_folders(place) as (out, scratch):
        bench = Bench(inputs=load_inputs(told), out=out, scratch=scratch, workers=workers)
        measured = CASES[name].prepare(bench)
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
    bench_script = Path(__file__).with_name("bench.py")
    package = checkout or bench_script.parents[2]
    command = [sys.executable, str(bench_script), "--run-here", name, str(told), str(place)]
    # Worker processes unpickle functions of these modules by name.
    paths = [str(bench_script.parent), str(package), os.environ.get("PYTHONPATH")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    os.sync()  # what an earlier case left to be written back is not this one's
    peak_rss = 0
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as erred:
        start = time.perf_counter()
        process = subprocess.Popen(
            [*command, "--workers", str(workers)],
            stdout=said,
            stderr=erred,
            env=environment,
            start_new_session=True,
        )
        late = False
        while process.poll() is None:
            peak_rss = max(peak_rss, session_rss(process.pid))
            if time.perf_counter() - start > timeout_seconds:
                late = True
                os.killpg(process.pid, 9)
            time.sleep(SAMPLE_SECONDS)
        process_seconds = time.perf_counter() - start
        said.seek(0)
        erred.seek(0)
        if late:
            return Outcome(error=f"took more than {timeout_seconds:.0f} s")
        if process.returncode != 0:
            lines = [line for line in erred.read().splitlines() if line.strip()]
            return Outcome(error=lines[-1] if lines else f"ended with {process.returncode}")
        fields = json.loads(said.read().splitlines()[-1])
    return Outcome(process_seconds=process_seconds, peak_rss=peak_rss, **fields)
