"""Help texts: options are grouped by subject, and ``--help`` shows only the common ones."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import click

from beam_tfrecord.options import GENERAL, GROUPS
from beam_tfrecord.options.jobs import WRITE_OPTIONS

Command = TypeVar("Command", bound=Callable[..., Any])

# A command with at most this many options shows all of them.
FEW_OPTIONS = 12
_WIDEST_FLAG = 30
# Options of other programs, and what they are called here.
SYNONYMS = {
    "sep": "delimiter",
    "separator": "delimiter",
    "f": "overwrite",
    "force": "overwrite",
    "replace": "overwrite",
    "na": "null",
    "na-values": "null",
}
_SHOW_ALL = "beam_tfrecord.help_all"


class GroupedOption(click.Option):
    """An option with its section of the help."""

    def __init__(
        self, *args: Any, group: str = GENERAL, common: bool = True, **settings: Any
    ) -> None:
        super().__init__(*args, **settings)
        self.group = group
        self.common = common


def option(*names: str, **settings: Any) -> Callable[[Command], Command]:
    """Return a decorator that adds a `GroupedOption` to a command."""
    return click.option(*names, cls=GroupedOption, **settings)


class GroupedCommand(click.Command):
    """A command whose help groups its options by subject."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; the error for an unknown option names the likely one."""
        try:
            if not ctx.resilient_parsing:
                _check_repeated(self.make_parser(ctx).parse_args(list(args))[2])
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if hint := self._hint(ctx, error.option_name):
                raise click.UsageError(f"{error.message} {hint}", ctx) from None
            raise click.NoSuchOption(error.option_name, error.message, ctx=ctx) from None
        except click.UsageError as error:
            # Click's parser leaves out for which command an option lacks its value.
            error.ctx = error.ctx or ctx
            raise

    def _hint(self, ctx: click.Context, unknown: str) -> str:
        """Return what the user of an unknown option likely means; empty if nothing is alike."""
        params, name = self.get_params(ctx), unknown.lstrip("-")
        if name in ("o", "output") and params[0].make_metavar(ctx).endswith("OUTPUT"):
            return "OUTPUT is the last path."
        if unknown in (option.flag for option in WRITE_OPTIONS):
            return "Give it to 'write'."
        flags = {flag.lstrip("-"): flag for one in params for flag in one.opts}
        likely = [SYNONYMS.get(name, name), *difflib.get_close_matches(name, flags, n=1)]
        return next((f"Did you mean {flags[one]!r}?" for one in likely if one in flags), "")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the common options by subject, or all options after ``--help-all``."""
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        shown = options
        if len(options) > FEW_OPTIONS and not ctx.meta.get(_SHOW_ALL):
            shown = [one for one in options if getattr(one, "common", True)]
        write_sections(formatter, {group: _records(ctx, shown, group) for group in GROUPS})
        if hidden := len(options) - len(shown):
            formatter.write_paragraph()
            formatter.write_text(f"{hidden} more options: {ctx.command_path} --help-all")


def _check_repeated(in_order: list[click.Parameter]) -> None:
    for param, times in Counter(in_order).items():
        if isinstance(param, click.Option) and times > 1 and not (param.multiple or param.is_flag):
            commas = ", with commas between values" if "," in (param.metavar or "") else ""
            raise click.UsageError(f"{param.opts[-1]} is given {times} times: give it once{commas}")


def _records(ctx: click.Context, options: list[click.Option], group: str) -> list[tuple[str, str]]:
    """Return flags and help texts of the options of a group."""
    of_group = [one for one in options if getattr(one, "group", GENERAL) == group]
    return [record for one in of_group if (record := one.get_help_record(ctx)) is not None]


def write_sections(
    formatter: click.HelpFormatter, sections: dict[str, list[tuple[str, str]]]
) -> None:
    """Write lists of terms and descriptions under titles, all in the same two columns."""
    terms = [len(term) for records in sections.values() for term, _ in records]
    width = min(max(terms, default=0), _WIDEST_FLAG)
    for title, records in sections.items():
        if records:
            with formatter.section(title):
                formatter.write_dl([(term.ljust(width), text) for term, text in records])


def _show_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[_SHOW_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


help_all_option = option(
    "--help-all",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_all,
    help="Show all options.",
)
