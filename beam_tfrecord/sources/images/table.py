"""Reads the images that a table names in a column of paths, with the other columns of the table.

The source of the table, `Csv`, `Parquet` or `Json`, lists, cuts and reads it; this module adds the
images to its batches.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from beam_tfrecord.batch import Batch
from beam_tfrecord.errors import UsageError
from beam_tfrecord.images import Fault
from beam_tfrecord.sizes import counted
from beam_tfrecord.sources.base import UNIT_BYTES, Chunk, InputFile, Scan, Source, Unit
from beam_tfrecord.sources.csv import source as csv
from beam_tfrecord.sources.csv.source import Csv
from beam_tfrecord.sources.csv.types import CsvInference
from beam_tfrecord.sources.files import has_suffix, list_files
from beam_tfrecord.sources.images import metadata
from beam_tfrecord.sources.images.labels import (
    Inferred,
    Labels,
    classes_in,
    classes_of_option,
    is_text,
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
from beam_tfrecord.sources.json import source as json
from beam_tfrecord.sources.json.source import Json
from beam_tfrecord.sources.json.types import JsonInference
from beam_tfrecord.sources.parquet import source as parquet
from beam_tfrecord.sources.parquet.source import Parquet
from beam_tfrecord.storage import is_remote
from beam_tfrecord.tables import not_found

# A small size, a few thousand paths, because little text names many bytes of images.
TABLE_CHUNK_BYTES = 2**17
_SOURCES = {csv.SUFFIXES: Csv, parquet.SUFFIXES: Parquet, json.SUFFIXES: Json}
_SUFFIXES = tuple(itertools.chain(*_SOURCES))
_LABEL_COLUMNS = frozenset({"label", "label_name"})


class TableInference(NamedTuple):
    """The types of a unit, as inferred by the table's source, and its names of classes."""

    inference: Any
    classes: frozenset[str]


class _Task(NamedTuple):
    """Rows of a table, the place of the image of each, and the size of its file."""

    batch: Batch
    places: list[Place]
    sizes: list[int]


def is_table(path: str) -> bool:
    """Return whether a path has the suffix of a table."""
    return has_suffix(path, _SUFFIXES)


def _source_of(path: str) -> Any:
    return next(source for suffixes, source in _SOURCES.items() if has_suffix(path, suffixes))


