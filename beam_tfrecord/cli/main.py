"""The command line: one command for each function, human words on stderr, data on stdout.

Exit codes: 0 done, 1 the data is at fault, 2 the command is at fault, 130 interrupted,
143 terminated. Nothing heavy is imported before a command needs it, so that ``--help`` is quick.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
from typing import Any, NoReturn

import click

from beam_tfrecord._version import __version__
from beam_tfrecord.cli.base import (
    INTERRUPTIONS,
    Commands,
    not_printed,
    tell,
)
from beam_tfrecord.cli.read import READING_COMMANDS
from beam_tfrecord.cli.write import extract, plan, schema, write

PROGRAM = "beam-tfrecord"


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name=PROGRAM)
def cli() -> None:
    """Turn tables, pictures, arrays and databases into sharded, shuffled, split datasets."""


for command in (write, plan, schema, extract, *READING_COMMANDS):
    cli.add_command(command)


# Imports make objects by the hundred thousand, none of them garbage: a seventh of their time went
# into looking for it.
_OBJECTS_BEFORE_COLLECTION = 50_000


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
        # Commands tell their own: this is of a text of help.
        failure = not_printed(error)
        failure.show()
        code = failure.exit_code
    if isinstance(code, str):
        tell(code)
    _end(code if isinstance(code, int) else int(code is not None))


def _open_closed_streams() -> None:
    """Put nothing in the place of standard streams that were closed, as by ``>&-``.

    A file that is opened next would take the number of one, and what is printed would go there.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open to the end


def _end(code: int) -> NoReturn:
    """End the process without taking all modules apart, which takes Beam's 0.4 s.

    Threads of an interrupted pipeline that still wait for work are not waited for either.
    """
    if code not in INTERRUPTIONS:
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        # A reader that has gone away has seen what it wanted.
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
