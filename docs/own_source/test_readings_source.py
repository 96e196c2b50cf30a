"""The source of readings passes the tests of all sources."""

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import readings_source
from readings_source import RECORD, SCHEMA, Readings

from beam_tfrecord.testing import Row, SourceConformance

START = datetime.datetime(2026, 1, 1)


class SmallReadings(Readings):
    """The source with units of 1 KB."""

    unit_bytes = 1024


class TestReadings(SourceConformance):
    """How files of readings are made, opened and damaged; the tests are inherited."""

    suffix = ".readings"
    schema = SCHEMA
    damage_message = r"x\.readings is not a valid readings file \(its last record is cut off\)"

    @pytest.fixture(autouse=True)
    def _use_small_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(readings_source, "PIECE_ROWS", 16)

    def rows(self, count: int, *, first: int = 0) -> list[Row]:
        """Return rows of a second each."""
        seconds = range(first, first + count)
        return [{"time": START + datetime.timedelta(0, n), "value": n / 4} for n in seconds]

    def write(self, path: Path, rows: Sequence[Row]) -> None:
        """Write the records of rows."""
        times = pa.array([row["time"] for row in rows], SCHEMA.field("time").type)
        records = np.empty(len(rows), RECORD)
        records["time"] = times.cast("int64")
        records["value"] = [row["value"] for row in rows]
        path.write_bytes(records.tobytes())

    def open(self, paths: Any, **options: Any) -> Readings:
        """Return a source that cuts files of some KB."""
        return SmallReadings(paths, **options)

    def damage(self, path: Path) -> None:
        """Cut the end of the file off."""
        path.write_bytes(path.read_bytes()[:-5])
