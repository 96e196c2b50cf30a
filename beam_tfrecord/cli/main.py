"""Defines the program `beam-tfrecord`: one command for each function, with short errors.

Exit codes: 0 done, 1 the data is at fault, 2 the command is at fault, 130 interrupted,
143 terminated. Commands import Beam, pyarrow and NumPy only if they need them, so that ``--help``
is fast.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import signal
import sys
from types import FrameType
from typing import Any, NoReturn

import click

from beam_tfrecord._version import __version__
from beam_tfrecord.base.scratch import remove_scratch
from beam_tfrecord.cli.base import SIGNALS, Failure, signal_handler, stdout_failure
from beam_tfrecord.cli.dataset_commands import DATASET_COMMANDS
from beam_tfrecord.cli.help import write_sections
from beam_tfrecord.cli.job_commands import JOB_COMMANDS, export, stats
from beam_tfrecord.cli.log import LOGGER, CommandLog, print_error
from beam_tfrecord.errors import BeamTFRecordError, options_named_by

PROGRAM = "beam-tfrecord"
_MESSAGE_CHARACTERS = 500

# Imports create hundreds of thousands of objects, none of them garbage. The search for garbage took
# a seventh of the time of the imports.
_OBJECTS_BEFORE_COLLECTION = 50_000

# What does the work of commands that people look for.
_INSTEAD = {
    "concat": "write A/ B/ OUTPUT, as in docs/tfrecord.md",
    "convert": "write to make TFRecord, or export to convert back, as in docs/recipes.md",
    "count": "show",
    "delete": "write --filter, as in docs/recipes.md",
    "info": "show",
    "inspect": "show, head or stats",
    "merge": "write A/ B/ OUTPUT, as in docs/tfrecord.md",
    "mix": "beam_tfrecord.mix in Python, as in docs/reading.md",
    "read": "head, or beam_tfrecord.load in Python, as in docs/reading.md",
    "shuffle": "write, as in docs/splits-and-order.md",
    "split": "write --split train=0.9,test=0.1, as in docs/splits-and-order.md",
    "validate": "verify",
}


class Commands(click.Group):
    """The group of all commands, which turns their exceptions into a message and an exit code."""

    def invoke(self, ctx: click.Context) -> None:
        """Run a command."""
        # Runners may wrap the exception of an interrupt so that it cannot be recognized.
        interrupts: list[int] = []

        def interrupt(number: int, frame: FrameType | None) -> None:
            # A second signal ends the process at once.
            signal.signal(number, signal.SIG_DFL)
            interrupts.append(number)
            signal.default_int_handler(number, frame)

        with CommandLog() as ctx.obj, signal_handler(interrupt), options_named_by("flag"):
            try:
                super().invoke(ctx)
            except (click.exceptions.Exit, click.Abort):
                raise
            except (Exception, KeyboardInterrupt) as error:
                failure = _failure(error)
                if interrupts or isinstance(error, KeyboardInterrupt):
                    writes = ctx.invoked_subcommand in ("write", "append", "compact", "extract")
                    outcome = ": nothing was published" if writes else ""
                    number = interrupts[0] if interrupts else signal.SIGINT
                    failure = Failure(f"interrupted{outcome}", 128 + number)
                LOGGER.error("%s", failure.message, exc_info=error)
                ctx.exit(failure.exit_code)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Find a command; the error for an unknown one names what does its work, or all."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            text, others = error.format_message(), ""
            if args[0] in _INSTEAD:
                text, others = f"No such command {args[0]!r}.", f" Use {_INSTEAD[args[0]]}."
            elif "Did you mean" not in text:
                others = f" The commands are {', '.join(self.commands)}."
            raise click.UsageError(text + others, ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by what they are for."""
        width = formatter.width - 2 - max(map(len, self.commands)) - 2
        write_sections(
            formatter,
            {
                title: [(str(one.name), one.get_short_help_str(width)) for one in commands]
                for title, commands in _COMMANDS.items()
            },
        )


def _failure(error: BaseException) -> Failure:
    if isinstance(error, Failure):
        return error
    if isinstance(error, click.UsageError):
        command = PROGRAM if error.ctx is None else error.ctx.command_path
        text = error.format_message().removesuffix(".")
        return Failure(f"{text} (see {command} --help)", error.exit_code)
    if isinstance(error, BeamTFRecordError):
        return Failure(str(error), error.exit_code)
    if isinstance(error, OSError) and error.filename is not None:
        reason = (error.strerror or type(error).__name__).lower()
        hint = "check the path and its permissions"
        return Failure(f"cannot access {error.filename!r}: {reason}: {hint}", 2)
    lines = str(error).strip().splitlines()
    message = f": {lines[0][:_MESSAGE_CHARACTERS]}" if lines else ""
    name = type(error).__name__
    return Failure(f"unexpected {name}{message} (run with --debug for the traceback)", 2)


_COMMANDS = {
    "Write datasets": JOB_COMMANDS,
    "Read and check datasets": (*DATASET_COMMANDS, stats, export),
}


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name=PROGRAM)
def cli() -> None:
    """Turn tables, images, arrays and databases into sharded, shuffled TFRecord datasets.

    \b
    beam-tfrecord write trips.csv trips/ --split train=0.9,test=0.1
    beam-tfrecord show trips/
    beam-tfrecord COMMAND --help
    """  # noqa: D301 - click keeps the lines after \b


for _commands in _COMMANDS.values():
    for _command in _commands:
        cli.add_command(_command)


def main() -> NoReturn:
    """Run the command line and end the process."""
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION, *gc.get_threshold()[1:])
    _open_closed_streams()
    code: Any = 0
    try:
        cli.main(prog_name=PROGRAM)
    except SystemExit as error:
        code = error.code
    except OSError as error:
        # Commands handle their own errors, so this one comes from printing a help text.
        failure = stdout_failure(error)
        failure.show()
        code = failure.exit_code
    if isinstance(code, str):
        print_error(code)
    _end(code if isinstance(code, int) else int(code is not None))


def _open_closed_streams() -> None:
    """Open the null device in place of closed standard streams (``>&-`` in a shell).

    Otherwise the next file that is opened would get the descriptor of a closed stream, and printed
    text would go to that file.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open to the end


def _end(code: int) -> NoReturn:
    """End the process without the cleanup of modules, which takes 0.4 s with Beam.

    It also does not wait for threads, because those of an interrupted pipeline may never end.
    """
    if code not in [128 + number for number in SIGNALS]:
        atexit._run_exitfuncs()
    remove_scratch()
    for stream in (sys.stdout, sys.stderr):
        # A program that has closed the pipe does not need the rest of the output.
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
