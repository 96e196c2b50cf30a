"""The base of sources that read one snapshot of a table whose rows are in Parquet files.

The table's log lists the files of a snapshot, and says how a file becomes rows of the table: which
column of the file is which of the table, values that all of its rows share, and rows that were
deleted from it. The files themselves are read as `Parquet` reads them.
"""

from __future__ import annotations

import abc
import dataclasses
import datetime
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS, Batch
from beam_tfrecord.errors import DataError, SchemaConflict, UsageError
from beam_tfrecord.features.arrow_arrays import Int64Array
from beam_tfrecord.features.converting import always_fits, plain_field
from beam_tfrecord.selection.nodes import columns_of
from beam_tfrecord.sources.base import (
    Chunk,
    InputFile,
    Scan,
    Source,
    Unit,
    chosen_columns,
    wanted_columns,
)
from beam_tfrecord.sources.files import as_paths
from beam_tfrecord.sources.hive import partition_value
from beam_tfrecord.sources.lake.files import DataFile, deleted_in, excluded_in, is_skipped
from beam_tfrecord.sources.lake.statistics import YES, LogColumn, excluded
from beam_tfrecord.sources.parquet.footer import opened, pruned_by
from beam_tfrecord.sources.parquet.source import Parquet
from beam_tfrecord.sources.typed_files import BlockUnit, Contents, no_rows
from beam_tfrecord.storage import is_remote, list_files


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A version of a table."""

    schema: pa.Schema
    keys: Mapping[str, str]
    facts: Mapping[str, Any]
    stored: frozenset[str] = frozenset()
    ids: Mapping[str, str] | None = None

    def names_in(self, file: InputFile, inside: pa.Schema) -> dict[str, str]:
        """Return the names of the columns of a file by their keys."""
        if self.ids is None:
            return {name: name for name in inside.names}
        ids = {(field.metadata or {}).get(_FIELD_ID, b"").decode(): field.name for field in inside}
        if any(ids):
            return ids
        if inside.names and not self.ids:
            raise DataError(
                f"{file.name} has no ids of columns, and its table no mapping of their names: "
                "write the file again, or add schema.name-mapping.default to the table"
            )
        return {self.ids[name]: name for name in inside.names if name in self.ids}


# Metadata of a column of a Parquet file.
_FIELD_ID = b"PARQUET:field_id"


class LakeScan(NamedTuple):
    """The footer of a file, restricted to the columns to read, and their names in the file."""

    footer: Contents
    names: tuple[str, ...]


class LakeUnit(NamedTuple):
    """What `Parquet` needs to read a unit, and the names in the file of the columns to read."""

    parquet: BlockUnit
    names: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class LakeTable(Source):
    """A table of a data lake. The snapshot is chosen when the source is made."""

    detail_type: ClassVar[Any] = LakeUnit
    infers_from_scans: ClassVar[bool] = True
    quick_scans: ClassVar[int] = 16

    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
    _: dataclasses.KW_ONLY
    columns: Sequence[str] | None = None
    version: int | None = None
    as_of: str | None = None
    properties: Mapping[str, str] | None = dataclasses.field(default=None, repr=False)
    snapshot: Snapshot = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        paths = tuple(path.removeprefix("file://") for path in as_paths(self.paths))
        object.__setattr__(self, "paths", paths)
        object.__setattr__(self, "columns", wanted_columns(self.columns))
        if self.version is not None and self.as_of is not None:
            raise UsageError("--version and --as-of both choose the snapshot: pass one of them")
        object.__setattr__(self, "snapshot", self.choose())

    @property
    def path(self) -> str:
        """The directory, URL or name of the table."""
        paths = as_paths(self.paths)
        if len(paths) != 1:
            raise UsageError(f"there are {len(paths)} {self.kind} tables: give one")
        return paths[0]

    @abc.abstractmethod
    def choose(self) -> Snapshot:
        """Return the snapshot to read."""

    def is_read(self, field: Any) -> bool:
        """Return whether a column is read, given its field in the table's own schema."""
        return self.columns is None or field.name in self.columns

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"snapshot": dict(self.snapshot.facts)}

    def options_for(self, files: Iterable[InputFile]) -> dict[str, Any]:
        return {"columns": self.columns}

    def to_send(self) -> tuple[Source, tuple[str, ...]]:
        return self, ()

    def excluded(
        self, statistics: Callable[[], Mapping[str, LogColumn]], count: int
    ) -> list[bytes | None]:
        """Return `DataFile.excluded` of each file."""
        if self.selection is None or self.selection.condition is None:
            return [None] * count
        return excluded(self.selection.condition, statistics(), count)

    def scan(self, chunk: Chunk) -> Scan:
        file, types = chunk.file, self.types()
        if is_skipped(file):
            return Scan(chunk, LakeScan(Contents(pa.schema([]), (), ()), ()))
        with opened(file) as (parquet, _):
            inside = self.snapshot.names_in(file, parquet.schema_arrow)
            shared = dict(file.partitions)
            names = {}
            for field in types:
                name = inside.get(self.snapshot.keys[field.name])
                if name is None and field.name in self.snapshot.stored and field.name not in shared:
                    raise DataError(f"{file.name} lacks column {field.name!r} of its table")
                if name is not None:
                    _check_fields(file, field, parquet.schema_arrow.field(name).type)
                # No name of a file: a dropped column may have left its name to a new one.
                missing = field.name if field.name in shared else f"\0{field.name}"
                names[field.name] = name or missing
            inner = tuple(names.values())
            footer = self._parquet(inner).scan(chunk).detail
            return Scan(chunk, LakeScan(self._pruned(file, parquet, footer, names), inner))

    def _pruned(
        self, file: InputFile, parquet: pq.ParquetFile, footer: Contents, names: Mapping[str, str]
    ) -> Contents:
        """Return a footer that notes which row groups the filter excludes."""
        condition = None if self.selection is None else self.selection.condition
        if condition is None:
            return footer
        if excluded_in(file) is not None:
            blocks = (dataclasses.replace(block, is_pruned=True) for block in footer.blocks)
            return dataclasses.replace(footer, blocks=tuple(blocks))
        fields = {names[field.name]: field for field in self.types()}
        # Where values might not fit, a row that is not read might have to be rejected.
        if not all(always_fits(field.type, fields[field.name].type) for field in footer.schema):
            return footer
        needed = {name: names[name] for name in columns_of(condition) if name in names}
        others = {
            name: partition_value(file, fields[inner].with_name(name))
            for name, inner in needed.items()
            if inner not in footer.schema.names
        }
        return pruned_by(condition, parquet, footer, names=needed, others=others)

    def units(self, scans: Sequence[Scan]) -> list[Unit]:
        (scan,) = scans
        footer, names = scan.detail
        file, deleted = scan.chunk.file, deleted_in(scan.chunk.file)
        if is_skipped(file):
            return [_skipped(file)]
        return [
            dataclasses.replace(
                unit,
                # `Parquet` compares this with the number of all rows, deleted ones too.
                rows=None if deleted.size else unit.rows,
                pruned_rows=_pruned_rows(unit, footer, deleted),
                detail=LakeUnit(unit.detail, names),
            )
            for unit in self._parquet().units([Scan(scan.chunk, footer)])
        ]

    def merge(self, inferences: Iterable[Scan]) -> pa.Schema:
        """Return the types of the table, which its files cannot change.

        A column has no nulls if the footers and the partitions of all files prove it.
        """
        scans = list(inferences)
        return pa.schema(
            [
                field.with_nullable(not scans or any(_may_be_null(scan, at) for scan in scans))
                for at, field in enumerate(self.types())
            ]
        )

    def read(
        self, unit: Unit, schema: pa.Schema, *, batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Batch]:
        """Yield the rows of `unit` that are not deleted, as batches of exactly `schema`.

        Row numbers count the deleted rows too, so a delete does not change those of other rows.
        """
        if is_skipped(unit.file):
            yield no_rows(unit, schema)
            return
        detail: LakeUnit = unit.detail
        names = dict(zip(self.types().names, detail.names, strict=True))
        inside = pa.schema([field.with_name(names[field.name]) for field in schema])
        of_parquet = dataclasses.replace(unit, detail=detail.parquet)
        deleted = deleted_in(unit.file)
        for batch in self._parquet().read(of_parquet, inside, batch_rows=batch_rows):
            data = batch.data
            if schema.names:
                data = pa.RecordBatch.from_arrays(data.columns, schema=schema)
            yield _without(batch.replace(data=data), deleted)

    def types(self) -> pa.Schema:
        """Return the types of the columns that are read."""
        fields = {field.name: plain_field(field) for field in self.snapshot.schema}
        return chosen_columns(fields, self.columns, fields)

    def _parquet(self, columns: Sequence[str] | None = None) -> Parquet:
        """Return the source that reads the files."""
        parquet = Parquet("", columns=columns or None, union=True)
        object.__setattr__(parquet, "unit_bytes", self.unit_bytes)
        return parquet


