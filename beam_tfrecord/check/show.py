"""Shows a dataset: a summary, its first rows and counts of values, as JSON and as text."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from beam_tfrecord.base.arguments import has_type
from beam_tfrecord.base.text import cell, counted, format_size, listed, share_text, text_table
from beam_tfrecord.dataset.load import Dataset, load
from beam_tfrecord.dataset.record_files import RecordFiles
from beam_tfrecord.features.arrow_types import type_from_json, type_text
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.python_rows import python_values, types_in
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.job_file import SETTINGS, STORED_BYTES
from beam_tfrecord.format.manifest import Manifest, beside_manifest, generation_jobs, manifest_path
from beam_tfrecord.format.rejects import REJECTS_FILE, REJECTS_SCHEMA
from beam_tfrecord.loading.value_text import SINGLES, json_value, short_floats, short_text
from beam_tfrecord.storage import public_path

# Flags that choose rows of the input.
_CHOOSING = ("--filter", "--where", "--sample", "--sample-seed", "--limit")


def show(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return a summary of a dataset as a JSON object; no row is read."""
    dataset = load(path)
    manifest = dataset.manifest
    jobs = _jobs_of(path, manifest)
    settings = jobs[0].get(SETTINGS)
    return {
        "path": public_path(os.fspath(path)),
        "source": manifest.source,
        "settings": settings if has_type(settings, dict[str, str]) else {},
        "examples": manifest.examples,
        "bytes": manifest.bytes,
        "stored_bytes": _stored_bytes(dataset, jobs),
        "order": manifest.order,
        "seed": manifest.seed,
        "compression": manifest.compression,
        "content": manifest.content,
        "rejected_rows": manifest.rejected_rows,
        "rejects": _rejects_directory(path) if manifest.rejected_rows else None,
        "generations": [
            {
                "examples": sum(of.examples for of in manifest.shards if of.generation == number),
                "rejected_rows": one.rejects.get("rows", 0),
                "source": one.source,
                "finished": job.get("finished"),
            }
            for number, (one, job) in enumerate(zip(manifest.generations, jobs, strict=True), 1)
        ],
        "splits": {
            name: {
                "examples": split.examples,
                "bytes": split.bytes,
                "shards": len(split.shards),
                "largest_shard_bytes": max((shard.bytes for shard in split.shards), default=0),
            }
            for name, split in manifest.splits.items()
        },
        "features": [_feature(feature, manifest.examples) for feature in manifest.schema.features],
    }


def _rejects_directory(path: str | os.PathLike[str]) -> str:
    return os.path.dirname(beside_manifest(path, REJECTS_FILE))


def _jobs_of(path: str | os.PathLike[str], manifest: Manifest) -> list[dict[str, Any]]:
    """Return the ``job.json`` of each generation; files without a manifest have none."""
    if not (manifest.fingerprint or manifest.sidecars):
        return [{}]
    try:
        return generation_jobs(manifest_path(path), manifest)
    except OSError:
        return [{}] * len(manifest.generations)


