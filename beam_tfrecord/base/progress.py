"""Shows progress on stderr: a bar on a terminal, or a line every few seconds elsewhere."""

from __future__ import annotations

import contextlib
import logging
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from beam_tfrecord.base.text import counted

LINE_EVERY_S = 10.0
# Nothing is drawn in the first quarter of a second, so that short commands show no bar.
DRAW_EVERY_S = 0.25
# Counts from here on are shown with three digits, such as 1.20M.
_FIRST_SHORT = 100_000


class Progress:
    """Shows the progress of a job on a stream; its methods are thread-safe.

    A bar and the lines of a log would overwrite each other. So if the log of the package is shown,
    and not only written to a file, lines are printed on a terminal, too.
    """

    starting = "starting"

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
        self._has_bar = enabled and self._stream.isatty() and not _shows_log()
        self._every_s = DRAW_EVERY_S if self._has_bar else line_every_s
        self._clock = clock
        # The handler of a signal may close a display that its thread is just drawing.
        self._lock = threading.RLock()
        self._phase = ""
        self._drawn = 0
        self._began_s = self._shown_s = clock()
        self._began_at = 0

    def update(
        self, phase: str, done: int, total: int | None = None, *, unit: str = "B", rejects: int = 0
    ) -> None:
        """Show the progress of one phase of the job."""
        with self._lock:
            now_s = self._clock()
            if phase != self._phase:
                self._phase, self._began_s, self._began_at = phase, now_s, done
            if not self._enabled or now_s - self._shown_s < self._every_s:
                return
            self._shown_s = now_s
            line = self._line(done, total, now_s - self._began_s, unit, rejects)
            # A stream that fails, for example on a full disk, must not end the job.
            with contextlib.suppress(OSError):
                if self._has_bar:
                    self._draw(line)
                else:
                    print(line, file=self._stream, flush=True)

    def _line(self, done: int, total: int | None, seconds: float, unit: str, rejects: int) -> str:
        """Return a line such as ``reading:  30%|###     | 1.20G/4.00G [00:08<00:19, 150MB/s]``."""
        from tqdm import tqdm

        line: str = tqdm.format_meter(
            done,
            total,
            seconds,
            ncols=shutil.get_terminal_size().columns - 1 if self._has_bar else None,
            prefix=self._phase,
            ascii=True,
            unit=unit,
            unit_scale=unit == "B" or max(done, total or 0) >= _FIRST_SHORT,
            bar_format=None if done or total else "{desc}: {elapsed}",
            postfix=counted(rejects, "reject") if rejects else None,
            initial=self._began_at,
        )
        return line

    def _draw(self, line: str) -> None:
        """Write a line over the one that was drawn before."""
        print(f"\r{line.ljust(self._drawn)}", end="", file=self._stream, flush=True)
        self._drawn = len(line)

    def _clear(self) -> None:
        if self._drawn:
            self._draw("")
            print(end="\r", file=self._stream, flush=True)

    def say(self, text: str) -> None:
        """Print a line, above the bar if there is one."""
        if not self._enabled:
            return
        with self._lock, contextlib.suppress(OSError):
            self._clear()
            print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Remove the bar, and show nothing from now on."""
        with self._lock, contextlib.suppress(OSError):
            self._enabled = False
            self._clear()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def display_of(progress: Progress | bool | None) -> Iterator[Progress | None]:
    """Give the display for an argument `progress`, and close it after the block if it is new."""
    if progress is True:
        with Progress() as bar:
            yield bar
    else:
        yield progress or None


def adder(progress: Progress | None, phase: str, total: int) -> Callable[[int], None]:
    """Return a thread-safe function that adds a number of bytes to the progress of a phase."""
    if progress is None:
        return lambda _: None
    lock, done = threading.Lock(), 0

    def add(nbytes: int) -> None:
        nonlocal done
        with lock:
            done += nbytes
        progress.update(phase, done, total)

    add(0)
    return add


def _shows_log() -> bool:
    """Return whether the details that the package logs are shown, and not only kept in a file."""
    package = logging.getLogger("beam_tfrecord")
    return package.isEnabledFor(logging.INFO) and any(
        handler.level < logging.INFO and not isinstance(handler, logging.FileHandler)
        for handler in (*logging.getLogger().handlers, *package.handlers)
    )
