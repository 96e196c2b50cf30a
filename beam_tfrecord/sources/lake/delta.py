"""The source of Delta Lake tables, whose log the library `deltalake` reads.

The format: https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

from __future__ import annotations

import dataclasses
import datetime
import os
from collections.abc import Iterator
from typing import Any, ClassVar
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from beam_tfrecord.errors import UsageError
from beam_tfrecord.extras import require
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.file_parts import reason_of
from beam_tfrecord.sources.lake.table import (
    LakeTable,
    Snapshot,
    data_file,
    parse_time,
    partition_text,
)
from beam_tfrecord.storage import is_remote

_MAPPED = "delta.columnMapping.physicalName"

# Features of readers that change how rows are read, all of which are honoured here or by
# `deltalake`, and one whose type of a column is refused.
_HONOURED = {
    *("columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "v2Checkpoint"),
    *("vacuumProtocolCheck", "variantType"),
}


@dataclasses.dataclass(frozen=True)
class Delta(LakeTable):
    """A Delta Lake table: a directory or URL that has a ``_delta_log/``.

    Attributes:
        version: Number of the version to read.
        properties: Options of `deltalake` for the storage, such as ``AWS_REGION``.
    """

    kind: ClassVar[str] = "delta"

    def choose(self) -> Snapshot:
        """Return the snapshot to read."""
        table = self._open()
        last = table.version()
        if self.version is not None and self.version > last:
            raise UsageError(
                f"Delta Lake table {self.path!r} has no version {self.version}: the last is {last}"
            )
        if self.version is not None:
            self._load(table, self.version)
        if self.as_of is not None:
            time = parse_time(self.as_of)
            self._load(table, time)
            # The library loads the first version if none is as old.
            if int(table.history(1)[0]["timestamp"]) > time.timestamp() * 1000:
                raise UsageError(
                    f"Delta Lake table {self.path!r} has no version as old as {self.as_of}"
                )
        features = table.protocol().reader_features or ()
        if unknown := sorted(set(features) - _HONOURED):
            raise UsageError(
                f"Delta Lake table {self.path!r} uses {unknown[0]!r}, which is not supported: "
                "copy the rows into a table without it"
            )
        for field in table.schema().fields:
            if getattr(field.type, "type", "") == "variant":
                raise UsageError(
                    f"column {field.name!r} of {self.path!r} is a variant: leave it out"
                )
        facts = {"table": str(table.metadata().id), "version": table.version()}
        schema = pa.schema(table.schema().to_arrow())
        mapped = table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none"
        keys = {
            field.name: str(field.metadata[_MAPPED]) if mapped else field.name
            for field in table.schema().fields
        }
        return Snapshot(schema, keys, facts)

    @staticmethod
    def key_of(field: pa.Field) -> str:
        """Return the name of a column in the files."""
        return str(field.name)

    def files(self) -> Iterator[InputFile]:
        """Yield the data files of the snapshot in order of their paths.

        Raises:
            InputChanged: A file is gone.
            UsageError: The table cannot be read.
        """
        table = self._open()
        self._load(table, self.snapshot.facts["version"])
        try:
            deleted = _deleted_rows(table)
            actions = pa.table(table.get_add_actions(flatten=False)).to_pylist()
        except Exception as error:
            raise self._unreadable(error) from error
        if not actions:
            raise UsageError(f"Delta Lake table {self.path!r} has no rows")
        root = _plain(str(table.table_uri)).rstrip("/")
        for action in sorted(actions, key=lambda action: str(action["path"])):
            values = action.get("partition") or {}
            # The log has relative paths of files, encoded as parts of a URL, or complete URLs.
            path = _plain(action["path"])
            path = path if os.path.isabs(path) or is_remote(path) else f"{root}/{path}"
            yield data_file(
                path,
                root,
                table=self.path,
                nbytes=int(action["size_bytes"]),
                partitions=tuple((name, partition_text(of)) for name, of in values.items()),
                deleted=deleted.get(path, b""),
            )

    def _open(self) -> Any:
        require("delta", "a Delta Lake table")
        from deltalake import DeltaTable

        try:
            return DeltaTable(self.path, storage_options=dict(self.properties or {}) or None)
        # The library raises classes of its own and of several others.
        except Exception as error:
            raise self._unreadable(error) from error

    def _load(self, table: Any, version: int | datetime.datetime) -> None:
        try:
            table.load_as_version(version)
        except Exception as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> UsageError:
        return UsageError(f"cannot read Delta Lake table {self.path!r}: {reason_of(error)}")


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
