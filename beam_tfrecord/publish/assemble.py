"""Makes the manifest and the schema files of the output of a job, and publishes all its files.

`warn_of` says afterwards what the user should know about the output.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shlex
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from beam_tfrecord.base.text import counted, listed
from beam_tfrecord.errors import DataError, OutputWarning, UsageError, for_caller
from beam_tfrecord.exchange.merge_plan import split_order
from beam_tfrecord.features.feature import LABELS_FILE, ColumnStats, labels_text
from beam_tfrecord.features.feature_spec import schema_pbtxt
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.hashes import data_hash, sum_text
from beam_tfrecord.format.job_file import JOB_NAME, read_job
from beam_tfrecord.format.layout import Layout
from beam_tfrecord.format.manifest import (
    ASSIGNED,
    BY_BYTES,
    BY_COLUMN,
    BY_GROUP,
    CATEGORIES_FILE,
    Manifest,
    fitted_files,
)
from beam_tfrecord.format.manifest_parts import Generation, Shard, Split
from beam_tfrecord.format.rejects import SAVED_FILE, SavedRejects, join_rejects
from beam_tfrecord.format.stage import StageFile, StageManifest
from beam_tfrecord.format.tally import Tally, duplicate_lines, duplicates_to_json
from beam_tfrecord.images import refused_warning
from beam_tfrecord.job_state.checkpoints import FinishedShard
from beam_tfrecord.job_state.job import Job, Target
from beam_tfrecord.job_state.stored_state import load_remarks
from beam_tfrecord.publish.publication import Publication
from beam_tfrecord.publish.transaction import put_in_place
from beam_tfrecord.records.shard_index import index_name
from beam_tfrecord.storage import Lease, read_bytes

# The error of rounding to float32 that is worth a warning, as a share of the range of a column.
# Every float that is not a float32 is rounded, mostly by 1e-7 of the range or less. Half precision,
# the coarsest usual input of a model, has steps of 5e-4 of a feature that is scaled to 1.
NOTICED_ROUNDING = 1e-4


def publish_dataset(
    job: Job,
    tally: Tally,
    shards: Sequence[FinishedShard],
    *,
    lease: Lease,
    info: Mapping[str, Any],
) -> list[str]:
    """Publish finished shards as a dataset."""
    rejects = join_rejects(tally.reject_files, os.path.join(job.directory, SAVED_FILE))
    manifest, named, sidecars, remarks = describe(job, tally, shards, rejects)
    publication = Publication(
        job, named, checked_text(manifest), sidecars, rejects, {**info, **remarks}
    )
    put_in_place(publication, lease)
    return [name for name, _ in named]


class Described(NamedTuple):
    """What a job publishes: the manifest, the named shards, the side files, entries of job.json."""

    manifest: Manifest
    named: list[tuple[str, FinishedShard]]
    sidecars: dict[str, bytes]
    remarks: dict[str, Any]


def describe(
    job: Job, tally: Tally, shards: Sequence[FinishedShard], rejects: SavedRejects
) -> Described:
    """Return the description of the files that a job has written, as a dataset of its own."""
    layout, target = job.layout, job.target
    splits = named_shards(shards, layout)
    read = _schema_of(job, tally)
    _check_null_shares(read, tally.records)
    schema = read if job.fitted is None else _with_categories(read, job.fitted)
    classes = next((feature.labels for feature in read.features if feature.labels), ())
    sidecars = _sidecars(schema, classes, job.fitted)
    hashes = {target.name(name): data_hash(data) for name, data in sidecars.items()}
    named = [(shard.path, finished) for of_split in splits.values() for shard, finished in of_split]
    manifest = Manifest(
        fingerprint=job.identity.fingerprint,
        content=sum_text(shard.content for shard in shards),
        order="shuffled" if layout.shuffle else "source",
        seed=layout.seed,
        compression=layout.compression,
        key=layout.key or None,
        group=layout.group or tally.group or None,
        place=_order_by(layout, tally),
        schema=schema,
        source=job.identity.source,
        rejects={"rows": rejects.rows, "xxh64": rejects.xxh64},
        sidecars=hashes
        | {index_name(name): shard.index_xxh64 for name, shard in named if shard.index_xxh64},
        splits={
            name: Split(tuple(shard for shard, _ in of_split)) for name, of_split in splits.items()
        },
        split_by=_split_by(layout, tally),
        strata=layout.splits.strata,
    )
    remarks = {
        "rows_read": tally.rows,
        "left_out_columns": sorted(tally.left_out),
        "remarks": [
            *load_remarks(job.directory),
            *_empty_remarks(job, tally),
            *_nan_remarks(schema),
            *_struct_remarks(schema),
            *_torn_remarks(tally),
            *_rare_remarks(layout, schema),
            *_dropped_remarks(tally),
        ],
        "copies": tally.copies and duplicates_to_json(tally.copies),
        "refused_pictures": tally.refused and dataclasses.asdict(tally.refused),
    }
    return Described(manifest, named, sidecars, remarks)


def checked_text(manifest: Manifest | StageManifest) -> str:
    """Return the text of a manifest that can be read: no other one may replace a good dataset."""
    text = manifest.dumps()
    try:
        type(manifest).loads(text)
    except DataError as error:
        raise DataError(
            f"nothing was published, because its manifest could not be read: {error.__cause__}"
        ) from error
    return text


def _schema_of(job: Job, tally: Tally) -> Schema:
    if job.known is None:
        return tally.final_schema()
    is_complete = tally.records == job.known_examples
    return job.known if is_complete else job.known.without_observed()


def _check_null_shares(schema: Schema, rows: int) -> None:
    """Check that no column lacks values in more rows than the schema allows."""
    for feature in schema.features:
        most, seen = feature.allowed.get("max_null_share", 1), feature.observed
        if seen is None and rows and most < 1:
            raise DataError(
                f"nothing was published: max_null_share of {feature.name!r} cannot be checked "
                "when rows are copied: name all columns with --columns, which parses them"
            )
        if seen is not None and rows and seen.missing / rows > most:
            raise DataError(
                f"nothing was published: column {feature.name!r} has no value in {seen.missing:,} "
                f"of {counted(rows, 'row')} (max_null_share: {most}): correct it, or change the "
                "schema"
            )


def _empty_remarks(job: Job, tally: Tally) -> list[str]:
    """Return why the output has no rows, unless rejects are the only reason."""
    left_out = tally.rows - tally.rejects
    if tally.records or (tally.rejects and not left_out):
        return []
    if not tally.rows:
        return ["the input holds no rows: the output has no files of data"]
    by = f"a filter, a sample{', a preprocessing step' if job.fitted else ''} or the map function"
    return [f"no rows are left: {by} left out {left_out:,} of {counted(tally.rows, 'row')}"]


def _nan_remarks(schema: Schema) -> list[str]:
    """Return a warning about NaN in columns of floats, where data frames often mean null."""
    names = [
        f"{of.name!r} ({counted(of.observed.nan, 'value')})"
        for of in schema.features
        if of.observed and of.observed.nan and pa.types.is_floating(of.type)
    ]
    advice = (
        f"NaN, which is not null, and from which no model learns, in {listed(names)}: "
        '--filter "x = x" leaves out rows with NaN in x, a step such as impute fills it, and '
        "docs/types.md says how to make it null"
    )
    return [advice] if names else []


def _struct_remarks(schema: Schema) -> list[str]:
    """Return a warning about structs whose fields are all null, which no reader can tell apart."""
    names = [
        f"{of.name!r} ({counted(of.observed.null_structs, 'row')})"
        for of in schema.features
        if of.observed and of.observed.null_structs
    ]
    advice = (
        f"structs whose fields are all null come back as null structs, in {listed(names)}: to tell "
        "them apart, add a field that is never null, such as is_known"
    )
    return [advice] if names else []


def _torn_remarks(tally: Tally) -> list[str]:
    if not tally.torn:
        return []
    return [
        f"{counted(tally.torn, 'row')} became several that lie in different splits, because the "
        "bytes of an example decide its split: hold them together by a column with --group, or by "
        "AssignSplits before MapRows"
    ]


def _rare_remarks(layout: Layout, schema: Schema) -> list[str]:
    """Return a warning about the classes that have too few rows to be in every split."""
    splits, column = layout.splits, layout.splits.stratify
    if splits.strata is None or column is None:
        return []
    needed = len(splits.filled_names)
    labels = schema[column].labels if column in schema else ()
    rare = [
        f"{labels[int(of.value)] if labels and of.value else of.value!r} "
        f"({counted(of.rows, 'row')})"
        for of in splits.strata.classes
        if of.rows < needed
    ]
    why = f"classes of {column!r} with fewer rows than the {needed} splits are not in each"
    return [f"{why}: {listed(rare)}"] if rare else []


def _dropped_remarks(tally: Tally) -> list[str]:
    if not tally.dropped:
        return []
    return [f"--dedup left out {counted(tally.dropped, 'row')} equal to another one of the split"]


def _with_categories(schema: Schema, fitted: str) -> Schema:
    """Return the schema with the categories of columns that preprocessing replaced by numbers."""
    found = json.loads(read_bytes(os.path.join(fitted, CATEGORIES_FILE)))
    return schema.edit(
        **{
            name: dataclasses.replace(schema[name], labels=tuple(categories))
            for name, categories in found.items()
            if name in schema
        }
    )


def _sidecars(schema: Schema, classes: Sequence[str], fitted: str | None) -> dict[str, bytes]:
    """Return the content of the side files (schema, labels, fitted function) by name."""
    sidecars = {
        # Without the statistics, which appended rows change: a side file is never replaced.
        "schema.json": schema.without_observed().dumps().encode(),
        "schema.pbtxt": schema_pbtxt(schema).encode(),
    }
    if classes:
        sidecars[LABELS_FILE] = labels_text(classes)
    if fitted is not None:
        sidecars |= {name: read_bytes(os.path.join(fitted, name)) for name in fitted_files(fitted)}
    return sidecars


def named_shards(
    shards: Sequence[FinishedShard], layout: Layout
) -> dict[str, list[tuple[Shard, FinishedShard]]]:
    """Number the shards of every split without gaps, and name them.

    Splits that got no rows, though they have a share, have no shards.
    """
    named: dict[str, list[tuple[Shard, FinishedShard]]] = {}
    declared = layout.splits.filled_names if layout.splits.are_given else ()
    for split in split_order({*declared, *(shard.split for shard in shards)}, layout):
        of_split = sorted(
            (shard for shard in shards if shard.split == split and shard.examples),
            key=lambda shard: shard.order,
        )
        named[split] = [
            (
                Shard(
                    layout.names(split, number, len(of_split)),
                    shard.examples,
                    shard.bytes,
                    shard.xxh64,
                ),
                shard,
            )
            for number, shard in enumerate(of_split)
        ]
    if layout.names.prefix is not None and sum(map(bool, named.values())) > 1:
        raise UsageError(
            f"splits need a directory: write to '{layout.names.prefix}/' instead of a file prefix"
        )
    names = [shard.path for of_split in named.values() for shard, _ in of_split]
    if len(set(names)) < len(names):
        raise UsageError(
            f"two shards would be named {max(names, key=names.count)!r}: "
            "number them with S in the shard name template"
        )
    return named


def _order_by(layout: Layout, tally: Tally) -> str:
    if layout.key:
        return "key"
    return "bytes" if tally.sort_keys_by_bytes else "origin"


def _split_by(layout: Layout, tally: Tally) -> str | None:
    if tally.splits_assigned:
        return ASSIGNED
    if layout.splits.by_values:
        return BY_COLUMN
    if layout.splits.is_single:
        return None
    return BY_GROUP if layout.group or tally.group else BY_BYTES


def publish_stage(
    job: Job,
    tally: Tally,
    shards: Sequence[FinishedShard],
    *,
    lease: Lease,
    info: Mapping[str, Any],
) -> list[str]:
    """Publish finished Parquet files as a stage, in the order of the source.

    Arguments, result and errors are those of `publish_dataset`.
    """
    rejects = join_rejects(tally.reject_files, os.path.join(job.directory, SAVED_FILE))
    # Rows that came through other Beam code may have no groups to be ordered by.
    ordered = sorted(shards, key=lambda file: (file.order, file.xxh64))
    named = [(f"part-{number:05d}.parquet", file) for number, file in enumerate(ordered)]
    # If there was no batch at all, the stage has no columns.
    staged = pa.py_buffer(tally.staged)
    schema = pa.ipc.read_schema(staged) if tally.staged else pa.schema([])
    manifest = StageManifest(
        fingerprint=job.identity.fingerprint,
        schema=schema,
        source=job.identity.source,
        rejects={"rows": rejects.rows, "xxh64": rejects.xxh64},
        files=tuple(StageFile(name, file.examples, file.bytes, file.xxh64) for name, file in named),
    )
    remarks = [
        f"numbers of {name!r} have more digits than {schema.field(name).type} holds (relative "
        f"error at most {seen.max_relative_error:.1e}): --types {shlex.quote(name)}=string "
        "keeps them"
        for name, seen in sorted(tally.observed.items())
    ]
    info = {**info, "remarks": [*remarks, *_empty_remarks(job, tally)]}
    put_in_place(Publication(job, named, checked_text(manifest), {}, rejects, info), lease)
    return [name for name, _ in named]


def warn_of(
    target: Target,
    output: Manifest | StageManifest,
    layout: Layout,
    notes: Sequence[str] = (),
    appended: Generation | None = None,
) -> None:
    """Warn of what the user should know about an output that was written; `notes` are on its input.

    If rows were appended, only `appended` is described. The line is that of the caller three calls
    above.
    """
    name = target.name(JOB_NAME) if appended is None else appended.job_files[0]
    job = read_job(os.path.join(target.directory, name))
    lines: list[str] = list(job.get("remarks", ()))
    if names := job.get("left_out_columns"):
        why = (
            f"{counted(len(names), 'column')} left out (no value in any row, or not in the schema)"
        )
        lines.insert(0, f"{why}: {listed(names)}")
    if copies := job.get("copies"):
        lines += duplicate_lines(copies)
    if refused := job.get("refused_pictures"):
        lines.append(refused_warning(refused))
    lines += notes
    if isinstance(output, Manifest) and appended is None:
        lines += _layout_remarks(layout, output)
    if rows := (appended or output).rejects.get("rows", 0):
        command = f"beam-tfrecord head {shlex.quote(target.path('rejects'))}"
        lines.append(f"{counted(rows, 'row')} rejected: for the reasons, run {command}")
    for line in lines:
        warnings.warn(for_caller(line), OutputWarning, stacklevel=5)


def _layout_remarks(layout: Layout, output: Manifest) -> list[str]:
    lines = []
    if layout.splits.is_single and layout.splits.group:
        lines.append("--group has no effect without --split")
    if layout.splits.is_single and layout.seed and not layout.shuffle:
        lines.append("--seed has no effect with --no-shuffle unless there is a --split")
    wanted = layout.shards.total or sum(count for _, count in layout.shards.per_split)
    if 0 < len(output.shards) < wanted:
        lines.append(
            f"there are {counted(len(output.shards), 'shard')} instead of {wanted:,}, because "
            f"the dataset has only {counted(output.examples, 'row')}"
        )
    filled = {name for name, split in output.splits.items() if split.examples}
    empty = [repr(name) for name in layout.splits.filled_names if name not in filled]
    if empty and output.examples and output.split_by != ASSIGNED:
        why = ": rows with equal --group columns stay together" if layout.splits.group else ""
        lines.append(f"no row is in split {listed(empty)}{why}")
    return lines + _losses(output.schema)


def _losses(schema: Schema) -> list[str]:
    """Return warnings about the columns whose values lost precision."""
    lossy = [
        (repr(feature.name), feature.store, feature.observed)
        for feature in schema.features
        if feature.observed is not None and feature.observed.max_relative_error
    ]
    lines = []
    if coarse := [
        name
        for name, store, observed in lossy
        if store == "auto" and rounding_of(observed) > NOTICED_ROUNDING
    ]:
        lines.append(
            f"float32 is too coarse for {listed(coarse)}: rounding moves values by more than "
            f'{NOTICED_ROUNDING:.2%} of their range: "store": "bytes" or "text" in --schema '
            "keeps them exact"
        )
    if cut := [name for name, store, _ in lossy if store != "auto"]:
        lines.append(
            f"values of {listed(cut)} have more digits than float64 holds: "
            '"store": "text" in --schema keeps them exact'
        )
    return lines


def rounding_of(observed: ColumnStats) -> float:
    """Return the largest error of rounding to float32 as a share of the range of the values."""
    if math.isinf(observed.max_relative_error):
        return math.inf  # A value is beyond the range of float32.
    if observed.min is None or observed.max is None:
        return 0.0
    largest = max(abs(observed.min), abs(observed.max))
    # Half the distance between neighbours, which is constant below the smallest normal number.
    error = max(largest * 2.0**-24, 2.0**-150)
    if spread := float(observed.max - observed.min):
        return error / spread
    # Rounding may have made all values equal: their range is unknown, and the unit stands for it.
    return observed.max_relative_error * max(largest, 1.0)
