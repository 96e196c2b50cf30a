"""Reads the images that a column of any source of rows names, with the other columns."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS, Batch
from beam_tfrecord.errors import DataError, SchemaConflict, UsageError
from beam_tfrecord.sizes import counted
from beam_tfrecord.sources.base import UNIT_BYTES, Chunk, InputFile, Scan, Source, Unit
from beam_tfrecord.sources.images import metadata
from beam_tfrecord.sources.images.base import ImageSource
from beam_tfrecord.sources.images.labels import (
    Inferred,
    Labels,
    classes_in,
    classes_of_option,
    kind_of,
    label_field,
    read_as,
)
from beam_tfrecord.sources.images.listing import Tree
from beam_tfrecord.sources.images.metadata import Place, PlaceOf, place_of, size_of
from beam_tfrecord.sources.images.read import (
    Reading,
    Rows,
    add_images,
    cut_by_bytes,
    image_fields,
    in_order,
    with_columns,
)
from beam_tfrecord.storage import is_remote
from beam_tfrecord.tables import not_found

_LABEL_COLUMNS = frozenset({"label", "label_name"})


class RowsInference(NamedTuple):
    """The types of a unit, as inferred by the source of the rows, and its names of classes."""

    inference: Any
    classes: frozenset[str]


# Some rows, the place of the image of each, and the size of its file.
_Task = tuple[Batch, list[Place], list[int]]


@dataclasses.dataclass(frozen=True)
class WithImages(Source):
    """The rows of a source, with the image that each names.

    Attributes:
        images: The options of the images.
        rows: The source of the rows.
        path_column: Column of the paths of images.
        label_column: Column of the classes; empty means that there are none.
        labels: Names of the classes, or the file that has them; None means all that occur.
        beside: Directories of the images, if the rows are metadata beside them.
    """

    images: ImageSource
    rows: Source
    path_column: str
    label_column: str = ""
    labels: str | os.PathLike[str] | Sequence[str] | None = None
    beside: Tree | None = None

    @property
    def _needs_labels(self) -> bool:
        wanted = self.images.columns is None or not _LABEL_COLUMNS.isdisjoint(self.images.columns)
        return wanted and bool(self.label_column)

    @property
    def _needs_images(self) -> bool:
        return (
            self.images.columns is None
            or not self._made.isdisjoint(self.images.columns)
            or self.beside is not None
        )

    @property
    def _made(self) -> frozenset[str]:
        """Names of the columns that are made from the images, the paths and the classes."""
        fields = image_fields(resizes=self.images.resize is not None)
        splits = {"split"} if self._has_splits else set()
        return frozenset({"image", "path", "sha256", *_LABEL_COLUMNS, *splits, *fields})

    @property
    def _has_splits(self) -> bool:
        return self.beside is not None and self.beside.has_splits

    def files(self) -> Iterator[InputFile]:
        wanted = self.images.columns or ("label", "label_name")
        if self.labels is not None and "label_name" in wanted and "label" not in wanted:
            raise UsageError("--labels numbers the classes: add label to --columns")
        if self._needs_labels and self.path_column == self.label_column:
            raise UsageError(
                f"column {self.label_column!r} cannot hold both paths and classes: "
                "correct --path-column or --label-column"
            )
        digest = "\n".join(classes_of_option(self.labels) or ())
        return (dataclasses.replace(file, digest=digest) for file in self.rows.files())

    def chunks(self, file: InputFile) -> Iterator[Chunk]:
        return self.rows.chunks(file)

    def scan(self, chunk: Chunk) -> Scan:
        return self.rows.scan(chunk)

    def units(self, scans: Sequence[Scan]) -> list[Unit]:
        units = self.rows.units(scans)
        return [dataclasses.replace(unit, encoded_bytes=UNIT_BYTES) for unit in units]

    def infer(self, of: Unit) -> RowsInference:
        if not self.rows.infers_from_scans:
            return RowsInference(self.rows.infer(of), self._classes_in(of))
        # A second look at the footer of a file is less than a stored plan with it for every unit.
        scan = self.rows.scan(Chunk(of.file, 0, 0, of.file.bytes))
        return RowsInference(self.rows.infer(scan), self._classes_in(of))

    def _classes_in(self, unit: Unit) -> frozenset[str]:
        if self.labels is not None or not self._needs_labels:
            return frozenset()
        # Read as text, because a piece of a file may have only numbers, and the next also names.
        only = pa.schema([(self.label_column, pa.string())])
        try:
            return classes_in(batch.data.column(0) for batch in self.rows.read(unit, only))
        except (DataError, SchemaConflict):  # there is no such column, or it is not text
            return frozenset()

    def merge(self, inferences: Iterable[RowsInference]) -> pa.Schema:
        pieces = list(inferences)
        schema = self.rows.merge([piece.inference for piece in pieces])
        self._check_columns(schema)
        special = {self.path_column, self.label_column}
        fields = [field for field in schema if field.name not in special]
        further = tuple(fields if self.beside is None else metadata.with_images(fields))
        if not self._needs_labels or self.label_column not in schema.names:
            return self.images.schema_of(Inferred(has_splits=self._has_splits, further=further))
        kind = read_as(schema.field(self.label_column))
        classes = classes_of_option(self.labels)
        if classes is None and kind == pa.string():
            classes = tuple(sorted(set().union(*(piece.classes for piece in pieces))))
        has_names = classes is not None
        return self.images.schema_of(
            Inferred(label_field(kind), classes or (), has_names, self._has_splits, further)
        )

    def _check_columns(self, schema: pa.Schema) -> None:
        if not schema.names:
            raise UsageError("the tables are empty: give them a header that names their columns")
        named = {"--path-column": self.path_column} if self._needs_images else {}
        # With the default options, a table need not have a column of classes.
        if (self.label_column, self.labels, self.images.columns) != ("label", None, None):
            named |= {"--label-column": self.label_column} if self._needs_labels else {}
        for option, name in named.items():
            if name not in schema.names:
                raise UsageError(not_found(name, sorted(schema.names), of=option))

    def notes(self, files: Iterable[InputFile]) -> list[str]:
        if self.beside is None:
            return []
        count, first = metadata.images_without_row(self.beside, self._named_images())
        if not count:
            return []
        return [
            f"{counted(count, 'image')} beside the metadata {'has' if count == 1 else 'have'} no "
            f"row there and {'was' if count == 1 else 'were'} left out, such as {first}"
        ]

    def _named_images(self) -> Iterator[str]:
        """Yield the paths of all images that the rows of metadata name."""
        units = self.rows.all_units(self.rows.all_scans())
        schema = self.rows.merge([self.infer(unit).inference for unit in units])
        named = map(metadata.as_read, metadata.images_named_in(schema).values())
        only = pa.schema([pa.field(self.path_column, pa.string()), *named])
        for unit in units:
            folder = self._folder_of(unit.file)
            batches = (batch.data.columns for batch in self.rows.read(unit, only))
            for column in itertools.chain.from_iterable(batches):
                names = column.flatten() if pa.types.is_list(column.type) else column
                places = (place_of(name, "", folder) for name in names.to_pylist())
                yield from (place.name for place in places if place.name and not place.fault)

    def read(
        self, unit: Unit, schema: pa.Schema, *, batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Batch]:
        base = self.images.base or os.path.dirname(unit.file.path)
        how = self.images.reading(is_remote=is_remote(base))
        # The size of a remote file is unknown before it is read, so a batch has only one file, and
        # many batches are read at a time.
        most = 1 if how.is_remote else min(batch_rows, how.batch_files)
        batches = self.rows.read(unit, self._schema_of_rows(schema), batch_rows=most)
        if not self._needs_images:
            return (batch.replace(data=with_columns(batch, {}, schema)) for batch in batches)
        place = functools.partial(place_of, base=base, folder=self._folder_of(unit.file))
        add = functools.partial(self._batch, unit, schema, how, place)
        return in_order(add, self._tasks(batches, place, most), threads=how.threads)

    def _folder_of(self, file: InputFile) -> str | None:
        """Return the path of the directory of metadata, relative to the directory of images."""
        if self.beside is None:
            return None
        return os.path.dirname(file.path.removeprefix(os.path.join(self.beside.root, "")))

    def _schema_of_rows(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns to read from the source of the rows."""
        read = [metadata.as_read(field) for field in schema if field.name not in self._made]
        if self._needs_images:
            read.append(pa.field(self.path_column, pa.string()))
        if not _LABEL_COLUMNS.isdisjoint(schema.names):
            kind = kind_of(schema.field("label")) if "label" in schema.names else None
            read.append(pa.field(self.label_column, kind or pa.string()))
        return pa.schema(read)

    def _tasks(self, batches: Iterable[Batch], place: PlaceOf, most: int) -> Iterator[_Task]:
        for batch in batches:
            places = list(map(place, batch.data.column(self.path_column).to_pylist()))
            sizes = [size_of(one.path) for one in places]
            for start, stop in cut_by_bytes(sizes, most):
                yield batch.slice(start, stop), places[start:stop], sizes[start:stop]
            if not places:
                yield batch, [], []

    def _batch(
        self, unit: Unit, schema: pa.Schema, how: Reading, place: PlaceOf, task: _Task
    ) -> Batch:
        batch, places, sizes = task
        assert batch.origin is not None
        numbers = batch.origin.row_numbers(batch.num_rows).tolist()
        names = [
            one.name or batch.origin.address_of(number)
            for one, number in zip(places, numbers, strict=True)
        ]
        labels = Labels.of(batch.data, self.label_column, schema)
        faults = {at: one.fault for at, one in enumerate(places) if one.fault is not None}
        columns = {"path": pa.array(names, pa.string())}
        if labels:
            columns |= labels.columns()
            faults = labels.faults() | faults
        if self._has_splits:
            splits = [name.partition("/")[0] if "/" in name else None for name in names]
            columns["split"] = pa.array(splits, pa.string())
        read = dict(zip(batch.data.schema.names, batch.data.columns, strict=True))
        columns = read | columns
        for field in schema:
            if name := metadata.naming_column(field):
                columns[field.name] = metadata.further_images(name, read[name], place, faults, how)
        data = batch.replace(data=pa.RecordBatch.from_pydict(columns))
        paths = [one.path for one in places]
        addresses = [(unit.name, number) for number in numbers]
        rows = Rows(data, paths, sizes, faults, addresses)
        return add_images(self._described(rows, schema), schema, how)

    def _described(self, rows: Rows, schema: pa.Schema) -> Rows:
        """Return rows with what sources of further kinds know of their images."""
        return rows
