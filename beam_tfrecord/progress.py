"""Shows the progress of a job on stderr: a bar on a terminal, or a line every few seconds.

It measures progress by the sizes of the files in the job's temporary directory. So it works for
every runner that writes to a filesystem that this process can list.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from beam_tfrecord.errors import StorageError
from beam_tfrecord.sizes import format_size
from beam_tfrecord.storage import is_remote, list_files

LINE_EVERY_S = 10.0


class Progress:
    """Shows the progress of a job on a stream; its methods are thread-safe.

    Args:
        enabled: False shows nothing.
        stream: The stream to print to; stderr by default.
        line_every_s: Seconds between two lines if the stream is not a terminal. The first line
            comes after that time, so that short jobs print nothing.
        clock: Function that returns seconds since any fixed point.
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

    def update(self, phase: str, done_bytes: int, total_bytes: int | None = None) -> None:
        """Show the progress of one phase of the job.

        Args:
            phase: Name of the phase, such as ``reading``; a new name begins a new bar.
            done_bytes: Bytes done so far in this phase. The rate does not count the bytes of the
                first report of a phase, because an earlier attempt may have done them.
            total_bytes: Bytes of the phase; None if unknown, and then no remaining time is shown.
        """
        if not self._enabled:
            return
        with self._lock:
            now_s = self._clock()
            if phase != self._phase:
                self._close_bar()
                self._phase, self._began_s, self._began_bytes = phase, now_s, done_bytes
            if self._stream.isatty():
                self._draw(done_bytes, total_bytes)
            elif now_s - self._last_line_s >= self._line_every_s:
                self._last_line_s = now_s
                seconds = now_s - self._began_s
                rate = (done_bytes - self._began_bytes) / seconds if seconds > 0 else 0.0
                # A stream that fails, for example on a full disk, must not end the job.
                with contextlib.suppress(OSError):
                    line = progress_line(phase, done_bytes, total_bytes, rate)
                    print(line, file=self._stream, flush=True)

    def _draw(self, done_bytes: int, total_bytes: int | None) -> None:
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
        self._bar.update(done_bytes - self._bar.n)

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._close_bar()


def progress_line(phase: str, done_bytes: int, total_bytes: int | None, rate: float) -> str:
    """Return one line such as ``reading: 1.2 GB of 4.0 GB (30%), 150.0 MB/s, 18.7 s left``.

    Args:
        phase: Name of the phase.
        done_bytes: Bytes done so far.
        total_bytes: Bytes of the phase; None if unknown.
        rate: Bytes a second; 0 if unknown.
    """
    parts = [format_size(done_bytes)]
    if total_bytes:
        parts[0] += f" of {format_size(total_bytes)} ({100 * done_bytes // total_bytes}%)"
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
    """Report the progress of a job from a background thread until the block ends.

    Args:
        directory: The job's temporary directory.
        input_bytes: Size of the input.
        progress: Display of the progress; None reports nothing.
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
    # Every listing of an object store is a request, which costs money.
    interval_s = REMOTE_INTERVAL_S if is_remote(directory) else INTERVAL_S
    while not done.wait(interval_s):
        spilled, written = _written_bytes(directory)
        if written and spilled:
            progress.update("writing shards", written, max(spilled, written))
        elif written or spilled:
            progress.update("encoding", written + spilled)
        else:
            progress.update(f"reading {input_bytes:,} bytes", 0)


def _written_bytes(directory: str) -> tuple[int, int]:
    """Return the present bytes of sorted spill files (runs) and of shards in a directory."""
    spilled = written = 0
    for name, nbytes in _files(directory):
        if name.startswith("run-"):
            spilled += nbytes
        elif "shard-" in name:
            written += nbytes
    return spilled, written


def _files(directory: str) -> Iterator[tuple[str, int]]:
    """Yield the name and size of each file, except files that vanish or cannot be listed."""
    with contextlib.suppress(StorageError, FileNotFoundError):
        if is_remote(directory):
            for file in list_files(directory):
                yield os.path.basename(file.path), file.bytes
            return
        with os.scandir(directory) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    yield entry.name, entry.stat().st_size
