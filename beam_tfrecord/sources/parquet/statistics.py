"""Takes the bounds of columns from the statistics of row groups."""

from __future__ import annotations

import contextlib
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from beam_tfrecord.features.arrow_types import is_text
from beam_tfrecord.selection.prune import Bounds


def bounds_of(parquet: pq.ParquetFile, leaf: int, arrow: pa.DataType) -> Bounds:
    """Return what is known of a leaf column, whose values have an Arrow type, in each row group."""
    arrow = pa.large_string() if is_text(arrow) else arrow
    groups = [parquet.metadata.row_group(index) for index in range(parquet.num_row_groups)]
    known = [group.column(leaf).statistics for group in groups]
    nulls = [one.null_count if one is not None and one.has_null_count else None for one in known]
    return Bounds(
        pa.array([_end(one, "min", arrow) for one in known], arrow),
        pa.array([_end(one, "max", arrow) for one in known], arrow),
        pa.array(nulls, pa.int64()),
        pa.array([group.num_rows for group in groups], pa.int64()),
    )


def _end(statistics: pq.Statistics | None, name: str, arrow: pa.DataType) -> Any:
    """Return the least or the largest value; None if it is unknown, NaN or no complete text."""
    with contextlib.suppress(ValueError, TypeError, OverflowError, pa.ArrowException):
        value = pa.scalar(getattr(statistics, name, None), arrow).as_py()
        return value if value == value else None
    return None
