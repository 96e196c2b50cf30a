"""Functions that all commands share: they print messages and results, and parse flags.

Messages go to stderr and results to stdout; `beam_tfrecord.cli.log` prints the messages. This
module also checks the options of Beam that follow ``--`` on the command line.
"""

from __future__ import annotations

import contextlib
import csv
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, NoReturn, TypeVar

import click

from beam_tfrecord.cli.help import GroupedCommand, option
from beam_tfrecord.cli.log import LOGGER, print_error
from beam_tfrecord.errors import UsageError
from beam_tfrecord.options import INPUT, Option
from beam_tfrecord.options.jobs import WRITE_OPTIONS
from beam_tfrecord.options.sources import SOURCE_OPTIONS

Command = TypeVar("Command", bound=Callable[..., Any])

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SEPARATOR = "--"
BEAM_OPTIONS = "beam_tfrecord.beam_options"


class Failure(click.ClickException):
    """An exception that ends the program with a message on stderr and an exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]

    def show(self, file: Any = None) -> None:
        """Print the message on stderr."""
        print_error(self.message)


def print_message(text: str) -> None:
    """Print a line on stderr, unless the user wants only errors."""
    LOGGER.info("%s", text)


def print_result(text: str) -> None:
    """Print a result on stdout; a reader that has closed the pipe ends the program with code 0."""
    try:
        click.echo(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout again when it ends, and would print an error about the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except OSError as error:
        raise stdout_failure(error) from None


def stdout_failure(error: OSError) -> Failure:
    """Return the `Failure` for an error of writing to stdout."""
    return Failure(f"cannot write to standard output: {(error.strerror or str(error)).lower()}", 1)


@contextlib.contextmanager
def signal_handler(handle: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """Call `handle` on SIGINT and SIGTERM during the block; no effect outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = [(number, signal.signal(number, handle)) for number in SIGNALS]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def parse_names(text: str | Sequence[str]) -> list[str]:
    """Return the names between commas; double quotes enclose a name with a comma."""
    if not isinstance(text, str):
        return list(text)
    names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    if not names or not all(names):
        raise click.BadParameter(f"{text!r} has an empty name: write A,B")
    return names


def parse_types(text: str) -> dict[str, str]:
    """Return the types of ``column=type,…`` by column.

    A comma inside a type, as in ``timestamp[us, tz=UTC]``, does not divide.
    """
    types: dict[str, str] = {}
    for pair in re.split(r",(?![^\[]*\])(?=[^,=]+=)", text):
        column, _, type_name = (part.strip() for part in pair.partition("="))
        if not column or not type_name or column in types:
            raise click.BadParameter(f"{text!r} is not of the form column=type,other=type")
        types[column] = type_name
    return types


def parse_character(text: str) -> str:
    r"""Return the only character of a text; ``tab`` and ``\t`` (two characters) are a tab."""
    character = "\t" if text in ("tab", r"\t") else text
    if len(character) != 1:
        raise click.BadParameter(f"{text!r} is not one character")
    if character.isalnum():
        # Shells pass \t without quotes as t.
        raise click.BadParameter(f"{text!r} is a letter or digit: write ';', or '\\t' in quotes")
    return character


def parse_count(text: str | int) -> int | str:
    """Return an integer, or other text (``train=64,test=8``, ``1%``) for the function to parse."""
    return int(text) if str(text).isdecimal() else str(text)


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "text": str,
    "count": parse_count,
    "names": parse_names,
    "types": parse_types,
    "char": parse_character,
}
# A path that shells complete. The functions check it, because it may also be a pattern or a URL.
INPUT_PATH = click.Path(readable=False)
INPUTS = click.argument("inputs", nargs=-1, required=True, metavar="INPUT...", type=INPUT_PATH)
# Placeholders of options that are such paths.
_PATHS = ("FILE", "DIR", "DATASET", "STEPS")


def with_options(options: Sequence[Option]) -> Callable[[Command], Command]:
    """Return a decorator that adds the flags of `options`, in their order, to a command."""

    def decorate(command: Command) -> Command:
        for row in reversed(options):
            command = option(row.flag, row.keyword, **_click_settings(row))(command)
        return command

    return decorate


def _click_settings(option: Option) -> dict[str, Any]:
    """Return the keyword arguments of a `GroupedOption` for one option of the table."""
    settings: dict[str, Any] = {
        "help": option.flag_help,
        "default": option.default,
        "group": option.group,
        "common": option.common,
    }
    if option.form in ("switch", "off"):
        return settings | {"is_flag": True, "flag_value": option.form == "switch"}
    settings["metavar"] = option.metavar
    if option.form == "words":
        return settings | {"multiple": True, "show_default": False}
    settings["show_default"] = option.default not in (None, ())
    if option.form == "number":
        kind: Any = click.INT if option.least is None else click.IntRange(option.least)
    elif option.form == "choice":
        kind = click.Choice(option.choices)
    elif option.metavar in _PATHS:
        kind = INPUT_PATH
    else:
        kind = _PARSERS[option.form]
    return settings | {"type": kind}


# The options of a source of another package, which has no flags.
package_options = option(
    "--source-option",
    "package_options",
    multiple=True,
    metavar="NAME=VALUE",
    group=INPUT,
    common=False,
    help="Option of a source of another package; may be repeated.",
)


