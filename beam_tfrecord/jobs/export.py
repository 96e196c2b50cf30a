"""Exports a dataset by a Beam job: a Parquet, CSV or JSON Lines file for each shard, or images."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import os
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from beam_tfrecord.base.text import listed
from beam_tfrecord.check.show import with_short_floats
from beam_tfrecord.dataset.load import Dataset, load
from beam_tfrecord.errors import DataError, TargetExists, UsageError
from beam_tfrecord.exchange.output_writers import checked_file_schema
from beam_tfrecord.features.arrow_types import is_binary, type_text
from beam_tfrecord.features.python_rows import python_rows
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.rejects import HashedSink
from beam_tfrecord.format.stage import staged_schema, to_file
from beam_tfrecord.images import ImageError
from beam_tfrecord.images.headers import describe
from beam_tfrecord.job_state.job import directory_target
from beam_tfrecord.job_state.worker_errors import machine_faults
from beam_tfrecord.loading.batches import IMAGE
from beam_tfrecord.loading.value_text import json_value
from beam_tfrecord.runners.start import pipeline
from beam_tfrecord.storage import (
    WholeFile,
    absolute_path,
    is_hidden,
    is_plain_name,
    lease,
    list_names,
    make_directory,
    put,
    read_bytes,
    remove,
)

FORMATS = ("parquet", "csv", "jsonl", "images")
# Records dataset, format and columns of the files; it is written before the first of them.
_MARKER = ".export.json"
_UNFINISHED = ".part"
_BATCH_ROWS = 1024
# NaN and the infinities as Python's json and the reader of this package have them.
_JSON = json.JSONEncoder(ensure_ascii=False, default=json_value)
_CLASS_COLUMNS, _PATH = ("label_name", "label"), "path"


def export(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    to: str | None = None,
    split: str | None = None,
    columns: Sequence[str] | None = None,
    runner: str = "direct",
    pipeline_options: Sequence[str] = (),
) -> int:
    """Convert a dataset back to Parquet, CSV or JSON Lines, or to image files in class folders.

    Each shard becomes one file, such as ``train-00000-of-00008.csv``, which appears only once it is
    complete. The same call again continues an export that was stopped, and does nothing once it is
    complete. Images become ``train/<class>/<name>``, with their bytes unchanged. The class is the
    column ``label_name`` or else ``label``, and the name is that of the file in ``path``; without
    such a name it is the number of the shard and of the row.

    Args:
        path: Path of the dataset, which all workers can read: anything that `load` opens.
        output: Directory of the files, for this export alone, which all workers can write.
        to: ``parquet``, ``csv``, ``jsonl`` or ``images``; None means the suffix of `output`.
        split: Name of a split; None means each split. Other splits may follow in other calls.
        columns: Names of the columns, in this order; None means all columns.
        runner: Name of the runner, as in `write`.
        pipeline_options: Options of Beam, as in `write`.

    Returns:
        The number of rows in the files.

    Raises:
        UsageError: There is no such dataset, split, column or format, or the format cannot hold a
            column.
        TargetExists: The output holds something other than files of this export.
        DataError: A shard is damaged, or two images have the same name.

    Example:
        >>> bt.export("penguins/", "csv/", to="csv")
        344
    """
    location, directory = absolute_path(path), directory_target(output).directory
    to = to or os.path.splitext(directory)[1][1:]
    if to not in FORMATS:
        choice = f"choose {', '.join(FORMATS)} by --to, or as the suffix of the output"
        raise UsageError(f"cannot export to {to or 'no format'!r}: {choice}")
    dataset = _opened(location, to, columns)
    if split not in (None, *dataset.split_names):
        raise UsageError(
            f"there is no split {split!r:.80} to export: leave --split out, or choose one of "
            f"{listed(dataset.split_names)}"
        )
    chosen = dataset.split_names if split is None else (split,)
    facts = {"content": dataset.content, "to": to, "columns": dataset.schema.names}
    make_directory(directory)
    with lease(directory):
        done = _claim(directory, json.dumps(facts).encode())
        files = {
            (name, number): _file_name(dataset, to, name, number)
            for name in chosen
            for number in range(len(dataset.manifest.splits[name].shards))
        }
        if parts := [part for part, name in files.items() if name not in done]:
            step = _ExportShard(location, directory, to, columns, dataset.content)
            with pipeline(runner, options=pipeline_options) as root:
                _ = root | beam.Create(parts) | beam.Reshuffle() | "Export" >> beam.ParDo(step)
        if to == "images":
            _check_unique_names([os.path.join(directory, name) for name in files.values()])
    return sum(dataset.manifest.splits[name].examples for name in chosen)


def _opened(path: str, to: str, columns: Sequence[str] | None) -> Dataset:
    """Open a dataset with the columns to export, after a check that the format can hold them."""
    dataset = load(path, columns=columns)
    if to == "images":
        names = dataset.schema.names
        if IMAGE not in names:
            raise UsageError(f"there is no column {IMAGE!r} to export: choose another --to")
        wanted = [IMAGE, *[name for name in _CLASS_COLUMNS if name in names][:1], _PATH]
        schema = dataset.schema.select([name for name in wanted if name in names])
        dataset = dataclasses.replace(dataset, schema=schema)
    arrow = dataset.files.arrow_schema(dataset.schema.names)
    if to == "parquet":
        checked_file_schema(staged_schema(arrow))
    for field in arrow if to != "parquet" else ():
        if not _can_hold(field, to):
            cure = "use --to parquet, or list only the other columns in --columns"
            raise UsageError(
                f"column {field.name!r} is {type_text(field.type)}, which {to} cannot hold: {cure}"
            )
    return dataset


def _can_hold(field: pa.Field, to: str) -> bool:
    """Return whether a format can hold a column without loss."""
    arrow, types = field.type, pa.types
    if to == "images":
        return is_binary(arrow) is (field.name == IMAGE)
    if is_binary(arrow) or types.is_duration(arrow) or types.is_map(arrow):
        return False
    is_extension = isinstance(arrow, pa.BaseExtensionType)
    if to == "csv":
        return not (types.is_nested(arrow) or is_extension or types.is_float16(arrow))
    if is_extension or types.is_time(arrow):
        return arrow in (pa.uuid(), pa.time64("us"))
    return all(_can_hold(arrow.field(number), to) for number in range(arrow.num_fields))


def _claim(directory: str, facts: bytes) -> frozenset[str]:
    """Mark a directory as that of an export, and return the names of its finished files."""
    marker, names = os.path.join(directory, _MARKER), frozenset(list_names(directory))
    is_marked = _MARKER in names
    if read_bytes(marker) != facts if is_marked else not all(map(is_hidden, names)):
        what = "an export of another dataset, format or columns" if is_marked else "other files"
        raise TargetExists(f"{directory!r} holds {what}: choose another directory, or remove it")
    for name in names:
        if is_hidden(name) and name.endswith(_UNFINISHED):
            remove(os.path.join(directory, name))
    put(marker, facts)
    return names


def _file_name(dataset: Dataset, to: str, split: str, number: int) -> str:
    """Return the name of the file of a shard; for images, of the hidden list of names."""
    name = f"{split}-{number:05d}-of-{len(dataset.manifest.splits[split].shards):05d}"
    return f".{name}.json" if to == "images" else f"{name}.{to}"


class _ExportShard(beam.DoFn):
    """Reads a shard, and writes its file."""

    def __init__(
        self, path: str, directory: str, to: str, columns: Sequence[str] | None, content: str
    ) -> None:
        self._path, self._directory, self._to = path, directory, to
        self._columns, self._content = columns, content

    def setup(self) -> None:
        self._dataset = _opened(self._path, self._to, self._columns)
        if self._dataset.content != self._content:
            raise DataError(
                f"{self._path!r} was replaced during the export: remove {self._directory!r}, and "
                "export it again"
            )

    def process(self, part: tuple[str, int]) -> None:
        """Write the file of a shard, given its split and its number there."""
        split, number = part
        files, names = self._dataset.files, self._dataset.schema.names
        rows = files.batches([self._dataset.manifest.splits[split].shards[number]], names)
        path = os.path.join(self._directory, _file_name(self._dataset, self._to, split, number))
        with machine_faults(path), WholeFile(path) as file:
            if self._to == "images":
                file.write(json.dumps(list(self._images(rows, split, number))).encode())
            elif self._to == "jsonl":
                _write_jsonl(rows, self._dataset.schema, file)
            else:
                _write_table(rows, files.arrow_schema(names), file, self._to)

    def _images(self, rows: Iterator[pa.RecordBatch], split: str, shard: int) -> Iterator[str]:
        """Write the images of a shard to files, and yield the names of these."""
        every = (row for batch in rows for row in batch.to_pylist())
        for number, row in enumerate(every):
            if (image := row[IMAGE]) is None:
                raise DataError(f"row {number} of shard {shard} of split {split!r} has no image")
            name = posixpath.basename(row.get(_PATH) or "")
            if is_hidden(name) or not is_plain_name(name):
                name = f"{shard:05d}-{number:06d}"
                with contextlib.suppress(ImageError):
                    name += f".{describe(image, check_end=False).format}"
            place = posixpath.join(split, self._class_folder(row), name)
            path = os.path.join(self._directory, place)
            make_directory(os.path.dirname(path))
            # Unfinished files lie where the next attempt removes them.
            temporary = os.path.join(self._directory, f".{os.urandom(8).hex()}{_UNFINISHED}")
            with WholeFile(path, temporary=temporary) as file:
                file.write(image)
            yield place

    def _class_folder(self, row: dict[str, Any]) -> str:
        column = next((name for name in _CLASS_COLUMNS if name in row), None)
        if column is None:
            return ""
        value, labels = row[column], self._dataset.schema[column].labels or ()
        name = labels[value] if value in range(len(labels)) else str(value)
        if value is None or "/" in name or is_hidden(name) or not is_plain_name(name):
            raise DataError(
                f"an image has {column} {name!r}, which cannot be the name of a folder: leave the "
                "column out with --columns image,path"
            )
        return name


def _write_table(rows: Iterator[Any], schema: pa.Schema, file: WholeFile, to: str) -> None:
    # Text of CSV is in quotes, so that an empty text differs from a missing one.
    inside = schema if to == "csv" else checked_file_schema(staged_schema(schema))
    with (
        pa.PythonFile(HashedSink(file), "w") as output,
        (pacsv.CSVWriter if to == "csv" else pq.ParquetWriter)(output, inside) as writer,
    ):
        for batch in rows:
            held = batch if to == "csv" else to_file(batch, staged_schema(schema), inside)
            writer.write_batch(held)


def _write_jsonl(rows: Iterator[pa.RecordBatch], schema: Schema, file: WholeFile) -> None:
    for batch in rows:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            some = python_rows(batch.slice(start, _BATCH_ROWS))
            lines = map(_JSON.encode, with_short_floats(some, schema))
            file.write("".join(f"{line}\n" for line in lines).encode())


def _check_unique_names(lists: Iterable[str]) -> None:
    """Raise `DataError` if two images have the same name in the lists of a finished export."""
    counts = collections.Counter(name for path in lists for name in json.loads(read_bytes(path)))
    for name, count in counts.most_common(1):
        if count > 1:
            raise DataError(
                f"{count} images have the name {name!r}, so only one was kept: export to another "
                "directory with --columns image,label, which numbers the files"
            )
