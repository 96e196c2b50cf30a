"""What the command line says to runners, and what it does where nobody waits for a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from beam_tfrecord.cli.base import Notes, give, tell
from beam_tfrecord.options.runners import misplaced, runner_words


def beam_words(given: Mapping[str, Any], after: Sequence[str]) -> tuple[str, ...]:
    """Return Beam's options: those of the runner's flags, then those after ``--``.

    Args:
        given: Values of all flags by keyword.
        after: The words after ``--``.

    Raises:
        click.UsageError: A flag is of another runner.
        UsageError: A word is no option of Beam.
    """
    from beam_tfrecord.cli.beam_help import check_beam_options

    if (wrong := misplaced(given["runner"].lower(), given)) is not None:
        raise click.UsageError(f"{wrong.flag} is for --runner {' or '.join(wrong.runners)}")
    return (*runner_words(given), *check_beam_options(after))


def give_dry_run(inputs: list[str], output: str, **arguments: Any) -> None:
    """Print what a job would do and how."""
    from beam_tfrecord.cli.summary import render
    from beam_tfrecord.jobs.settings import make_settings
    from beam_tfrecord.jobs.submit import describe

    with Notes():
        give("\n".join(render(describe(make_settings(inputs, output, **arguments)))))


def start_only(inputs: list[str], output: str, template: str | None, **arguments: Any) -> None:
    """Start a job, or write its template, and say where to find it.

    Args:
        inputs: Of the job.
        output: Of the job.
        template: Where a template goes; None: the job is started.
        **arguments: Of `write`.
    """
    from beam_tfrecord.jobs.settings import make_settings
    from beam_tfrecord.jobs.submit import make_template, submit

    with Notes():
        settings = make_settings(inputs, output, **arguments)
        if template is not None:
            make_template(settings)
            tell(f"wrote the template {template}: each run of it writes {output}")
        elif (started := submit(settings)) is not None:
            where = f": see {started.page}" if started.page else ""
            tell(f"started {started}{where}")
            give(started.id)
