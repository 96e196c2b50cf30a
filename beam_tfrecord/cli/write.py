"""The command `extract`: any input as a stage of Parquet files."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from beam_tfrecord.cli.base import (
    BEAM_OPTIONS,
    BeamCommand,
    Notes,
    check_beam_options,
    debug_option,
    extract_arguments,
    give,
    job_arguments,
    manifest_mark,
    source_options,
    split_output,
    tell,
    with_options,
)
from beam_tfrecord.options import EXTRACT_OPTIONS, FROM, SOURCE_OPTIONS, WRITE_OPTIONS
from beam_tfrecord.options.runners import (
    EXTRACT_RUNNER_OPTIONS,
    RUNNER_OPTIONS,
    misplaced,
    runner_words,
)
from beam_tfrecord.sizes import format_size

if TYPE_CHECKING:
    from beam_tfrecord.manifest import Manifest
    from beam_tfrecord.staging.manifest import StageManifest


@click.command(cls=BeamCommand)
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
    from beam_tfrecord.jobs.progress import Progress

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
    from beam_tfrecord.jobs import job

    before = manifest_mark(output)
    began_s = time.monotonic()
    with Notes() as notes:
        with Progress() as progress:
            manifest = job.write(
                inputs, output, pipeline_options=beam_options, progress=progress, **arguments
            )
        if before is not None and manifest_mark(output) == before:
            tell(f"{output} already holds this dataset: nothing to do")
            return
        tell(summary(manifest, output, seconds=time.monotonic() - began_s))
        notes.lines += [line for line in warnings_of(manifest, output) if line not in notes.lines]


@click.command(cls=BeamCommand)
@click.argument("paths", nargs=-1, required=True, metavar="INPUT... OUTPUT")
@with_options((*WRITE_OPTIONS, *SOURCE_OPTIONS, *RUNNER_OPTIONS))
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Reckon for N machines.")
@click.option("--machine", default="n2-standard-4", metavar="TYPE", help="Type of each of them.")
@click.option("--usd-hour", type=float, metavar="USD", help="Price of an hour of one of them.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@debug_option
@click.pass_context
def plan(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    workers: int | None,
    machine: str,
    usd_hour: float | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Say what "write" would do with the same arguments, and do nothing."""
    import json

    inputs, output = split_output(paths)
    arguments = job_arguments(given)
    beam_options = beam_words(given, ctx.meta[BEAM_OPTIONS])
    from beam_tfrecord.jobs import job

    with Notes():
        planned = job.plan(
            inputs,
            output,
            workers=workers,
            machine=machine,
            usd_hour=usd_hour,
            pipeline_options=beam_options,
            **arguments,
        )
        text = json.dumps(planned, indent=2, ensure_ascii=False)
        give(text if as_json else "\n".join(render(planned)))


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@with_options((FROM, *SOURCE_OPTIONS))
@debug_option
def schema(inputs: tuple[str, ...], from_: str | None, **given: Any) -> None:
    """Print the schema that INPUT shows, as JSON; edited, it is for "write --schema"."""
    from beam_tfrecord.jobs import job

    with Notes():
        found = job.schema(list(inputs), from_=from_, **source_options(given))
        give(found.dumps().rstrip("\n"))