@dataclasses.dataclass(frozen=True)
class Table:
    """Tables of paths, with the options of `Images` that concern tables."""

    paths: tuple[str, ...]
    columns: Sequence[str] | None
    labels: str | os.PathLike[str] | Sequence[str] | None
    base: str | None
    path_column: str
    label_column: str
    union: bool
    resizes: bool
    beside: Tree | None = None
    types: Mapping[str, str | pa.DataType] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def _made(self) -> frozenset[str]:
        """Names of the columns that are made from the images, the paths and the classes."""
        fields = image_fields(resizes=self.resizes)
        splits = {"split"} if self._has_splits else set()
        return frozenset({"image", "path", "sha256", *_LABEL_COLUMNS, *splits, *fields})

    @property
    def _has_splits(self) -> bool:
        return self.beside is not None and self.beside.has_splits

    @property
    def _needs_paths(self) -> bool:
        chosen = self.columns is not None and self._made.isdisjoint(self.columns)
        return not chosen or self.beside is not None

    @property
    def _needs_labels(self) -> bool:
        return self.columns is None or not _LABEL_COLUMNS.isdisjoint(self.columns)

    def _named(self) -> dict[str, str]:
        """Return the needed columns of paths and classes, by the flags that name them."""
        named = {"--path-column": self.path_column} if self._needs_paths else {}
        return named | ({"--label-column": self.label_column} if self._needs_labels else {})

    def _source(self, kind: type[Csv | Parquet | Json]) -> Csv | Parquet | Json:
        """Return the source of a kind that reads the table."""
        columns = None
        # Which columns of metadata name images is known only when all columns are known.
        if self.columns is not None and self.beside is None:
            further = [name for name in self.columns if name not in self._made]
            columns = tuple(dict.fromkeys([*self._named().values(), *further]))
        if kind is Parquet:
            return Parquet(self.paths, columns=columns, union=self.union)
        # Not inferred, because paths are text even if all of them look like numbers.
        paths = {self.path_column: pa.string()} if self._needs_paths else {}
        types = {**self.types, **paths}
        if kind is Json:
            return Json(self.paths, columns=columns, types=types, chunk_bytes=TABLE_CHUNK_BYTES)
        return Csv(
            self.paths,
            columns=columns,
            union=self.union,
            types=types,
            chunk_bytes=TABLE_CHUNK_BYTES,
        )

    def _source_of(self, file: InputFile) -> Csv | Parquet | Json:
        return self._source(_source_of(file.name))

    def files(self) -> Iterator[InputFile]:
        self._check_named()
        paths: Sequence[str] = self.paths
        are_named = all(map(is_table, paths))
        if not are_named:
            paths = [file.name for file in list_files(paths, _SUFFIXES, remote=True)]
            if others := [path for path in paths if not is_table(path)]:
                raise UsageError(
                    f"cannot tell what {others[0]!r} holds from its name: name it .csv or .parquet"
                )
        kinds = {_source_of(path): path for path in paths}
        # In a directory, JSON beside tables describes these.
        if len(kinds) > 1 and not are_named:
            kinds.pop(Json, None)
        if len(kinds) > 1:
            held = " and ".join(sorted(kind.kind for kind in kinds))
            named = " ".join(map(repr, self.paths))
            raise UsageError(f"{named} holds {held}: name the tables of one kind")
        if self.types and Parquet in kinds:
            raise UsageError("--types is not an option of tables of Parquet: leave it out")
        classes = classes_of_option(self.labels)
        digest = "" if classes is None else "\n".join(classes)
        for file in self._source(next(iter(kinds))).files():
            yield dataclasses.replace(file, digest=digest)

    def chunks(self, file: InputFile) -> Iterator[Chunk]:
        return self._source_of(file).chunks(file)

    def scan(self, chunk: Chunk) -> Scan:
        return self._source_of(chunk.file).scan(chunk)

    def units(self, scans: Sequence[Scan]) -> list[Unit]:
        source = self._source_of(scans[0].chunk.file)
        return [dataclasses.replace(unit, encoded_bytes=UNIT_BYTES) for unit in source.units(scans)]

    def infer(self, unit: Unit) -> TableInference:
        source = self._source_of(unit.file)
        inference = _inference(source, unit)
        name = self.label_column
        has_names = self.labels is None and self._needs_labels and name in _names_in(inference)
        if has_names and not isinstance(source, Csv):
            own = _merge_some(dataclasses.replace(source, columns=(name,)), [inference])
            has_names = is_text(own.field(name).type)
        if not has_names:
            return TableInference(inference, frozenset())
        # Read as text, because a piece of a CSV file may have only numbers and the next also names.
        only = pa.schema([pa.field(name, pa.string())])
        columns = (batch.data.column(0) for batch in source.read(unit, only))
        return TableInference(inference, classes_in(columns))

    def merge(self, found: Iterable[TableInference]) -> Inferred:
        pieces = list(found)
        inferences = [piece.inference for piece in pieces]
        self._check_columns(inferences)
        schema = self._source_of(_file_of(inferences[0])).merge(inferences)
        special = {self.path_column, self.label_column}
        fields = [field for field in schema if field.name not in special]
        further = tuple(fields if self.beside is None else metadata.with_images(fields))
        has_splits = self._has_splits
        if self.label_column not in schema.names:
            return Inferred(has_splits=has_splits, further=further)
        kind = read_as(schema.field(self.label_column))
        classes = classes_of_option(self.labels)
        if classes is None and kind == pa.string():
            classes = tuple(sorted(set().union(*(piece.classes for piece in pieces))))
        has_names = classes is not None
        return Inferred(label_field(kind), classes or (), has_names, has_splits, further)

    def notes(self) -> list[str]:
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
        for file in self.files():
            source: Any = dataclasses.replace(self._source_of(file), paths=(file.path,))
            scans = source.all_scans()
            units = source.all_units(scans)
            found = [source.infer(of) for of in (scans if source.infers_from_scans else units)]
            self._check_columns(found)
            merged = _merge_some(source, found)
            columns = [field.name for field in metadata.naming_fields(merged)]
            fields = [pa.field(name, metadata.text_type(name)) for name in columns]
            only = pa.schema([pa.field(self.path_column, pa.string()), *fields])
            folder = self._folder_of(file)
            for batch in itertools.chain(*(source.read(unit, only) for unit in units)):
                for column in batch.data.columns:
                    names = column.flatten() if pa.types.is_list(column.type) else column
                    places = (place_of(name, "", folder) for name in names.to_pylist())
                    yield from (place.name for place in places if place.name and not place.fault)

    def _check_named(self) -> None:
        """Check the options of the columns of paths and classes."""
        wanted = self.columns or ("label", "label_name")
        if self.labels is not None and "label_name" in wanted and "label" not in wanted:
            raise UsageError("--labels numbers the classes: add label to --columns")
        named = self._named()
        if len(set(named.values())) < len(named):
            raise UsageError(
                f"column {self.label_column!r} cannot hold both paths and classes: "
                "correct --path-column or --label-column"
            )
        if self.path_column in self.types:
            raise UsageError(
                f"column {self.path_column!r} holds paths, which are text: leave it out of --types"
            )

    def _check_columns(self, inferences: Iterable[Any]) -> None:
        """Check that the tables have the columns of paths and classes."""
        found = list(inferences)
        known = set().union(*map(_names_in, found))
        if not known:
            if any(isinstance(one, JsonInference) and one.fault for one in found):
                Json(self.paths).merge(found)
            raise UsageError("the tables are empty: give them a header that names their columns")
        named = self._named()
        # With the default options, a table need not have a column of classes.
        if (self.label_column, self.labels, self.columns) == ("label", None, None):
            del named["--label-column"]
        for option, name in named.items():
            if name not in known:
                raise UsageError(not_found(name, sorted(known), of=option))

    def read(
        self,
        unit: Unit,
        schema: pa.Schema,
        *,
        batch_rows: int,
        reading: Callable[..., Reading],
    ) -> Iterator[Batch]:
        source = self._source_of(unit.file)
        base = self.base or os.path.dirname(unit.file.path)
        how = reading(is_remote=is_remote(base))
        # The size of a remote file is unknown before it is read, so a batch has only one file, and
        # many batches are read at a time.
        most = 1 if how.is_remote else min(batch_rows, how.batch_files)
        images = self._naming_columns(source, unit, schema)
        inner = self._inner_schema(source, unit, schema, images)
        batches = source.read(unit, inner, batch_rows=most)
        if not self._needs_paths:
            return (batch.replace(data=with_columns(batch, {}, schema)) for batch in batches)
        place = functools.partial(place_of, base=base, folder=self._folder_of(unit.file))
        tasks = self._tasks(batches, place, images, most)
        add = functools.partial(self._batch, unit, schema, how, place, images)
        return in_order(add, tasks, threads=how.threads)

    def _folder_of(self, file: InputFile) -> str | None:
        """Return the path of the directory of metadata, relative to the directory of images."""
        if self.beside is None:
            return None
        above = os.path.join(self.beside.root, "")
        return os.path.dirname(file.path.removeprefix(above))

    def _naming_columns(self, source: Source, unit: Unit, schema: pa.Schema) -> dict[str, str]:
        """Return the columns of metadata that name further images, by the columns of these."""
        if self.beside is None or all(field.name in self._made for field in schema):
            return {}
        return metadata.naming_columns(schema, _names_in(_inference(source, unit)))

    def _inner_schema(
        self, source: Source, unit: Unit, schema: pa.Schema, images: Mapping[str, str]
    ) -> pa.Schema:
        """Return the schema of the rows of the table itself."""
        made = self._made.union(images)
        fields = [field for field in schema if field.name not in made]
        fields += [pa.field(name, metadata.text_type(name)) for name in images.values()]
        if self._needs_paths:
            fields.append(pa.field(self.path_column, pa.string()))
        if not _LABEL_COLUMNS.isdisjoint(schema.names):
            fields.append(pa.field(self.label_column, self._label_type(source, unit, schema)))
        return pa.schema(fields)

    def _label_type(self, source: Source, unit: Unit, schema: pa.Schema) -> pa.DataType:
        """Return the type of the classes in all tables, which a single piece may not show."""
        if "label" in schema.names and (kind := kind_of(schema.field("label"))):
            return kind
        if self.labels is None:
            # Only a column of text leads to rows with names but without numbers.
            return pa.string()
        own = _merge_some(source, [_inference(source, unit)])
        known = [field for field in own if field.name == self.label_column]
        return read_as(known[0]) if known and known[0].type != pa.null() else pa.int64()

    def _tasks(
        self, batches: Iterable[Batch], place: PlaceOf, images: Mapping[str, str], most: int
    ) -> Iterator[_Task]:
        for batch in batches:
            places = list(map(place, batch.data.column(self.path_column).to_pylist()))
            sizes = [size_of(one.path) for one in places]
            held = np.array(sizes)
            for column in images.values():
                held += metadata.further_bytes(batch.data.column(column), place)
            for start, stop in cut_by_bytes(held.tolist(), most):
                yield _Task(batch.slice(start, stop), places[start:stop], sizes[start:stop])
            if not places:
                yield _Task(batch, [], [])

    def _batch(
        self,
        unit: Unit,
        schema: pa.Schema,
        how: Reading,
        place: PlaceOf,
        images: Mapping[str, str],
        task: _Task,
    ) -> Batch:
        batch = task.batch
        assert batch.origin is not None
        numbers = batch.origin.row_numbers(batch.num_rows)
        names = [
            one.name or batch.origin.address_of(int(number))
            for one, number in zip(task.places, numbers, strict=True)
        ]
        labels = Labels.of(batch.data, self.label_column, schema)
        faults: dict[int, Fault] = {}
        for index, one in enumerate(task.places):
            if one.fault is not None:
                faults[index] = one.fault
            elif labels and (fault := labels.fault(index)):
                faults[index] = fault
        columns = {"path": pa.array(names, pa.string())} | (labels.columns() if labels else {})
        if self._has_splits:
            splits = [name.partition("/")[0] if "/" in name else None for name in names]
            columns["split"] = pa.array(splits, pa.string())
        further = [field for field in batch.data.schema if field.name not in columns]
        columns |= {field.name: batch.data.column(field.name) for field in further}
        for name, column in images.items():
            named = batch.data.column(column)
            columns[name] = metadata.further_images(column, named, place, faults, how)

        data = batch.replace(data=pa.RecordBatch.from_pydict(columns))
        paths = [one.path for one in task.places]
        addresses = [(unit.name, int(number)) for number in numbers]
        rows = Rows(data, paths, task.sizes, faults, addresses)
        return add_images(self._described(rows, schema), schema, how)

    def _described(self, rows: Rows, schema: pa.Schema) -> Rows:
        """Return rows with what tables of further kinds know of their images."""
        del schema
        return rows


def _merge_some(source: Any, found: Sequence[Any]) -> pa.Schema:
    """Merge the inferences of some units, which may lack columns that have a stated type."""
    if not isinstance(source, Parquet):
        names = set().union(*map(_names_in, found))
        types = {name: arrow for name, arrow in source.types.items() if name in names}
        source = dataclasses.replace(source, types=types)
    return source.merge(found)


def _inference(source: Source, unit: Unit) -> Any:
    # A second look at the footer of a file is less than a stored plan that has it for every unit.
    whole = Chunk(unit.file, 0, 0, unit.file.bytes)
    return source.infer(source.scan(whole) if source.infers_from_scans else unit)


def _file_of(inference: CsvInference | JsonInference | Scan) -> InputFile:
    return inference.chunk.file if isinstance(inference, Scan) else inference.file


def _names_in(inference: CsvInference | JsonInference | Scan) -> set[str]:
    """Return the names of all columns of one piece of a table."""
    if isinstance(inference, CsvInference):
        names: Iterable[Any] = inference.names
    elif isinstance(inference, JsonInference):
        names = (path[0] for path in inference.kinds)
    else:
        names = inference.detail.names
    return {*names, *dict(_file_of(inference).partitions)}
