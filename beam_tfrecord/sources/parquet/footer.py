"""Opens Parquet files, reads their footers (types, row group sizes), and streams their rows.

pyarrow parses the footer. Every fault of a file becomes a `DataError` that names the file and the
row group.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from beam_tfrecord.features.converting import plain_field, plain_type
from beam_tfrecord.selection.nodes import Condition
from beam_tfrecord.selection.prune import Parts
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.file_parts import (
    changed,
    incomplete,
    open_input,
    raise_infrastructure,
    unreadable,
)
from beam_tfrecord.sources.parquet.statistics import bounds_of
from beam_tfrecord.sources.typed_files import Block, Contents, framing_bytes
from beam_tfrecord.stage import is_stage, staged_schema_of
from beam_tfrecord.storage import is_in_zip, is_remote

# Column chunks are streamed through buffers of this size. Buffers of complete chunks took ten times
# the memory, and twice the time on small row groups.
_STREAM_BYTES = 2**18
_NO_CONSTANTS = pa.record_batch({})


@dataclasses.dataclass(frozen=True)
class Footer(Contents):
    """The contents of the footer of one file that this source needs; a block is a row group."""

    far: tuple[str, ...] = ()
    in_us: pa.Schema | None = None


def footer_of(parquet: pq.ParquetFile, file: InputFile, columns: Collection[str] | None) -> Footer:
    """Return the contents of the footer of an open file."""
    inside = parquet.schema_arrow
    # The metadata of a file of a stage states the types that Parquet lacks.
    stated = staged_schema_of(inside) or pa.schema([plain_field(field) for field in inside])
    schema = pa.schema([f for f in stated if columns is None or f.name in columns])
    leaves = _leaves_by_column(parquet)
    groups = [parquet.metadata.row_group(index) for index in range(parquet.num_row_groups)]
    wanted = {name: leaves[name] for name in schema.names}
    blocks = tuple(_row_group(index, group, wanted) for index, group in enumerate(groups))
    return Footer(schema, tuple(inside.names), blocks)


def pruned_by(
    condition: Condition,
    parquet: pq.ParquetFile,
    footer: Footer,
    names: Mapping[str, str],
    constants: pa.RecordBatch = _NO_CONSTANTS,
) -> Footer:
    """Return a footer that notes which row groups a filter excludes.

    `names` are the columns of the file by the names in the filter, and `constants` a row of columns
    that have one value.
    """
    leaves, types = _leaves_by_column(parquet), parquet.schema_arrow
    bounds = {
        name: bounds_of(parquet, leaves[of][0], plain_type(types.field(of).type))
        for name, of in names.items()
        if len(leaves.get(of, ())) == 1 and not pa.types.is_nested(types.field(of).type)
    }
    found = Parts(len(footer.blocks), bounds, constants).may_match(condition).to_pylist()
    blocks = (
        dataclasses.replace(block, is_pruned=not may_match)
        for block, may_match in zip(footer.blocks, found, strict=True)
    )
    return dataclasses.replace(footer, blocks=tuple(blocks))


def int96_in(parquet: pq.ParquetFile, footer: Footer) -> dict[str, int]:
    """Return the number of INT96 leaf columns of each top-level column that has any."""
    leaves = _leaves_by_column(parquet)
    schema = parquet.schema
    counts = {
        name: sum(schema.column(leaf).physical_type == "INT96" for leaf in leaves[name])
        for name in footer.schema.names
    }
    return {name: count for name, count in counts.items() if count}


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


def _row_group(index: int, group: pq.RowGroupMetaData, wanted: dict[str, list[int]]) -> Block:
    columns = [group.column(leaf) for leaves in wanted.values() for leaf in leaves]
    per_row = framing_bytes(wanted, lambda name: len(wanted[name]))
    return Block(
        start=index,
        stop=index + 1,
        rows=group.num_rows,
        compressed_bytes=sum(column.total_compressed_size for column in columns),
        uncompressed_bytes=sum(column.total_uncompressed_size for column in columns),
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


@contextlib.contextmanager
def opened(file: InputFile) -> Iterator[Callable[[str], pq.ParquetFile]]:
    """Open a file for streaming, and yield a function that makes readers of it.

    The argument of the function is the unit of time in which the reader returns INT96 timestamps.
    The first reader parses the footer, and further readers use it again. The function raises
    `DataError` if the file is not a complete Parquet file.
    """
    # A member of a zip file is copied to this machine, and is a single unit of any size.
    remote = is_remote(file.path) and not is_in_zip(file.path)
    metadata = None

    def reader(unit: str) -> pq.ParquetFile:
        nonlocal metadata
        try:
            parquet = pq.ParquetFile(
                raw,
                metadata=metadata,
                # For remote files, larger requests save more than their memory costs.
                pre_buffer=remote,
                buffer_size=0 if remote else _STREAM_BYTES,
                page_checksum_verification=True,
                coerce_int96_timestamp_unit=unit,
            )
            if metadata is None:
                # Evaluated only to raise for unsupported types and for names that are not UTF-8.
                str(parquet.schema_arrow.remove_metadata())
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            raise incomplete(file, "parquet", error, _advice(file)) from error
        metadata = parquet.metadata
        return parquet

    with open_input(file) as raw:
        yield reader


def record_batches(
    parquet: pq.ParquetFile,
    file: InputFile,
    groups: range,
    columns: Sequence[str],
    batch_rows: int,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range of row groups in batches of `batch_rows`, across row groups."""
    if groups.stop > parquet.num_row_groups:
        raise changed(file)
    try:
        yield from _row_groups(parquet, groups, columns, batch_rows)
    except (OSError, pa.ArrowException) as error:
        raise_infrastructure(error)
        where, reason = _fault_of(parquet, groups, columns, batch_rows, error)
        raise unreadable(file, where, reason, _advice(file)) from error


def _advice(file: InputFile) -> str:
    """Return what to do about a damaged file of a stage; empty for other files."""
    if is_stage(os.path.dirname(file.path)):
        return "run extract again to replace the stage that it belongs to"
    return ""


def side_by_side(
    file: InputFile, left: Iterable[pa.RecordBatch], right: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Join two streams of different columns of the same rows into one stream.

    The batches of the two streams may have different lengths, because pyarrow also ends a batch at
    the end of the dictionary of any of its columns.
    """
    other = None
    for one in left:
        while one.num_rows:
            while not other:
                other = next(right, None)
                if other is None:
                    raise changed(file)
            rows = min(one.num_rows, other.num_rows)
            yield pa.RecordBatch.from_arrays(
                [*one.slice(0, rows).columns, *other.slice(0, rows).columns],
                names=[*one.schema.names, *other.schema.names],
            )
            one, other = one.slice(rows), other.slice(rows)


def _row_groups(
    parquet: pq.ParquetFile, groups: range, columns: Sequence[str], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    for batch in parquet.iter_batches(
        batch_size=batch_rows, row_groups=list(groups), columns=list(columns), use_threads=False
    ):
        # pyarrow's `columns=["a"]` also selects a column named "a.b".
        yield batch.select(list(columns))


def _fault_of(
    parquet: pq.ParquetFile,
    groups: range,
    columns: Sequence[str],
    batch_rows: int,
    error: Exception,
) -> tuple[str, Exception]:
    """Find the row group at fault, which Arrow does not report, by reading one after the other."""
    for group in groups:
        try:
            for _ in _row_groups(parquet, range(group, group + 1), columns, batch_rows):
                pass
        except (OSError, pa.ArrowException) as again:
            return f"row group {group}", again
    return f"row groups {groups.start} to {groups.stop - 1}", error
