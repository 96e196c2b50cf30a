"""The JSON source: it cuts JSON Lines, infers types from all rows, and rejects rows one by one.

All files follow the same rules:

* A row is an object. Its keys are columns, and a key that a row lacks is null. Blank lines are not
  rows.
* Text is text, even if it looks like a time or a number.
* Integers are int64; larger ones are rejects. Numbers with a fraction or an exponent, ``NaN``,
  ``Infinity`` and ``-Infinity`` are the nearest float64; one too large for it is a reject.
* A column of integers and fractions is float64, unless an integer is beyond 2^53 and so may not be
  exact.
* Arrays are lists, and objects are structs. Values that differ in kind are refused.
* A row that has a key twice, half of a surrogate pair or invalid UTF-8 is a reject.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS, Batch
from beam_tfrecord.features.arrow_types import type_of_column
from beam_tfrecord.options.sources import JsonOptions
from beam_tfrecord.sources.base import (
    Chunk,
    Scan,
    Unit,
)
from beam_tfrecord.sources.json.read import infer_unit, read_unit
from beam_tfrecord.sources.json.text import LINES, JsonUnit, form_of
from beam_tfrecord.sources.json.types import JsonInference, infer_schema, parsed_type
from beam_tfrecord.sources.text_files import (
    BLOCK_BYTES,
    TextFiles,
    is_stream,
    open_text,
    text_bytes_of,
)

SUFFIXES = (".json", ".jsonl", ".ndjson")


class _ScanDetail(NamedTuple):
    form: str | None  # in the first scan of a file
    newlines: int
    second_line: int  # position after the first newline; -1 if there is none


@dataclasses.dataclass(frozen=True)
class Json(JsonOptions, TextFiles):
    """JSON Lines and JSON files, plain or compressed (``.gz .bz2 .zst .lz4 .xz``)."""

    kind: ClassVar[str] = "json"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES
    detail_type: ClassVar[Any] = JsonUnit

    def __post_init__(self) -> None:
        super().__post_init__()
        typed = {name: type_of_column(name, arrow) for name, arrow in self.typed.items()}
        for name, arrow in typed.items():
            parsed_type(name, arrow)
        object.__setattr__(self, "types", typed)

    def scan(self, chunk: Chunk) -> Scan:
        form = form_of(chunk.file) if chunk.index == 0 else None
        if is_stream(chunk.file, "utf-8"):
            return Scan(chunk, _ScanDetail(form, 0, -1))
        newlines, second_line, at = 0, -1, chunk.start
        with open_text(chunk.file, "utf-8", chunk.start, chunk.stop) as text:
            while data := text.read(BLOCK_BYTES):
                if second_line < 0 and (found := data.find(b"\n")) >= 0:
                    second_line = at + found + 1
                newlines += data.count(b"\n")
                at += len(data)
        return Scan(chunk, _ScanDetail(form, newlines, second_line))

    def units(self, scans: Sequence[Scan]) -> list[Unit]:
        file, form = scans[0].chunk.file, scans[0].detail.form
        starts = [(0, 1)]
        if form == LINES:
            line = 1
            for scan in scans:
                second: int = scan.detail.second_line
                if scan.chunk.index and 0 <= second < file.bytes:
                    starts.append((second, line + 1))
                line += scan.detail.newlines
        stops = [*(start for start, _ in starts[1:]), file.bytes]
        # The names of columns are in the records, too, so records are about as long as the text.
        ratio = text_bytes_of(file) // max(1, file.bytes)
        return [
            Unit(
                *(file.unit_name(index, len(starts)), file, index, start, stop),
                rows=None,
                input_bytes=stop - start,
                encoded_bytes=max(1, ratio * (stop - start)),
                detail=JsonUnit(form, line),
            )
            for index, ((start, line), stop) in enumerate(zip(starts, stops, strict=True))
        ]

    def infer(self, of: Unit) -> JsonInference:
        return infer_unit(of)

    def merge(self, inferences: Iterable[JsonInference]) -> pa.Schema:
        return infer_schema(inferences, types=self.typed, columns=self.columns)

    def read(
        self, unit: Unit, schema: pa.Schema, *, batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Batch]:
        return read_unit(unit, schema, batch_rows=batch_rows)
