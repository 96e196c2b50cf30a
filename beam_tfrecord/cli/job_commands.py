"""Defines the commands that run or plan jobs (write, plan, schema, extract), and their output."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from beam_tfrecord.base.scratch import remove_scratch
from beam_tfrecord.base.text import counted, format_seconds, format_size
from beam_tfrecord.cli.base import (
    BEAM_OPTIONS,
    INPUT_PATH,
    INPUTS,
    BeamCommand,
    check_beam_options,
    input_arguments,
    is_dataset,
    job_arguments,
    package_options,
    parse_names,
    print_message,
    print_result,
    signal_handler,
    source_options,
    split_output,
    with_options,
)
from beam_tfrecord.cli.dataset_commands import write_beside
from beam_tfrecord.cli.help import GroupedCommand, option
from beam_tfrecord.cli.log import LOGGER, is_quiet, log_options
from beam_tfrecord.options import OUTPUT, RUNNER
from beam_tfrecord.options.jobs import (
    APPEND_OPTIONS,
    EXTRACT_OPTIONS,
    EXTRACT_RUNNER_OPTIONS,
    FROM,
    RUNNER_OPTIONS,
    WRITE_OPTIONS,
    WriteOptions,
    misplaced,
    runner_words,
)
from beam_tfrecord.options.sources import SOURCE_OPTIONS
from beam_tfrecord.runners import check_runner_name

if TYPE_CHECKING:
    from beam_tfrecord.base.progress import Progress
    from beam_tfrecord.format.manifest import Manifest
    from beam_tfrecord.format.stage import StageManifest

Result = TypeVar("Result")

_RUNNER_NAME = next(option for option in WRITE_OPTIONS if option.keyword == "runner")


@click.command(cls=BeamCommand, short_help="Write files or a database as a dataset.")
@click.argument("paths", nargs=-1, required=True, metavar="INPUT... OUTPUT", type=INPUT_PATH)
@with_options((*WRITE_OPTIONS, *SOURCE_OPTIONS, *RUNNER_OPTIONS))
@package_options
@option(
    "--card",
    is_flag=True,
    group=OUTPUT,
    common=False,
    help="Also write card.html, which shows what the dataset holds.",
)
@option(
    "--describe",
    is_flag=True,
    group=OUTPUT,
    common=False,
    help="Also write the files of TensorFlow Datasets and Croissant.",
)
@option("--dry-run", is_flag=True, group=RUNNER, help="Only say what would be done, and how.")
@option(
    "--detach",
    is_flag=True,
    group=RUNNER,
    common=False,
    help="Leave the job to its runner, and do not wait.",
)
@log_options
@click.pass_context
def write(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    card: bool,
    describe: bool,
    dry_run: bool,
    detach: bool,
    **flags: Any,
) -> None:
    """Write INPUT as a dataset into the directory OUTPUT.

    INPUT is CSV, JSON, Parquet, image or NumPy files, directories or patterns of them, the URL of a
    database, or "-" for standard input. Options of Beam itself go after a lone "--".

    Example: beam-tfrecord write trips.csv trips/ --split train=0.9,test=0.1
    """
    inputs, output = split_output(paths)
    arguments = job_arguments(flags, inputs=inputs) | _beam_arguments(ctx, flags)
    if card and (detach or flags["template_location"]):
        raise click.UsageError("--card needs the end of the job: run beam-tfrecord card later")
    if describe and (detach or flags["template_location"]):
        raise click.UsageError("--describe needs the end of the job: run the same write later")
    if dry_run:
        _dry_run(inputs, output, **arguments)
        return
    if detach or flags["template_location"]:
        _start_only(inputs, output, flags["template_location"], **arguments)
        return
    from beam_tfrecord.jobs import api

    manifest, is_new, seconds = _run(api.write, inputs, output, arguments)
    if is_new:
        if LOGGER.isEnabledFor(logging.DEBUG):
            from beam_tfrecord.check import show

            LOGGER.debug("%s", show.render_show(show.show(output)).rstrip("\n"))
        print_message(summary(manifest, output, seconds=seconds))
    else:
        print_message(f"{output} already holds this dataset: nothing to do")
    if card or describe:
        write_beside(output, card=card, describe=describe)


@click.command(cls=BeamCommand, short_help="Add the rows of new files to a dataset.")
@click.argument("paths", nargs=-1, required=True, metavar="INPUT... DATASET", type=INPUT_PATH)
@with_options((*APPEND_OPTIONS, *SOURCE_OPTIONS, *EXTRACT_RUNNER_OPTIONS))
@package_options
@log_options
@click.pass_context
def append(ctx: click.Context, /, paths: tuple[str, ...], **flags: Any) -> None:
    """Append the rows of new files of INPUT to DATASET.

    Schema, splits, seed, order, function and preprocessing are those of DATASET. Files that it has
    already are skipped, so the same command with the same pattern takes only what is new.

    Example: beam-tfrecord append trips/ dataset/
    """
    inputs, output = split_output(paths)
    arguments = job_arguments(flags, APPEND_OPTIONS, inputs=inputs) | _beam_arguments(ctx, flags)
    from beam_tfrecord.format.manifest import Manifest
    from beam_tfrecord.jobs import api

    before = Manifest.load(output)
    manifest, is_new, seconds = _run(api.append, inputs, output, arguments)
    if not is_new:
        print_message(f"{output} has the rows of all these files: nothing to do")
        return
    added = manifest.examples - before.examples
    print_message(
        f"appended {counted(added, 'row')} to {output}, which has {manifest.examples:,} in "
        f"{counted(len(manifest.generations), 'generation')}, in {format_seconds(seconds)}"
    )


@click.command(cls=BeamCommand, short_help="Make one generation of a dataset again.")
@click.argument("dataset", type=INPUT_PATH)
@with_options((_RUNNER_NAME, *EXTRACT_RUNNER_OPTIONS))
@log_options
@click.pass_context
def compact(ctx: click.Context, /, dataset: str, **flags: Any) -> None:
    """Write all generations of DATASET as one, in its place, as one "write" would have done."""
    arguments = _beam_arguments(ctx, flags) | {"runner": flags["runner"]}
    from beam_tfrecord.jobs import api

    def run(_: list[str], output: str, **options: Any) -> Manifest:
        return api.compact(output, **options)

    manifest, is_new, seconds = _run(run, [], dataset, arguments)
    done = f"wrote {counted(len(manifest.shards), 'shard')} in {format_seconds(seconds)}"
    print_message(f"{dataset} has one generation: {done if is_new else 'nothing to do'}")


@click.command(cls=BeamCommand, short_help='Say what "write" would do.')
@click.argument("paths", nargs=-1, required=True, metavar="INPUT... OUTPUT", type=INPUT_PATH)
@with_options((*WRITE_OPTIONS, *SOURCE_OPTIONS, *RUNNER_OPTIONS))
@package_options
@option("--json", "as_json", is_flag=True, help="Print machine-readable JSON.")
@log_options
@click.pass_context
def plan(ctx: click.Context, /, paths: tuple[str, ...], as_json: bool, **flags: Any) -> None:
    """Say what "write" would do with the same arguments, and do nothing."""
    inputs, output = split_output(paths)
    arguments = job_arguments(flags, inputs=inputs) | _beam_arguments(ctx, flags)
    from beam_tfrecord.jobs import api

    planned = api.plan(inputs, output, **arguments)
    if as_json:
        print_result(json.dumps(planned, indent=2, ensure_ascii=False))
    else:
        print_result("\n".join(f"{label}: {text}" for label, text in planned.lines()))


@click.command(cls=GroupedCommand, short_help="Print the schema of the input.")
@INPUTS
@with_options((FROM, *SOURCE_OPTIONS))
@package_options
@option("--observed", is_flag=True, help="Add limits that the values of a dataset keep to.")
@log_options
def schema(inputs: tuple[str, ...], from_: str | None, observed: bool, **flags: Any) -> None:
    """Print the schema that INPUT shows, as JSON; edited, it is for "write --schema"."""
    from beam_tfrecord.jobs import api

    options = source_options(flags, inputs, from_)
    if observed:
        options["observed"] = True
    found = api.schema(list(inputs), from_=from_, **options)
    print_result(found.dumps().rstrip("\n"))


@click.command(cls=BeamCommand, short_help="Copy the input to Parquet files.")
@click.argument("paths", nargs=-1, required=True, metavar="INPUT... STAGE", type=INPUT_PATH)
@with_options((*EXTRACT_OPTIONS, *SOURCE_OPTIONS, *EXTRACT_RUNNER_OPTIONS))
@package_options
@option("--json", "as_json", is_flag=True, help="Print a machine-readable summary as JSON.")
@log_options
@click.pass_context
def extract(ctx: click.Context, /, paths: tuple[str, ...], as_json: bool, **flags: Any) -> None:
    """Extract INPUT, such as a database, to Parquet files in the directory STAGE.

    "write STAGE OUTPUT" then never touches INPUT. Options of Beam itself go after a lone "--".
    """
    inputs, output = split_output(paths)
    arguments = job_arguments(flags, EXTRACT_OPTIONS, inputs=inputs) | _beam_arguments(ctx, flags)
    from beam_tfrecord.jobs import api

    manifest, is_new, seconds = _run(api.extract, inputs, output, arguments)
    if as_json:
        values = _stage_values(manifest, is_new=is_new, seconds=seconds)
        print_result(json.dumps(values, ensure_ascii=False))
    if not is_new:
        print_message(f"{output} already holds this stage: nothing to do")
        return
    print_message(_stage_summary(manifest, output, seconds=seconds))


@click.command(cls=BeamCommand, short_help="Describe the values of every feature.")
@INPUTS
@option("--split", metavar="S", help="Describe one split.")
@option("--json", "as_json", is_flag=True, help="Print machine-readable JSON.")
@option(
    "--top",
    type=click.IntRange(min=0),
    default=None,
    metavar="N",
    help="Most frequent values of a feature in the JSON.",
)
@option("--tfmd", metavar="FILE", help="Write a DatasetFeatureStatisticsList, which TFDV reads.")
@option("--output", metavar="FILE", type=INPUT_PATH, help="Write the JSON to FILE, by a Beam job.")
@with_options((FROM, *SOURCE_OPTIONS, _RUNNER_NAME, *EXTRACT_RUNNER_OPTIONS))
@package_options
@log_options
@click.pass_context
def stats(
    ctx: click.Context,
    /,
    inputs: tuple[str, ...],
    split: str | None,
    as_json: bool,
    top: int | None,
    tfmd: str | None,
    output: str | None,
    **flags: Any,
) -> None:
    """Count, range and distribution of each feature of INPUT, by split; reads all of it.

    INPUT is a dataset, or anything that "write" reads. Beyond 2,048 different values of a feature,
    quartiles and the number of different values are estimates; means and deviations are exact.
    """
    beam_arguments = _beam_arguments(ctx, flags)
    if output is None and flags["runner"] != "direct":
        raise click.UsageError("--runner needs --output FILE, which the job can write")
    if flags["runner"] != "direct" and not is_dataset(inputs, flags):
        raise click.UsageError("--runner is for datasets: write the input first")
    from beam_tfrecord.base.progress import Progress, adder
    from beam_tfrecord.dataset.load import load
    from beam_tfrecord.jobs.api import loadable
    from beam_tfrecord.stats.statistics import MOST_TOP, statistics_of

    with (
        Progress(enabled=not is_quiet()) as progress,
        loadable(**input_arguments(flags, inputs), progress=progress) as stored,
    ):
        if output is not None:
            from beam_tfrecord.jobs.statistics_job import write_statistics

            write_statistics(stored, output, split=split, runner=flags["runner"], **beam_arguments)
            return
        rows = load(stored, split=split)
        nbytes = sum(shard.bytes for shard in rows.shards)
        add = adder(progress, "reading", nbytes)
        found = statistics_of(rows, advance=lambda n: add(n * nbytes // len(rows)))
    if tfmd is not None:
        from beam_tfrecord.stats.tfmd import to_tfmd
        from beam_tfrecord.storage import absolute_path, put

        put(absolute_path(tfmd), to_tfmd(found).SerializeToString(deterministic=True))
    elif as_json:
        values = found.to_json(top=MOST_TOP if top is None else top)
        print_result(json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print_result(str(found))


@click.command(cls=BeamCommand, short_help="Convert back to Parquet, CSV, JSON or images.")
@click.argument("dataset", type=INPUT_PATH)
@click.argument("output", type=INPUT_PATH)
@option(
    "--to",
    type=click.Choice(("parquet", "csv", "jsonl", "images")),
    help="Format of the files, by default the suffix of OUTPUT; images are files in class folders.",
)
@option("--split", metavar="S", help="Export one split.")
@option("--columns", metavar="A,B", type=parse_names, help="Columns to export.")
@with_options((_RUNNER_NAME, *EXTRACT_RUNNER_OPTIONS))
@log_options
@click.pass_context
def export(ctx: click.Context, /, dataset: str, output: str, **flags: Any) -> None:
    """Convert DATASET back: each shard becomes a file in OUTPUT, such as train-00000-of-00008.csv.

    The same command again continues an export that was stopped. Options of Beam itself go after a
    lone "--".
    """
    chosen = {name: flags[name] for name in ("to", "split", "columns", "runner")}
    chosen |= _beam_arguments(ctx, flags)
    from beam_tfrecord.jobs.export import export as export_dataset

    rows = export_dataset(dataset, output, **chosen)
    print_message(f"exported {counted(rows, 'row')} to {output}")


JOB_COMMANDS = (write, append, compact, plan, schema, extract)


def _beam_arguments(ctx: click.Context, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the argument `pipeline_options`: from flags of the runner, then from after ``--``."""
    check_runner_name(flags["runner"])
    if (wrong := misplaced(flags["runner"].lower(), flags)) is not None:
        raise click.UsageError(f"{wrong.flag} is for --runner {' or '.join(wrong.runners)}")
    words = (*runner_words(flags), *check_beam_options(ctx.meta[BEAM_OPTIONS]))
    return {"pipeline_options": words}


