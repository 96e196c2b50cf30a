"""The Parquet source: it cuts files into ranges of row groups, and takes types from the footers."""

from __future__ import annotations

import dataclasses
import functools
import glob
import os
from collections.abc import Collection, Iterator, Sequence
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from beam_tfrecord.errors import DataError
from beam_tfrecord.format.manifest import MANIFEST_NAME
from beam_tfrecord.format.stage import StageManifest, is_stage, stage_files
from beam_tfrecord.sources.base import Chunk, InputFile, Scan
from beam_tfrecord.sources.file_parts import changed
from beam_tfrecord.sources.files import as_paths, list_files
from beam_tfrecord.sources.parquet.footer import footer_of, int96_in, pruned_by, reader_of
from beam_tfrecord.sources.parquet.int96 import check_int96
from beam_tfrecord.sources.typed_files import Contents, OpenTable, TypedFiles, check_names
from beam_tfrecord.storage import absolute_path, exists, is_directory

SUFFIXES = (".parquet", ".pq")


@dataclasses.dataclass(frozen=True)
class Parquet(TypedFiles):
    """Parquet files, and the stages that ``extract`` writes."""

    kind: ClassVar[str] = "parquet"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES
    title: ClassVar[str] = "parquet"
    faults = (OSError, pa.ArrowException, UnicodeDecodeError)

    def files(self) -> Iterator[InputFile]:
        return list_staged(as_paths(self.paths), SUFFIXES)

    def scan(self, chunk: Chunk) -> Scan:
        if stands_for_none(chunk.file):
            return Scan(chunk, footer_of_none(chunk.file, self.columns))
        with self.opened(chunk.file) as table:
            parquet = table.reader
            check_names(table.schema.names, chunk.file)
            footer = footer_of(parquet, self.columns)
            # With settled types, a row that is not read might have to be rejected.
            if self.selection is not None and self.selection.condition and self.settled is None:
                names = {name: name for name in self.selection.needed}
                footer = pruned_by(self.selection.condition, parquet, footer, names)
        return Scan(chunk, footer)

    def open(self, raw: pa.NativeFile, file: InputFile) -> OpenTable:
        parquet = reader_of(raw, file)
        # Evaluated only to raise for unsupported types and for names that are not UTF-8.
        str(parquet.schema_arrow.remove_metadata())
        read = functools.partial(_read, raw, file, parquet)
        return OpenTable(parquet.schema_arrow, (), read, parquet)


def _read(
    raw: pa.NativeFile,
    file: InputFile,
    parquet: pq.ParquetFile,
    start: int,
    stop: int,
    fields: pa.Schema,
    batch_rows: int,
) -> Iterator[pa.RecordBatch]:
    if stop > parquet.num_row_groups:
        raise changed(file)
    if int96 := int96_in(parquet, fields.names):
        for group in range(start, stop):
            check_int96(raw, file, parquet.metadata, group, int96)
    yield from parquet.iter_batches(
        batch_rows, row_groups=range(start, stop), columns=fields.names, use_threads=False
    )


def list_staged(paths: Sequence[str], suffixes: Sequence[str]) -> Iterator[InputFile]:
    """Yield the files that `paths` name, like `list_files`, and the files of stages among them.

    A stage without rows has no files, so its manifest is listed instead.
    """
    named: list[str] = []
    sizes: dict[str, int] = {}
    for path in paths:
        if path.endswith(tuple(suffixes)) or glob.has_magic(path) or not is_stage(path):
            named.append(path)
            continue
        manifest, (_, files) = StageManifest.load(path), stage_files(path)
        for file in files:
            if not exists(file) or is_directory(file):
                raise DataError(f"{file!r} of its stage is missing: extract it again")
        named += files or [os.path.join(absolute_path(path), MANIFEST_NAME)]
        sizes |= dict(zip(files, (file.bytes for file in manifest.files), strict=True))
    for found in list_files(named, suffixes):
        if found.bytes != sizes.get(found.path, found.bytes):
            raise DataError(
                f"{found.path!r} has {found.bytes:,} bytes but the manifest of its stage says "
                f"{sizes[found.path]:,}: extract it again"
            )
        yield found


def stands_for_none(file: InputFile) -> bool:
    """Return whether a listed file is the manifest of a stage without rows."""
    return os.path.basename(file.path) == MANIFEST_NAME


def footer_of_none(file: InputFile, columns: Collection[str] | None) -> Contents:
    """Return the contents of a stage without rows, from its manifest `file`."""
    schema = StageManifest.load(file.path).schema
    fields = [field for field in schema if columns is None or field.name in columns]
    return Contents(pa.schema(fields), tuple(schema.names), ())
