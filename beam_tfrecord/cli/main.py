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
import time
from typing import Any, NoReturn

import click

from beam_tfrecord._version import __version__
from beam_tfrecord.cli.base import (
    INTERRUPTIONS,
    Commands,
    Notes,
    debug_option,
    give,
    not_printed,
    tell,
)
from beam_tfrecord.cli.extract import extract
from beam_tfrecord.cli.params import (
    BEAM_OPTIONS,
    BeamCommand,
    job_arguments,
    manifest_mark,
    parse_prices,
    source_options,
    split_output,
    with_options,
)
from beam_tfrecord.cli.read import READING_COMMANDS
from beam_tfrecord.cli.runners import beam_words, give_dry_run, start_only
from beam_tfrecord.options.runners import RUNNER_OPTIONS
from beam_tfrecord.options.table import FROM, SOURCE_OPTIONS, WRITE_OPTIONS

PROGRAM = "beam-tfrecord"


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name=PROGRAM)
def cli() -> None:
    """Turn tables, pictures, arrays and databases into sharded, shuffled, split datasets."""


@cli.command(cls=BeamCommand)
@click.argument("paths", nargs=-1, required=True, metavar="INPUT... OUTPUT")
@with_options((*WRITE_OPTIONS, *SOURCE_OPTIONS, *RUNNER_OPTIONS))
@click.option("--dry-run", is_flag=True, help="Only say what would be done, and how.")
@click.option("--detach", is_flag=True, help="Leave the job to its runner, and do not wait.")
@debug_option
@click.pass_context
def write(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    dry_run: bool,
    detach: bool,
    **given: Any,
) -> None:
    """Write INPUT (files, directories, patterns) as a dataset into the directory OUTPUT.

    Options of Beam itself go after a lone "--".
    """
    from beam_tfrecord.cli.summary import summary, warnings_of
    from beam_tfrecord.progress import Progress

    inputs, output = split_output(paths)
    arguments = job_arguments(given)
    beam_options = beam_words(given, ctx.meta[BEAM_OPTIONS])
    if dry_run:
        give_dry_run(inputs, output, pipeline_options=beam_options, **arguments)
        return
    if detach or given["template_location"]:
        place = given["template_location"]
        start_only(inputs, output, place, pipeline_options=beam_options, **arguments)
        return
    from beam_tfrecord.jobs import api

    before = manifest_mark(output)
    began_s = time.monotonic()
    with Notes() as notes:
        with Progress() as progress:
            manifest = api.write(
                inputs, output, pipeline_options=beam_options, progress=progress, **arguments
            )
        if before is not None and manifest_mark(output) == before:
            tell(f"{output} already holds this dataset: nothing to do")
            return
        tell(summary(manifest, output, seconds=time.monotonic() - began_s))
        notes.lines += [line for line in warnings_of(manifest, output) if line not in notes.lines]


@cli.command(cls=BeamCommand)
@click.argument("paths", nargs=-1, required=True, metavar="INPUT... OUTPUT")
@with_options((*WRITE_OPTIONS, *SOURCE_OPTIONS, *RUNNER_OPTIONS))
@click.option(
    "--price",
    "prices",
    multiple=True,
    callback=lambda ctx, param, pairs: parse_prices(pairs),
    metavar="NAME=AMOUNT",
    help="Your price of a million read_requests or write_requests, or of a GB of shuffle_bytes; "
    "may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@debug_option
@click.pass_context
def plan(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    prices: dict[str, float] | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Say what "write" would do with the same arguments, and do nothing."""
    import json

    from beam_tfrecord.cli.summary import render

    inputs, output = split_output(paths)
    arguments = job_arguments(given)
    beam_options = beam_words(given, ctx.meta[BEAM_OPTIONS])
    from beam_tfrecord.jobs import api

    with Notes():
        planned = api.plan(
            inputs, output, prices=prices, pipeline_options=beam_options, **arguments
        )
        text = json.dumps(planned, indent=2, ensure_ascii=False)
        give(text if as_json else "\n".join(render(planned)))


@cli.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@with_options((FROM, *SOURCE_OPTIONS))
@debug_option
def schema(inputs: tuple[str, ...], from_: str | None, **given: Any) -> None:
    """Print the schema that INPUT shows, as JSON; edited, it is for "write --schema"."""
    from beam_tfrecord.jobs import api

    with Notes():
        found = api.schema(list(inputs), from_=from_, **source_options(given))
        give(found.dumps().rstrip("\n"))


for command in (extract, *READING_COMMANDS):
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