def _dry_run(inputs: list[str], output: str, **arguments: Any) -> None:
    """Print what a job would read and write, and how its runner would run it."""
    from beam_tfrecord.jobs.api import readable
    from beam_tfrecord.jobs.run import describe
    from beam_tfrecord.jobs.settings import make_settings

    with readable(WriteOptions(inputs, output, **arguments)) as ready:
        planned, details = describe(make_settings(ready))
    print_result("\n".join(f"{label}: {text}" for label, text in planned.lines()))
    if not LOGGER.isEnabledFor(logging.DEBUG):
        details.pop("graph", None)
    if details:
        print_result(json.dumps(details, indent=2, ensure_ascii=False))


def _start_only(inputs: list[str], output: str, template: str | None, **arguments: Any) -> None:
    """Start a job without waiting for it, or write its template, and print where to find it."""
    from beam_tfrecord.jobs.run import make_template, submit
    from beam_tfrecord.jobs.settings import make_settings

    settings = make_settings(WriteOptions(inputs, output, **arguments))
    if template is not None:
        make_template(settings)
        print_message(f"wrote the template {template}: each run of it writes {output}")
    elif (started := submit(settings)) is not None:
        where = f": see {started.page}" if started.page else ""
        print_message(f"started {started}{where}")
        print_result(started.id)


