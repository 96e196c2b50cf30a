"""Defines the commands on datasets, such as show, verify and card; none imports Beam."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from beam_tfrecord.base.text import counted
from beam_tfrecord.cli.base import (
    INPUT_PATH,
    INPUTS,
    input_arguments,
    is_dataset,
    package_options,
    print_message,
    print_result,
    with_options,
)
from beam_tfrecord.cli.help import GroupedCommand, option
from beam_tfrecord.cli.log import is_quiet, log_options
from beam_tfrecord.options.jobs import FROM
from beam_tfrecord.options.sources import SOURCE_OPTIONS

if TYPE_CHECKING:
    from beam_tfrecord.jobs.api import Preview

json_option = option("--json", "as_json", is_flag=True, help="Print machine-readable JSON.")

EXIT_BAD_DATA = 1


@click.command(cls=GroupedCommand, short_help="Show splits, shards, features and their ranges.")
@INPUTS
@json_option
@option(
    "--code",
    type=click.Choice(("tf", "keras", "torch")),
    help="Print code that reads the dataset and needs no package of ours.",
)
@option("--label", metavar="C", help="Column to learn, of --code keras or torch.")
@option("--history", is_flag=True, help="Show the generations: what was appended, and when.")
@with_options((FROM, *SOURCE_OPTIONS))
@package_options
@log_options
def show(
    inputs: tuple[str, ...],
    as_json: bool,
    code: str | None,
    label: str | None,
    history: bool,
    **flags: Any,
) -> None:
    """Show what INPUT holds: of a dataset splits, shards, and features with their ranges.

    INPUT is a dataset, or anything that "write" reads, of which the types of all columns are shown.
    """
    if code is not None:
        if as_json:
            raise click.UsageError("--code cannot be combined with --json")
        from beam_tfrecord.dataset.load import load
        from beam_tfrecord.format.manifest import Manifest
        from beam_tfrecord.frameworks.reading_programs import has_code, reading_code

        dataset = _single(inputs)
        manifest, first = Manifest.load(dataset), load(dataset).part(0, 2**31)
        trains = code == "keras" or (code == "torch" and label is not None)
        seen = first.stats().to_json()["splits"] if trains and has_code(dataset) else {}
        text = reading_code(manifest, code, path=dataset, label=label, seen=seen)
        print_result(text.rstrip("\n"))
        return
    if label is not None:
        raise click.UsageError("--label is for --code keras or torch")
    from beam_tfrecord.check import show as rendering
    from beam_tfrecord.frameworks.reading_programs import has_code

    if not is_dataset(inputs, flags):
        found = _preview(inputs, flags)._asdict()
        found |= {"path": " ".join(inputs), "features": found.pop("schema").to_json()["features"]}
        del found["rows"]
        print_result(_json(found) if as_json else rendering.render_input(found).rstrip("\n"))
        return
    dataset = _single(inputs)
    shown = rendering.show(dataset)
    if history and not as_json:
        print_result(rendering.render_history(shown).rstrip("\n"))
        return
    if as_json:
        print_result(_json(shown))
        return
    print_result(rendering.render_show(shown).rstrip("\n"))
    program = ", or a program from show --code" if has_code(dataset) else ""
    print_message(f"to read it: beam_tfrecord.load({shown['path']!r}){program}")


@click.command(cls=GroupedCommand, short_help="Print the first rows.")
@INPUTS
@option(
    "-n",
    "--rows",
    "count",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    metavar="N",
    help="Number of rows.",
)
@option("--split", metavar="S", help="Take the rows of one split.")
@json_option
@with_options((FROM, *SOURCE_OPTIONS))
@package_options
@log_options
@click.pass_context
def head(
    ctx: click.Context,
    /,
    inputs: tuple[str, ...],
    count: int,
    split: str | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Print the first rows of INPUT: a table as wide as the terminal, or with --json JSON Lines.

    INPUT is a dataset, or anything that "write" reads; its rows are as they would be written.
    """
    from beam_tfrecord.check import show as rendering
    from beam_tfrecord.features.python_rows import python_rows
    from beam_tfrecord.loading.value_text import json_text

    is_default = ctx.get_parameter_source("count") is ParameterSource.DEFAULT
    total: int | None
    if split is None and not is_dataset(inputs, flags):
        found = _preview(inputs, flags, n=count)
        every = (row for batch in found.rows for row in python_rows(batch, shaped=True))
        rows = rendering.with_short_floats(every, found.schema)
        total = found.examples
    else:
        dataset = _single(inputs)
        rows = rendering.head(dataset, n=count, split=split)
        total = len(rows)
        if is_default and total == count:  # only then: to count foreign files reads them
            from beam_tfrecord.dataset.load import load

            total = len(load(dataset, split=split))
    if not rows:
        print_message("no rows")
        return
    print_result(
        "\n".join(map(json_text, rows))
        if as_json
        else rendering.render_rows(rows, max_width=_terminal_width()).rstrip("\n")
    )
    if is_default and len(rows) == count != total:
        of = "the first" if total is None else f"{count} of"
        print_message(f"{of} {counted(total or count, 'row')}: -n N shows more")


def _preview(inputs: tuple[str, ...], flags: Mapping[str, Any], **how: Any) -> Preview:
    from beam_tfrecord.jobs.api import preview

    path, from_, options = input_arguments(flags, inputs).values()
    return preview(path, from_=from_, **how, **options)


def _single(inputs: tuple[str, ...]) -> str:
    if len(inputs) > 1:
        raise click.UsageError("--code and --split are for one dataset: name only one")
    return inputs[0]


