"""A source of text files: one row a line, with the columns `line` and `length`."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS, Batch, Origin
from beam_tfrecord.sources.base import Chunk, InputFile, Scan, Source, Unit
from beam_tfrecord.sources.files import list_files
from beam_tfrecord.transforms.reading import ReadBatches


@dataclasses.dataclass(frozen=True)
class Lines(Source):
    """Text files, each of which is one unit."""

    kind: ClassVar[str] = "lines"
    infers_from_scans: ClassVar[bool] = True  # The types are known without reading rows.

    paths: tuple[str, ...]

    def files(self) -> Iterator[InputFile]:
        """Yield the input files in order of their names."""
        return list_files(self.paths, (".txt",))

    def scan(self, chunk: Chunk) -> Scan:
        """Look at a file: there is nothing to find out before its rows are read."""
        return Scan(chunk, None)

    def units(self, scans: Sequence[Scan]) -> list[Unit]:
        """Return the pieces that one worker reads: one for each file."""
        (scan,) = scans
        file = scan.chunk.file
        size = file.bytes
        return [Unit(file.unit_name(0, 1), file, 0, 0, size, None, size, size)]

    def merge(self, inferences: Iterable[Any]) -> pa.Schema:
        """Return the schema of all files."""
        return pa.schema([("line", pa.string()), ("length", pa.int64())])

    def read(
        self, unit: Unit, schema: pa.Schema, *, batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Batch]:
        """Yield the rows of a file in order, with their numbers."""
        with open(unit.file.path, encoding="utf-8") as file:
            lines = file.read().splitlines()
        for first in range(0, max(1, len(lines)), batch_rows):
            part = lines[first : first + batch_rows]
            rows = [{"line": line, "length": len(line)} for line in part]
            data = pa.RecordBatch.from_pylist(rows, schema=schema)
            yield Batch(data, Origin(unit.name, unit.index, first))


class ReadFromLines(ReadBatches):
    """Read text files as `Batch`es, one row a line.

    Args:
        paths: Files, directories and globs.
    """

    def __init__(self, *paths: str) -> None:
        super().__init__(Lines(paths))
