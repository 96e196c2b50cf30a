"""A source of text files: one row a line, with the columns `line` and `length`."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO, ClassVar

import pyarrow as pa

from beam_tfrecord.errors import DataError
from beam_tfrecord.rows.batch import DEFAULT_BATCH_ROWS, Batch, Origin
from beam_tfrecord.sources import base
from beam_tfrecord.sources.files import as_paths, list_files

COLUMNS = {"line": pa.field("line", pa.string()), "length": pa.field("length", pa.int64())}


@dataclasses.dataclass(frozen=True)
class Lines(base.Source):
    """UTF-8 text, cut into units of some MB: a unit has the lines that begin in its bytes.

    Attributes:
        paths: Files, directories and globs.
        columns: Columns to read; None means all.
        longest: Bytes of the longest line; a longer one is an error.
    """

    kind: ClassVar[str] = "lines"
    suffixes: ClassVar[tuple[str, ...]] = (".lines",)
    infers_from_scans: ClassVar[bool] = True  # The types are known without reading rows.

    paths: tuple[str, ...]
    columns: tuple[str, ...] | None = None
    longest: int = 2**20

    def __post_init__(self) -> None:
        """Check the options; an error here ends a job before it begins."""
        object.__setattr__(self, "paths", as_paths(self.paths))
        object.__setattr__(self, "columns", base.wanted_columns(self.columns))

    def files(self) -> Iterator[base.InputFile]:
        """Yield the input files in order of their names."""
        return list_files(self.paths, self.suffixes)

    def scan(self, chunk: base.Chunk) -> base.Scan:
        """Find out nothing: a file can be cut anywhere."""
        return base.Scan(chunk, None)

    def units(self, scans: Sequence[base.Scan]) -> list[base.Unit]:
        """Cut a file into ranges of equal size, wherever its lines are."""
        file = scans[0].chunk.file
        starts, units = range(0, max(1, file.bytes), self.unit_bytes), []
        for i, start in enumerate(starts):
            end = min(start + self.unit_bytes, file.bytes)
            name = file.unit_name(i, len(starts))
            units.append(base.Unit(name, file, i, start, end, None, end - start, end - start + 1))
        return units

    def merge(self, inferences: Iterable[Any]) -> pa.Schema:
        """Return the schema of all files."""
        return base.chosen_columns(COLUMNS, self.columns, COLUMNS)

    def read(
        self, unit: base.Unit, schema: pa.Schema, *, batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Batch]:
        """Yield the rows of a unit in order, with their numbers; at least one batch."""
        lines = self._lines(unit)
        for first in itertools.count(0, batch_rows):
            rows = [{"line": x, "length": len(x)} for x in itertools.islice(lines, batch_rows)]
            if first and not rows:
                return
            data = pa.RecordBatch.from_pylist(rows, schema=schema)
            yield Batch(data, Origin(unit.name, unit.index, first))

    def _lines(self, unit: base.Unit) -> Iterator[str]:
        with open(unit.file.path, "rb") as file:
            end = self._line_from(file, unit.stop)
            at = self._line_from(file, unit.start)
            while at < end and (line := file.readline(self.longest + 1)):
                where = f"the line at byte {at:,} of {unit.file.name}"
                if len(line) > self.longest:
                    raise DataError(f"{where} has more than {self.longest:,} bytes: raise longest")
                try:
                    yield line.removesuffix(b"\n").decode()
                except UnicodeDecodeError as error:
                    raise DataError(f"{where} is not UTF-8: correct it") from error
                at += len(line)

    def _line_from(self, file: BinaryIO, offset: int) -> int:
        if offset > 0:
            file.seek(offset - 1)
            file.readline(self.longest + 1)  # The rest of a line that begins before.
        else:
            file.seek(0)
        return file.tell()
