"""The source of Apache Iceberg tables, whose metadata the library `pyiceberg` reads.

The format: https://iceberg.apache.org/spec/
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from beam_tfrecord.errors import UsageError
from beam_tfrecord.extras import require
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.file_parts import reason_of
from beam_tfrecord.sources.lake.table import (
    LakeTable,
    Snapshot,
    data_file,
    parse_time,
)
from beam_tfrecord.storage import is_remote, list_files, open_read

_SCHEME = "iceberg://"
_FIELD_ID = b"PARQUET:field_id"
# How writers name the metadata files of versions: v3.metadata.json or 00003-<uuid>.metadata.json.
_METADATA = re.compile(r"v?(\d+)(?:-[^/]*)?\.metadata\.json")


@dataclasses.dataclass(frozen=True)
class Iceberg(LakeTable):
    """An Apache Iceberg table: its directory, its metadata file, or ``iceberg://catalog/db.table``.

    Attributes:
        version: Id of the snapshot to read.
        properties: Properties of the catalogue and its storage, as `pyiceberg` names them.
        metadata: The metadata file of the table.
    """

    kind: ClassVar[str] = "iceberg"
    metadata: str = dataclasses.field(init=False, repr=False, compare=False, default="")

    def choose(self) -> Snapshot:
        """Return the snapshot to read."""
        require("iceberg", "an Iceberg table")
        try:
            table = self._table()
            # Workers read this file, and need no catalogue.
            object.__setattr__(self, "metadata", table.metadata_location)
            version = self._version(table)
            schema = table.scan(snapshot_id=version).projection()
            partitioned = frozenset(
                schema.find_column_name(field.source_id)
                for spec in table.specs().values()
                for field in spec.fields
                if str(field.transform) == "identity"
            )
        except UsageError:
            raise
        # The library raises classes of its own and of several others.
        except Exception as error:
            raise self._unreadable(error) from error
        for field in schema.fields:
            if field.initial_default is not None:
                raise UsageError(
                    f"column {field.name!r} of Iceberg table {self.path!r} has an initial default, "
                    "which is not supported: rewrite the files, or leave it out"
                )
        facts = {"table": str(table.metadata.table_uuid), "version": version}
        keys = {field.name: str(field.field_id) for field in schema.fields}
        return Snapshot(schema.as_arrow(), keys, facts, partitioned)

    @staticmethod
    def key_of(field: pa.Field) -> str:
        """Return the id of a column."""
        return str((field.metadata or {}).get(_FIELD_ID, b"").decode())

    def files(self) -> Iterator[InputFile]:
        """Yield the data files of the snapshot in order of their paths.

        Raises:
            InputChanged: A file is gone.
            UsageError: The table has a feature that is not supported.
        """
        try:
            table = _static(self.metadata, self.properties)
            tasks = list(table.scan(snapshot_id=self.snapshot.facts["version"]).plan_files())
        except Exception as error:
            raise self._unreadable(error) from error
        if not tasks:
            raise UsageError(f"Iceberg table {self.path!r} has no rows")
        for task in sorted(tasks, key=lambda task: str(task.file.file_path)):
            path = _plain(task.file.file_path)
            for file in (task.file, *task.delete_files):
                if file.file_format.name != "PARQUET":
                    raise UsageError(
                        f"{file.file_path!r} of Iceberg table {self.path!r} is a file of format "
                        f"{file.file_format.name}: only PARQUET is supported"
                    )
            yield data_file(
                path,
                _plain(table.location()),
                table=self.path,
                nbytes=int(task.file.file_size_in_bytes),
                deleted=_deleted_rows(task),
            )

    def _table(self) -> Any:
        """Load the table from its catalogue or its metadata file."""
        if self.path.startswith(_SCHEME):
            from pyiceberg.catalog import load_catalog

            catalog, _, name = self.path.removeprefix(_SCHEME).partition("/")
            return load_catalog(catalog, **(self.properties or {})).load_table(name)
        is_file = self.path.endswith(".json")
        return _static(self.path if is_file else _last_metadata(self.path), self.properties)

    def _version(self, table: Any) -> int:
        """Return the id of the snapshot to read.

        Raises:
            UsageError: There is none.
        """
        found = None
        if self.as_of is not None:
            milliseconds = int(parse_time(self.as_of).timestamp() * 1000)
            found = table.snapshot_as_of_timestamp(milliseconds)
        elif self.version is not None:
            found = table.snapshot_by_id(self.version)
        else:
            found = table.current_snapshot()
        if found is None:
            wanted = f" as old as {self.as_of}" if self.as_of else f" {self.version or ''}".rstrip()
            raise UsageError(f"Iceberg table {self.path!r} has no snapshot{wanted}")
        return int(found.snapshot_id)

    def _unreadable(self, error: Exception) -> UsageError:
        return UsageError(f"cannot read Iceberg table {self.path!r}: {reason_of(error)}")


def _static(metadata: str, properties: Any) -> Any:
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(metadata, dict(properties or {}))


def _last_metadata(directory: str) -> str:
    """Return the path of the newest metadata file of a table.

    Raises:
        UsageError: There is none.
    """
    place = os.path.join(directory, "metadata")
    if is_remote(directory):
        names = [entry.path.rpartition("/")[2] for entry in list_files(place)]
    else:
        names = os.listdir(place) if os.path.isdir(place) else []
    versions = {int(match[1]): name for name in names if (match := _METADATA.fullmatch(name))}
    if not versions:
        raise UsageError(f"cannot read Iceberg table {directory!r}: it has no metadata/ files")
    return os.path.join(place, versions[max(versions)])


def _deleted_rows(task: Any) -> bytes:
    """Return the positions of the rows of a file that its position delete files list."""
    positions = [np.empty(0, np.int64)]
    for delete in task.delete_files:
        with open_read(_plain(delete.file_path)) as file:
            table = pq.read_table(file, columns=["file_path", "pos"])
        mine = table.filter(pc.equal(table["file_path"], task.file.file_path))
        positions.append(mine["pos"].to_numpy())
    return np.unique(np.concatenate(positions)).astype(np.int64).tobytes()


def _plain(location: str) -> str:
    """Return the path of a local file, or a URL. Iceberg does not encode characters in either."""
    return re.sub(r"^file:(//)?(?=/)", "", location)
