"""Reads the images that a table names in a column of paths, with the other columns of the table.

The source of the table, `Csv` or `Parquet`, lists, cuts and reads it; this module adds the images
to its batches.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from beam_tfrecord.batch import Batch, Reject
from beam_tfrecord.errors import UsageError
from beam_tfrecord.images import Fault
from beam_tfrecord.sources.base import UNIT_BYTES, Chunk, InputFile, Scan, Source, Unit
from beam_tfrecord.sources.csv import source as csv
from beam_tfrecord.sources.csv.source import Csv
from beam_tfrecord.sources.csv.types import CsvInference
from beam_tfrecord.sources.files import has_suffix, list_files
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
from beam_tfrecord.sources.images.read import (
    Reading,
    Rows,
    add_images,
    cut_by_bytes,
    image_fields,
    in_order,
    with_columns,
)
from beam_tfrecord.sources.parquet import source as parquet
from beam_tfrecord.sources.parquet.source import Parquet
from beam_tfrecord.storage import is_remote
from beam_tfrecord.tables import not_found

# A small size, a few thousand paths, because little text names many bytes of images.
TABLE_CHUNK_BYTES = 2**17
_SUFFIXES = (*csv.SUFFIXES, *parquet.SUFFIXES)
_LABEL_COLUMNS = frozenset({"label", "label_name"})


class TableUnit(NamedTuple):
    """The detail of a unit: the unit of the table's source, and the scan if it has the types."""

    unit: Unit
    scan: Scan | None


class TableInference(NamedTuple):
    """The types of a unit, as inferred by the table's source, and its names of classes."""

    inference: Any
    classes: frozenset[str]


class _Task(NamedTuple):
    """Rows of a table, the path of the image of each, and the size of its file."""

    batch: Batch
    paths: list[str | None]
    sizes: list[int]


def is_table(path: str) -> bool:
    """Return whether a path has the suffix of a table."""
    return has_suffix(path, _SUFFIXES)


def _is_csv(path: str) -> bool:
    return has_suffix(path, csv.SUFFIXES)


