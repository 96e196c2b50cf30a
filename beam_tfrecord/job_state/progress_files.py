"""Carries the progress of workers, by small files, to the process that started the job.

Each process with workers appends entries to a file of its own in the job's temporary directory::

    progress-<host>-<pid>    a line for each entry: phase, done, total, rejects; all since the last

There are no such files in an object store, where a file cannot grow. There, the launcher measures
progress by the sizes of the files that the job has written.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from beam_tfrecord.base.progress import Progress
from beam_tfrecord.errors import StorageError
from beam_tfrecord.storage import is_remote, list_files

PROGRESS_PREFIX = "progress-"
SCANNING, TYPES, FIRST_PASS = "scanning", "inferring types", "pass 1 of 2"
READING, ENCODING, MERGING = "reading", "encoding", "merging"
WRITING, PUBLISHING = "writing shards", "publishing"
# All phases of a job in their order, with the unit of their progress.
UNITS = {
    SCANNING: "B",
    TYPES: "B",
    FIRST_PASS: "row",
    READING: "row",
    ENCODING: "row",
    MERGING: "part",
    WRITING: "row",
    PUBLISHING: "file",
}
_PHASES = list(UNITS)
# About how long the later phases take, as a multiple of the phase; measured on CSV.
_LATER = {SCANNING: 2.0, TYPES: 1.5, FIRST_PASS: 1.5, READING: 0.5, ENCODING: 0.5, MERGING: 1.0}
# On a network filesystem, each entry costs a few round trips.
ENTRY_EVERY_S = 0.2
INTERVAL_S = 0.5
REMOTE_INTERVAL_S = 10.0


class ProgressLog:
    """Adds up the progress of one worker in one phase, and appends it to the file now and then."""

    def __init__(self, directory: str | None, phase: str) -> None:
        self._directory = None if directory is None or is_remote(directory) else directory
        self._phase = phase
        self._done = self._total = self._rejects = 0
        self._written_s = -float("inf")

    def add(self, done: int = 0, *, total: int = 0, rejects: int = 0) -> None:
        """Add amounts in the unit of the phase, or nothing, to say that the phase has begun."""
        if self._directory is None:
            return
        self._done += done
        self._total += total
        self._rejects += rejects
        if time.monotonic() - self._written_s >= ENTRY_EVERY_S:
            self.flush()

    def flush(self) -> None:
        """Append what was added since the last entry."""
        if self._directory is None:
            return
        name = f"{PROGRESS_PREFIX}{socket.gethostname()}-{os.getpid()}"
        entry = f"{self._phase}\t{self._done}\t{self._total}\t{self._rejects}\n"
        # Progress is only for display: a full disk ends the job at a write that matters.
        with contextlib.suppress(OSError), open(os.path.join(self._directory, name), "a") as file:
            file.write(entry)
        self._done = self._total = self._rejects = 0
        self._written_s = time.monotonic()


class _State(NamedTuple):
    """What is known of the progress of a job; the fields are the arguments of `Progress.update`."""

    phase: str  # Empty until workers report one.
    done: int = 0
    total: int | None = None
    unit: str = "B"
    rejects: int = 0


class _Files:
    """Reads the entries of all workers of a job."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._ends: dict[str, int] = {}
        self._done = dict.fromkeys(_PHASES, 0)
        self._totals = dict.fromkeys(_PHASES, 0)
        self._rejects = 0
        self._phase = ""

    def state(self) -> _State:
        """Read the new entries, and return the sums of the last phase that has some."""
        begun = set()
        for phase, done, total, rejects in self._entries():
            self._done[phase] += done
            self._totals[phase] += total
            self._rejects += rejects
            if done or not total:
                begun.add(phase)
        self._phase = max(begun, key=_PHASES.index, default=self._phase)
        if self._phase not in UNITS:
            return _State(self._phase)
        done, of_all = self._done[self._phase], self._totals[self._phase]
        return _State(self._phase, done, of_all or None, UNITS[self._phase], self._rejects)

    def _entries(self) -> Iterator[tuple[str, int, int, int]]:
        for name in os.listdir(self._directory):
            if name.startswith(PROGRESS_PREFIX):
                yield from map(_parsed, self._new_lines(name))

    def _new_lines(self, name: str) -> list[str]:
        with open(os.path.join(self._directory, name), "rb") as file:
            file.seek(self._ends.get(name, 0))
            data = file.read()
        # The last line may be incomplete on a network filesystem.
        data = data[: data.rfind(b"\n") + 1]
        self._ends[name] = self._ends.get(name, 0) + len(data)
        return data.decode().splitlines()


def _parsed(line: str) -> tuple[str, int, int, int]:
    phase, done, total, rejects = line.split("\t")
    return phase, int(done), int(total), int(rejects)


@contextlib.contextmanager
def watch(directory: str, input_bytes: int, progress: Progress | None) -> Iterator[None]:
    """Report the progress of a job from a background thread until the block ends."""
    if progress is None:
        yield
        return
    done = threading.Event()
    # Every listing of an object store is a request, which costs money.
    state, every_s = _Files(directory).state, INTERVAL_S
    if is_remote(directory):
        state, every_s = lambda: _remote_state(directory, input_bytes), REMOTE_INTERVAL_S
    watcher = threading.Thread(target=_report, args=(state, every_s, progress, done), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _report(
    look: Callable[[], _State], every_s: float, progress: Progress, done: threading.Event
) -> None:
    state, looked_s = _State(""), time.monotonic()
    while not done.wait(INTERVAL_S):
        if time.monotonic() - looked_s >= every_s:
            looked_s = time.monotonic()
            # After an error of the disk or the store, the next look may succeed. An entry that is
            # damaged is left out: the job itself does not depend on it.
            with contextlib.suppress(StorageError, OSError, ValueError, KeyError):
                state = look()
        phase, amount, total, unit, rejects = state
        shown = phase or progress.starting
        later = _LATER.get(phase, 0.0)
        progress.update(shown, amount, total, unit=unit, rejects=rejects, later=later)


def _remote_state(directory: str, input_bytes: int) -> _State:
    """Return the progress by the sizes of sorted spill files (runs) and of shards."""
    spilled = written = 0
    for file in list_files(directory):
        name = os.path.basename(file.path)
        spilled += file.bytes if name.startswith("run-") else 0
        written += file.bytes if "shard-" in name else 0
    if written and spilled:
        return _State(WRITING, written, spilled)
    encoded = written + spilled
    return _State(READING, encoded, None if encoded else input_bytes)
