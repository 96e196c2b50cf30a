"""Base of `Delta` and `Iceberg`: reads one snapshot of a table whose rows are in Parquet files.

The table's log lists the files of a snapshot, and says how a file becomes rows of the table: which
column of the file is which of the table, values that all of its rows share, and rows that were
deleted from it. The files themselves are read as `Parquet` reads them.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import datetime
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from beam_tfrecord.errors import DataError, InputChanged, SchemaConflict, UsageError
from beam_tfrecord.features.type_join import always_fits, can_cast, plain_field, plain_type
from beam_tfrecord.native.kernel_types import BoolArray, Int64Array
from beam_tfrecord.options.sources import LakeOptions
from beam_tfrecord.rows.batch import DEFAULT_BATCH_ROWS, Batch
from beam_tfrecord.selection.evaluate import PieceBounds
from beam_tfrecord.sources.base import (
    Chunk,
    InputFile,
    Scan,
    Source,
    Unit,
    chosen_columns,
    version_and_state,
)
from beam_tfrecord.sources.damaged_files import reason_of
from beam_tfrecord.sources.files import FileSource, as_paths
from beam_tfrecord.sources.merge_schemas import constants_of
from beam_tfrecord.sources.parquet import Parquet, footer_of, pruned_by
from beam_tfrecord.sources.typed_files import Contents, OpenTable, Piece, PieceUnit, check_names
from beam_tfrecord.storage import is_remote, list_names


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


@dataclasses.dataclass(frozen=True)
class DataFile(InputFile):
    """A Parquet file of a table. Its `partitions` are the values that all of its rows share."""

    if_removed: ClassVar[str] = "if the table was vacuumed, read a newer version"

    deleted: bytes = b""
    rows: int | None = None

    def outline(self) -> DataFile:
        return dataclasses.replace(self, deleted=b"", rows=None)

    def listed(self, table: str) -> DataFile:
        """Return a file with its times, if it is local, and check that it is that of the log."""
        if is_remote(self.path):
            return self
        try:
            status = os.stat(self.path)
        except OSError as error:
            raise InputChanged(
                f"{self.path!r} of table {table!r} cannot be read "
                f"({(error.strerror or '').lower()}): {self.if_removed}"
            ) from error
        if status.st_size != self.bytes:
            raise InputChanged(
                f"{self.path!r} has {status.st_size:,} bytes, but {self.bytes:,} in the log of "
                f"table {table!r}"
            )
        version, state = version_and_state(status)
        return dataclasses.replace(self, version=version, state=state)


@dataclasses.dataclass(frozen=True)
class _DataFiles(Parquet):
    """The files of a table, as Parquet files whose columns have the names of the table."""

    names_in: Callable[[InputFile, pa.Schema], dict[str, str]] = lambda *_: {}

    def open(self, raw: pa.NativeFile, file: InputFile) -> OpenTable:
        found = super().open(raw, file)
        # No names of a table: a dropped column may have left its name to a new one.
        names = {f"\0{name}": name for name in found.schema.names}
        names |= self.names_in(file, found.schema)
        fields = (found.schema.field(inside).with_name(name) for name, inside in names.items())

        def read(
            start: int, stop: int, wanted: pa.Schema, batch_rows: int
        ) -> Iterator[pa.RecordBatch]:
            inside = pa.schema([field.with_name(names[field.name]) for field in wanted])
            for batch in found.read(start, stop, inside, batch_rows):
                yield batch.select(inside.names).rename_columns(wanted.names)

        return OpenTable(pa.schema(fields), (), read)


@dataclasses.dataclass(frozen=True)
class LakeTable(LakeOptions, FileSource):
    """A table of a data lake. The snapshot is chosen when the source is made."""

    # What messages call such a table.
    title: ClassVar[str]
    detail_type: ClassVar[Any] = PieceUnit
    file_type: ClassVar[type[InputFile]] = DataFile
    infers_from_scans: ClassVar[bool] = True
    quick_scans: ClassVar[int] = 16
    is_shared: ClassVar[bool] = True

    snapshot: Snapshot = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        paths = tuple(path.removeprefix("file://") for path in as_paths(self.paths))
        object.__setattr__(self, "paths", paths)
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

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Turn what the library of the format raises into an error of one line."""
        try:
            yield
        except UsageError:
            raise
        # The libraries raise classes of their own and of several others.
        except Exception as error:
            # An error of a store is a chain, of which the last part says what is wrong.
            _, arrow, cause = str(error).replace("\x1b[0m", "").rpartition("↳")
            because = f" ({reason_of(OSError(cause))})" if arrow else ""
            reason = f"{reason_of(error)}{because}"
            raise UsageError(f"cannot read {self.title} {self.path!r}: {reason}") from error

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

    def scan(self, chunk: Chunk) -> Scan:
        file, types = chunk.file, self.types()
        assert isinstance(file, DataFile)
        condition = self.selection and self.selection.condition
        needed = set(condition.columns if condition else ()).intersection(types.names)
        # The values of a partition may be enough to leave out a file.
        if condition and file.rows is not None:
            known = constants_of(file, map(types.field, needed.intersection(dict(file.partitions))))
            if not PieceBounds(1, {}, known).may_match(condition)[0].as_py():
                piece = Piece(0, 1, file.rows, file.bytes, file.bytes, 0, is_pruned=True)
                return Scan(chunk, Contents(pa.schema([]), (), (piece,)))
        with Parquet("").opened(file) as table:
            parquet, inside = table.reader, table.schema
            names = self._names_in(file, inside)
            footer = footer_of(parquet, names.values())
            # Where values might not fit, a row that is not read might have to be rejected.
            if condition and all(
                always_fits(plain_type(inside.field(of).type), types.field(name).type)
                for name, of in names.items()
            ):
                constants = constants_of(file, map(types.field, needed.difference(names)))
                wanted = {name: names[name] for name in needed.intersection(names)}
                footer = pruned_by(condition, parquet, footer, wanted, constants)
        return Scan(chunk, footer)

    def _names_in(self, file: InputFile, inside: pa.Schema) -> dict[str, str]:
        """Return the names in a file of the columns to read that it has."""
        check_names(inside.names, file)
        found, names = self.snapshot.names_in(file, inside), {}
        for field in self.types():
            name = found.get(self.snapshot.keys[field.name])
            if name is None:
                if field.name in self.snapshot.stored - dict(file.partitions).keys():
                    raise DataError(f"{file.name} lacks column {field.name!r} of its table")
                continue
            if not can_cast(inside.field(name).type, field.type):
                raise SchemaConflict(
                    f"column {field.name!r} is {inside.field(name).type} in {file.name} but "
                    f"{field.type} in the table: fields inside of it that were renamed, added or "
                    "dropped are not supported: write the rows into a new table, or leave it out"
                )
            names[field.name] = name
        return names

    def units(self, scans: Sequence[Scan]) -> list[Unit]:
        (scan,) = scans
        pieces = scan.detail.pieces
        ends = np.cumsum([0, *(piece.num_rows for piece in pieces)])
        rows = np.diff(ends - np.searchsorted(_deleted(scan.chunk.file), ends))
        read = rows * [not piece.is_pruned for piece in pieces]
        return [
            dataclasses.replace(
                unit,
                rows=int(rows[unit.start : unit.stop].sum()),
                pruned_rows=int((rows - read)[unit.start : unit.stop].sum()),
            )
            for unit in self._files().units(scans)
        ]

    def merge(self, inferences: Iterable[Scan]) -> pa.Schema:
        return self.types()

    def read(
        self, unit: Unit, schema: pa.Schema, *, batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Batch]:
        """Yield the rows of `unit` that are not deleted, as batches of exactly `schema`.

        Row numbers count the deleted rows too, so a delete does not change those of other rows.
        """
        for batch in self._files().read(unit, schema, batch_rows=batch_rows):
            yield _without(batch, _deleted(unit.file))

    def types(self) -> pa.Schema:
        """Return the types of the columns that are read."""
        fields = {field.name: plain_field(field) for field in self.snapshot.schema}
        return chosen_columns(fields, self.columns, fields)

    def _files(self) -> Parquet:
        """Return the source that reads the files."""
        files = _DataFiles("", union=True, names_in=self._names_in)
        object.__setattr__(files, "unit_bytes", self.unit_bytes)
        return files


def _deleted(file: InputFile) -> Int64Array:
    """Return the positions of the deleted rows of a file."""
    return np.frombuffer(file.deleted if isinstance(file, DataFile) else b"", np.int64)


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


def _are_among(positions: Int64Array, deleted: Int64Array) -> BoolArray:
    """Return which positions are in an ascending array, without a pass over that array."""
    found = np.searchsorted(deleted, positions)
    return np.equal(deleted[np.minimum(found, len(deleted) - 1)], positions)


# Directory of the log of a table, and a part of the names of its files.
_LOGS = {"delta": ("_delta_log", ".json"), "iceberg": ("metadata", ".metadata.json")}


def lake_kind(path: str) -> str | None:
    """Return the kind of the table in a directory, by its log; None if it is not a table."""
    for kind, (log, part) in _LOGS.items():
        if any(part in name for name in list_names(os.path.join(path, log))):
            return kind
    return None


def parse_time(text: str) -> datetime.datetime:
    """Return the time of an ISO 8601 text, in UTC if it has no zone."""
    try:
        time = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"--as-of {text!r} is not a time such as 2026-03-01T12:00") from error
    return time if time.tzinfo else time.replace(tzinfo=datetime.UTC)
