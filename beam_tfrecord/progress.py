"""Progress on stderr: a bar on a terminal, a line every few seconds elsewhere.

Of a job it is seen from the files of its temporary directory, so every runner that shares the
output's filesystem shows the same, whatever it reports by itself.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, TextIO

from beam_tfrecord.errors import StorageError
from beam_tfrecord.sizes import format_size
from beam_tfrecord.storage import is_remote, list_files

LINE_EVERY_S = 10.0


class Progress:
    """Shows how far a job is.

    Usable from any thread, and cheap enough to be called several times a second.

    Args:
        enabled: Show anything at all.
        stream: Where to; stderr by default.
        line_every_s: Seconds between two lines where the stream is no terminal; the first comes
            after that time, so that short jobs stay silent.
        clock: Seconds from any fixed point.
    """

    def __init__(
        self,
        enabled: bool = True,
        *,
        stream: TextIO | None = None,
        line_every_s: float = LINE_EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._enabled = enabled
        self._stream = sys.stderr if stream is None else stream
        self._line_every_s = line_every_s
        self._clock = clock
        self._lock = threading.Lock()
        self._phase = ""
        self._bar: Any = None
        self._began_s = self._last_line_s = clock()
        self._began_bytes = 0

    def update(
        self,
        phase: str,
        done_bytes: int,
        total_bytes: int | None = None,
        rows: int | None = None,
    ) -> None:
        """Report how far a phase is.

        Args:
            phase: What is being done, such as ``reading``; another one begins anew.
            done_bytes: Bytes done so far in this phase. What a phase begins with, as what a job
                that goes on has done before, does not count for its rate.
            total_bytes: Bytes in all; None where unknown, and then no remaining time is shown.
            rows: Rows done so far.
        """
        if not self._enabled:
            return
        with self._lock:
            now_s = self._clock()
            if phase != self._phase:
                self._close_bar()
                self._phase, self._began_s, self._began_bytes = phase, now_s, done_bytes
            if self._stream.isatty():
                self._draw(done_bytes, total_bytes, rows)
            elif now_s - self._last_line_s >= self._line_every_s:
                self._last_line_s = now_s
                rate = 0.0
                if now_s > self._began_s:
                    rate = (done_bytes - self._began_bytes) / (now_s - self._began_s)
                line = progress_line(phase, done_bytes, total_bytes, rows, rate)
                # A stream that takes no more words, as on a full disk, is no fault of the job.
                with contextlib.suppress(OSError):
                    self._stream.write(f"{line}\n")
                    self._stream.flush()

    def _draw(self, done_bytes: int, total_bytes: int | None, rows: int | None) -> None:
        if self._bar is None:
            from tqdm import tqdm

            self._bar = tqdm(
                desc=self._phase,
                total=total_bytes,
                initial=self._began_bytes,
                unit="B",
                unit_scale=True,
                leave=False,
                dynamic_ncols=True,
                file=self._stream,
            )
        self._bar.total = total_bytes
        if rows is not None:
            self._bar.set_postfix_str(f"{rows:,} rows", refresh=False)
        self._bar.update(done_bytes - self._bar.n)

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._lock:
            self._close_bar()


def progress_line(
    phase: str, done_bytes: int, total_bytes: int | None, rows: int | None, rate: float
) -> str:
    """Return one line such as ``reading: 1.2 GB of 4.0 GB (30%), 5,000 rows, 150.0 MB/s, …``.

    Args:
        phase: What is being done.
        done_bytes: Bytes done so far.
        total_bytes: Bytes in all; None where unknown.
        rows: Rows done so far; None where unknown.
        rate: Bytes a second; 0 where unknown.
    """
    parts = [format_size(done_bytes)]
    if total_bytes:
        parts[0] += f" of {format_size(total_bytes)} ({100 * done_bytes // total_bytes}%)"
    if rows is not None:
        parts.append(f"{rows:,} rows")
    if rate > 0:
        parts.append(f"{format_size(rate)}/s")
        if total_bytes:
            parts.append(f"{format_seconds(max(0, total_bytes - done_bytes) / rate)} left")
    return f"{phase}: {', '.join(parts)}"


def format_seconds(seconds: float) -> str:
    """Return a duration for a human: ``3.2 s``, ``2 min 05 s``, ``1 h 02 min``."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


INTERVAL_S = 0.5
REMOTE_INTERVAL_S = 10.0


@contextlib.contextmanager
def watch(directory: str, input_bytes: int, progress: Progress | None) -> Iterator[None]:
    """Report how far the job in `directory` is, until the block ends.

    Args:
        directory: The job's temporary directory.
        input_bytes: Size of the input.
        progress: Where to report; None: nowhere.
    """
    if progress is None:
        yield
        return
    done = threading.Event()
    watcher = threading.Thread(
        target=_report, args=(directory, input_bytes, progress, done), daemon=True
    )
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _report(directory: str, input_bytes: int, progress: Progress, done: threading.Event) -> None:
    # To list an object store takes a request, and costs money.
    interval_s = REMOTE_INTERVAL_S if is_remote(directory) else INTERVAL_S
    while not done.wait(interval_s):
        spilled, written = written_bytes(directory)
        if written and spilled:
            progress.update("writing shards", written, max(spilled, written))
        elif written or spilled:
            progress.update("encoding", written + spilled)
        else:
            progress.update(f"reading {input_bytes:,} bytes", 0)


def written_bytes(directory: str) -> tuple[int, int]:
    """Return the bytes of runs, and of shards, that are there so far."""
    spilled = written = 0
    if is_remote(directory):
        return _remote_bytes(directory)
    with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                if entry.name.startswith("run-"):
                    spilled += entry.stat().st_size
                elif "shard-" in entry.name:
                    written += entry.stat().st_size
    return spilled, written


def _remote_bytes(directory: str) -> tuple[int, int]:
    spilled = written = 0
    # A look that fails is no reason to end a job.
    with contextlib.suppress(StorageError):
        for entry in list_files(directory):
            name = os.path.basename(entry.path)
            if name.startswith("run-"):
                spilled += entry.bytes
            elif "shard-" in name:
                written += entry.bytes
    return spilled, written
