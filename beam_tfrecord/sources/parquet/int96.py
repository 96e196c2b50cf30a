"""Chooses microseconds or nanoseconds for reading the INT96 timestamps of Spark, Hive and Impala.

An INT96 timestamp is a day (int32) and a nanosecond of that day, which exceeds the range of int64.
By default Arrow reads it as int64 nanoseconds, which wrap silently outside the years 1677 to 2262.
In microseconds Arrow truncates finer values. Parquet has no statistics of INT96 columns, so this
module inspects the values. A column is read in microseconds only if nanoseconds cannot represent
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord.errors import DataError
from beam_tfrecord.features.arrow_types import is_list

S, US, NS = "s", "us", "ns"
# The largest number of seconds that int64 can represent in each unit.
_MAX = {unit: (2**63 - 1) // per_s - 1 for unit, per_s in ((US, 10**6), (NS, 10**9))}

Int64Array = npt.NDArray[np.int64]


def is_far(
    batches: Iterable[tuple[pa.RecordBatch, pa.RecordBatch]], column: str, leaves: int, name: str
) -> bool:
    """Return whether a column holds INT96 timestamps that only microseconds can represent."""
    far = fine = False
    for in_s, in_ns in batches:
        pairs = list(_leaves(in_s.column(column), in_ns.column(column)))
        if len(pairs) != leaves:
            raise DataError(
                f"column {column!r} of {name} holds INT96 timestamps inside "
                f"{in_ns.column(column).type}, where they are not read: leave it out with "
                "--columns, or write the file again"
            )
        for seconds, nanos in pairs:
            if _outside(seconds, US).any():
                raise DataError(
                    f"column {column!r} of {name} holds a timestamp that microseconds since "
                    "1970 cannot count: leave it out with --columns, or write the file again"
                )
            far = far or bool(_outside(seconds, NS).any())
            # The fraction of a second is exact even if both values wrap.
            fine = fine or bool(((nanos - seconds * 10**9) % 1000).any())
    if far and fine:
        raise DataError(
            f"column {column!r} of {name} holds timestamps outside the years 1677 to 2262 and "
            "others finer than a microsecond, which no one unit holds: leave it out with "
            "--columns, or write the file again in microseconds"
        )
    return far


def _outside(seconds: Int64Array, unit: str) -> npt.NDArray[np.bool_]:
    return (seconds > _MAX[unit]) | (seconds < -_MAX[unit])


def _leaves(in_s: pa.Array, in_ns: pa.Array) -> Iterator[tuple[Int64Array, Int64Array]]:
    """Yield the int64 values of every INT96 leaf in seconds and in nanoseconds."""
    types = pa.types
    if isinstance(in_s, pa.ExtensionArray):
        in_s, in_ns = in_s.storage, in_ns.storage
    # Both readers return the same type for a leaf that is not INT96.
    if in_s.type == in_ns.type:
        return
    if types.is_timestamp(in_s.type):
        yield in_s.cast("int64").drop_null().to_numpy(), in_ns.cast("int64").drop_null().to_numpy()
    elif types.is_struct(in_s.type):
        for index in range(in_s.type.num_fields):
            yield from _leaves(in_s.field(index), in_ns.field(index))
    elif types.is_map(in_s.type):
        # Arrow cannot flatten maps.
        yield from _leaves(in_s.keys, in_ns.keys)
        yield from _leaves(in_s.items, in_ns.items)
    elif is_list(in_s.type):
        yield from _leaves(in_s.flatten(), in_ns.flatten())
