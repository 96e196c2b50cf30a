"""Pictures named by a table: its rows tell path and class, and its further columns come along."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from beam_tfrecord.batch import Batch, Reject
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.images import Fault, refused_in
from beam_tfrecord.sources.base import UNIT_BYTES, InputFile, Scan, Source, Unit
from beam_tfrecord.sources.csv import source as csv
from beam_tfrecord.sources.csv.infer import CsvInference
from beam_tfrecord.sources.csv.source import Csv
from beam_tfrecord.sources.files import as_paths, has_suffix
from beam_tfrecord.sources.images.folders import Inferred
from beam_tfrecord.sources.images.labels import (
    Labels,
    classes_in,
    given_classes,
    is_text,
    kind_of,
    label_field,
    read_as,
)
from beam_tfrecord.sources.images.read import (
    Reading,
    cut_by_bytes,
    in_order,
    picture_fields,
    read_pictures,
    taken,
)
from beam_tfrecord.sources.parquet import source as parquet
from beam_tfrecord.sources.parquet.source import Parquet
from beam_tfrecord.storage import is_remote

if TYPE_CHECKING:
    from beam_tfrecord.sources.images.source import Images

# Little text names many bytes of pictures: this is some thousand paths.
TABLE_CHUNK_BYTES = 2**17


class TableUnit(NamedTuple):
    """A piece of a table: the unit of its own source, and its scan where that tells the types."""

    unit: Unit
    scan: Scan | None


class TableFound(NamedTuple):
    """What one piece of a table tells: its source's own inference, and the classes in it."""

    inference: Any
    classes: frozenset[str]


def is_table(path: str) -> bool:
    """Tell whether a path is that of a table of paths."""
    return has_suffix(path, (*csv.SUFFIXES, *parquet.SUFFIXES))


def table_of(source: Images) -> Source:
    """Return the source that reads the table."""
    paths = as_paths(source.paths)
    columns = None
    if source.columns is not None:
        made = made_columns(source)
        further = [name for name in source.columns if name not in made]
        columns = tuple(dict.fromkeys([*named_columns(source).values(), *further]))
    if not _is_csv(paths):
        return Parquet(paths, columns=columns, union=source.union)
    delimiter = "\t" if all(has_suffix(path, (".tsv",)) for path in paths) else ","
    # A path is text, even where all of them look like numbers.
    types = {path_column(source): pa.string()} if needs_paths(source) else {}
    return Csv(
        paths,
        delimiter=delimiter,
        columns=columns,
        union=source.union,
        types=types,
        chunk_bytes=TABLE_CHUNK_BYTES,
    )


def _is_csv(paths: Sequence[str]) -> bool:
    """Tell CSV from Parquet: by the suffixes, or by what a directory holds."""
    if all(is_table(path) for path in paths):
        return all(has_suffix(path, csv.SUFFIXES) for path in paths)
    from beam_tfrecord.inputs import detect_kind

    return detect_kind(paths) == Csv.kind


def files(source: Images) -> Iterator[InputFile]:
    """Yield the tables; the names of the classes, where they are given, are part of them."""
    check_named(source)
    classes = given_classes(source.labels)
    for file in table_of(source).files():
        digest = "" if classes is None else "\n".join(classes)
        yield dataclasses.replace(file, digest=digest)


def units(source: Images, scans: Sequence[Scan]) -> list[Unit]:
    """Cut a table; every unit counts as a full one, for what its pictures weigh is not known."""
    table = table_of(source)
    return [
        dataclasses.replace(
            unit,
            detail=TableUnit(unit, scans[0] if table.infers_from_scans else None),
            encoded_bytes=UNIT_BYTES,
        )
        for unit in table.units(scans)
    ]


def infer(source: Images, unit: Unit) -> TableFound:
    """Digest the types of a unit, and the names of the classes in it."""
    table = table_of(source)
    inner: TableUnit = unit.detail
    piece = inner.scan if table.infers_from_scans else inner.unit
    inference = table.infer(piece)
    name = source.label_column
    if source.labels is not None or not needs_labels(source) or name not in names_in(inference):
        return TableFound(inference, frozenset())
    if isinstance(table, Parquet):
        own = dataclasses.replace(table, columns=(name,)).merge([inference])
        if not is_text(own.field(name).type):
            return TableFound(inference, frozenset())
    # Whole numbers in this piece of a CSV file may be among names in the next.
    only = pa.schema([pa.field(name, pa.string())])
    columns = (batch.data.column(0) for batch in table.read(inner.unit, only))
    return TableFound(inference, classes_in(columns))


