"""What all commands share: errors as one line, words on stderr, data on stdout."""

from __future__ import annotations

import contextlib
import csv
import difflib
import logging
import os
import re
import signal
import sys
import threading
import traceback
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import click

from beam_tfrecord.errors import BeamTFRecordError, UsageError
from beam_tfrecord.options import EXTRACT_OPTIONS, SOURCE_OPTIONS, WRITE_OPTIONS, Option

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
    waiting = sys.modules.get("beam_tfrecord.runners.waiting")
    return [] if waiting is None else waiting.cancel_all()


def _what_is_kept() -> str | None:
    """Return what a job that is under way leaves; None where there is none."""
    running = sys.modules.get("beam_tfrecord.jobs.running")
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


Command = TypeVar("Command", bound=Callable[..., Any])

SEPARATOR = "--"
BEAM_OPTIONS = "beam_tfrecord.beam_options"


def parse_names(text: str | Sequence[str]) -> list[str]:
    """Return the names between commas; a name with a comma stands in double quotes.

    Raises:
        click.BadParameter: A name is empty.
    """
    if not isinstance(text, str):
        return list(text)
    names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    if not names or not all(names):
        raise click.BadParameter(f"{text!r} has an empty name: write A,B")
    return names


def parse_types(text: str) -> dict[str, str]:
    """Return the types of ``column=type,…`` by column.

    A comma inside a type, as in ``decimal(10, 2)``, does not divide.

    Raises:
        click.BadParameter: It is of another form, or names a column twice.
    """
    types: dict[str, str] = {}
    for pair in re.split(r",(?=[^,=]+=)", text):
        column, _, type_name = (part.strip() for part in pair.partition("="))
        if not column or not type_name or column in types:
            raise click.BadParameter(f"{text!r} is not of the form column=type,other=type")
        types[column] = type_name
    return types


def parse_character(text: str) -> str:
    r"""Return one character; ``\t`` as shells hand it over is a tab.

    Raises:
        click.BadParameter: There are none or several.
    """
    character = "\t" if text == r"\t" else text
    if len(character) != 1:
        raise click.BadParameter(f"{text!r} is not one character")
    return character


def parse_count(text: str | int) -> int | str:
    """Return a whole number, or text for the function to read (``train=64,test=8``, ``1%``)."""
    return int(text) if str(text).isdecimal() else str(text)


def with_options(options: Iterable[Option]) -> Callable[[Command], Command]:
    """Return a decorator that gives a command the flags of `options`, in their order."""

    def decorate(command: Command) -> Command:
        for option in reversed(list(options)):
            command = click.option(option.flag, option.keyword, **click_settings(option))(command)
        return command

    return decorate


def click_settings(option: Option) -> dict[str, Any]:
    """Return the keyword arguments of `click.option` for one option of the table."""
    settings: dict[str, Any] = {"help": option.help, "default": option.default}
    if option.form == "switch":
        return settings | {"is_flag": True}
    if option.form == "off":
        return settings | {"is_flag": True, "flag_value": False}
    shown = option.default not in (None, ()) and option.form != "words"
    settings |= {"metavar": option.metavar, "show_default": shown}
    if option.form == "words":
        return settings | {"multiple": True}
    if option.form == "number":
        bounded = option.least is not None
        return settings | {"type": click.IntRange(option.least) if bounded else click.INT}
    if option.form == "choice":
        return settings | {"type": click.Choice(option.choices)}
    return settings | {"type": _PARSERS[option.form]}


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "text": str,
    "count": parse_count,
    "names": parse_names,
    "types": parse_types,
    "char": parse_character,
}


def job_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of `write` and `plan`: sources' own options in one mapping."""
    return _arguments(WRITE_OPTIONS, given)