def _check_fields(file: InputFile, column: pa.Field, of: pa.DataType) -> None:
    """Check that the structs in a column have the names of fields that those of a file have."""
    if (apart := _fields_apart(of, column.type)) is not None:
        inside, wanted = (", ".join(map(repr, names)) for names in apart)
        raise SchemaConflict(
            f"column {column.name!r} has the fields {inside} in {file.name} but {wanted} in the "
            "table: fields inside of it were renamed, added or dropped in the table, which is not "
            "supported: write the rows into a new table, or leave the column out"
        )


def _fields_apart(of: pa.DataType, to: pa.DataType) -> tuple[list[str], list[str]] | None:
    """Return the names of the fields of the first struct that has others in two types, or None."""
    inside = [[kind.field(at) for at in range(kind.num_fields)] for kind in (of, to)]
    names, wanted = ([field.name for field in fields] for fields in inside)
    if pa.types.is_struct(of) and pa.types.is_struct(to) and names != wanted:
        return names, wanted
    pairs = zip(*inside, strict=False)
    apart = (_fields_apart(one.type, other.type) for one, other in pairs)
    return next((found for found in apart if found is not None), None)


def _skipped(file: InputFile) -> Unit:
    rows = file.rows if isinstance(file, DataFile) else None
    return Unit(
        name=file.name,
        file=file,
        index=0,
        start=0,
        stop=0,
        rows=rows,
        input_bytes=0,
        encoded_bytes=0,
        detail=LakeUnit(BlockUnit(0, ()), ()),
        pruned_rows=rows or 0,
        pruned_bytes=file.bytes,
    )


