"""Checks the INT96 timestamps of Spark, Hive and Impala, which are read as microseconds.

An INT96 timestamp is a day (int32) and a nanosecond of that day. In microseconds, Arrow cuts what
is finer, and values far from 1970 wrap. Readers in seconds and in nanoseconds show both.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from beam_tfrecord.errors import DataError
from beam_tfrecord.features.arrow_types import is_list
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.parquet.footer import reader_of

_BATCH_ROWS = 2**16


def check_int96(
    raw: pa.NativeFile, file: InputFile, metadata: pq.FileMetaData, group: int, columns: list[str]
) -> None:
    """Check that microseconds hold the INT96 timestamps in a row group exactly."""
    readers = (
        reader_of(raw, file, metadata=metadata, coerce_int96_timestamp_unit=unit)
        for unit in ("s", "us", "ns")
    )
    batches = (
        reader.iter_batches(_BATCH_ROWS, row_groups=[group], columns=columns, use_threads=False)
        for reader in readers
    )
    for in_units in zip(*batches, strict=True):
        for name in columns:
            times = (_times(batch.column(name)) for batch in in_units)
            if not all(_is_exact(*leaves) for leaves in zip(*times, strict=True)):
                raise DataError(
                    f"column {name!r} of {file.name} holds an INT96 timestamp that is finer than a "
                    "microsecond, or too far from 1970: leave it out with --columns, or write the "
                    "file again with another type of timestamps"
                )


def _is_exact(*in_units: pa.Array) -> bool:
    # The readers return the same type for a timestamp that is not INT96.
    if len({array.type for array in in_units}) == 1:
        return True
    seconds, micros, nanos = (array.cast("int64").to_numpy() for array in in_units)
    # Nanoseconds may wrap, but in the same way as the product does.
    is_near = np.floor_divide(micros, 10**6) == seconds
    return bool(is_near.all() and (micros * 1000 == nanos).all())


def _times(array: pa.Array) -> Iterator[pa.Array]:
    """Yield all timestamps in an array."""
    arrow = array.type
    if isinstance(array, pa.ExtensionArray):
        yield from _times(array.storage)
    elif pa.types.is_timestamp(arrow):
        yield array.drop_null()
    elif pa.types.is_struct(arrow):
        for index in range(arrow.num_fields):
            yield from _times(array.field(index))
    elif pa.types.is_map(arrow):
        # Arrow cannot flatten maps.
        yield from _times(array.keys)
        yield from _times(array.items)
    elif is_list(arrow):
        yield from _times(array.flatten())
