"""Checks the INT96 timestamps of Spark, Hive and Impala, which are read as microseconds.

An INT96 timestamp is a day (int32) and a nanosecond of that day. In microseconds, Arrow cuts what
is finer, and values far from 1970 wrap. Readers in seconds and in nanoseconds show both.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from beam_tfrecord.errors import DataError
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