@click.command(cls=GroupedCommand, short_help="Check every byte, count and value.")
@click.argument("dataset", type=INPUT_PATH)
@json_option
@log_options
@click.pass_context
def verify(ctx: click.Context, dataset: str, as_json: bool) -> None:
    """Check every CRC, count, hash and value of DATASET; exit 1 if one is wrong.

    DATASET may also be TFRecord files of other programs, without a manifest.
    """
    from beam_tfrecord.base.progress import Progress
    from beam_tfrecord.check.verify import verify as verify_dataset

    with Progress(enabled=not is_quiet()) as progress:
        found = verify_dataset(dataset, progress=progress)
    _print_report(found, found.faults, as_json=as_json)
    for note in found.notes:
        print_message(f"note: {note}")
    print_message(found.summary)
    if found.faults:
        ctx.exit(EXIT_BAD_DATA)


@click.command(cls=GroupedCommand, short_help="Say what differs between two datasets.")
@click.argument("a", type=INPUT_PATH)
@click.argument("b", type=INPUT_PATH)
@json_option
@log_options
@click.pass_context
def diff(ctx: click.Context, a: str, b: str, as_json: bool) -> None:
    """Say what differs between the datasets A and B; exit 1 if the data does."""
    from beam_tfrecord.check.diff import diff as diff_datasets

    found = diff_datasets(a, b)
    _print_report(found, found.lines(_terminal_width()), as_json=as_json)
    print_message(found.summary)
    if not found.same_data:
        ctx.exit(EXIT_BAD_DATA)


@click.command(cls=GroupedCommand, short_help="Save the intact records of a damaged dataset.")
@click.argument("dataset", type=INPUT_PATH)
@click.argument("output", type=INPUT_PATH)
@json_option
@log_options
@click.pass_context
def repair(ctx: click.Context, dataset: str, output: str, as_json: bool) -> None:
    """Write the intact records of DATASET to OUTPUT, and report losses; exit 1 if there are any."""
    from beam_tfrecord.base.progress import Progress
    from beam_tfrecord.check.repair import repair as repair_dataset

    with Progress(enabled=not is_quiet()) as progress:
        done = repair_dataset(dataset, output, progress=progress)
    _print_report(done, done.lost, as_json=as_json)
    print_message(done.summary)
    if not done.is_whole:
        ctx.exit(EXIT_BAD_DATA)


@click.command(cls=GroupedCommand, short_help="Index TFRecord files of other programs.")
@click.argument("paths", type=INPUT_PATH, nargs=-1, required=True)
@option("--dali", metavar="DIR", type=INPUT_PATH, help="Also write indexes for NVIDIA DALI to DIR.")
@json_option
@log_options
def index(paths: tuple[str, ...], dali: str | None, as_json: bool) -> None:
    """Write the indexes of PATHS, by which single records are read: of datasets or TFRecord files.

    Datasets have indexes already. Other TFRecord files need them for load(...)[i], for DALI, and
    for programs of your own.
    """
    from beam_tfrecord.base.progress import Progress
    from beam_tfrecord.dataset.make_index import index as make_index

    with Progress(enabled=not is_quiet()) as progress:
        done = [one for path in paths for one in make_index(path, dali=dali, progress=progress)]
    if as_json:
        print_result(_json([one.to_json() for one in done]))
    records = counted(sum(one.records for one in done), "record")
    print_message(f"indexed {counted(len(done), 'file')}, {records}")


@click.command(cls=GroupedCommand, short_help="Write a page that shows what is in it.")
@INPUTS
@option("--output", metavar="FILE", type=INPUT_PATH, help="Write the page to FILE.")
@option("--title", metavar="TEXT", help="Title of the page; kept in the dataset.")
@option("--description", metavar="TEXT", help="What the dataset holds; kept in the dataset.")
@option("--license", metavar="NAME", help="License of the data; kept in the dataset.")
@option("--label", metavar="C", help="Column to learn; kept in the dataset.")
@option("--against", metavar="OTHER", type=INPUT_PATH, help="Show what changed since OTHER.")
@with_options((FROM, *SOURCE_OPTIONS))
@package_options
@log_options
def card(inputs: tuple[str, ...], **flags: Any) -> None:
    """Write the card of INPUT: card.html beside the manifest of a dataset, else here.

    INPUT is a dataset, or anything that "write" reads; all rows are read. The card shows
    statistics, charts, pictures and sample rows of each feature, rejects, and how the dataset was
    made: one page without scripts. With --against it is drift.html.
    """
    from beam_tfrecord.cards.card import card as write_card

    names = ("output", "title", "description", "license", "label", "against")
    words = {name: flags.pop(name) for name in names}
    how = input_arguments(flags, inputs)
    print_message(f"wrote {write_card(how.pop('inputs'), progress=not is_quiet(), **words, **how)}")


def write_beside(output: str, *, card: bool, describe: bool) -> None:
    """Write the card of a dataset, and the files by which other tools read it, as asked."""
    if card:
        from beam_tfrecord.cards.card import card as write_card

        print_message(f"wrote {write_card(output)}")
    if describe:
        from beam_tfrecord.cards.describe import describe as write_description

        print_message(str(write_description(output)))


def _print_report(report: Any, lines: Iterable[object], *, as_json: bool) -> None:
    """Print a report as its JSON, or line by line."""
    if as_json:
        print_result(_json(report.to_json()))
        return
    for line in lines:
        print_result(str(line))


def _terminal_width() -> int | None:
    """Return the width of the terminal, 80 if that is unknown; None if stdout is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _json(value: Any) -> str:
    from beam_tfrecord.loading.value_text import json_value

    return json.dumps(json_value(value), indent=2, ensure_ascii=False)


DATASET_COMMANDS = (show, head, verify, diff, repair, index, card)
