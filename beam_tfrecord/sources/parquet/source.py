"""The Parquet source: it cuts files into ranges of row groups, and takes types from the footers."""

from __future__ import annotations

import copy
import dataclasses
import glob
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS, Batch, Origin, Reject
from beam_tfrecord.errors import DataError, SchemaConflict
from beam_tfrecord.manifest import MANIFEST_NAME
from beam_tfrecord.sources.base import (
    Chunk,
    InputFile,
    Scan,
    Source,
    Unit,
    chosen_columns,
    not_in_all_files,
    not_in_file,
    wanted_columns,
)
from beam_tfrecord.sources.files import as_paths, list_files
from beam_tfrecord.sources.hive import add_partition_fields, with_partitions
from beam_tfrecord.sources.parquet.footer import (
    Footer,
    changed,
    footer_of,
    int96_in,
    joined_ranges,
    opened,
    record_batches,
    row_groups_of,
    side_by_side,
)
from beam_tfrecord.sources.parquet.int96 import NS, US, S, is_far
from beam_tfrecord.sources.parquet.types import can_cast, cast_exactly, join_types
from beam_tfrecord.stage import StageManifest, is_stage, stage_files
from beam_tfrecord.storage import absolute_path, exists, is_directory

SUFFIXES = (".parquet", ".pq")

_SHOWN_CHARACTERS = 200
_SCAN_ROWS = 2**16


class ParquetUnit(NamedTuple):
    """The byte ranges that a unit reads, and the columns whose INT96 timestamps it reads in µs."""

    ranges: tuple[tuple[int, int], ...]
    far: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Parquet(Source):
    """Parquet files.

    Attributes:
        paths: Files, directories and globs.
        columns: Names of the columns to read, in order; None means all.
        union: Whether files may lack columns of other files, which are null there.
        settled: Types for columns whose types in different files have no exact common type. Rows
            that do not fit these types exactly are rejected.
    """

    kind: ClassVar[str] = "parquet"
    detail_type: ClassVar[Any] = ParquetUnit
    has_ranges: ClassVar[bool] = True
    infers_from_scans: ClassVar[bool] = True
    quick_scans: ClassVar[int] = 16

    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
    _: dataclasses.KW_ONLY
    columns: Sequence[str] | None = None
    union: bool = False
    settled: pa.Schema | None = dataclasses.field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "paths", as_paths(self.paths))
        object.__setattr__(self, "columns", wanted_columns(self.columns))

    def files(self) -> Iterator[InputFile]:
        """Yield the input files in order of their names; for a stage, those in its manifest.

        Raises:
            UsageError: Nothing is found, or a file cannot be opened.
        """
        return list_staged(as_paths(self.paths), SUFFIXES)

    def scan(self, chunk: Chunk) -> Scan:
        """Read the footer of a file.

        Raises:
            DataError: The file is not a complete Parquet file, or two columns have the same name.
        """
        if stands_for_none(chunk.file):
            return Scan(chunk, footer_of_none(chunk.file, self.columns))
        with opened(chunk.file) as reader:
            in_ns = reader(NS)
            names = in_ns.schema_arrow.names
            if doubled := [name for name, count in Counter(names).items() if count > 1]:
                raise DataError(
                    f"{chunk.file.name} has two columns named {doubled[0]!r}: rename one of them"
                )
            footer = footer_of(in_ns, self.columns)
            if int96 := int96_in(in_ns, footer):
                in_s, file = reader(S), chunk.file
                far = tuple(
                    name
                    for name, leaves in int96.items()
                    if is_far(_pairs(in_s, in_ns, file, name), name, leaves, file.name)
                )
                in_us = footer_of(reader(US), self.columns).schema
                footer = dataclasses.replace(footer, far=far, in_us=in_us)
        return Scan(chunk, footer)

    def units(self, scans: Sequence[Scan]) -> list[Unit]:
        """Join neighbouring row groups up to `unit_bytes` of uncompressed data."""
        (scan,) = scans
        file, groups = scan.chunk.file, scan.detail.row_groups
        spans = row_groups_of(groups, self.unit_bytes)
        return [
            Unit(
                name=file.unit_name(index, len(spans)),
                file=file,
                index=index,
                start=start,
                stop=stop,
                rows=sum(group.rows for group in groups[start:stop]),
                input_bytes=sum(group.compressed_bytes for group in groups[start:stop]),
                encoded_bytes=sum(group.encoded_bytes for group in groups[start:stop]),
                detail=ParquetUnit(_ranges(scan, start, stop), scan.detail.far),
            )
            for index, (start, stop) in enumerate(spans)
        ]

    def ranges(self, unit: Unit) -> Sequence[tuple[int, int]]:
        """Return the column chunks of a unit and, for the first unit, the footer."""
        detail: ParquetUnit = unit.detail
        return detail.ranges

    def merge(self, inferences: Iterable[Scan]) -> pa.Schema:
        """Join the schemas of all files, by column name, in the order of the first file.

        Raises:
            SchemaConflict: The types of a column have no exact common type, or a file lacks a
                column.
            UsageError: No file has one of `columns`.
        """
        scans = sorted(inferences, key=lambda scan: scan.chunk.file.name)
        far = {name for scan in scans for name in scan.detail.far}
        found = [(scan.chunk.file, _in_one_unit(scan.detail, far)) for scan in scans]
        files = [file for file, _ in found]
        names = list(dict.fromkeys(name for _, footer in found for name in footer.schema.names))
        inside = pa.schema([_merged_field(name, found, self) for name in names])
        schema = add_partition_fields(inside, files, columns=self.columns, union=self.union)
        known = (name for file, foot in found for name in (*foot.names, *dict(file.partitions)))
        return chosen_columns({field.name: field for field in schema}, self.columns, known)

    def read(
        self, unit: Unit, schema: pa.Schema, *, batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Batch]:
        """Yield the rows of `unit` in order, as batches of exactly `schema`.

        A row with a value that does not fit the type in `schema` exactly becomes a reject.

        Raises:
            DataError: The file is damaged, or lacks a column.
            SchemaConflict: The type of a column cannot be converted to the type in `schema`.
        """
        if stands_for_none(unit.file):
            yield _no_rows(unit, schema)
            return
        far: tuple[str, ...] = unit.detail.far
        with opened(unit.file) as reader:
            in_ns = reader(NS)
            in_us = reader(US) if far else in_ns
            inside = _with_units(in_ns.schema_arrow, in_us.schema_arrow, far)
            wanted = _wanted(unit, inside, schema, self.union)
            first_row = 0
            before = sum(in_ns.metadata.row_group(i).num_rows for i in range(unit.start))
            for data in _rows(in_ns, in_us, unit, wanted.names, batch_rows):
                origin = Origin(
                    unit.name, unit.index, first_row, address=(f"{unit.file.name} row ", before)
                )
                yield _batch(data, unit, origin, wanted, schema)
                first_row += data.num_rows
            if unit.rows is not None and first_row != unit.rows:
                raise changed(unit.file)
            if not first_row:
                yield _no_rows(unit, schema)


