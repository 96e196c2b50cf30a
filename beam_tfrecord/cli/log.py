"""The log of a command: what it prints on stderr, and what it adds to a log file.

Everything a command says besides its results is a record of a logger of the package. Its level says
who sees it: ERROR everyone; WARNING and INFO (the outcome of a job) users without ``--quiet``;
DEBUG (what was inferred and decided) only with ``--verbose``. A file of ``--log-file`` has it all.
"""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Callable
from typing import Any, Self, TypeVar

import click

from beam_tfrecord.cli.help import help_all_option, option
from beam_tfrecord.errors import OutputWarning

# The logger of the commands, and that of the package, which is above it.
LOGGER = logging.getLogger(__name__)
_PACKAGE = logging.getLogger("beam_tfrecord")
Command = TypeVar("Command", bound=Callable[..., Any])

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class Terminal(logging.Handler):
    """Prints the package's log on stderr, and each warning once, after the other lines."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.addFilter(logging.Filter(_PACKAGE.name))
        # The texts of the warnings so far; a dict keeps their order.
        self._warnings: dict[str, None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record without its traceback; `flush` prints warnings."""
        text = record.getMessage()
        if record.levelno == logging.WARNING:
            self._warnings[text] = None
        elif record.levelno > logging.WARNING:
            self.flush()
            print_error(text)
        else:
            _print(text)

    def flush(self) -> None:
        """Print the warnings so far."""
        texts, self._warnings = self._warnings, {}
        for text in texts:
            _print(f"{_colored('warning:', 'yellow')} {text}")


def print_error(text: str) -> None:
    """Print an error on stderr, also if there is no log."""
    _print(f"{_colored('error:', 'red')} {text}")


def _colored(word: str, color: str) -> str:
    # Click removes the color if stderr is not a terminal.
    return word if os.environ.get("NO_COLOR") else click.style(word, fg=color)


def _print(text: str) -> None:
    # A closed or full stderr does not fail the command.
    with contextlib.suppress(OSError):
        click.echo(text, err=True)


class CommandLog:
    """Sends the log to the terminal, and to files if the user wants one, while a command runs."""

    def __init__(self) -> None:
        self._terminal = Terminal()
        self._exits = contextlib.ExitStack()

    @property
    def is_quiet(self) -> bool:
        """Whether the terminal shows only errors."""
        return self._terminal.level > logging.WARNING

    def __enter__(self) -> Self:
        for logger in (logging.getLogger(), _PACKAGE, LOGGER):
            self._exits.callback(logger.setLevel, logger.level)
        LOGGER.setLevel(logging.INFO)
        self._exits.enter_context(warnings.catch_warnings())
        warnings.simplefilter("always", OutputWarning)
        warnings.showwarning = _log_warning
        self._add(self._terminal)
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def show(self, level: int) -> None:
        """Print the records of the package that have at least this level."""
        self._terminal.setLevel(level)
        if level <= logging.DEBUG:
            _log_details()

    def show_all(self) -> None:
        """Print every record, also of libraries, with its time and its traceback."""
        logging.getLogger().removeHandler(self._terminal)
        self._add_full(logging.StreamHandler())

    def append_to(self, path: str) -> None:
        """Add every record, also of libraries, with its time and its traceback, to a file."""
        self._add_full(logging.FileHandler(path, encoding="utf-8"))

    def _add_full(self, handler: logging.Handler) -> None:
        handler.setFormatter(logging.Formatter(_FORMAT))
        logging.getLogger().setLevel(logging.INFO)
        # Beam logs a line for each annotation of a function that is a text.
        logging.getLogger("apache_beam.typehints").setLevel(logging.WARNING)
        _log_details()
        self._add(handler)

    def _add(self, handler: logging.Handler) -> None:
        logging.getLogger().addHandler(handler)
        for end in (handler.close, handler.flush):
            self._exits.callback(end)
        self._exits.callback(logging.getLogger().removeHandler, handler)


def _log_details() -> None:
    for logger in (_PACKAGE, LOGGER):
        logger.setLevel(logging.DEBUG)


def is_quiet() -> bool:
    """Return whether the command that is running prints only errors on stderr."""
    context = click.get_current_context(silent=True)
    log = None if context is None else context.find_object(CommandLog)
    return log is not None and log.is_quiet


def _log_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    # Users cannot act on the deprecation warnings of libraries.
    level = logging.WARNING if category is OutputWarning else logging.DEBUG
    LOGGER.log(level, "%s", message)


def _log_option(
    name: str, act: Callable[[CommandLog, Any], None], **settings: Any
) -> Callable[[Command], Command]:
    def callback(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        log = ctx.find_object(CommandLog)
        if value and log is not None:
            act(log, value)

    return option(name, expose_value=False, callback=callback, **settings)


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    _log_option(
        "--quiet",
        lambda log, _: log.show(logging.ERROR),
        is_flag=True,
        help="Print only errors on stderr; results still go to stdout.",
    ),
    _log_option(
        "--verbose",
        lambda log, _: log.show(logging.DEBUG),
        is_flag=True,
        common=False,
        help="Also print what is inferred and decided.",
    ),
    _log_option(
        "--log-file",
        CommandLog.append_to,
        type=click.Path(dir_okay=False),
        metavar="FILE",
        common=False,
        help="Append the full log to a file, with times and tracebacks.",
    ),
    _log_option(
        "--debug",
        lambda log, _: log.show_all(),
        is_flag=True,
        common=False,
        help="Print the full log on stderr, with times and tracebacks.",
    ),
    help_all_option,
)


def log_options(command: Command) -> Command:
    """Add the flags that every command has: how much it says, and ``--help-all``."""
    for add in reversed(_OPTIONS):
        command = add(command)
    return command
