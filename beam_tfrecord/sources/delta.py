"""Reads Delta Lake tables: `deltalake` lists the Parquet files of a version, and its columns.

The format: https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from typing import Any, ClassVar
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from beam_tfrecord.base.extras import require
from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.lake_table import DataFile, LakeTable, Snapshot, parse_time
from beam_tfrecord.storage import is_remote

_STORED_NAME = "delta.columnMapping.physicalName"
_STORED_ID = "delta.columnMapping.id"

# Features of readers that change how rows are read, all of which are honoured here or by
# `deltalake`, and one whose type of a column is refused.
_HONOURED = {
    *("columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "v2Checkpoint"),
    *("vacuumProtocolCheck", "variantType"),
}


@dataclasses.dataclass(frozen=True)
class Delta(LakeTable):
    """A Delta Lake table: a directory or URL that has a ``_delta_log/``."""

    kind: ClassVar[str] = "delta"
    title: ClassVar[str] = "Delta Lake table"

    def choose(self) -> Snapshot:
        """Return the snapshot to read."""
        table = self._open()
        last = table.version()
        if self.version is not None and self.version > last:
            raise UsageError(
                f"Delta Lake table {self.path!r} has no version {self.version}: the last is {last}"
            )
        version = self._version_at(table) if self.version is None else self.version
        with self.reading():
            table.load_as_version(version)
        features = table.protocol().reader_features or ()
        if unknown := sorted(set(features) - _HONOURED):
            raise UsageError(
                f"Delta Lake table {self.path!r} uses {unknown[0]!r}, which is not supported: "
                "copy the rows into a table without it"
            )
        partitions = table.metadata().partition_columns
        for field in filter(self.is_read, table.schema().fields):
            of = getattr(field.type, "type", "")
            if of == "variant":
                raise UsageError(
                    f"column {field.name!r} of {self.path!r} is a variant: leave it out"
                )
            # `deltalake` returns the form that the log has, which is not that of the protocol.
            if of == "binary" and field.name in partitions:
                raise UsageError(
                    f"column {field.name!r} of {self.path!r} is a partition of bytes, which is not "
                    "supported: leave it out"
                )
        facts = {"table": str(table.metadata().id), "version": table.version()}
        schema = pa.schema(table.schema().to_arrow())
        mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
        fields = {field.name: field.metadata for field in table.schema().fields}
        if mode == "none":
            return Snapshot(schema, {name: name for name in fields}, facts)
        stored = {name: str(metadata[_STORED_NAME]) for name, metadata in fields.items()}
        if mode == "name":
            return Snapshot(schema, stored, facts)
        ids = {name: str(metadata[_STORED_ID]) for name, metadata in fields.items()}
        by_name = {stored[name]: number for name, number in ids.items()}
        return Snapshot(schema, ids, facts, ids=by_name)

    def _version_at(self, table: Any) -> int:
        """Return the last version at the time that was asked for."""
        if self.as_of is None:
            return int(table.version())
        most_ms = parse_time(self.as_of).timestamp() * 1000
        for commit in table.history():
            if commit["timestamp"] <= most_ms:
                return int(commit["version"])
        raise UsageError(f"Delta Lake table {self.path!r} has no version as old as {self.as_of}")

    def files(self) -> Iterator[InputFile]:
        table = self._open()
        with self.reading():
            table.load_as_version(self.snapshot.facts["version"])
            deleted = _deleted_rows(table)
            actions = pa.table(table.get_add_actions(flatten=False)).sort_by("path")
            known = {"path", "size_bytes", "num_records", "partition"}
            actions = actions.select([name for name in actions.column_names if name in known])
        root = _plain(str(table.table_uri)).rstrip("/")
        for action in actions.to_pylist():
            # The log has relative paths of files, encoded as parts of a URL, or complete URLs.
            path = _plain(action["path"])
            path = path if os.path.isabs(path) or is_remote(path) else f"{root}/{path}"
            values = action.get("partition") or {}
            file = DataFile(
                path,
                path.removeprefix(f"{root}/"),
                int(action["size_bytes"]),
                partitions=tuple(
                    (name, None if of is None else str(of)) for name, of in values.items()
                ),
                deleted=deleted.get(path, b""),
                rows=action["num_records"],
            )
            yield file.listed(self.path)

    def _open(self) -> Any:
        require("delta", "a Delta Lake table")
        from deltalake import DeltaTable

        with self.reading():
            return DeltaTable(self.path, storage_options=dict(self.properties or {}) or None)


def _deleted_rows(table: Any) -> dict[str, bytes]:
    """Return the positions of deleted rows by the plain path of the file."""
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return {}
    deleted = {}
    for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
        for path, is_there in zip(*batch.columns, strict=True):
            (positions,) = np.nonzero(~is_there.values.to_numpy(zero_copy_only=False))
            deleted[_plain(path.as_py())] = positions.astype(np.int64).tobytes()
    return deleted


def _plain(url: str) -> str:
    """Return the path of a local file or directory, or a URL, without encoded characters."""
    return unquote(url).removeprefix("file://")