@click.command(cls=BeamCommand)
@click.argument("paths", nargs=-1, required=True, metavar="INPUT... STAGE")
@with_options((*EXTRACT_OPTIONS, *SOURCE_OPTIONS, *EXTRACT_RUNNER_OPTIONS))
@click.option("--json", "as_json", is_flag=True, help="Print a summary as JSON.")
@debug_option
@click.pass_context
def extract(ctx: click.Context, /, paths: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Extract INPUT, such as a database, to Parquet files in the directory STAGE.

    "write STAGE OUTPUT" then never touches INPUT. Options of Beam itself go after a lone "--".
    """
    from beam_tfrecord.jobs.progress import Progress

    inputs, output = split_output(paths)
    arguments = extract_arguments(given)
    beam_options = beam_words(given, ctx.meta[BEAM_OPTIONS])
    from beam_tfrecord.staging import job

    before = manifest_mark(output)
    began_s = time.monotonic()
    with Notes() as notes:
        with Progress() as progress:
            manifest = job.extract(
                inputs, output, pipeline_options=beam_options, progress=progress, **arguments
            )
        is_new = before is None or manifest_mark(output) != before
        seconds = time.monotonic() - began_s
        if as_json:
            give(json.dumps(_told(manifest, is_new=is_new, seconds=seconds), ensure_ascii=False))
        if not is_new:
            tell(f"{output} already holds this stage: nothing to do")
            return
        tell(_summary(manifest, output, seconds=seconds))
        notes.lines += [line for line in _warnings(manifest, output) if line not in notes.lines]


def _told(manifest: StageManifest, *, is_new: bool, seconds: float) -> dict[str, Any]:
    return {
        "written": is_new,
        "rows": manifest.rows,
        "files": len(manifest.files),
        "bytes": manifest.bytes,
        "rejects": manifest.rejects["rows"],
        "seconds": round(seconds, 3),
    }


def _summary(manifest: StageManifest, output: str, *, seconds: float) -> str:
    from beam_tfrecord.jobs.progress import format_seconds
    from beam_tfrecord.sizes import format_size

    rows, files = manifest.rows, len(manifest.files)
    return (
        f"extracted {rows:,} row{'' if rows == 1 else 's'} to {files:,} "
        f"file{'' if files == 1 else 's'} ({format_size(manifest.bytes)}) in {output} in "
        f"{format_seconds(seconds)}"
    )


def _warnings(manifest: StageManifest, output: str) -> list[str]:
    lines = []
    if not manifest.rows:
        lines.append("the input holds no rows: the stage has no files")
    if rejected := int(manifest.rejects["rows"]):
        where = os.path.join(output, "rejects")
        lines.append(
            f"{rejected:,} row{'' if rejected == 1 else 's'} rejected: the reasons are in {where}"
        )
    return lines


_COLUMNS_NAMED = 5


def summary(manifest: Manifest, output: str, *, seconds: float) -> str:
    """Return one line such as ``wrote 1,000 rows in 2 splits, 3 shards (98.1 MB) to out/ …``."""
    from beam_tfrecord.jobs.progress import format_seconds

    parts = [f"{manifest.examples:,} row{_s(manifest.examples)}"]
    if len(manifest.splits) > 1:
        parts[0] += f" in {len(manifest.splits)} splits"
    shards = len(manifest.shards)
    parts.append(f"{shards:,} shard{_s(shards)} ({_size(manifest, output)})")
    return f"wrote {', '.join(parts)} to {output} in {format_seconds(seconds)}"


def warnings_of(manifest: Manifest, output: str) -> list[str]:
    """Return a line for everything about a dataset that its maker should know."""
    lines = []
    if not manifest.examples:
        lines.append("the input holds no rows: the dataset has no shards")
    lines += _losses(manifest)
    if rejected := int(manifest.rejects.get("rows", 0)):
        where = os.path.join(output, "rejects")
        lines.append(f"{rejected:,} row{_s(rejected)} rejected: the reasons are in {where}")
    if manifest.order == "shuffled" and manifest.place == "bytes":
        lines.append("rows have no stable number here: their order follows from their bytes")
    return lines


def _losses(manifest: Manifest) -> list[str]:
    rounded: dict[str, float] = {}
    cut: dict[str, float] = {}
    for feature in manifest.schema.features:
        if feature.observed is not None and (error := feature.observed.max_relative_error) > 0:
            (rounded if feature.store == "auto" else cut)[feature.name] = error
    lines = []
    if rounded:
        lines.append(
            f"values of {_named(rounded)} were rounded to float32 (relative error at most "
            f'{max(rounded.values()):.1e}): "store": "bytes" or "text" in --schema keeps them exact'
        )
    if cut:
        lines.append(
            f"values of {_named(cut)} have more digits than float64 holds (relative error at most "
            f'{max(cut.values()):.1e}): "store": "text" in --schema keeps them exact'
        )
    return lines


def _named(columns: Iterable[str]) -> str:
    names = [repr(name) for name in columns]
    more = f" and {len(names) - _COLUMNS_NAMED} more" if len(names) > _COLUMNS_NAMED else ""
    return ", ".join(names[:_COLUMNS_NAMED]) + more


def _size(manifest: Manifest, output: str) -> str:
    if not manifest.compression:
        return format_size(manifest.bytes)
    from beam_tfrecord.storage import absolute_path, file_size

    directory = absolute_path(output)
    paths = [os.path.join(directory, shard.path) for shard in manifest.shards]
    stored = sum(file_size(path) for path in paths)
    return f"{format_size(stored)} compressed from {format_size(manifest.bytes)}"


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def render(value: Mapping[str, Any], *, indent: int = 0) -> list[str]:
    """Return the lines of a nested mapping, a key a line."""
    lines = []
    for key, item in value.items():
        label = f"{' ' * indent}{key.replace('_', ' ')}:"
        if isinstance(item, Mapping) and item:
            lines += [label, *render(item, indent=indent + 2)]
        else:
            lines.append(f"{label} {_word(key, item)}")
    return lines


def _word(key: str, value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return format_size(value) if key.endswith("bytes") else f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(_word(key, item) for item in value) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_word(name, item)}" for name, item in value.items()) or "none"
    return str(value)


def beam_words(given: Mapping[str, Any], after: Sequence[str]) -> tuple[str, ...]:
    """Return Beam's options: those of the runner's flags, then those after ``--``.

    Args:
        given: Values of all flags by keyword.
        after: The words after ``--``.

    Raises:
        click.UsageError: A flag is of another runner.
        UsageError: A word is no option of Beam.
    """
    if (wrong := misplaced(given["runner"].lower(), given)) is not None:
        raise click.UsageError(f"{wrong.flag} is for --runner {' or '.join(wrong.runners)}")
    return (*runner_words(given), *check_beam_options(after))


def give_dry_run(inputs: list[str], output: str, **arguments: Any) -> None:
    """Print what a job would do and how."""
    from beam_tfrecord.jobs.settings import make_settings
    from beam_tfrecord.jobs.submitting import describe

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
    from beam_tfrecord.jobs.submitting import make_template, submit

    with Notes():
        settings = make_settings(inputs, output, **arguments)
        if template is not None:
            make_template(settings)
            tell(f"wrote the template {template}: each run of it writes {output}")
        elif (started := submit(settings)) is not None:
            where = f": see {started.page}" if started.page else ""
            tell(f"started {started}{where}")
            give(started.id)
