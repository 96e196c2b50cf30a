"""What the footer of a Parquet file says: types, nulls, and the sizes of its row groups."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from beam_tfrecord.errors import DataError
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.parquet.int96 import int96_leaves
from beam_tfrecord.sources.parquet.types import plain_field
from beam_tfrecord.stage import staged_schema_of
from beam_tfrecord.storage import is_remote, open_read

# Framing (16), and tags and lengths of an Example and of one of its features.
_RECORD_BYTES = 16
_FEATURE_BYTES = 8
# Behind the footer stand its length and a magic text.
_TAIL_BYTES = 8


@dataclasses.dataclass(frozen=True)
class RowGroup:
    """The size of a row group, over the columns that are read.

    Attributes:
        rows: Number of rows.
        compressed_bytes: Bytes in the file.
        uncompressed_bytes: Bytes of its pages once decompressed.
        encoded_bytes: Estimate of the size of its records.
        ranges: Where the column chunks lie in the file: start and end of each run of them.
    """

    rows: int
    compressed_bytes: int
    uncompressed_bytes: int
    encoded_bytes: int
    ranges: tuple[tuple[int, int], ...] = ()


@dataclasses.dataclass(frozen=True)
class Footer:
    """The footer of one file.

    Attributes:
        schema: The columns that are read; a field is not nullable where its column has no null.
        names: Names of all columns of the file.
        row_groups: Sizes of the row groups.
        nbytes: Bytes of the footer at the end of the file.
        far: Names of the columns whose INT96 timestamps are read in microseconds.
        in_us: `schema` with all INT96 timestamps in microseconds; None where there are none.
    """

    schema: pa.Schema
    names: tuple[str, ...]
    row_groups: tuple[RowGroup, ...]
    nbytes: int = 0
    far: tuple[str, ...] = ()
    in_us: pa.Schema | None = None


def never_null(footer: Footer, name: str) -> bool:
    """Tell whether the column `name` is known to hold no null in a file."""
    return not footer.schema.field(name).nullable


def footer_of(parquet: pq.ParquetFile, columns: Collection[str] | None) -> Footer:
    """Digest the footer of an open file.

    Args:
        parquet: The file.
        columns: Names of the columns that are read; None means all.
    """
    inside = parquet.schema_arrow
    # Files of a stage hold what Parquet can hold of the types that they stand for.
    told = staged_schema_of(inside) or pa.schema([plain_field(field) for field in inside])
    fields = [f for f in told if columns is None or f.name in columns]
    leaves = _leaves_by_column(parquet)
    groups = [parquet.metadata.row_group(index) for index in range(parquet.num_row_groups)]
    wanted = {field.name: leaves[field.name] for field in fields}
    schema = pa.schema(
        [
            field.with_nullable(
                pa.types.is_null(field.type)
                or (field.nullable and not _has_no_null(parquet, groups, wanted[field.name]))
            )
            for field in fields
        ]
    )
    names = tuple(parquet.schema_arrow.names)
    row_groups = tuple(_row_group(group, wanted) for group in groups)
    nbytes = parquet.metadata.serialized_size + _TAIL_BYTES
    return Footer(schema, names, row_groups, nbytes)


def int96_in(parquet: pq.ParquetFile, footer: Footer) -> dict[str, int]:
    """Return how many INT96 leaves each column of a footer has, of those that have any."""
    leaves = _leaves_by_column(parquet)
    return int96_leaves(parquet, {name: leaves[name] for name in footer.schema.names})


def _leaves_by_column(parquet: pq.ParquetFile) -> dict[str, list[int]]:
    """Return the numbers of the Parquet leaf columns of every column of the rows.

    Leaves come in the order of the columns, so counting those of each type needs no look at
    their paths, in which a dot may be part of a name.
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
    # A dictionary is nested for Arrow only, and has no children.
    if not arrow.num_fields:
        return 1
    return sum(_leaf_count(arrow.field(index).type) for index in range(arrow.num_fields))


