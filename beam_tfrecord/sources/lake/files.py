"""`DataFile`, a Parquet file that the log of a table lists."""

from __future__ import annotations

import dataclasses
import datetime
import os
from typing import Any, ClassVar

import numpy as np

from beam_tfrecord.errors import InputChanged
from beam_tfrecord.features.arrow_arrays import Int64Array
from beam_tfrecord.sources.base import InputFile, version_and_state
from beam_tfrecord.sources.lake.statistics import says_all
from beam_tfrecord.storage import is_remote


@dataclasses.dataclass(frozen=True)
class DataFile(InputFile):
    """A Parquet file of a table. Its `partitions` are the values that all of its rows share."""

    if_removed: ClassVar[str] = "if the table was vacuumed, read a newer version"

    deleted: bytes = b""
    excluded: bytes | None = None
    rows: int | None = None

    def outline(self) -> DataFile:
        """Return a copy without what only reading needs."""
        return dataclasses.replace(self, deleted=b"", excluded=None, rows=None)


def data_file(
    path: str,
    root: str,
    *,
    table: str,
    nbytes: int,
    partitions: tuple[tuple[str, str | None], ...] = (),
    deleted: bytes = b"",
    excluded: bytes | None = None,
    rows: int | None = None,
) -> DataFile:
    """Return a file of a table, with the times of a local one that is opened."""
    name = path.removeprefix(root.rstrip("/") + "/")
    file = DataFile(
        path,
        name,
        nbytes,
        partitions=partitions,
        deleted=deleted,
        excluded=excluded,
        rows=rows,
    )
    if is_remote(path) or is_skipped(file):
        return file
    try:
        status = os.stat(path)
    except OSError as error:
        raise InputChanged(
            f"{path!r} of table {table!r} cannot be read ({(error.strerror or '').lower()}): "
            f"{file.if_removed}"
        ) from error
    if status.st_size != nbytes:
        raise InputChanged(
            f"{path!r} has {status.st_size:,} bytes, but {nbytes:,} in the log of table {table!r}"
        )
    version, state = version_and_state(status)
    return dataclasses.replace(file, version=version, state=state)


def excluded_in(file: InputFile) -> bytes | None:
    """Return `DataFile.excluded`."""
    return file.excluded if isinstance(file, DataFile) else None


def deleted_in(file: InputFile) -> Int64Array:
    """Return the positions of the deleted rows of a file."""
    return np.frombuffer(file.deleted if isinstance(file, DataFile) else b"", np.int64)


def is_skipped(file: InputFile) -> bool:
    """Return whether a file is not even opened: its log says all that its footer says."""
    return says_all(excluded_in(file))


def partition_text(value: Any) -> str | None:
    """Return a partition value as text that Arrow casts to its type again."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat(" ") if isinstance(value, datetime.datetime) else str(value)