def _run(
    function: Callable[..., Result], inputs: list[str], output: str, arguments: Mapping[str, Any]
) -> tuple[Result, bool, float]:
    """Run a job with a progress bar."""
    from beam_tfrecord.base.progress import Progress

    before = _manifest_version(output)
    began_s = time.monotonic()
    with Progress(enabled=not is_quiet()) as progress, _job_ends_at_interrupt(progress):
        manifest = function(inputs, output, progress=progress, **arguments)
    is_new = before is None or _manifest_version(output) != before
    if not is_new:
        # Make compares times. A dataset of another user, or in an object store, keeps its own.
        with contextlib.suppress(OSError):
            os.utime(os.path.join(output, "manifest.json"))
    return manifest, is_new, time.monotonic() - began_s


def _manifest_version(output: str) -> str | None:
    """Return a value that changes if the manifest of an output is replaced; None without one."""
    from beam_tfrecord.storage import absolute_path, status

    entry = status(os.path.join(absolute_path(output), "manifest.json"))
    return None if entry is None else entry.version


@contextlib.contextmanager
def _job_ends_at_interrupt(progress: Progress) -> Iterator[None]:
    """End the process at the first interrupt of a running job, and print which results remain.

    This is safe because a job can resume from its files at any moment. The process does not wait
    for its threads because they may be busy for a long time.
    """
    from beam_tfrecord.jobs.run import what_is_kept
    from beam_tfrecord.runners.launch_settings import cancel_all

    handler_outside: Any = signal.getsignal(signal.SIGINT)

    def interrupt(number: int, frame: FrameType | None) -> None:
        if what_is_kept() is None:
            handler_outside(number, frame)
            return
        # A second signal ends the process at once.
        signal.signal(number, signal.SIG_DFL)
        progress.close()
        cancelled = cancel_all()
        # Not the earlier result: a remote job may have published before the runner cancelled it.
        outcome = "; ".join([*cancelled, what_is_kept() or "nothing was published"])
        LOGGER.error("interrupted: %s", outcome)
        sys.stderr.flush()
        remove_scratch()
        os._exit(128 + number)

    with signal_handler(interrupt):
        yield


