"""Shows progress on stderr: a bar on a terminal, or a line every few seconds elsewhere."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from beam_tfrecord.base.text import format_seconds, format_size

LINE_EVERY_S = 10.0
# Nothing is drawn in the first quarter of a second, so that short commands show no bar.
DRAW_EVERY_S = 0.25
# A rate over less time says nothing.
_LEAST_RATE_S = 1.0
_USUAL_COLUMNS = 80
# Numbers from here on are shown with three digits, such as 1.20M.
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
        self._bar: Any = None
        self._began_s = self._shown_s = clock()
        self._began_at = 0

    def update(
        self,
        phase: str,
        done: int,
        total: int | None = None,
        *,
        unit: str = "B",
        rejects: int = 0,
        later: float = 0.0,
    ) -> None:
        """Show the progress of one phase of the job."""
        if not self._enabled:
            return
        with self._lock:
            now_s = self._clock()
            if phase != self._phase:
                self._phase, self._began_s, self._began_at = phase, now_s, done
            if now_s - self._shown_s < self._every_s:
                return
            self._shown_s = now_s
            seconds = now_s - self._began_s
            rate = (done - self._began_at) / seconds if seconds >= _LEAST_RATE_S else 0.0
            if total is not None and done > total:
                total = None
            facts = _facts(done, total, unit, seconds, rate, rejects, later)
            # A stream that fails, for example on a full disk, must not end the job.
            with contextlib.suppress(OSError):
                if self._has_bar:
                    self._draw(_line(phase, done, total, facts, "|{bar}| "), done, total)
                else:
                    print(_line(phase, done, total, facts), file=self._stream, flush=True)

    def _draw(self, bar_format: str, done: int, total: int | None) -> None:
        from tqdm import tqdm

        if self._bar is None:
            # If tqdm asks the terminal for its size, it shows nothing if the answer is 0 columns.
            size = {"ncols": 1, "nrows": 2, "position": 0}
            self._bar = tqdm(file=self._stream, leave=False, delay=math.inf, **size)
        bar = self._bar
        bar.bar_format, bar.n, bar.total = bar_format, done, total
        bar.ncols = _columns(self._stream)
        bar.refresh()

    def say(self, text: str) -> None:
        """Print a line, above the bar if there is one."""
        if not self._enabled:
            return
        with self._lock, contextlib.suppress(OSError):
            if self._bar is not None:
                self._bar.clear()
            print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Remove the bar, and show nothing from now on."""
        with self._lock, contextlib.suppress(OSError):
            self._enabled = False
            if self._bar is not None:
                self._bar.clear()
                self._bar.close()

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


def _columns(stream: TextIO) -> int:
    """Return the width of a terminal; some report 0, others cannot be asked."""
    with contextlib.suppress(OSError, ValueError):
        return os.get_terminal_size(stream.fileno()).columns or _USUAL_COLUMNS
    return _USUAL_COLUMNS


def _line(phase: str, done: int, total: int | None, facts: str, after_percent: str = ", ") -> str:
    """Return a line such as ``reading: 30%, 1.2 GB of 4.0 GB, 150.0 MB/s, 19 s left``.

    As long as nothing is done, it is like ``reading: 4.0 GB …, 7 s`` or ``starting …, 7 s``.
    """
    if not done and not total:
        return f"{phase} {facts}"
    percent = f"{100 * done // total}%{after_percent}" if done and total else ""
    return f"{phase}: {percent}{facts}"


def _facts(
    done: int,
    total: int | None,
    unit: str,
    seconds: float,
    rate: float,
    rejects: int,
    later: float,
) -> str:
    if not done:
        facts = [f"{_amount(total, unit)} …" if total else "…"]
        facts += [_about(seconds)] if seconds >= 1 else []
    elif total:
        facts = [f"{_number(done, unit)} of {_amount(total, unit)}"]
    else:
        facts = [_amount(done, unit)]
    # What is complete waits for the next phase, and its rate would sink.
    if rate >= 1 and done != total:
        facts.append(f"{_amount(rate, unit)}/s")
    if rate > 0 and total and done < total:
        facts.append(f"{_about((total * (1 + later) - done) / rate)} left")
    if rejects:
        facts.append(_amount(rejects, "reject"))
    return ", ".join(facts)


def _amount(number: float, unit: str) -> str:
    """Return an amount with its unit, such as ``1.2 GB``, ``1 row`` or ``1.20M rows``."""
    text = _number(number, unit)
    return text if unit == "B" else f"{text} {unit}{'' if text == '1' else 's'}"


def _number(number: float, unit: str) -> str:
    if unit == "B":
        return format_size(number)
    if number < _FIRST_SHORT:
        return f"{number:,.0f}"
    from tqdm import tqdm

    return str(tqdm.format_sizeof(number))


def _about(seconds: float) -> str:
    """Return a duration like `format_seconds`, in complete seconds."""
    seconds = math.ceil(seconds)
    return f"{seconds} s" if seconds < 60 else format_seconds(seconds)
