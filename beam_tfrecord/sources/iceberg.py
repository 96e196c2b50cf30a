"""Reads Apache Iceberg tables: `pyiceberg` lists the Parquet files of a snapshot, and its columns.

The format: https://iceberg.apache.org/spec/
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from beam_tfrecord.base.extras import require
from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.lake_table import DataFile, LakeTable, Snapshot, parse_time
from beam_tfrecord.storage import is_remote, open_read, plain_path

_SCHEME = "iceberg://"


@dataclasses.dataclass(frozen=True)
class Iceberg(LakeTable):
    """An Apache Iceberg table: its directory, its metadata file, or ``iceberg://catalog/db.table``."""

    kind: ClassVar[str] = "iceberg"
    title: ClassVar[str] = "Iceberg table"
    metadata: str = dataclasses.field(init=False, repr=False, compare=False, default="")

    def choose(self) -> Snapshot:
        """Return the snapshot to read."""
        require("iceberg", "an Iceberg table")
        with self.reading():
            table = self._table()
            # Workers read this file, and need no catalogue.
            object.__setattr__(self, "metadata", table.metadata_location)
            snapshot = self._snapshot(table)
            schema = self._schema(table, snapshot and snapshot.snapshot_id)
            partitioned = frozenset(
                schema.find_column_name(field.source_id)
                for spec in table.specs().values()
                for field in spec.fields
                if str(field.transform) == "identity"
            )
            mapping = table.name_mapping()
            ids = {name: str(field.field_id) for field in mapping or () for name in field.names}
        for field in filter(self.is_read, schema.fields):
            if field.initial_default is not None:
                raise UsageError(
                    f"column {field.name!r} of Iceberg table {self.path!r} has an initial default, "
                    "which is not supported: rewrite the files, or leave it out"
                )
        facts = {"table": str(table.metadata.table_uuid), "version": None}
        if snapshot is not None:
            facts["version"] = snapshot.snapshot_id
            # A change of the columns alone makes no snapshot.
            if snapshot.schema_id != schema.schema_id:
                facts["schema"] = schema.schema_id
        keys = {field.name: str(field.field_id) for field in schema.fields}
        return Snapshot(schema.as_arrow(), keys, facts, partitioned, ids)

    def files(self) -> Iterator[InputFile]:
        with self.reading():
            table = _static(self.metadata, self.properties)
            scan = table.scan(snapshot_id=self.snapshot.facts["version"])
            tasks = sorted(scan.plan_files(), key=lambda task: str(task.file.file_path))
        deletes, root = functools.cache(_positions), _plain(table.location()).rstrip("/")
        for task in tasks:
            path = _plain(task.file.file_path)
            for file in (task.file, *task.delete_files):
                if file.file_format.name != "PARQUET":
                    raise UsageError(
                        f"{file.file_path!r} of Iceberg table {self.path!r} is a file of format "
                        f"{file.file_format.name}: only PARQUET is supported"
                    )
            deleted = b""
            if task.delete_files:
                name, none = task.file.file_path, pa.array([], pa.int64())
                lists = [deletes(file.file_path).get(name, none) for file in task.delete_files]
                deleted = np.unique(pa.concat_arrays(lists)).tobytes()
            size = int(task.file.file_size_in_bytes)
            file = DataFile(path, path.removeprefix(f"{root}/"), size, deleted=deleted)
            yield file.listed(self.path)

    def _table(self) -> Any:
        """Load the table from its catalogue or its metadata file."""
        if self.path.startswith(_SCHEME):
            from pyiceberg.catalog import load_catalog

            catalog, _, name = self.path.removeprefix(_SCHEME).partition("/")
            return load_catalog(catalog, **(self.properties or {})).load_table(name)
        try:
            # Of a directory, it reads the metadata file that version-hint.text names.
            return _static(self.path, self.properties)
        except FileNotFoundError:
            is_missing = not is_remote(self.path) and not os.path.exists(plain_path(self.path))
            if is_missing or self.path.endswith(".metadata.json"):
                raise
            raise UsageError(
                f"cannot tell which metadata file of Iceberg table {self.path!r} is current, since "
                "no metadata/version-hint.text names one: pass the file that its catalogue names, "
                "with gunzip if its name ends in .gz, or iceberg://CATALOG/DATABASE.TABLE"
            ) from None

    def _snapshot(self, table: Any) -> Any:
        """Return the snapshot to read; None for a table to which nothing was written yet."""
        if self.as_of is not None:
            milliseconds = int(parse_time(self.as_of).timestamp() * 1000)
            found = table.snapshot_as_of_timestamp(milliseconds)
        elif self.version is not None:
            found = table.snapshot_by_id(self.version)
        else:
            return table.current_snapshot()
        if found is None:
            wanted = f"as old as {self.as_of}" if self.as_of else f"{self.version}"
            raise UsageError(f"Iceberg table {self.path!r} has no snapshot {wanted}")
        return found

    def _schema(self, table: Any, version: int | None) -> Any:
        """Return the columns of a snapshot that was asked for, else those that the table has."""
        if self.version is None and self.as_of is None:
            return table.schema()
        return table.scan(snapshot_id=version).projection()


def _static(metadata: str, properties: Any) -> Any:
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(metadata, dict(properties or {}))


def _positions(location: str) -> dict[str, pa.Array]:
    """Return the positions of deleted rows in a position delete file, by the data file."""
    with open_read(_plain(location)) as file:
        table = pq.read_table(file, columns=["file_path", "pos"])
    found = table.group_by("file_path").aggregate([("pos", "list")])
    paths, positions = found.column("file_path").to_pylist(), found.column("pos_list")
    return {
        path: of_file.values.cast(pa.int64())
        for path, of_file in zip(paths, positions, strict=True)
    }


def _plain(location: str) -> str:
    """Return the path of a local file, or a URL. Iceberg does not encode characters in either."""
    return re.sub(r"^file:(//)?(?=/)", "", location)
