"""What all commands share: errors as one line, words on stderr, data on stdout."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import traceback
import types
import warnings
from collections.abc import Iterator
from typing import Any

import click

from beam_tfrecord.errors import BeamTFRecordError

INTERRUPTED = 128 + signal.SIGINT
INTERRUPTIONS = (INTERRUPTED, 128 + signal.SIGTERM)
_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_DEBUG = "beam_tfrecord.debug"
_LOGGER = "beam_tfrecord"
_MESSAGE_CHARACTERS = 500


class Failure(click.ClickException):
    """An error that ends the program with one line and an exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]

    def show(self, file: Any = None) -> None:
        """Print the line on stderr."""
        tell(f"error: {self.message}")


class Commands(click.Group):
    """The group of all commands: it turns what they raise into one line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        with _interrupts() as interrupts:
            try:
                return super().invoke(ctx)
            except (click.ClickException, click.exceptions.Exit, click.Abort):
                raise
            except (Exception, KeyboardInterrupt) as error:
                if ctx.meta.get(_DEBUG):
                    traceback.print_exc()
                if interrupts or isinstance(error, KeyboardInterrupt):
                    writing = ctx.invoked_subcommand in ("write", "extract")
                    outcome = ": nothing was published" if writing else ""
                    code = 128 + interrupts[0] if interrupts else INTERRUPTED
                    raise Failure(f"interrupted{outcome}", code) from None
                raise _failure(error) from error


@contextlib.contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Give a list that grows by each interrupt; a runner may wrap the exception beyond knowing.

    A job that writes is ended at once, wherever it is: what it has on the disk is good for the
    next attempt at any moment, and its threads may be busy for long.
    """
    seen: list[int] = []

    def interrupt(number: int, frame: types.FrameType | None) -> None:
        # Once more, and there is no word and no wait.
        signal.signal(number, signal.SIG_DFL)
        seen.append(number)
        if _what_is_kept() is not None:
            cancelled = _cancelled()
            # Only now: a job elsewhere may have published before it heard.
            told = "; ".join([*cancelled, _what_is_kept() or "nothing was published"])
            Failure(f"interrupted: {told}", 128 + number).show()
            sys.stderr.flush()
            os._exit(128 + number)
        signal.default_int_handler(number, frame)

    if threading.current_thread() is not threading.main_thread():
        yield seen
        return
    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _cancelled() -> list[str]:
    """Cancel what runs elsewhere for this process; return a line about each job."""
    waiting = sys.modules.get("beam_tfrecord.runners.launch")
    return [] if waiting is None else waiting.cancel_all()


def _what_is_kept() -> str | None:
    """Return what a job that is under way leaves; None where there is none."""
    running = sys.modules.get("beam_tfrecord.jobs.run")
    return None if running is None else running.what_is_kept()


def _failure(error: Exception) -> Failure:
    if isinstance(error, BeamTFRecordError):
        return Failure(str(error), error.exit_code)
    if isinstance(error, OSError) and error.filename is not None:
        reason = (error.strerror or type(error).__name__).lower()
        return Failure(f"cannot access {error.filename!r}: {reason}", 2)
    lines = str(error).strip().splitlines()
    message = f": {lines[0][:_MESSAGE_CHARACTERS]}" if lines else ""
    name = type(error).__name__
    return Failure(f"unexpected {name}{message} (run with --debug for the traceback)", 2)


def _debug_chosen(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    ctx.meta[_DEBUG] = value
    ctx.with_resource(_log_levels(value))


@contextlib.contextmanager
def _log_levels(debug: bool) -> Iterator[None]:
    """Show the log, or hide what a user cannot act on: errors reach them as exceptions."""
    root, ours = logging.getLogger(), logging.getLogger(_LOGGER)
    before = root.level, ours.level
    root.setLevel(logging.INFO if debug else logging.ERROR)
    ours.setLevel(logging.INFO if debug else logging.WARNING)
    handler = logging.StreamHandler()
    shown = warnings.showwarning
    if debug:
        root.addHandler(handler)
    else:
        warnings.showwarning = _tell_warning
    try:
        yield
    finally:
        warnings.showwarning = shown
        root.removeHandler(handler)
        root.setLevel(before[0])
        ours.setLevel(before[1])


def _tell_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Print what concerns this run; deprecations inside libraries do not."""
    if category is RuntimeWarning:
        tell(f"warning: {message}")


debug_option = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=_debug_chosen,
    help="Show tracebacks and the log.",
)


class Notes(logging.Handler):
    """Keeps the warnings that the package logs while it works, to be printed at the end."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self._logger = logging.getLogger(_LOGGER)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one message, once."""
        if (line := record.getMessage()) not in self.lines:
            self.lines.append(line)

    def __enter__(self) -> Notes:
        self._logger.addHandler(self)
        # Under --debug the log shows them too, when they happen.
        self._logger.propagate = self._logger.isEnabledFor(logging.INFO)
        return self

    def __exit__(self, *exception: object) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate = True
        for line in self.lines:
            tell(f"warning: {line}")


def tell(words: str) -> None:
    """Print words for a human on stderr; where it takes none, the work is as good without."""
    with contextlib.suppress(OSError):
        click.echo(words, err=True)


def not_printed(error: OSError) -> Failure:
    """Return the failure for an error of stdout."""
    return Failure(f"cannot write to standard output: {(error.strerror or str(error)).lower()}", 1)


def give(text: str) -> None:
    """Print data on stdout; a reader that has gone away, such as ``head``, ends us in silence."""
    try:
        click.echo(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout once more when it ends, and would complain then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except OSError as error:
        raise not_printed(error) from None
