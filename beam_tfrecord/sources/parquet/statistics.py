"""Finds the row groups that a filter cannot match, from the statistics in the footer of a file.

Only statistics of numbers, dates and timestamps count. Those of text may be cut, and pyarrow does
not say whether they are; those of INT96 and other types have no order that all writers agree on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from beam_tfrecord.selection.nodes import Condition
from beam_tfrecord.selection.prune import Bounds, parts_that_may_match, single_value

_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_PHYSICAL = {
    "INT32": pa.int32(),
    "INT64": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
}


class Leaf(NamedTuple):
    """Where the values of a column are: its number among the Parquet leaf columns, and its type."""

    number: int
    type: pa.DataType


def pruned_groups(
    parquet: pq.ParquetFile,
    condition: Condition,
    leaves: Mapping[str, Leaf],
    others: Mapping[str, pa.Scalar],
) -> list[bool]:
    """Return for each row group whether the condition cannot be true for any of its rows."""
    groups = [parquet.metadata.row_group(index) for index in range(parquet.num_row_groups)]
    rows = np.array([group.num_rows for group in groups], np.int64)
    bounds = {name: single_value(value, len(rows)) for name, value in others.items()}
    for name, (number, of) in leaves.items():
        if not of.num_fields:
            physical = parquet.schema.column(number).physical_type
            columns = [group.column(number) for group in groups]
            bounds[name] = _bounds(columns, physical, of, rows)
    is_pruned = (rows > 0) & ~parts_that_may_match(condition, bounds, len(rows))
    found: list[bool] = is_pruned.tolist()
    return found


def _bounds(
    columns: Sequence[pq.ColumnChunkMetaData],
    physical: str,
    of: pa.DataType,
    rows: npt.NDArray[np.int64],
) -> Bounds:
    known = [column.statistics for column in columns]
    nulls = np.array(
        [-1 if one is None or not one.has_null_count else one.null_count for one in known], np.int64
    )
    ends = [_ends(one, physical, of) for one in known]
    least, largest = (_stored([one[at] for one in ends], physical, of) for at in (0, 1))
    return Bounds(least, largest, nulls != 0, nulls != rows)


def _ends(statistics: pq.Statistics | None, physical: str, of: pa.DataType) -> tuple[Any, Any]:
    """Return the least and the largest value as they are stored, if trusted."""
    if (
        statistics is None
        or not statistics.has_min_max
        or physical not in _PHYSICAL
        or not _is_stored_as(of, physical, statistics)
    ):
        return None, None
    raw = statistics.min_raw, statistics.max_raw
    return (None, None) if any(map(math.isnan, raw)) else raw


def _stored(raw: Sequence[Any], physical: str, of: pa.DataType) -> pa.Array:
    """Return stored values as an array of a column's type."""
    if all(value is None for value in raw):
        return pa.nulls(len(raw), of)
    stored = pa.array(raw, _PHYSICAL[physical])
    if pa.types.is_unsigned_integer(of):
        stored = stored.view(pa.uint64() if physical == "INT64" else pa.uint32())
    return stored.cast(of, safe=False) if pa.types.is_integer(of) else stored.view(of)


def _is_stored_as(of: pa.DataType, physical: str, statistics: pq.Statistics) -> bool:
    """Return whether the stored numbers are those of an Arrow type, with no factor in between."""
    if pa.types.is_timestamp(of):
        logical = json.loads(statistics.logical_type.to_json())
        return bool(_UNITS.get(logical.get("timeUnit")) == of.unit)
    if pa.types.is_integer(of):
        return physical in ("INT32", "INT64")
    if pa.types.is_date32(of):
        return physical == "INT32"
    return bool(pa.types.is_floating(of) and of == _PHYSICAL[physical])
