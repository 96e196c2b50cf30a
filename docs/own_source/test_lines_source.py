"""The source of lines passes the tests of all sources."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from lines_source import Lines

from beam_tfrecord.testing import Row, SourceConformance


class SmallLines(Lines):
    """The source with units of 1 KB."""

    unit_bytes = 1024


class TestLines(SourceConformance):
    """How files of lines are made, opened and damaged; the tests are inherited."""

    suffix = ".lines"
    schema = pa.schema([("line", pa.string()), ("length", pa.int64())])
    damage_message = r"the line at byte 1,\d+ of x\.lines is not UTF-8"
    has_partitions = False

    def rows(self, count: int, *, first: int = 0) -> list[Row]:
        """Return rows whose lines have different lengths, some of them none."""
        lines = [
            "" if n % 7 == 3 else f"{n} " + "é" * (n % 20) for n in range(first, first + count)
        ]
        return [{"line": line, "length": len(line)} for line in lines]

    def write(self, path: Path, rows: Sequence[Row]) -> None:
        """Write the lines of rows."""
        path.write_text("".join(f"{row['line']}\n" for row in rows), encoding="utf-8")

    def open(self, paths: Any, **options: Any) -> Lines:
        """Return a source that cuts files of some KB."""
        return SmallLines(paths, **options)

    def damage(self, path: Path) -> None:
        """Change a byte into one that UTF-8 does not have."""
        data = bytearray(path.read_bytes())
        data[1500] = 0xFF
        path.write_bytes(data)