def _has_no_null(
    parquet: pq.ParquetFile, groups: Sequence[pq.RowGroupMetaData], leaves: Sequence[int]
) -> bool:
    """Tell whether statistics prove a column to hold no null.

    A null struct is a null in each of its leaves, so that one leaf without nulls is proof. Leaves
    inside lists are no witness: writers differ in what they count there.
    """
    return any(
        parquet.schema.column(leaf).max_repetition_level == 0
        and all(
            (statistics := group.column(leaf).statistics) is not None
            and statistics.has_null_count
            and statistics.null_count == 0
            for group in groups
            if group.num_rows
        )
        for leaf in leaves
    )


def _row_group(group: pq.RowGroupMetaData, wanted: dict[str, list[int]]) -> RowGroup:
    columns = [group.column(leaf) for leaves in wanted.values() for leaf in leaves]
    per_row = _RECORD_BYTES + sum(
        len(leaves) * (len(name.encode()) + _FEATURE_BYTES) for name, leaves in wanted.items()
    )
    return RowGroup(
        rows=group.num_rows,
        compressed_bytes=sum(column.total_compressed_size for column in columns),
        uncompressed_bytes=sum(column.total_uncompressed_size for column in columns),
        encoded_bytes=group.num_rows * per_row + sum(map(_value_bytes, columns)),
        ranges=joined_ranges(map(_chunk_range, columns)),
    )


def _chunk_range(column: pq.ColumnChunkMetaData) -> tuple[int, int]:
    start = column.data_page_offset
    if column.has_dictionary_page and column.dictionary_page_offset:
        start = min(start, column.dictionary_page_offset)
    return start, start + column.total_compressed_size


