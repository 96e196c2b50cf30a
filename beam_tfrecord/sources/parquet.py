"""Reads Parquet files, split by row groups; column types come from the footers of the files."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.arrow_types import is_text
from beam_tfrecord.features.type_join import plain_field, plain_type
from beam_tfrecord.format.manifest import MANIFEST_NAME
from beam_tfrecord.format.stage import StageManifest, is_stage, stage_files, staged_schema_of
from beam_tfrecord.format.tally import SPLIT_KEY
from beam_tfrecord.selection.evaluate import Bounds, PieceBounds
from beam_tfrecord.selection.parse import Condition
from beam_tfrecord.sources.base import Chunk, InputFile, Scan
from beam_tfrecord.sources.damaged_files import changed
from beam_tfrecord.sources.files import as_paths, list_files
from beam_tfrecord.sources.merge_schemas import constants_of, partition_fields
from beam_tfrecord.sources.typed_files import (
    Batches,
    Contents,
    OpenTable,
    Piece,
    TypedFiles,
    check_names,
    framing_bytes,
)
from beam_tfrecord.storage import absolute_path, exists, is_directory, is_remote

SUFFIXES = (".parquet", ".pq")
# Column chunks are streamed through buffers of this size. Buffers of complete chunks took ten times
# the memory, and twice the time on small row groups.
_STREAM_BYTES = 2**18
_CHECKED_ROWS = 2**16


@dataclasses.dataclass(frozen=True)
class Parquet(TypedFiles):
    """Parquet files, and the stages that ``extract`` writes."""

    kind: ClassVar[str] = "parquet"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES
    title: ClassVar[str] = "parquet"
    faults = (OSError, pa.ArrowException, UnicodeDecodeError)

    def files(self) -> Iterator[InputFile]:
        return list_staged(as_paths(self.paths), SUFFIXES)

    def default_split_column(self) -> str | None:
        stages = (StageManifest.load(path) for path in as_paths(self.paths) if is_stage(path))
        fields = (field for stage in stages for field in stage.schema)
        return next((one.name for one in fields if SPLIT_KEY in (one.metadata or {})), None)

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
                fields = partition_fields([chunk.file])
                condition, row = self.selection.condition, constants_of(chunk.file, fields)
                # Beside other directories, a column may have another type.
                with contextlib.suppress(UsageError):
                    footer = pruned_by(condition, parquet, footer, names, row)
        return Scan(chunk, footer)

    def open(self, raw: pa.NativeFile, file: InputFile) -> OpenTable:
        parquet = reader_of(raw, file)
        # Evaluated only to raise for unsupported types and for names that are not UTF-8.
        str(parquet.schema_arrow.remove_metadata())

        def read(start: int, stop: int, fields: pa.Schema, batch_rows: int) -> Batches:
            groups, names = range(start, stop), fields.names
            if stop > parquet.num_row_groups:
                raise changed(file)
            if int96 := int96_in(parquet, names):
                for group in groups:
                    check_int96(raw, file, parquet.metadata, group, int96)
            yield from parquet.iter_batches(
                batch_rows, row_groups=groups, columns=names, use_threads=False
            )

        return OpenTable(parquet.schema_arrow, (), read, parquet)


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
        manifest = StageManifest.load(path)
        for file in (files := stage_files(path, manifest)):
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


def footer_of(parquet: pq.ParquetFile, columns: Collection[str] | None) -> Contents:
    """Return the contents of the footer of an open file; a piece is a row group."""
    inside = parquet.schema_arrow
    # The metadata of a file of a stage states the types that Parquet lacks.
    stated = staged_schema_of(inside) or pa.schema([plain_field(field) for field in inside])
    fields = [field for field in stated if columns is None or field.name in columns]
    leaves = _leaves_by_column(parquet)
    groups = [parquet.metadata.row_group(index) for index in range(parquet.num_row_groups)]
    wanted = {field.name: leaves[field.name] for field in fields}
    schema = pa.schema(
        field.with_nullable(field.nullable and not _has_no_null(parquet, wanted[field.name]))
        for field in fields
    )
    pieces = tuple(_row_group(index, group, wanted) for index, group in enumerate(groups))
    return Contents(schema, tuple(inside.names), pieces)


def pruned_by(
    condition: Condition,
    parquet: pq.ParquetFile,
    footer: Contents,
    names: Mapping[str, str],
    constants: pa.RecordBatch,
) -> Contents:
    """Return a footer that notes which row groups a filter excludes.

    `names` are the columns of the file by the names in the filter, and `constants` a row of columns
    that have one value.
    """
    leaves, bounds = _leaves_by_column(parquet), {}
    for name, inside in names.items():
        arrow = plain_type(parquet.schema_arrow.field(inside).type) if inside in leaves else None
        if arrow and not pa.types.is_nested(arrow) and not isinstance(arrow, pa.BaseExtensionType):
            bounds[name] = _bounds_of(parquet, leaves[inside][0], arrow)
    found = PieceBounds(len(footer.pieces), bounds, constants).may_match(condition).to_pylist()
    pieces = (
        piece._replace(is_pruned=not may_match)
        for piece, may_match in zip(footer.pieces, found, strict=True)
    )
    return dataclasses.replace(footer, pieces=tuple(pieces))


def _bounds_of(parquet: pq.ParquetFile, leaf: int, arrow: pa.DataType) -> Bounds:
    """Return what is known of a leaf column, whose values have an Arrow type, in each row group."""
    arrow = pa.large_string() if is_text(arrow) else arrow
    known = _statistics(parquet, leaf)
    groups = map(parquet.metadata.row_group, range(parquet.num_row_groups))
    nulls = [(_null_count(one), group.num_rows) for one, group in zip(known, groups, strict=True)]
    return Bounds(
        pa.array([_end(one, "min", arrow) for one in known], arrow),
        pa.array([_end(one, "max", arrow) for one in known], arrow),
        pa.array([count != 0 for count, _ in nulls], pa.bool_()),
        pa.array([count != rows for count, rows in nulls], pa.bool_()),
    )


def _has_no_null(parquet: pq.ParquetFile, leaves: Iterable[int]) -> bool:
    """Return whether statistics prove that a column has no null, given its leaf columns.

    A null struct is a null in each of its leaves, so one leaf without nulls is proof. Leaves
    inside lists prove nothing because writers count their nulls in different ways.
    """
    return any(
        parquet.schema.column(leaf).max_repetition_level == 0
        and all(_null_count(one) == 0 for one in _statistics(parquet, leaf))
        for leaf in leaves
    )


def _statistics(parquet: pq.ParquetFile, leaf: int) -> list[pq.Statistics | None]:
    groups = map(parquet.metadata.row_group, range(parquet.num_row_groups))
    return [group.column(leaf).statistics for group in groups]


def _null_count(statistics: pq.Statistics | None) -> int | None:
    return statistics.null_count if statistics is not None and statistics.has_null_count else None


def _end(statistics: pq.Statistics | None, name: str, arrow: pa.DataType) -> Any:
    """Return the least or the largest value; None if it is unknown, NaN or no complete text."""
    with contextlib.suppress(ValueError, TypeError, OverflowError, pa.ArrowException):
        value = pa.scalar(getattr(statistics, name, None), arrow).as_py()
        return value if value == value else None
    return None


def int96_in(parquet: pq.ParquetFile, names: Iterable[str]) -> list[str]:
    """Return which columns have INT96 timestamps, also inside of lists and structs."""
    leaves = _leaves_by_column(parquet)
    column = parquet.schema.column
    return [
        name for name in names if any(column(at).physical_type == "INT96" for at in leaves[name])
    ]


def _leaves_by_column(parquet: pq.ParquetFile) -> dict[str, list[int]]:
    """Return the indices of the Parquet leaf columns of each top-level column.

    Leaves are in the order of the columns, so the number of leaves of each type is enough. Their
    paths are ambiguous because names may contain dots.
    """
    leaves = {}
    first = 0
    for field in parquet.schema_arrow:
        count = _leaf_count(field.type)
        leaves[field.name] = list(range(first, first + count))
        first += count
    return leaves


def _leaf_count(arrow: pa.DataType) -> int:
    if isinstance(arrow, pa.BaseExtensionType):
        return _leaf_count(arrow.storage_type)
    # A dictionary type has no child fields.
    if not arrow.num_fields:
        return 1
    return sum(_leaf_count(arrow.field(index).type) for index in range(arrow.num_fields))


def _row_group(index: int, group: pq.RowGroupMetaData, wanted: dict[str, list[int]]) -> Piece:
    columns = [group.column(leaf) for leaves in wanted.values() for leaf in leaves]
    per_row = framing_bytes(wanted, lambda name: len(wanted[name]))
    return Piece(
        start=index,
        stop=index + 1,
        num_rows=group.num_rows,
        nbytes=sum(column.total_compressed_size for column in columns),
        decoded_bytes=sum(column.total_uncompressed_size for column in columns),
        encoded_bytes=group.num_rows * per_row + sum(map(_value_bytes, columns)),
    )


def _value_bytes(column: pq.ColumnChunkMetaData) -> int:
    """Estimate the bytes of the values of a column chunk in Examples."""
    count: int = column.num_values
    match column.physical_type:
        case "BOOLEAN":
            return count
        case "FLOAT" | "DOUBLE":
            return 4 * count
        case "INT32" | "INT64":
            return count * _varint_bytes(column.statistics)
        case _:
            # With dictionary encoding, the size of the pages does not show the length of values.
            return max(int(column.total_uncompressed_size), 8 * count)


def _varint_bytes(statistics: pq.Statistics | None) -> int:
    """Estimate the bytes of the longest varint; a negative number always takes 10."""
    if statistics is None or not statistics.has_min_max or not isinstance(statistics.max_raw, int):
        return 5
    low, high = statistics.min_raw, statistics.max_raw
    if high < 0:
        return 10
    return max(5 if low < 0 else 1, -(-high.bit_length() // 7))


def reader_of(raw: pa.NativeFile, file: InputFile, **options: Any) -> pq.ParquetFile:
    """Return a reader that streams an open file, with its INT96 timestamps in microseconds."""
    remote = is_remote(file.path)
    return pq.ParquetFile(
        raw,
        # For remote files, larger requests save more than their memory costs.
        pre_buffer=remote,
        buffer_size=0 if remote else _STREAM_BYTES,
        page_checksum_verification=True,
        **{"coerce_int96_timestamp_unit": "us", **options},
    )


def check_int96(
    raw: pa.NativeFile, file: InputFile, metadata: pq.FileMetaData, group: int, columns: list[str]
) -> None:
    """Check that microseconds hold the INT96 timestamps (of Spark, Hive) in a row group exactly.

    In microseconds, Arrow cuts what is finer, and values far from 1970 wrap. Readers in seconds and
    in nanoseconds show both.
    """
    readers = (
        reader_of(raw, file, metadata=metadata, coerce_int96_timestamp_unit=unit)
        for unit in ("s", "us", "ns")
    )
    batches = (
        reader.iter_batches(_CHECKED_ROWS, row_groups=[group], columns=columns, use_threads=False)
        for reader in readers
    )
    for in_units in zip(*batches, strict=True):
        for name in columns:
            if not _is_exact(*(batch.column(name) for batch in in_units)):
                raise DataError(
                    f"column {name!r} of {file.name} holds an INT96 timestamp that is finer than a "
                    "microsecond, too far from 1970 or in a list view: leave it out with "
                    "--columns, or write the file again with another type of timestamps"
                )


def _is_exact(seconds: pa.Array, micros: pa.Array, nanos: pa.Array) -> bool:
    try:
        seconds.cast(micros.type)
        # Nanoseconds may wrap, but in the same way as what is made of microseconds.
        return bool(micros.cast(nanos.type, safe=False).equals(nanos))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