def merge(source: Images, found: Iterable[TableFound]) -> Inferred:
    """Join what all pieces tell.

    Raises:
        SchemaConflict: The column of classes holds neither names nor whole numbers.
        UsageError: A column that is named is nowhere.
    """
    pieces = list(found)
    inferences = [piece.inference for piece in pieces]
    check_columns(source, inferences)
    schema = table_of(source).merge(inferences)
    special = {path_column(source), source.label_column}
    further = tuple(field for field in schema if field.name not in special)
    if source.label_column not in schema.names:
        return Inferred(further=further)
    kind = read_as(schema.field(source.label_column))
    classes = given_classes(source.labels)
    if classes is None and kind == pa.string():
        classes = tuple(sorted(set().union(*(piece.classes for piece in pieces))))
    return Inferred(label_field(kind), classes or (), classes is not None, further=further)


class _Task(NamedTuple):
    """Rows of a table, the path of each, and the size of its file."""

    batch: Batch
    paths: list[str | None]
    sizes: list[int]


def read(source: Images, unit: Unit, schema: pa.Schema, *, batch_rows: int) -> Iterator[Batch]:
    """Yield the rows of a unit with their pictures."""
    table = table_of(source)
    inner: TableUnit = unit.detail
    inner_schema = _inner_schema(source, table, inner, schema)
    base = source.base or os.path.dirname(unit.file.path)
    how = source.reading(is_remote=is_remote(base))
    # How large a remote file is shows only when it is read: one a batch, many at a time.
    most = 1 if is_remote(base) else min(batch_rows, how.batch_files)
    batches = table.read(inner.unit, inner_schema, batch_rows=most)
    if not needs_paths(source):
        return (_without_pictures(batch, schema) for batch in batches)
    tasks = _tasks(batches, path_column(source), base, most)
    return in_order(
        functools.partial(_batch, source, unit, schema, how), tasks, threads=how.threads
    )


def _inner_schema(source: Images, table: Source, inner: TableUnit, schema: pa.Schema) -> pa.Schema:
    """Return the schema that the table is read with: what the rows need of it, in their types."""
    made = made_columns(source)
    fields = [field for field in schema if field.name not in made]
    if needs_paths(source):
        fields.append(pa.field(path_column(source), pa.string()))
    if {"label", "label_name"}.intersection(schema.names):
        fields.append(pa.field(source.label_column, _label_type(source, table, inner, schema)))
    return pa.schema(fields)


def _label_type(source: Images, table: Source, inner: TableUnit, schema: pa.Schema) -> pa.DataType:
    """Return what the merged schema says, for a piece may hold whole numbers among names."""
    if "label" in schema.names and (told := kind_of(schema.field("label"))):
        return told
    if source.labels is None:
        # Without numbers there are only the names that text has.
        return pa.string()
    own = table.merge([table.infer(inner.scan if table.infers_from_scans else inner.unit)])
    known = [field for field in own if field.name == source.label_column]
    return read_as(known[0]) if known and known[0].type != pa.null() else pa.int64()


def _without_pictures(batch: Batch, schema: pa.Schema) -> Batch:
    data = batch.data
    return batch.replace(
        data=pa.RecordBatch.from_arrays([data.column(name) for name in schema.names], schema=schema)
    )


def _tasks(batches: Iterable[Batch], column: str, base: str, most: int) -> Iterator[_Task]:
    for batch in batches:
        named = batch.data.column(column).to_pylist()
        paths = [os.path.join(base, name) if name else None for name in named]
        sizes = [_size_of(path) for path in paths]
        for start, stop in cut_by_bytes(sizes, most):
            yield _Task(batch.slice(start, stop), paths[start:stop], sizes[start:stop])
        if not paths:
            yield _Task(batch, [], [])


def _size_of(path: str | None) -> int:
    try:
        return os.stat(path).st_size if path is not None else 0
    except (OSError, ValueError):
        return 0


