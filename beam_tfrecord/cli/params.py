"""How flags of the table in `options.py` become click's, and their text becomes values."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

from beam_tfrecord.options.table import EXTRACT_OPTIONS, SOURCE_OPTIONS, WRITE_OPTIONS, Option

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


def parse_prices(pairs: Sequence[str]) -> dict[str, float] | None:
    """Return the prices of several ``name=amount`` by name; None if there are none.

    Raises:
        click.BadParameter: An amount is not a number.
    """
    prices = {}
    for pair in pairs:
        name, _, amount = pair.partition("=")
        try:
            prices[name] = float(amount)
        except ValueError:
            raise click.BadParameter(f"{pair!r} has no amount: write {name}=0.4") from None
    return prices or None


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