def job_arguments(
    flags: Mapping[str, Any],
    options: Iterable[Option] = WRITE_OPTIONS,
    *,
    inputs: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the keyword arguments for `write`, `plan` or `extract` from the values of flags."""
    arguments = {option.keyword: flags[option.keyword] for option in options}
    return arguments | {"source_options": source_options(flags, inputs, flags["from_"])}


def source_options(
    flags: Mapping[str, Any], inputs: Sequence[str], from_: str | None
) -> dict[str, Any]:
    """Return the options of sources that differ from their defaults."""
    options = {
        option.keyword: flags[option.keyword]
        for option in SOURCE_OPTIONS
        if flags[option.keyword] != option.default
    }
    if pairs := flags.get("package_options"):
        from beam_tfrecord.sources.choose import parse_options

        options |= parse_options(pairs, inputs, from_=from_)
    return options


def input_arguments(flags: Mapping[str, Any], inputs: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of `loadable`: what to read, and how."""
    path, from_ = inputs[0] if len(inputs) == 1 else list(inputs), flags["from_"]
    return {"inputs": path, "from_": from_, "source_options": source_options(flags, inputs, from_)}


def is_dataset(inputs: tuple[str, ...], flags: Mapping[str, Any]) -> bool:
    """Return whether the input is one that `load` opens, and no option says how to read it."""
    from beam_tfrecord.dataset.load import is_loadable

    path, *how = input_arguments(flags, inputs).values()
    return isinstance(path, str) and not any(how) and is_loadable(path)


def split_output(paths: Sequence[str]) -> tuple[list[str], str]:
    """Return the inputs and the output of ``INPUT... OUTPUT``."""
    for path in paths:
        # The rest of an option's value, such as of "--split train=0.8 test=0.2".
        if re.fullmatch(r"%|[^\s/]+=0?\.\d+,?", path) and not os.path.exists(path):
            raise click.UsageError(
                f"{path!r} is not a path: write the value of an option without spaces, such as "
                "--split train=0.8,test=0.2 or --max-rejects 1%"
            )
    if len(paths) < 2:
        raise click.UsageError("give at least one INPUT and, last, the OUTPUT directory")
    *inputs, output = paths
    if not output:
        raise click.UsageError("OUTPUT, the last path, is empty: give a directory")
    if os.path.isfile(output):
        raise click.UsageError(f"OUTPUT, the last path, is the file {output!r}: give a directory")
    return inputs, output


class BeamCommand(GroupedCommand):
    """A command that takes the arguments after ``--`` as options of Beam."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Store Beam's options in the context, and parse the rest as usual."""
        at = args.index(SEPARATOR) if SEPARATOR in args else len(args)
        ctx.meta[BEAM_OPTIONS] = args[at + 1 :]
        try:
            return super().parse_args(ctx, args[:at])
        except click.NoSuchOption as error:
            hint = f"{error.message} Beam's own options go after {SEPARATOR!r}."
            raise click.NoSuchOption(error.option_name, hint, ctx=ctx) from None

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the parts of the usage line, with the options of Beam at the end."""
        return [*super().collect_usage_pieces(ctx), "[-- BEAM_OPTION...]"]


def check_beam_options(words: Sequence[str]) -> tuple[str, ...]:
    """Check that the arguments after ``--`` are options of Beam with valid values, and return them.

    Beam itself only warns about unknown options and ignores them, so a misspelled option would
    waste a job. This function imports Beam if there are arguments.
    """
    if not words:
        return ()
    from apache_beam.options.pipeline_options import PipelineOptions, _BeamArgumentParser

    import beam_tfrecord.runners.wheels  # noqa: F401 - it registers options of its own

    class Parser(_BeamArgumentParser):
        """Parser of Beam's options that raises `UsageError` instead of ending the process."""

        def error(self, message: str) -> NoReturn:
            raise UsageError(f"Beam option after '--': {message}")

    parser = Parser(allow_abbrev=False, add_help=False)
    # A module that is imported twice registers its class of options twice; the dict has the last.
    for options in {str(cls): cls for cls in PipelineOptions.__subclasses__()}.values():
        options._add_argparse_args(parser)
    known = [flag for action in parser._actions for flag in action.option_strings]
    for word in words:
        _check_beam_flag(word.partition("=")[0], known)
    _, unknown = parser.parse_known_args(list(words))
    if unknown:
        raise UsageError(f"{unknown[0]!r} after '--' belongs to no Beam option: write --name=value")
    return tuple(words)


def _check_beam_flag(flag: str, known: Sequence[str]) -> None:
    import difflib

    if flag == "--runner":
        raise UsageError("--runner goes before '--', as direct, flink, dataflow or another name")
    if not flag.startswith("--") or flag in known:
        return
    ours = {option.flag for option in (*WRITE_OPTIONS, *SOURCE_OPTIONS)}
    if flag in ours:
        raise UsageError(f"{flag} is not Beam's: put it before '--'")
    near = difflib.get_close_matches(flag, [*known, *ours], n=1)
    if near and near[0] in ours:
        raise UsageError(f"{flag} is not an option of Beam: write {near[0]} before '--'")
    hint = f": did you mean {near[0]}?" if near else ""
    raise UsageError(f"{flag} is not an option of Beam{hint}")
