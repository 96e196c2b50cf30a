"""`DataFile`, a Parquet file that the log of a table lists."""

from __future__ import annotations

import dataclasses
import os
from typing import ClassVar

import numpy as np

from beam_tfrecord.errors import InputChanged
from beam_tfrecord.features.arrow_arrays import Int64Array
from beam_tfrecord.sources.base import InputFile, version_and_state
from beam_tfrecord.storage import is_remote


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


def rows_in(file: InputFile) -> int | None:
    """Return how many rows the log says that a file has, deleted ones too."""
    return file.rows if isinstance(file, DataFile) else None


def deleted_in(file: InputFile) -> Int64Array:
    """Return the positions of the deleted rows of a file."""
    return np.frombuffer(file.deleted if isinstance(file, DataFile) else b"", np.int64)
