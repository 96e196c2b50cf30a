"""Writes the card of a dataset, or a page that compares two, as HTML without scripts."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

import jinja2
import pyarrow as pa
from markupsafe import Markup

from beam_tfrecord import native
from beam_tfrecord.base.arguments import has_type
from beam_tfrecord.base.text import cell, format_size, share_text
from beam_tfrecord.cards.features import BY_SPLIT, Note, differences, feature_views, notes_on
from beam_tfrecord.check.show import order_text, show, source_text
from beam_tfrecord.check.verify_examples import DuplicateFinder
from beam_tfrecord.dataset.load import Dataset, load
from beam_tfrecord.errors import DataError
from beam_tfrecord.features.arrow_types import is_list
from beam_tfrecord.format.job_file import read_job
from beam_tfrecord.format.manifest import (
    BY_COLUMN,
    beside_manifest,
    generation_files,
    manifest_path,
)
from beam_tfrecord.format.rejects import load_rejects
from beam_tfrecord.format.stage import is_stage
from beam_tfrecord.format.tally import duplicate_lines
from beam_tfrecord.frameworks.reading_programs import reading_code
from beam_tfrecord.jobs.api import loadable
from beam_tfrecord.loading.value_text import short_text
from beam_tfrecord.stats.charts import MOST_PARTS
from beam_tfrecord.stats.statistics import Statistics
from beam_tfrecord.stats.thumbnails import label_name, pictures
from beam_tfrecord.storage import absolute_path, exists, put, read_small

CARD_FILE = "card.html"
ABOUT_FILE = "about.json"
_DRIFT_FILE = "drift.html"
_SAMPLE_ROWS, _SAMPLE_COLUMNS, _NAME = 20, 50, 300
# These do not change the rows, so that equal rows have an equal card.
_LAYOUT_FLAGS = ("--shards", "--shard-size", "--compression")


def card(
    path: Any,
    output: str | os.PathLike[str] | None = None,
    *,
    title: str | None = None,
    description: str | None = None,
    license: str | None = None,
    label: str | None = None,
    against: Any = None,
    from_: str | None = None,
    source_options: Mapping[str, Any] | None = None,
    progress: bool = False,
) -> str:
    """Write the card of a dataset: an HTML page with statistics, charts, samples and pictures.

    The page is one file without scripts, and the same for the same rows. All rows are read. The
    title, description, license and label are kept in ``about.json`` of the dataset, for later
    cards.

    Args:
        path: Path of a dataset, or any other input of `write`.
        output: Path of the page; None means ``card.html`` (with `against`, ``drift.html``) in the
            directory of the dataset; in the current one for an input that is none.
        title: Title of the page; None means the one in ``about.json``, or the name of the
            directory.
        description: What the dataset holds, in a few sentences.
        license: Name of its license.
        label: Column to learn; None means one with class names, or with a usual name.
        against: Another dataset or input, such as last month's: the page shows what changed since.
        from_: Kind of an input that is no dataset, as of `write`.
        source_options: Options of its source, such as ``{"delimiter": ";"}``.
        progress: True shows a bar on stderr while such an input is read.

    Returns:
        The path of the page.

    Raises:
        UsageError: There is no such input or label.
        DataError: A file is damaged.

    Example:
        >>> bt.card("penguins/")
        '...card.html'
    """
    words = {"title": title, "description": description, "license": license, "label": label}
    how = {"from_": from_, "source_options": source_options, "progress": progress}
    with contextlib.ExitStack() as stack:
        opened = []
        for given in (path,) if against is None else (against, path):
            stored = stack.enter_context(loadable(given, **how))
            dataset = load(stored)
            source = source_text(dataset.manifest.source or {})
            opened.append((dataset.directory if stored is given else source, dataset))
        is_card, is_own = against is None, stored is path and exists(manifest_path(stored))
        dataset.schema.select([] if label is None else [label])  # raises the error
        about = kept_about(
            absolute_path(beside_manifest(stored, ABOUT_FILE)) if is_own else "", words
        )
        page = _page(stored, dataset, about.get("label")) if is_card else _drift_page(*opened)
        title = os.path.basename(opened[-1][0].rstrip("/")) or "Dataset"
        page |= {"about": {**dict.fromkeys(words, ""), "title": title, **about}}
        page |= {} if is_own else {"made": {}, "programs": {}}
        default = CARD_FILE if is_card else _DRIFT_FILE
        beside = beside_manifest(stored, default) if is_own else default
        target = absolute_path(beside if output is None else output)
        put(target, _render(page).encode())
    return target


def kept_about(file: str, given: Mapping[str, str | None]) -> dict[str, str]:
    """Return the given words and those in the file of a dataset, if it is one, and keep them."""
    try:
        kept = json.loads(read_small(file)) if file and exists(file) else {}
    except ValueError as error:
        raise DataError(f"{file} is not JSON: {error}") from error
    if not has_type(kept, dict[str, str]):
        raise DataError(f"{file} is not a JSON object of texts: correct or remove it")
    about = {**kept, **{key: text for key, text in given.items() if text is not None}}
    if file and about != kept:
        put(file, json_bytes(about))
    return about


def json_bytes(value: object) -> bytes:
    """Return a value as JSON that people read, in UTF-8."""
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def _page(path: str | os.PathLike[str], dataset: Dataset, label: str | None) -> dict[str, Any]:
    """Return what the template needs for the card of one dataset."""
    shown, stats = show(path), dataset.stats()
    file = manifest_path(path)
    files = generation_files(file, dataset.manifest) if exists(file) else []
    jobs = [read_job(job) for job, *_ in files]
    label = label if label in dataset.schema.names else label_name(dataset.schema)
    views = feature_views(stats, dataset.schema, label)
    found = {view["feature"].name: view["found"] for view in views}
    return {
        **_EMPTY,
        "facts": {
            "Examples": f"{len(dataset):,}",
            "Features": f"{len(dataset.schema.features):,}",
            "Splits": f"{len(dataset.split_names):,}",
            "Size": format_size(dataset.manifest.bytes),
            "Rejected": f"{shown['rejected_rows']:,}",
        },
        "splits": [
            (cell(name), of["examples"], of["bytes"], stats.splits[name].copies.number)
            for name, of in shown["splits"].items()
        ],
        "shared": _shared_examples(dataset),
        "notes": [
            *notes_on(stats, views, label),
            *(line for job in jobs for line in _job_warnings(job)),
        ],
        "pictures": pictures(dataset, found, label),
        "features": views,
        "columns": dataset.schema.features[:_SAMPLE_COLUMNS],
        "more_columns": max(len(dataset.schema.features) - _SAMPLE_COLUMNS, 0),
        "rows": _sample_rows(dataset),
        "rejects": _rejects(rejects for _, *of in files for rejects in of),
        "made": _made(shown, jobs[0] if jobs else {}),
        "programs": _programs(path, dataset, label, found),
    }


_EMPTY: Mapping[str, Any] = {
    "is_drift": False,
    "shared": "",
    "more_columns": 0,
    **dict.fromkeys(("pictures", "columns", "rows", "rejects", "made", "programs"), ()),
}


def _drift_page(before: tuple[str, Dataset], now: tuple[str, Dataset]) -> dict[str, Any]:
    """Return what the template needs to show what changed from one dataset to another."""
    (_, old), (_, new) = before, now
    sides = {f"before: {cell(before[0], _NAME)}": old, f"now: {cell(now[0], _NAME)}": new}
    types = [{feature.name: feature.type for feature in of.schema.features} for of in (old, new)]
    names = [name for name in types[1] if types[0].get(name) == types[1][name]]
    changed = [name for name in {**types[1], **types[0]} if name not in names]
    stats = Statistics(
        {
            side: dataclasses.replace(of, schema=of.schema.select(names)).stats().total
            for side, of in sides.items()
        }
    )
    views = feature_views(stats, new.schema, is_drift=True)
    notes = [
        Note("schema", f"{cell(name)}: {types[0].get(name, 'new')} → {types[1].get(name, 'gone')}")
        for name in changed
    ]
    same = Note("same", "No distribution changed by more than chance.")
    differing = differences(views)
    return {
        **_EMPTY,
        "is_drift": True,
        "facts": {
            "Examples before": f"{len(old):,}",
            "Examples now": f"{len(new):,}",
            "Features compared": f"{len(names):,}",
        },
        "splits": [(side, len(of), of.manifest.bytes, 0) for side, of in sides.items()],
        "notes": [*notes, differing if differing.features else same],
        "features": sorted(views, key=lambda view: -view["distance"]),
    }


def _shared_examples(dataset: Dataset) -> str:
    """Return how many examples are in several splits, as text; empty if it cannot be said."""
    finder = DuplicateFinder(dataset.manifest)
    # The column that names the split makes all examples differ.
    if not finder.largest or dataset.manifest.split_by == BY_COLUMN:
        return ""
    for name in sorted(dataset.split_names, key=lambda name: name == finder.largest):
        for shard in dataset.manifest.splits[name].shards:
            for _, block in dataset.files.blocks([shard]):
                finder.add(shard.path, native.hash_records(block.data, block.starts, 0))
            finder.end_shard(shard.path)
    shared = finder.shared()
    return f"{finder.note(shared)}." if len(shared) else "No two splits share an equal example."


def _job_warnings(job: Mapping[str, Any]) -> list[Note]:
    """Return the warnings of the job that wrote the dataset."""
    copies = job.get("copies")
    lines = [*job.get("remarks", []), *(duplicate_lines(copies) if copies else [])]
    return [Note("warning", line) for line in lines if isinstance(line, str)]


def _sample_rows(dataset: Dataset) -> list[tuple[int, list[Any]]]:
    """Return the first rows of each split, each with the number of the split."""
    schema = dataset.schema.select(dataset.schema.names[:_SAMPLE_COLUMNS])
    names = dataset.split_names[:_SAMPLE_ROWS]
    parts = [dataclasses.replace(dataset, split_names=(name,), schema=schema) for name in names]
    return [
        (number, list(row.values()))
        for number, part in enumerate(parts)
        for row in itertools.islice(part.rows(), _SAMPLE_ROWS // len(parts))
    ]


def _rejects(files: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the rejects by column and reason, those of the most frequent reason first."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in load_rejects(files).to_pylist():
        reason = ": ".join(cell(row[key]) for key in ("column", "code") if row[key])
        groups.setdefault(reason, []).append(row)
    return dict(sorted(groups.items(), key=lambda group: -len(group[1])))


def _made(shown: Mapping[str, Any], job: Mapping[str, Any]) -> dict[str, str]:
    """Return how a dataset was made: from which input, by which command and version."""
    settings = {
        flag: value for flag, value in shown["settings"].items() if flag not in _LAYOUT_FLAGS
    }
    words = [f"{flag} {shlex.quote(value)}" for flag, value in settings.items()]
    made = {
        "Input": "" if shown["source"] is None else source_text(shown["source"]),
        "Command": " ".join(["beam-tfrecord write INPUT OUTPUT", *words]) if job else "",
        "Order": order_text(shown),
        "Rows read": f"{job['rows_read']:,}" if has_type(job.get("rows_read"), int) else "",
        "Version": f"beam_tfrecord {job['beam_tfrecord']}" if "beam_tfrecord" in job else "",
        "Content": shown["content"],
    }
    return {key: text for key, text in made.items() if text}


def _programs(
    path: str | os.PathLike[str], dataset: Dataset, label: str | None, found: Mapping[str, Any]
) -> dict[str, str]:
    """Return programs that read the dataset, by framework; they run in the folder of the card."""
    filled = [name for name, split in dataset.manifest.splits.items() if split.examples]
    if not filled or not exists(manifest_path(path)):
        return {}
    manifest = os.path.basename(manifest_path(path))
    opened = (
        f"import beam_tfrecord\n\ndataset = beam_tfrecord.load({manifest!r}, split={filled[0]!r})\n"
    )
    if label is None or is_list(dataset.schema[label].type):
        label = "…"
    images = [name for name, of in found.items() if "image" in of]
    keras = f"beam-tfrecord show {manifest} --code keras --label {shlex.quote(label)} >train.py"
    if images:
        chosen = f"label={label!r}, columns={images[0]!r}, image_size=(64, 64)"
        keras = f"{opened}batches = dataset.keras({chosen})\nmodel.fit(batches)"
    zeros = {
        of.name: 0
        for of in dataset.schema.features
        if of.nullable and (pa.types.is_integer(of.type) or pa.types.is_floating(of.type))
    }
    options = f"batch_size=256, shuffle=True{f', defaults={zeros}' if zeros else ''}"
    torch = f"{opened}for batch in dataset.torch({options}):\n    …"
    programs = {"Keras": keras, "PyTorch": torch}
    if not is_stage(path):
        programs["TensorFlow alone"] = reading_code(dataset.manifest, "tf", manifest).rstrip()
    return programs


def _render(page: Mapping[str, Any]) -> str:
    """Return the HTML of a page; all texts are escaped, and its policy allows no script."""
    folder = os.path.dirname(__file__)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    with open(os.path.join(folder, "page.css"), encoding="utf-8") as file:
        css = "".join(line.strip() for line in file)
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'"
    environment.filters |= {"short": short_text, "size": format_size, "share": share_text}
    environment.tests["primitive"] = pa.types.is_primitive
    return environment.get_template("page.html").render(
        page, css=Markup(css), policy=policy, most_parts=MOST_PARTS, by_split=BY_SPLIT
    )