def summary(manifest: Manifest, output: str, *, seconds: float) -> str:
    """Return one line such as ``wrote 1,000 rows in 2 splits, 3 shards (98.1 MB) to out/ …``.

    If a filter, a sample, the map function or a step left out rows, it says
    ``wrote 998 of 1,000 rows``.
    """
    splits = f" in {counted(len(manifest.splits), 'split')}" if len(manifest.splits) > 1 else ""
    rows = _counted_rows(manifest.examples, manifest.rejects.get("rows", 0), output)
    return (
        f"wrote {rows}{splits}, "
        f"{counted(len(manifest.shards), 'shard')} ({_size(manifest, output)}) "
        f"to {output} in {format_seconds(seconds)}"
    )


def _counted_rows(rows: int, rejects: int, output: str) -> str:
    """Return a number of written rows, and the number of all rows if some were left out."""
    read = _rows_read(output)
    return f"{rows:,} of {read:,} rows" if read - rows - rejects > 0 else counted(rows, "row")


def _rows_read(output: str) -> int:
    """Return the number of rows that the job of a dataset read, or 0 if it is not known."""
    from beam_tfrecord.format.job_file import JOB_NAME, read_job
    from beam_tfrecord.format.manifest import beside_manifest

    return int(read_job(beside_manifest(output, JOB_NAME)).get("rows_read", 0))


def _size(manifest: Manifest, output: str) -> str:
    from beam_tfrecord.storage import absolute_path, file_size

    if not manifest.compression:
        return format_size(manifest.bytes)
    directory = absolute_path(output)
    stored = sum(file_size(os.path.join(directory, shard.path)) for shard in manifest.shards)
    return f"{format_size(stored)} compressed from {format_size(manifest.bytes)}"


def _stage_values(manifest: StageManifest, *, is_new: bool, seconds: float) -> dict[str, Any]:
    return {
        "written": is_new,
        "rows": manifest.rows,
        "files": len(manifest.files),
        "bytes": manifest.bytes,
        "rejects": manifest.rejects["rows"],
        "seconds": round(seconds, 3),
    }


def _stage_summary(manifest: StageManifest, output: str, *, seconds: float) -> str:
    rows = _counted_rows(manifest.rows, manifest.rejects["rows"], output)
    return (
        f"extracted {rows} to {counted(len(manifest.files), 'file')} "
        f"({format_size(manifest.bytes)}) in {output} in {format_seconds(seconds)}"
    )
