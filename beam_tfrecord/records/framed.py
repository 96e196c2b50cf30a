"""Converts between blocks of framed records and Arrow columns whose values are these records."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord.records.tfrecord import RecordBlock
from beam_tfrecord.rows.batch import EXAMPLES_SCHEMA

Int64Array = npt.NDArray[np.int64]


def framed_batch(block: RecordBlock) -> pa.RecordBatch:
    """Return the framed records of a block as the values of one column, without a copy.

    All records of the block have to be intact, so that they follow each other.
    """
    offsets = np.append(block.starts, len(block.data))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(block.data)]
    column = pa.Array.from_buffers(pa.large_binary(), len(block.starts), buffers)
    return pa.RecordBatch.from_arrays([column], schema=EXAMPLES_SCHEMA)


def framed_records(column: pa.Array) -> tuple[npt.NDArray[np.uint8], Int64Array]:
    """Return the bytes of a column of framed records, and where each record begins."""
    if not len(column):
        return np.empty(0, np.uint8), np.empty(0, np.int64)
    _, ends, values = column.buffers()
    offsets = np.frombuffer(ends, np.int64)[column.offset : column.offset + len(column) + 1]
    data = np.frombuffer(values, np.uint8)[offsets[0] : offsets[-1]]
    return data, offsets[:-1] - offsets[0]
