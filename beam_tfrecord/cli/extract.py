"""The command `extract`: any input as a stage of Parquet files."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

import click

from beam_tfrecord.cli.base import Notes, debug_option, give, tell
from beam_tfrecord.cli.params import (
    BEAM_OPTIONS,
    BeamCommand,
    extract_arguments,
    manifest_mark,
    split_output,
    with_options,
)
from beam_tfrecord.cli.runners import beam_words
from beam_tfrecord.options.runners import EXTRACT_RUNNER_OPTIONS
from beam_tfrecord.options.table import EXTRACT_OPTIONS, SOURCE_OPTIONS

if TYPE_CHECKING:
    from beam_tfrecord.stage_manifest import StageManifest


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
    from beam_tfrecord.progress import Progress

    inputs, output = split_output(paths)
    arguments = extract_arguments(given)
    beam_options = beam_words(given, ctx.meta[BEAM_OPTIONS])
    from beam_tfrecord.jobs import api

    before = manifest_mark(output)
    began_s = time.monotonic()
    with Notes() as notes:
        with Progress() as progress:
            manifest = api.extract(
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
    from beam_tfrecord.progress import format_seconds
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