def extract_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of `extract`, likewise."""
    return _arguments(EXTRACT_OPTIONS, given)


def _arguments(options: Iterable[Option], given: Mapping[str, Any]) -> dict[str, Any]:
    arguments = {option.keyword: given[option.keyword] for option in options}
    return arguments | {"source_options": source_options(given)}


def source_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sources' own options that were typed; others are left to the source."""
    return {
        option.keyword: given[option.keyword]
        for option in SOURCE_OPTIONS
        if given[option.keyword] != option.default
    }


class BeamCommand(click.Command):
    """A command whose words after ``--`` are Beam's options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep Beam's options for the command, and parse the rest as usual."""
        at = args.index(SEPARATOR) if SEPARATOR in args else len(args)
        ctx.meta[BEAM_OPTIONS] = args[at + 1 :]
        try:
            return super().parse_args(ctx, args[:at])
        except click.NoSuchOption as error:
            if error.possibilities:
                raise
            hint = f"{error.message} Beam's own options go after {SEPARATOR!r}."
            raise click.NoSuchOption(error.option_name, hint, ctx=ctx) from None

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Show in the usage where Beam's options go."""
        return [*super().collect_usage_pieces(ctx), "[-- BEAM_OPTION...]"]


def split_output(paths: Sequence[str]) -> tuple[list[str], str]:
    """Return the inputs and the output of ``INPUT... OUTPUT``.

    Raises:
        click.UsageError: There is only one path, or the last is a file.
    """
    if len(paths) < 2:
        raise click.UsageError("give at least one INPUT and, last, the OUTPUT directory")
    *inputs, output = paths
    if os.path.isfile(output):
        raise click.UsageError(f"OUTPUT, the last path, is the file {output!r}: give a directory")
    return inputs, output


def manifest_mark(output: str) -> str | None:
    """Return what changes when the manifest of an output is replaced; None where there is none."""
    from beam_tfrecord.storage import absolute_path, status

    entry = status(os.path.join(absolute_path(output), "manifest.json"))
    return None if entry is None else entry.version


def check_beam_options(words: Sequence[str]) -> tuple[str, ...]:
    """Return `words` if each is an option of Beam, or the value of one; imports Beam.

    Raises:
        UsageError: An option is not Beam's, is ours, or its value is missing or wrong.
    """
    if not words:
        return ()
    from apache_beam.options.pipeline_options import PipelineOptions, _BeamArgumentParser

    import beam_tfrecord.runners.wheels  # noqa: F401 - it has options of its own

    class Parser(_BeamArgumentParser):
        """Beam's parser, with errors as ours instead of an exit."""

        def error(self, message: str) -> NoReturn:
            raise UsageError(f"Beam option after '--': {message}")

    parser = Parser(allow_abbrev=False, add_help=False)
    # A module that is imported twice registers its options twice: the last one counts.
    for options in {str(cls): cls for cls in PipelineOptions.__subclasses__()}.values():
        options._add_argparse_args(parser)
    known = [flag for action in parser._actions for flag in action.option_strings]
    ours = {option.flag for option in (*WRITE_OPTIONS, *SOURCE_OPTIONS)}
    if any(word.partition("=")[0] == "--runner" for word in words):
        raise UsageError("--runner goes before '--', as direct, flink, dataflow or another name")
    for word in words:
        _check_name(word.partition("=")[0], known, ours)
    _, unknown = parser.parse_known_args(list(words))
    if unknown:
        raise UsageError(f"{unknown[0]!r} after '--' belongs to no Beam option: write --name=value")
    return tuple(words)


def _check_name(flag: str, known: Sequence[str], ours: set[str]) -> None:
    if not flag.startswith("--") or flag in known:
        return
    if flag in ours:
        raise UsageError(f"{flag} is not Beam's: put it before '--'")
    near = difflib.get_close_matches(flag, [*known, *ours], n=1)
    if near and near[0] in ours:
        raise UsageError(f"{flag} is not an option of Beam: write {near[0]} before '--'")
    hint = f": did you mean {near[0]}?" if near else ""
    raise UsageError(f"{flag} is not an option of Beam{hint}")
