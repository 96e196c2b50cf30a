"""The source of Delta Lake tables, whose log the library `deltalake` reads.

The format: https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import re
import sys
from collections.abc import Iterator
from typing import Any, ClassVar
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.errors import UsageError
from beam_tfrecord.extras import require
from beam_tfrecord.features.arrow_types import is_text
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.file_parts import reason_of
from beam_tfrecord.sources.lake.files import data_file, partition_text
from beam_tfrecord.sources.lake.statistics import (
    Ends,
    LogColumn,
    after_all_with,
    mapped,
    of_statistics,
    of_values,
    without_nan,
)
from beam_tfrecord.sources.lake.table import (
    LakeTable,
    Snapshot,
    parse_time,
)
from beam_tfrecord.storage import is_remote

_STORED_NAME = "delta.columnMapping.physicalName"
_STORED_ID = "delta.columnMapping.id"
_POSITION_BYTES = 8
# The log has texts of up to so many characters, and moments without microseconds.
_CUT_CHARACTERS = 32
_TWO_HALVES = re.compile("[\U00010000-\U0010ffff]")
_CUT_MICROS = 999
_MOST_MICROS = 2**63 - 1000

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
            # The library loads the first version if none is as old. The commits of a table with an
            # older version loaded have wrong times.
            most = last - table.version() + 2
            commits = self._open().history(most)
            if len(commits) < most and commits[-1]["timestamp"] > time.timestamp() * 1000:
                raise UsageError(
                    f"Delta Lake table {self.path!r} has no version as old as {self.as_of}"
                )
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

    def files(self) -> Iterator[InputFile]:
        table = self._open()
        self._load(table, self.snapshot.facts["version"])
        try:
            deleted = _deleted_rows(table)
            actions = pa.table(table.get_add_actions(flatten=False)).sort_by("path")
        except Exception as error:
            raise self._unreadable(error) from error
        root = _plain(str(table.table_uri)).rstrip("/")
        known = ["path", "size_bytes", "num_records", "partition"]
        listed = actions.select([name for name in known if name in actions.column_names])
        nulls = self.excluded(lambda: self._statistics(actions), len(actions))
        for action, of_excluded in zip(listed.to_pylist(), nulls, strict=True):
            values = action.get("partition") or {}
            # The log has relative paths of files, encoded as parts of a URL, or complete URLs.
            path = _plain(action["path"])
            path = path if os.path.isabs(path) or is_remote(path) else f"{root}/{path}"
            positions, rows = deleted.get(path, b""), action["num_records"]
            yield data_file(
                path,
                root,
                table=self.path,
                nbytes=int(action["size_bytes"]),
                partitions=tuple((name, partition_text(of)) for name, of in values.items()),
                deleted=positions,
                excluded=of_excluded,
                rows=None if rows is None else rows - len(positions) // _POSITION_BYTES,
            )

    def _statistics(self, actions: pa.Table) -> dict[str, LogColumn]:
        """Return what the log says of each column, given the actions that added the files."""
        partitions, nulls = _columns_of(actions, "partition"), _columns_of(actions, "null_count")
        least, largest = _columns_of(actions, "min"), _columns_of(actions, "max")
        rows = actions.column("num_records").combine_chunks()
        unknown = pa.nulls(len(actions), pa.int64())
        # The log has the names in the files also if the files are read by ids.
        names = {key: name for name, key in (self.snapshot.ids or {}).items()}
        found, needed = {}, self.selection.needed if self.selection else ()
        for field in self.types():
            if field.name in partitions:
                found[field.name] = of_values(partitions[field.name].cast(field.type))
                continue
            key = self.snapshot.keys[field.name]
            key = names.get(key, key)
            ends = None
            if field.name in needed and not pa.types.is_nested(field.type):
                none = pa.nulls(len(actions), field.type)
                ends = _ends(least.get(key, none), largest.get(key, none), field.type)
            found[field.name] = of_statistics(
                ends, _leaves(field.type, nulls.get(key, unknown)), rows
            )
        return found

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
        # An error of a store is a chain, of which the last part says what is wrong.
        _, arrow, cause = str(error).replace("\x1b[0m", "").rpartition("↳")
        because = f" ({reason_of(OSError(cause))})" if arrow else ""
        reason = f"{reason_of(error)}{because}"
        return UsageError(f"cannot read Delta Lake table {self.path!r}: {reason}")


def _columns_of(actions: pa.Table, name: str) -> dict[str, pa.Array]:
    """Return the columns of a struct column, null where it is null; none if there is no such."""
    if name not in actions.column_names:
        return {}
    structs = actions.column(name).combine_chunks()
    return {field.name: pc.struct_field(structs, [at]) for at, field in enumerate(structs.type)}


def _leaves(of: pa.DataType, nulls: pa.Array) -> list[pa.Array]:
    """Return the numbers of nulls in the columns inside of a column, but not inside of lists."""
    if not pa.types.is_struct(of):
        return [] if pa.types.is_nested(of) else [nulls]
    if not pa.types.is_struct(nulls.type):
        return [pa.nulls(len(nulls), pa.int64())]
    inside = {field.name: pc.struct_field(nulls, [at]) for at, field in enumerate(nulls.type)}
    unknown = pa.nulls(len(nulls), pa.int64())
    return [leaf for field in of for leaf in _leaves(field.type, inside.get(field.name, unknown))]


def _ends(least: pa.Array, largest: pa.Array, of: pa.DataType) -> Ends:
    """Return bounds of the values of a column, given those in the log."""
    # The log has decimals as floats.
    if pa.types.is_decimal(of) and of.precision > sys.float_info.dig:
        return pa.nulls(len(least), of), pa.nulls(len(largest), of)
    least, largest = least.cast(of), largest.cast(of)
    if pa.types.is_timestamp(of):
        return _apart(least, -_CUT_MICROS), _apart(largest, _CUT_MICROS)
    if pa.types.is_floating(of):
        return without_nan(least), without_nan(largest)
    return least, mapped(_after, largest) if is_text(of) else largest


def _apart(moments: pa.Array, micros: int) -> pa.Array:
    """Return microseconds that are later; unknown if they are too late for the type."""
    numbers = moments.cast(pa.int64()).to_pylist()
    later = [None if one is None or abs(one) > _MOST_MICROS else one + micros for one in numbers]
    return pa.array(later, pa.int64()).cast(moments.type)


def _after(largest: str) -> str | None:
    """Return a text that is not less than any text of a file, given the largest one in the log."""
    # Writers cut texts, some of them after a half of a character, and some add a character. What
    # JSON spells as two halves of a character is another one if `deltalake` reads it.
    sure = _TWO_HALVES.split(largest)[0][: _CUT_CHARACTERS - 1]
    return largest if sure == largest else after_all_with(sure)


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