def _batch(source: Images, unit: Unit, schema: pa.Schema, how: Reading, task: _Task) -> Batch:
    batch = task.batch
    names = [name or "a row" for name in batch.data.column(path_column(source)).to_pylist()]
    labels = Labels.of(batch.data, source.label_column, schema)
    faults: dict[int, Fault] = {}
    wanted: list[int] = []
    for index, path in enumerate(task.paths):
        fault = labels.fault(index)
        if path is None or "\0" in path:
            fault = Fault("missing", "has no path")
        if fault:
            faults[index] = fault
        else:
            wanted.append(index)
    paths = [path for path in taken(task.paths, wanted) if path is not None]
    pictures = read_pictures(paths, taken(task.sizes, wanted), how)
    faults |= {wanted[index]: fault for index, fault in pictures.faults}
    kept = np.array(taken(wanted, pictures.kept), np.int64)
    left = batch.take(kept)
    columns = {field.name: left.data.column(field.name) for field in left.data.schema}
    columns["path"] = pa.array(taken(names, kept.tolist()), pa.string())
    columns |= pictures.columns() | labels.columns(kept.tolist())
    missing = [name for name in schema.names if name not in columns]
    if missing:
        raise DataError(f"column {missing[0]!r} of the schema is not in {unit.file.name}")
    data = pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
    assert batch.origin is not None
    numbers = batch.origin.row_numbers(batch.num_rows)
    rejects = [
        Reject(
            unit.name, int(numbers[i]), "image", fault.code, f"{names[i]} {fault.reason}", names[i]
        )
        for i, fault in sorted(faults.items())
    ]
    if not rejects:
        left = batch
    refused = None
    if "image" in schema.names:
        refused = refused_in(zip(taken(names, kept.tolist()), pictures.headers, strict=True))
    return left.replace(data=data, rejects=(*batch.rejects, *rejects), refused=refused)


_LABEL_COLUMNS = frozenset({"label", "label_name"})


def made_columns(source: Images) -> frozenset[str]:
    """Return the names of what rows have besides the further columns of a table."""
    fields = picture_fields(resizes=source.resize is not None)
    return frozenset({"image", "path", "sha256", *_LABEL_COLUMNS, *fields})


def path_column(source: Images) -> str:
    """Return the name of the column that holds the paths."""
    return source.path_column or "path"


def needs_paths(source: Images) -> bool:
    """Tell whether more is wanted than further columns of a table."""
    return source.columns is None or not made_columns(source).isdisjoint(source.columns)


def needs_labels(source: Images) -> bool:
    """Tell whether classes are wanted."""
    return source.columns is None or not _LABEL_COLUMNS.isdisjoint(source.columns)


def named_columns(source: Images) -> dict[str, str]:
    """Return the columns of a table that are wanted for paths and classes, by their options."""
    named = {"--path-column": path_column(source)} if needs_paths(source) else {}
    return named | ({"--label-column": source.label_column} if needs_labels(source) else {})


def check_named(source: Images) -> None:
    """Check what is said of the columns of paths and classes before a table is looked at.

    Raises:
        UsageError: Both are to be one column, or names of given classes are wanted alone.
    """
    wanted = source.columns or ("label", "label_name")
    if source.labels is not None and "label_name" in wanted and "label" not in wanted:
        raise UsageError("--labels numbers the classes: add label to --columns")
    named = named_columns(source)
    if len(set(named.values())) < len(named):
        raise UsageError(
            f"column {source.label_column!r} cannot hold both paths and classes: "
            "correct --path-column or --label-column"
        )


def check_columns(source: Images, inferences: Iterable[CsvInference | Scan]) -> None:
    """Check that a table has the columns that hold paths and classes.

    Raises:
        UsageError: It has not.
    """
    known = set().union(*map(names_in, inferences))
    if not known:
        raise UsageError("the tables are empty: give them a header that names their columns")
    named = named_columns(source)
    # A table may do without classes where nobody asks for them.
    if (source.label_column, source.labels, source.columns) == ("label", None, None):
        del named["--label-column"]
    for option, name in named.items():
        if name not in known:
            raise UsageError(
                f"column {name!r} is not in the input: "
                f"correct {option} to one of {', '.join(sorted(known))}"
            )


def names_in(inference: CsvInference | Scan) -> set[str]:
    """Return the names of all columns of one piece of a table."""
    if isinstance(inference, CsvInference):
        return {*inference.names, *dict(inference.file.partitions)}
    return {*inference.detail.names, *dict(inference.chunk.file.partitions)}
