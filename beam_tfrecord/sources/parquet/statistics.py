"""Takes the bounds of columns from the statistics of row groups."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from beam_tfrecord.features.arrow_types import is_text
from beam_tfrecord.selection.prune import Bounds


def bounds_of(parquet: pq.ParquetFile, leaf: int, arrow: pa.DataType) -> Bounds:
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


def has_no_null(parquet: pq.ParquetFile, leaves: Iterable[int]) -> bool:
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
