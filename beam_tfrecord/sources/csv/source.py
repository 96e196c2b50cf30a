"""Reads CSV files, split between rows; column types come from all values.

All columns follow the same rules for values:

* An empty field is null. A quoted ``""`` is the empty text in a column of text, or in a column
  without any other value; else it is null.
* The words `NULL_WORDS` are null unless the column is text; `null_words` are null everywhere.
* ``true`` and ``false`` in any case are booleans; ``0`` and ``1`` are integers.
* ``nan``, ``inf`` and ``-inf`` in any case are floats. Quoted numbers are numbers.
* ``2024-02-29`` is a date; with ``T`` or a space and ``12:30[:15[.25]]`` a time in µs, and with
  ``Z`` or ``+01:00`` after it one in UTC. Dates among times are midnights.
* Options name other forms of dates and numbers (see `formats`); these replace the forms above.
* These values are text: numbers with leading zeros (``007``), integers beyond int64, integers
  beyond 2^53 among floats, numbers too large for a double, times finer than 1 µs, and any other
  mixture of kinds.
* Blanks around numbers, booleans and times are ignored.
* Blank lines are not rows, unless the file has one column: there they are null.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from beam_tfrecord.base.arguments import as_words
from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.arrow_types import type_of_column
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.options.sources import CsvOptions
from beam_tfrecord.rows.batch import DEFAULT_BATCH_ROWS, Batch
from beam_tfrecord.sources import text_files
from beam_tfrecord.sources.base import UNIT_BYTES, Chunk, InputFile, Scan, Source, Unit, altered
from beam_tfrecord.sources.csv.formats import check_columns, check_formats
from beam_tfrecord.sources.csv.read import CsvUnit, infer_unit, read_unit
from beam_tfrecord.sources.csv.text import (
    ChunkScan,
    Header,
    TextSlice,
    cut,
    delimiter_of,
    dialect_of,
    read_header,
    scan_chunk,
)
from beam_tfrecord.sources.csv.types import (
    CsvInference,
    by_file,
    join_kinds,
    keeps_text,
    remarks_of,
)
from beam_tfrecord.sources.merge_schemas import join_by_name, text_partitions

_DELIMITERS = (";", "\t", "|", ",")


class _ScanDetail(NamedTuple):
    header: Header  # complete in the first scan of a file
    chunk: ChunkScan | None  # if the file can be cut


@dataclasses.dataclass(frozen=True)
class Csv(CsvOptions, text_files.TextFiles):
    """CSV files, plain or compressed (``.gz``, ``.bz2``, ``.zst``, ``.lz4``, ``.xz``)."""

    kind: ClassVar[str] = "csv"
    suffixes: ClassVar[tuple[str, ...]] = (".csv", ".tsv")
    detail_type: ClassVar[Any] = CsvUnit
    # Columns of floats that are also read as text. Not an option: `with_texts` sets it.
    texts: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "quote", None if self.quote == "none" else self.quote)
        for option in ("names", "null_words", "date_formats", "null_in"):
            value = getattr(self, option)
            words = None if value is None else as_words(option, value)
            object.__setattr__(self, option, words)
        names = self.names or ()
        if doubled := [name for name in names if names.count(name) > 1 or not name]:
            raise UsageError(
                f"names has an empty or repeated name, {doubled[0]!r}: pass distinct names"
            )
        typed = {name: type_of_column(name, arrow) for name, arrow in self.typed.items()}
        object.__setattr__(self, "types", typed)
        if self.skip_lines < 0:
            raise UsageError(f"skip_lines is {self.skip_lines}: pass 0 or more")
        text_files.codec_name(self.encoding)
        check_formats(self)
        dialect_of(self, "")

    def options_for(self, files: Iterable[InputFile]) -> dict[str, Any]:
        delimiters = {delimiter_of(self, file.path) for file in files}
        delimiter = delimiters.pop() if len(delimiters) == 1 else None
        return super().options_for(files) | {"delimiter": delimiter}

    def files(self) -> Iterator[InputFile]:
        null = self.null_words
        for file in super().files():
            pairs = tuple((key, None if one in null else one) for key, one in file.partitions)
            yield dataclasses.replace(file, partitions=pairs)

    def scan(self, chunk: Chunk) -> Scan:
        """Find the ends of rows in a chunk, and in the first chunk the names of the columns."""
        file = chunk.file
        # A chunk that begins later does not begin inside the header, which is much shorter.
        header = self._header(file) if chunk.start < UNIT_BYTES else Header((), 0)
        found = None
        if not text_files.is_stream(file, self.encoding):
            start = min(max(chunk.start, header.stop), chunk.stop)
            with text_files.open_text(file, self.encoding, max(start - 1, 0), chunk.stop) as text:
                after_cr = start > 0 and text.read(1) == b"\r"
                found = scan_chunk(text, start, dialect_of(self, file.path), after_cr=after_cr)
        return Scan(chunk, _ScanDetail(header, found))

    def _header(self, file: InputFile) -> Header:
        with text_files.open_text(file, self.encoding, 0, file.bytes) as text:
            return read_header(text, file, self)

    def units(self, scans: Sequence[Scan]) -> list[Unit]:
        file, header = scans[0].chunk.file, scans[0].detail.header
        if text_files.is_stream(file, self.encoding):
            # Nobody has counted the lines and rows of a stream.
            stop = max(header.stop, file.bytes)
            whole = TextSlice(header.stop, stop, None, header.lines + 1, rows_are_lines=False)
            slices = [whole] if header.names else []
        else:
            slices = cut([scan.detail.chunk for scan in scans], header)
        # Besides values about as long as text, records have framing and features.
        fixed = 24 + sum(len(name) + 8 for name in header.names)
        return [
            Unit(
                *(file.unit_name(index, len(slices)), file, index, part.start, part.stop),
                rows=part.rows,
                input_bytes=part.stop - part.start,
                encoded_bytes=2 * text_files.text_bytes_of(file)
                if part.rows is None
                else part.rows * fixed + part.stop - part.start,
                detail=CsvUnit(header.names, part.line, part.rows_are_lines),
            )
            for index, part in enumerate(slices)
        ]

    def infer(self, of: Unit) -> CsvInference:
        return infer_unit(of, self)

    def merge(self, inferences: Iterable[CsvInference]) -> pa.Schema:
        inferences = list(inferences)
        names = list(dict.fromkeys(name for found in inferences for name in found.names))
        self._check_delimiter(names)
        check_columns(self, names)
        files = by_file(inferences)
        found = join_by_name(
            files, join_kinds, columns=self.columns, union=self.union, types=self.typed
        )
        noted = [_with_text(field) if field.name in self.texts else field for field in found]
        return pa.schema(noted, metadata=found.metadata)

    def remarks(self, inferences: Sequence[CsvInference], schema: pa.Schema) -> list[str]:
        inferred = pa.schema(field for field in schema if field.name not in self.typed)
        in_paths = text_partitions((one.file for one in inferences), inferred.names)
        return [*remarks_of(inferences, inferred), *in_paths]

    def _check_delimiter(self, names: Sequence[str]) -> None:
        """Refuse a header of one column whose name looks like several, unless the user chose so."""
        if len(names) != 1 or self.delimiter is not None or self.names is not None:
            return
        (name,) = names
        likely = max(_DELIMITERS, key=name.count)
        if likely in name:
            shown = r"\t" if likely == "\t" else likely
            raise UsageError(
                f"the only column is named {name!r}: pass --delimiter '{shown}' to divide it, or "
                "--delimiter ',' if it is one column"
            )

    def read(
        self, unit: Unit, schema: pa.Schema, *, batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Batch]:
        return read_unit(unit, schema, self, batch_rows=batch_rows)


def with_texts(source: Source, schema: pa.Schema) -> Source:
    """Return a source that also reads the text of the floats that `schema` stores as text.

    The types of its columns do not change, because the user's map function may depend on them.
    """
    if not isinstance(source, Csv):
        return source
    return altered(source, texts=tuple(field.name for field in schema if keeps_text(field)))


def _with_text(field: pa.Field) -> pa.Field:
    noted = Feature(field.name, field.type, nullable=field.nullable, store="text").to_arrow()
    return noted if keeps_text(noted) else field