def _pruned_rows(unit: Unit, footer: Contents, deleted: Int64Array) -> int:
    """Return the number of rows that a filter excludes and that were not deleted before."""
    ends = np.cumsum([0, *(block.rows for block in footer.blocks)])
    rows = np.diff(ends - np.searchsorted(deleted, ends))
    groups = range(unit.start, unit.stop)
    return int(sum(rows[at] for at in groups if footer.blocks[at].is_pruned))


def _may_be_null(scan: Scan, at: int) -> bool:
    file, (footer, names) = scan.chunk.file, scan.detail
    if (nulls := excluded_in(file)) is not None and is_skipped(file):
        return nulls[at] == YES
    name, partitions = names[at], dict(file.partitions)
    if name in footer.schema.names:
        return bool(footer.schema.field(name).nullable)
    return partitions.get(name) is None


def _without(batch: Batch, deleted: Int64Array) -> Batch:
    """Return a batch without the rows at the positions `deleted` of its file."""
    if not len(deleted) or batch.origin is None or batch.origin.address is None:
        return batch
    before = batch.origin.address[1]
    positions = batch.origin.row_numbers(batch.num_rows) + before
    (rows,) = np.nonzero(~_are_among(positions, deleted))
    refused = np.array([reject.row for reject in batch.rejects], np.int64) + before
    rejects = tuple(itertools.compress(batch.rejects, ~_are_among(refused, deleted)))
    return batch.take(rows).replace(rejects=rejects)


def _are_among(positions: Int64Array, deleted: Int64Array) -> npt.NDArray[np.bool_]:
    """Return which positions are in an ascending array, without a pass over that array."""
    found = np.searchsorted(deleted, positions)
    return np.equal(deleted[np.minimum(found, len(deleted) - 1)], positions)


# Directory of the log of a table, and a part of the names of its files.
_LOGS = {"delta": ("_delta_log", ".json"), "iceberg": ("metadata", ".metadata.json")}


def lake_kind(path: str) -> str | None:
    """Return the kind of the table in a directory, by its log; None if it is not a table."""
    for kind, (log, part) in _LOGS.items():
        directory = os.path.join(path, log)
        if is_remote(path):
            names: Iterable[str] = (entry.path for entry in list_files(directory))
        else:
            names = os.listdir(directory) if os.path.isdir(directory) else ()
        if any(part in name for name in names):
            return kind
    return None


def parse_time(text: str) -> datetime.datetime:
    """Return the time of an ISO 8601 text, in UTC if it has no zone."""
    try:
        time = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"--as-of {text!r} is not a time such as 2026-03-01T12:00") from error
    return time if time.tzinfo else time.replace(tzinfo=datetime.UTC)