def joined_ranges(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return ranges in order, those that touch joined: most files have one a row group."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((start, stop))
    return tuple(joined)


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
            # Where a dictionary holds each value once, the pages say little about their length.
            return max(int(column.total_uncompressed_size), 8 * count)


def _varint_bytes(statistics: pq.Statistics | None) -> int:
    """Return the bytes of the longest varint; a negative one always takes 10."""
    high = statistics.max_raw if statistics is not None and statistics.has_min_max else 2**31
    if not isinstance(high, int):
        return 5
    if statistics is not None and statistics.has_min_max and statistics.min_raw < 0:
        return 10 if high < 0 else max(5, -(-high.bit_length() // 7))
    return max(1, -(-high.bit_length() // 7))


def row_groups_of(groups: Sequence[RowGroup], unit_bytes: int) -> list[tuple[int, int]]:
    """Cut row groups into ranges of at most `unit_bytes`, unless one alone is larger.

    There are as few ranges as that allows, and they are as even as whole row groups allow:
    runners that deal tasks out beforehand would else give one worker all the large ones.

    Returns:
        Ranges (start, stop) that cover all row groups; one empty range where there are none.
    """
    sizes = [group.uncompressed_bytes for group in groups]
    fewest = len(_spans(sizes, unit_bytes))
    even = sum(sizes) // fewest
    for step in range(_EVEN_STEPS):
        spans = _spans(sizes, even + (unit_bytes - even) * step // _EVEN_STEPS)
        if len(spans) == fewest:
            return spans
    return _spans(sizes, unit_bytes)


_EVEN_STEPS = 16


def _spans(sizes: Sequence[int], most: int) -> list[tuple[int, int]]:
    spans = []
    start = total = 0
    for index, size in enumerate(sizes):
        if index > start and total + size > most:
            spans.append((start, index))
            start, total = index, 0
        total += size
    return [*spans, (start, len(sizes))]


# Column chunks are streamed through buffers of this size: one whole chunk of every column at once
# took ten times the memory, and on small row groups twice the time.
_STREAM_BYTES = 2**18


@contextlib.contextmanager
def opened(file: InputFile, *units: str) -> Iterator[tuple[pq.ParquetFile, ...]]:
    """Open a file for streaming, once, with a reader for each of some units.

    Args:
        file: The file.
        units: Of INT96 timestamps.

    Raises:
        DataError: It is not a whole Parquet file.
        OSError: The system cannot open it.
    """
    remote = is_remote(file.path)
    with _raw(file) as raw:
        metadata = None
        readers = []
        try:
            for unit in units:
                parquet = pq.ParquetFile(
                    raw,
                    metadata=metadata,
                    # A request to a remote filesystem costs more than the memory for larger ones.
                    pre_buffer=remote,
                    buffer_size=0 if remote else _STREAM_BYTES,
                    page_checksum_verification=True,
                    coerce_int96_timestamp_unit=unit,
                )
                if metadata is None:
                    # A type that is not supported, or a name that is not UTF-8, shows here.
                    str(parquet.schema_arrow.remove_metadata())
                    metadata = parquet.metadata
                readers.append(parquet)
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            _raise_infrastructure(error)
            raise DataError(
                f"{file.name} is not a whole parquet file ({_reason(error)}): "
                "write it anew, or leave it out"
            ) from error
        yield tuple(readers)


def _raw(file: InputFile) -> pa.NativeFile:
    if is_remote(file.path):
        return pa.PythonFile(open_read(file.path, buffer_bytes=0, version=file.version), mode="r")
    return pa.OSFile(file.path)


def record_batches(
    parquet: pq.ParquetFile,
    file: InputFile,
    groups: range,
    columns: Sequence[str],
    batch_rows: int,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some row groups in batches of `batch_rows`, across row groups.

    Raises:
        DataError: A row group cannot be read.
        OSError: The system cannot read the file.
    """
    if groups.stop > parquet.num_row_groups:
        raise changed(file)
    try:
        yield from _row_groups(parquet, groups, columns, batch_rows)
    except (OSError, pa.ArrowException) as error:
        _raise_infrastructure(error)
        where, reason = _fault_of(parquet, groups, columns, batch_rows, error)
        raise DataError(
            f"cannot read {where} of {file.name} ({_reason(reason)}): "
            "write the file anew, or leave it out"
        ) from error


def side_by_side(
    file: InputFile, left: Iterable[pa.RecordBatch], right: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the columns of two streams of the same rows of a file together.

    The batches of a stream also end where the dictionary of one of its columns does.

    Raises:
        DataError: The second stream ends before the first.
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


def changed(file: InputFile) -> DataError:
    """Return the error for a file whose rows are not those its footer told when it was planned."""
    return DataError(
        f"{file.name} is damaged, or changed while it was read: run again, or write it anew"
    )


def _row_groups(
    parquet: pq.ParquetFile, groups: range, columns: Sequence[str], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    for batch in parquet.iter_batches(
        batch_size=batch_rows, row_groups=list(groups), columns=list(columns), use_threads=False
    ):
        # A name also stands for those that go on behind it with a dot.
        yield batch.select(list(columns))


def _fault_of(
    parquet: pq.ParquetFile,
    groups: range,
    columns: Sequence[str],
    batch_rows: int,
    error: Exception,
) -> tuple[str, Exception]:
    """Find the row group at fault, which an error does not tell, by reading one after another."""
    for group in groups:
        try:
            for _ in _row_groups(parquet, range(group, group + 1), columns, batch_rows):
                pass
        except (OSError, pa.ArrowException) as again:
            return f"row group {group}", again
    return f"row groups {groups.start} to {groups.stop - 1}", error


def _raise_infrastructure(error: Exception) -> None:
    """Raise `error` itself where the system gave it: a retry may help, unlike with bad data."""
    if isinstance(error, MemoryError) or getattr(error, "errno", None) is not None:
        raise error


def _reason(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no reason given"])[0].rstrip(". ")[:200]