def _pairs(
    in_s: pq.ParquetFile, in_ns: pq.ParquetFile, file: InputFile, column: str
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Yield the batches of a column from both readers."""
    # One row group at a time, because a reader of a remote file keeps all requested row groups in
    # memory until it has read the last one.
    for group in range(in_ns.num_row_groups):
        yield from zip(
            *(
                record_batches(reader, file, range(group, group + 1), [column], _SCAN_ROWS)
                for reader in (in_s, in_ns)
            ),
            strict=True,
        )


def _in_one_unit(footer: Footer, far: Collection[str]) -> Footer:
    """Return a footer with the INT96 timestamps of the columns `far` in microseconds."""
    if footer.in_us is None:
        return footer
    return dataclasses.replace(footer, schema=_with_units(footer.schema, footer.in_us, far))


def _with_units(in_ns: pa.Schema, in_us: pa.Schema, far: Collection[str]) -> pa.Schema:
    return pa.schema([b if b.name in far else a for a, b in zip(in_ns, in_us, strict=True)])


def _rows(
    in_ns: pq.ParquetFile,
    in_us: pq.ParquetFile,
    unit: Unit,
    columns: Sequence[str],
    batch_rows: int,
) -> Iterator[pa.RecordBatch]:
    """Yield columns of a unit, each from the reader of its unit of time."""
    file, groups = unit.file, range(unit.start, unit.stop)
    far = [name for name in columns if name in unit.detail.far]
    others = [name for name in columns if name not in unit.detail.far]
    rows = record_batches(in_ns, file, groups, others, batch_rows)
    if not far:
        return rows
    return side_by_side(file, rows, record_batches(in_us, file, groups, far, batch_rows))


def _ranges(scan: Scan, start: int, stop: int) -> tuple[tuple[int, int], ...]:
    file, footer = scan.chunk.file, scan.detail
    chunks = [part for group in footer.row_groups[start:stop] for part in group.ranges]
    tail = [] if start else [(max(0, file.bytes - footer.nbytes), file.bytes)]
    return joined_ranges([*chunks, *tail])


def _no_rows(unit: Unit, schema: pa.Schema) -> Batch:
    empty = pa.RecordBatch.from_pylist([], schema=schema)
    return Batch(empty, Origin(unit.name, unit.index, 0))


def _wanted(unit: Unit, inside: pa.Schema, schema: pa.Schema, union: bool) -> pa.Schema:
    """Return the fields of `schema` that are columns inside the file, not in its path."""
    partitions = dict(unit.file.partitions)
    for field in schema:
        if field.name not in inside.names:
            if field.name not in partitions and not union:
                raise not_in_file(field.name, unit.file, [*inside.names, *partitions])
            continue
        of = inside.field(field.name).type
        if not can_cast(of, field.type):
            raise SchemaConflict(
                f"column {field.name!r} is {of} in {unit.file.name} but {field.type} in the "
                f"schema: change it to {of} there, or convert it with --map"
            )
    return pa.schema([field for field in schema if field.name in inside.names])


def _batch(
    data: pa.RecordBatch, unit: Unit, origin: Origin, wanted: pa.Schema, schema: pa.Schema
) -> Batch:
    rejects: dict[int, Reject] = {}
    arrays = []
    for field in wanted:
        values = data.column(field.name)
        array, misfits = cast_exactly(values, field.type)
        arrays.append(array)
        for row in misfits.tolist():
            rejects[row] = _reject(origin, row, field, values)
    if arrays:
        data = pa.RecordBatch.from_arrays(arrays, schema=wanted)
    data = with_partitions(data, unit.file, schema)
    if not rejects:
        return Batch(data, origin)
    good = np.setdiff1d(np.arange(data.num_rows, dtype=np.int64), list(rejects))
    batch = Batch(data, origin).take(good)
    return batch.replace(rejects=tuple(rejects[row] for row in sorted(rejects)))


def _reject(origin: Origin, index: int, field: pa.Field, values: pa.Array) -> Reject:
    text = str(values[index].as_py())[:_SHOWN_CHARACTERS]
    row = int(origin.row_numbers(len(values))[index])
    where = origin.address_of(row)
    message = (
        f"column {field.name!r} is {text[:40]} in {where}, which is not {field.type} exactly: "
        "correct --schema"
    )
    return Reject(origin.unit, row, field.name, "bad-value", message, text, where)


def settled_by(source: Source, schema: pa.Schema | None) -> Source:
    """Return a source whose files may have conflicting types for the columns of `schema`."""
    if schema is None or not isinstance(source, Parquet):
        return source
    settled = copy.copy(source)
    object.__setattr__(settled, "settled", schema)
    return settled


def _merged_field(
    name: str, found: Sequence[tuple[InputFile, Footer]], source: Parquet
) -> pa.Field:
    having = [(file, footer.schema.field(name)) for file, footer in found if name in footer.names]
    if len(having) < len(found) and not source.union:
        lacking = next(file for file, footer in found if name not in footer.names)
        raise not_in_all_files(name, having[0][0], lacking)
    joined: Any = having[0][1].type
    for file, field in having[1:]:
        wider = join_types(joined, field.type)
        if wider is None and source.settled is not None and name in source.settled.names:
            joined = source.settled.field(name).type
            break
        if wider is None:
            before = next(pair for pair in having if join_types(pair[1].type, field.type) is None)
            raise SchemaConflict(
                f"column {name!r} is {field.type} in {file.name} but {before[1].type} in "
                f"{before[0].name}: pass --schema"
            )
        joined = wider
    is_nullable = len(having) < len(found) or any(field.nullable for _, field in having)
    # Metadata of a column is kept only if it is the same in all files.
    metadata = having[0][1].metadata
    if any(field.metadata != metadata for _, field in having):
        metadata = None
    return pa.field(name, joined, nullable=is_nullable, metadata=metadata)


def list_staged(paths: Sequence[str], suffixes: Sequence[str]) -> Iterator[InputFile]:
    """Yield the files that `paths` name, like `list_files`, and the files of stages among them.

    A stage without rows has no files, so its manifest is listed instead.

    Raises:
        UsageError: Nothing is found, or a file cannot be opened.
        DataError: A file of a stage is missing or has another size than in its manifest.
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
    for found in list_files(named, suffixes, remote=True):
        if found.bytes != sizes.get(found.path, found.bytes):
            raise DataError(
                f"{found.path!r} has {found.bytes:,} bytes but the manifest of its stage says "
                f"{sizes[found.path]:,}: extract it again"
            )
        yield found


def stands_for_none(file: InputFile) -> bool:
    """Return whether a listed file is the manifest of a stage without rows."""
    return os.path.basename(file.path) == MANIFEST_NAME


def footer_of_none(file: InputFile, columns: Collection[str] | None) -> Footer:
    """Return a footer for a stage without rows, from its manifest `file`."""
    schema = StageManifest.load(file.path).schema
    fields = [field for field in schema if columns is None or field.name in columns]
    return Footer(pa.schema(fields), tuple(schema.names), (), file.bytes)
