"""Finds the row groups that a filter cannot match, from the statistics in the footer of a file.

Only statistics of numbers, dates and timestamps count. Those of text may be cut, and pyarrow does
not say whether they are; those of INT96 and other types have no order that all writers agree on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from beam_tfrecord.selection.nodes import Condition, columns_of
from beam_tfrecord.selection.prune import Bounds, may_match

_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_PHYSICAL = {
    "INT32": pa.int32(),
    "INT64": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
}


def pruned_groups(
    parquet: pq.ParquetFile, condition: Condition, leaves: Mapping[str, Sequence[int]]
) -> Iterator[bool]:
    """Yield for each row group whether the condition cannot be true for any of its rows.

    Args:
        parquet: An open file.
        condition: The condition.
        leaves: Indices of the Parquet leaf columns of each top-level column.
    """
    types = parquet.schema_arrow
    columns = {
        name: leaves[name][0]
        for name in columns_of(condition)
        if name in leaves and not types.field(name).type.num_fields
    }
    for index in range(parquet.num_row_groups):
        group = parquet.metadata.row_group(index)
        bounds = {
            name: _bounds(group.column(leaf), types.field(name).type, group.num_rows)
            for name, leaf in columns.items()
        }
        yield group.num_rows > 0 and not may_match(condition, bounds)


def _bounds(column: pq.ColumnChunkMetaData, of: pa.DataType, num_rows: int) -> Bounds:
    statistics = column.statistics
    if statistics is None:
        return Bounds(None)
    nulls = statistics.null_count if statistics.has_null_count else None
    return Bounds(_ends(statistics, of), nulls != 0, nulls != num_rows)


def _ends(statistics: pq.Statistics, of: pa.DataType) -> pa.Array | None:
    """Return the least and the largest value as an array of the column's type, if trusted."""
    physical = _PHYSICAL.get(statistics.physical_type)
    if not statistics.has_min_max or physical is None or not _is_stored_as(of, statistics):
        return None
    raw = np.array([statistics.min_raw, statistics.max_raw], physical.to_pandas_dtype())
    if physical in (pa.float32(), pa.float64()):
        return None if any(map(math.isnan, raw)) else pa.array(raw, of)
    if pa.types.is_integer(of):
        unsigned = pa.types.is_unsigned_integer(of)
        stored = raw.view(raw.dtype.str.replace("i", "u")) if unsigned else raw
        return pa.array(stored.astype(of.to_pandas_dtype()), of)
    return pa.array(raw, physical).view(of)


def _is_stored_as(of: pa.DataType, statistics: pq.Statistics) -> bool:
    """Return whether the stored numbers are those of an Arrow type, with no factor in between."""
    if pa.types.is_timestamp(of):
        logical = json.loads(statistics.logical_type.to_json())
        return bool(_UNITS.get(logical.get("timeUnit")) == of.unit)
    if pa.types.is_date32(of) or pa.types.is_integer(of):
        return statistics.physical_type in ("INT32", "INT64")
    return of in (pa.float32(), pa.float64()) and of == _PHYSICAL[statistics.physical_type]
