"""Opening Parquet files and streaming their rows, with every fault told by file and place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from beam_tfrecord.errors import DataError
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.storage import is_remote, open_read

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