def _stored_bytes(dataset: Dataset, jobs: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the size of the TFRecord files on disk; None if it is not known or there are none."""
    if not isinstance(dataset.files, RecordFiles):
        return None
    if not dataset.manifest.compression:
        return dataset.manifest.bytes
    stored: Any = [job.get(STORED_BYTES) for job in jobs]
    if not has_type(stored, list[dict[str, int]]):
        return None
    sizes: list[dict[str, int]] = stored
    return sum(sum(of.values()) for of in sizes)


def _feature(feature: Feature, examples: int) -> dict[str, Any]:
    out: dict[str, Any] = feature.to_json()
    if (missing := out.get("missing")) is not None:
        out["null_share"] = missing / examples if examples else 0.0
    for bound in ("min", "max"):
        if feature.store == "auto" and bound in out:
            out[bound] = short_floats(out[bound])
        if bound in out and pa.types.is_temporal(feature.type):
            # The schema's statistics have times as integers in the unit of their type.
            storage = pa.int32() if feature.type.bit_width == 32 else pa.int64()
            time = pa.array([int(out[bound])], storage).view(feature.type)
            out[bound] = json_value(python_values(time)[0])
    return out


def head(
    path: str | os.PathLike[str], n: int = 10, *, split: str | None = None
) -> list[dict[str, Any]]:
    """Return the first `n` rows of a dataset, or of one split, as dicts of Python values."""
    dataset = load(path, split=split)
    rows = itertools.islice(dataset.rows(), n)
    is_rounded = all(shard.xxh64 for shard in dataset.shards)  # those of Parquet have no hash
    return with_short_floats(rows, dataset.schema, is_rounded=is_rounded)


def with_short_floats(
    rows: Iterable[Mapping[str, Any]], schema: Schema, *, is_rounded: bool = False
) -> list[dict[str, Any]]:
    """Return rows in which floats of float32, by type or since they were rounded, print shortly."""
    singles = {*SINGLES, *([pa.float64()] if is_rounded else [])}
    features = (of for of in schema.features if of.store == "auto")
    names = {of.name for of in features if not singles.isdisjoint(types_in(of.type))}
    return [{n: short_floats(v) if n in names else v for n, v in row.items()} for row in rows]


def render_show(shown: Mapping[str, Any]) -> str:
    """Return the result of `show` as text for users."""
    size, stored = format_size(shown["bytes"]), shown["stored_bytes"]
    if shown["compression"]:
        size = f"{'?' if stored is None else format_size(stored)} compressed from {size}"
    elif stored is None:
        size = f"about {size} as TFRecord files"
    kinds = [order_text(shown), shown["compression"].lower()]
    lines = [
        f"{shown['path']}: {counted(shown['examples'], 'example')}, {size} "
        f"({', '.join(filter(None, kinds))})"
    ]
    if shown["source"] is not None:
        lines.append(f"from {source_text(shown['source'])}")
    settings = shown["settings"]
    if chosen := [
        f"{flag} {shlex.quote(cell(settings[flag]))}" for flag in _CHOOSING if flag in settings
    ]:
        lines.append(f"rows chosen by {' '.join(chosen)}")
    parts = ["\n".join(lines)]
    if shown["rejected_rows"]:
        command = f"beam-tfrecord head {shlex.quote(shown['rejects'])}"
        rejected = counted(shown["rejected_rows"], "row")
        parts.append(f"rejected: {rejected} (for the reasons, run {command})")
    splits = [
        (
            name,
            f"{of['examples']:,}",
            share_text(of["examples"] / max(1, shown["examples"])),
            f"{of['shards']:,}",
            format_size(of["bytes"]),
        )
        for name, of in shown["splits"].items()
    ]
    if splits:
        size_name = "uncompressed" if shown["compression"] else "size"
        columns = ("split", "examples", "share", "shards", size_name)
        parts.append(text_table(columns, splits, right=(1, 2, 3, 4)))
    if shown["features"]:
        parts.append(render_features(shown["features"]))
    return "\n\n".join(parts) + "\n"


def render_input(found: Mapping[str, Any]) -> str:
    """Return what is known of an input before it is written, as text for users."""
    sizes = [counted(found["examples"], "row")] if found["examples"] is not None else []
    sizes += [format_size(found["bytes"])] if found["bytes"] else []
    sizes += [counted(found["files"], "file")] if found["files"] > 1 else []
    title = f"{found['path']}: {', '.join([found['kind'], *sizes])}"
    return f"{title}\n\n{render_features(found['features'])}"


def render_history(shown: Mapping[str, Any]) -> str:
    """Return a table of the generations of a dataset: what each job added, and from where."""
    rows = [
        (
            str(number),
            str(of["finished"] or "")[:19].replace("T", " "),
            f"{of['examples']:,}",
            f"{of['rejected_rows']:,}",
            source_text(of["source"] or {}),
        )
        for number, of in enumerate(shown["generations"], 1)
    ]
    head = ("generation", "finished (UTC)", "examples", "rejected", "from")
    return text_table(head, rows, right=(2, 3)) + "\n"


def render_features(features: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of features; columns of statistics that none has are left out."""
    rows = [
        (
            cell(of["name"]),
            type_text(type_from_json(of["type"])),
            share_text(of.get("null_share")),
            short_text(of.get("min")),
            short_text(of.get("max")),
            _notes(of),
        )
        for of in features
    ]
    header = ("feature", "type", "null", "min", "max", "")
    # Stages, Parquet files, repaired datasets and other input have no statistics.
    used = [at for at in range(len(header)) if at < 2 or any(row[at] for row in rows)]
    table = [[row[at] for at in used] for row in (header, *rows)]
    right = [column for column, at in enumerate(used) if 2 <= at <= 4]
    return text_table(table[0], table[1:], right=right)


def source_text(source: Mapping[str, Any]) -> str:
    """Return the kind of the input, the version of a table, and its only file or their number."""
    files = source.get("files", [])
    # A pack of many small files is one entry. Anyone may have written the manifest.
    counts = [file.get("files", 1) for file in files]
    number = sum(counts) if has_type(counts, list[int]) else 0
    names = cell(str(files[0].get("path"))) if number == 1 else counted(number, "file")
    parts = [names] if number else []
    table: Any = source.get("snapshot")
    if has_type(table, dict[str, Any]):
        version, name = (cell(str(table.get(key))) for key in ("version", "table"))
        parts.insert(0, f"version {version} of {name}")
    return f"{source.get('kind')}: {', '.join(parts)}" if parts else str(source.get("kind"))


def order_text(shown: Mapping[str, Any]) -> str:
    """Return the order of the rows, and its seed."""
    return f"shuffled, seed {shown['seed']}" if shown["order"] == "shuffled" else "in input order"


def _notes(feature: Mapping[str, Any]) -> str:
    notes = []
    if feature.get("labels"):
        notes.append(f"classes {listed(feature['labels'])}")
    if feature.get("dtype"):
        notes.append(f"{feature['dtype']} in NumPy")
    if feature.get("store"):
        notes.append(f"stored as {feature['store']}")
    if "default" in feature:
        notes.append(f"default {short_text(feature['default'])}")
    if "fill" in feature:
        notes.append(f"nulls in lists are {short_text(feature['fill'])}")
    if feature.get("nan"):
        notes.append(f"{feature['nan']:,} NaN")
    if feature.get("null_structs"):
        notes.append(f"{feature['null_structs']:,} structs of nulls")
    if "loss" in feature:
        error = feature["loss"]["max_relative_error"]
        to = "" if feature.get("store") else " to float32"
        notes.append(f"rounded{to}, relative error ≤ {error:.1e}")
    return ", ".join(notes)


def render_rows(rows: Sequence[Mapping[str, Any]], *, max_width: int | None = None) -> str:
    """Return rows as a text table for users; a missing value is an empty cell.

    A table would cut the messages of rejects, which name address, column and value: these are a
    line each.
    """
    if not rows:
        return ""
    header = tuple(rows[0])
    if not header:
        return f"{counted(len(rows), 'row')} without columns\n"
    if set(header) >= set(REJECTS_SCHEMA.names):
        return "".join(f"{row['message']}\n" for row in rows)
    cells = [tuple(short_text(row[name]) for name in header) for row in rows]
    numbers = [
        column
        for column, name in enumerate(header)
        if all(isinstance(row[name], int | float | None) for row in rows)
    ]
    return text_table(tuple(map(cell, header)), cells, right=numbers, max_width=max_width)