@dataclasses.dataclass(frozen=True)
class Table:
    """Tables of paths, with the options of `Images` that concern tables.

    Attributes:
        paths: Files and globs of CSV or Parquet, or directories of such files.
        columns: Columns of the rows; None means all.
        labels: The option `labels` of `Images`.
        base: Directory that the paths in the table are relative to; None means the directory of the
            table.
        path_column: Column of the paths.
        label_column: Column of the classes.
        union: Whether tables may lack columns of other tables.
        resizes: Whether images are resized.
    """

    paths: tuple[str, ...]
    columns: Sequence[str] | None
    labels: str | os.PathLike[str] | Sequence[str] | None
    base: str | None
    path_column: str
    label_column: str
    union: bool
    resizes: bool

    @functools.cached_property
    def _made(self) -> frozenset[str]:
        """Names of the columns that are made from the images, the paths and the classes."""
        fields = image_fields(resizes=self.resizes)
        return frozenset({"image", "path", "sha256", *_LABEL_COLUMNS, *fields})

    @property
    def _needs_paths(self) -> bool:
        return self.columns is None or not self._made.isdisjoint(self.columns)

    @property
    def _needs_labels(self) -> bool:
        return self.columns is None or not _LABEL_COLUMNS.isdisjoint(self.columns)

    def _named(self) -> dict[str, str]:
        """Return the needed columns of paths and classes, by the flags that name them."""
        named = {"--path-column": self.path_column} if self._needs_paths else {}
        return named | ({"--label-column": self.label_column} if self._needs_labels else {})

    def _source(self, *, of_csv: bool) -> Csv | Parquet:
        """Return the source that reads the table."""
        columns = None
        if self.columns is not None:
            further = [name for name in self.columns if name not in self._made]
            columns = tuple(dict.fromkeys([*self._named().values(), *further]))
        if not of_csv:
            return Parquet(self.paths, columns=columns, union=self.union)
        # Not inferred, because paths are text even if all of them look like numbers.
        types = {self.path_column: pa.string()} if self._needs_paths else {}
        return Csv(
            self.paths,
            columns=columns,
            union=self.union,
            types=types,
            chunk_bytes=TABLE_CHUNK_BYTES,
        )

    def _source_of(self, file: InputFile) -> Csv | Parquet:
        return self._source(of_csv=_is_csv(file.name))

    def files(self) -> Iterator[InputFile]:
        """Yield the tables, with digests that depend on the option ``labels``.

        Raises:
            UsageError: There is no table, there are both CSV and Parquet, or an option is wrong.
        """
        self._check_named()
        paths: Sequence[str] = self.paths
        if not all(map(is_table, paths)):
            paths = [file.name for file in list_files(paths, _SUFFIXES, remote=True)]
            if others := [path for path in paths if not is_table(path)]:
                raise UsageError(
                    f"cannot tell what {others[0]!r} holds from its name: name it .csv or .parquet"
                )
            if len(set(map(_is_csv, paths))) > 1:
                named = " ".join(map(repr, self.paths))
                raise UsageError(f"{named} holds CSV and Parquet: name the tables of one kind")
        classes = classes_of_option(self.labels)
        digest = "" if classes is None else "\n".join(classes)
        for file in self._source(of_csv=all(map(_is_csv, paths))).files():
            yield dataclasses.replace(file, digest=digest)

    def chunks(self, file: InputFile) -> Iterator[Chunk]:
        """Yield the pieces of a table to scan."""
        return self._source_of(file).chunks(file)

    def scan(self, chunk: Chunk) -> Scan:
        """Scan a piece of a table."""
        return self._source_of(chunk.file).scan(chunk)

    def units(self, scans: Sequence[Scan]) -> list[Unit]:
        """Cut a table; the size of images is unknown, so each unit is assumed to fill a group."""
        source = self._source_of(scans[0].chunk.file)
        scan = scans[0] if source.infers_from_scans else None
        return [
            dataclasses.replace(unit, detail=TableUnit(unit, scan), encoded_bytes=UNIT_BYTES)
            for unit in source.units(scans)
        ]

    def infer(self, unit: Unit) -> TableInference:
        """Infer the types of a unit and the names of the classes in it."""
        source = self._source_of(unit.file)
        inference = _inference(source, unit)
        name = self.label_column
        has_names = self.labels is None and self._needs_labels and name in _names_in(inference)
        if has_names and isinstance(source, Parquet):
            own = dataclasses.replace(source, columns=(name,)).merge([inference])
            has_names = is_text(own.field(name).type)
        if not has_names:
            return TableInference(inference, frozenset())
        # Read as text, because a piece of a CSV file may have only numbers and the next also names.
        only = pa.schema([pa.field(name, pa.string())])
        columns = (batch.data.column(0) for batch in source.read(unit.detail.unit, only))
        return TableInference(inference, classes_in(columns))

    def merge(self, found: Iterable[TableInference]) -> Inferred:
        """Join the inferences of all units.

        Raises:
            SchemaConflict: The column of classes contains neither names nor whole numbers.
            UsageError: A column that an option names is missing.
        """
        pieces = list(found)
        inferences = [piece.inference for piece in pieces]
        self._check_columns(inferences)
        schema = self._source(of_csv=isinstance(inferences[0], CsvInference)).merge(inferences)
        special = {self.path_column, self.label_column}
        further = tuple(field for field in schema if field.name not in special)
        if self.label_column not in schema.names:
            return Inferred(further=further)
        kind = read_as(schema.field(self.label_column))
        classes = classes_of_option(self.labels)
        if classes is None and kind == pa.string():
            classes = tuple(sorted(set().union(*(piece.classes for piece in pieces))))
        return Inferred(label_field(kind), classes or (), classes is not None, further=further)

    def _check_named(self) -> None:
        """Check the options of the columns of paths and classes.

        Raises:
            UsageError: Both options name the same column, or `labels` is set and `columns` contains
                ``label_name`` without ``label``.
        """
        wanted = self.columns or ("label", "label_name")
        if self.labels is not None and "label_name" in wanted and "label" not in wanted:
            raise UsageError("--labels numbers the classes: add label to --columns")
        named = self._named()
        if len(set(named.values())) < len(named):
            raise UsageError(
                f"column {self.label_column!r} cannot hold both paths and classes: "
                "correct --path-column or --label-column"
            )

    def _check_columns(self, inferences: Iterable[CsvInference | Scan]) -> None:
        """Check that the tables have the columns of paths and classes.

        Raises:
            UsageError: A column is missing.
        """
        known = set().union(*map(_names_in, inferences))
        if not known:
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
        """Yield the rows of a unit with their images.

        Args:
            unit: A unit from `units`.
            schema: Columns of the rows.
            batch_rows: Largest number of rows of a batch.
            reading: Function that returns the settings of reading images, given ``is_remote``.
        """
        source = self._source_of(unit.file)
        base = self.base or os.path.dirname(unit.file.path)
        how = reading(is_remote=is_remote(base))
        # The size of a remote file is unknown before it is read, so a batch has only one file, and
        # many batches are read at a time.
        most = 1 if how.is_remote else min(batch_rows, how.batch_files)
        inner = self._inner_schema(source, unit, schema)
        batches = source.read(unit.detail.unit, inner, batch_rows=most)
        if not self._needs_paths:
            return (batch.replace(data=with_columns(batch, {}, schema)) for batch in batches)
        tasks = self._tasks(batches, base, most)
        return in_order(
            functools.partial(self._batch, unit, schema, how), tasks, threads=how.threads
        )

    def _inner_schema(self, source: Source, unit: Unit, schema: pa.Schema) -> pa.Schema:
        """Return the schema of the rows of the table itself."""
        fields = [field for field in schema if field.name not in self._made]
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
        own = source.merge([_inference(source, unit)])
        known = [field for field in own if field.name == self.label_column]
        return read_as(known[0]) if known and known[0].type != pa.null() else pa.int64()

    def _tasks(self, batches: Iterable[Batch], base: str, most: int) -> Iterator[_Task]:
        for batch in batches:
            names = batch.data.column(self.path_column).to_pylist()
            paths = [os.path.join(base, name) if name else None for name in names]
            sizes = [_size_of(path) for path in paths]
            for start, stop in cut_by_bytes(sizes, most):
                yield _Task(batch.slice(start, stop), paths[start:stop], sizes[start:stop])
            if not paths:
                yield _Task(batch, [], [])

    def _batch(self, unit: Unit, schema: pa.Schema, how: Reading, task: _Task) -> Batch:
        batch = task.batch
        names = [name or "a row" for name in batch.data.column(self.path_column).to_pylist()]
        labels = Labels.of(batch.data, self.label_column, schema)
        faults: dict[int, Fault] = {}
        for index, path in enumerate(task.paths):
            if path is None or "\0" in path:
                faults[index] = Fault("missing", "has no path")
            elif labels and (fault := labels.fault(index)):
                faults[index] = fault
        columns = {"path": pa.array(names, pa.string())} | (labels.columns() if labels else {})
        further = [field for field in batch.data.schema if field.name not in columns]
        columns |= {field.name: batch.data.column(field.name) for field in further}
        assert batch.origin is not None
        numbers = batch.origin.row_numbers(batch.num_rows)

        def reject(index: int, fault: Fault) -> Reject:
            name, row = names[index], int(numbers[index])
            message = f"{name} {fault.reason}"
            return Reject(unit.name, row, "image", fault.code, message, name, name)

        rows = batch.replace(data=pa.RecordBatch.from_pydict(columns))
        paths = [path or "" for path in task.paths]
        return add_images(Rows(rows, paths, task.sizes, faults, reject), schema, how)


def _inference(source: Source, unit: Unit) -> Any:
    inner: TableUnit = unit.detail
    return source.infer(inner.scan if source.infers_from_scans else inner.unit)


def _names_in(inference: CsvInference | Scan) -> set[str]:
    """Return the names of all columns of one piece of a table."""
    if isinstance(inference, CsvInference):
        return {*inference.names, *dict(inference.file.partitions)}
    return {*inference.detail.names, *dict(inference.chunk.file.partitions)}


def _size_of(path: str | None) -> int:
    try:
        return os.stat(path).st_size if path is not None else 0
    except (OSError, ValueError):
        return 0
