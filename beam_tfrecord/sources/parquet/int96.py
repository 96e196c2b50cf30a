"""INT96 timestamps of Parquet, which Spark, Hive and Impala write: the unit to read a column in.

An INT96 is a day (int32) and a nanosecond of it, and so goes beyond what int64 can count. Arrow
takes nanoseconds, which end in the years 1677 and 2262, and wraps silently outside them; it takes
microseconds where it is told to, and cuts what is finer. No statistics tell what a column holds, so
its values are looked at. Nanoseconds stay the unit of a column wherever they hold all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from beam_tfrecord.errors import DataError

S, US, NS = "s", "us", "ns"
# Whole seconds that int64 counts in each unit.
_MOST = {unit: (2**63 - 1) // per_s - 1 for unit, per_s in ((US, 10**6), (NS, 10**9))}

Int64Array = npt.NDArray[np.int64]


def int96_leaves(parquet: pq.ParquetFile, leaves: dict[str, list[int]]) -> dict[str, int]:
    """Return how many INT96 leaves each column has, of those that have any.

    Args:
        parquet: The file.
        leaves: Numbers of the leaf columns of each column to look at.
    """
    counts = {
        name: sum(parquet.schema.column(number).physical_type == "INT96" for number in numbers)
        for name, numbers in leaves.items()
    }
    return {name: count for name, count in counts.items() if count}


def is_far(
    batches: Iterable[tuple[pa.RecordBatch, pa.RecordBatch]], column: str, leaves: int, name: str
) -> bool:
    """Tell whether a column holds INT96 timestamps that take microseconds.

    Args:
        batches: The column alone, read in `S` and in `NS`.
        column: Its name.
        leaves: How many INT96 leaves it has.
        name: Of the file, for messages.

    Raises:
        DataError: No unit holds all of its timestamps, or they are where none are looked for.
    """
    far = fine = False
    for in_s, in_ns in batches:
        pairs = list(_leaves(in_s.column(column), in_ns.column(column)))
        if len(pairs) != leaves:
            raise DataError(
                f"column {column!r} of {name} holds INT96 timestamps inside "
                f"{in_ns.column(column).type}, where they are not read: leave it out with "
                "--columns, or write the file anew"
            )
        for seconds, nanos in pairs:
            if _outside(seconds, US).any():
                raise DataError(
                    f"column {column!r} of {name} holds a timestamp that microseconds since "
                    "1970 cannot count: leave it out with --columns, or write the file anew"
                )
            far = far or bool(_outside(seconds, NS).any())
            # What is left of a second is exact also where both wrap.
            fine = fine or bool(((nanos - seconds * 10**9) % 1000).any())
    if far and fine:
        raise DataError(
            f"column {column!r} of {name} holds timestamps outside the years 1677 to 2262 and "
            "others finer than a microsecond, which no one unit holds: leave it out with "
            "--columns, or write the file anew in microseconds"
        )
    return far


def _outside(seconds: Int64Array, unit: str) -> npt.NDArray[np.bool_]:
    return (seconds > _MOST[unit]) | (seconds < -_MOST[unit])


def _leaves(in_s: pa.Array, in_ns: pa.Array) -> Iterator[tuple[Int64Array, Int64Array]]:
    """Yield the values of every INT96 leaf, as both readers give them."""
    types = pa.types
    in_s, in_ns = _storage(in_s), _storage(in_ns)
    # What holds no INT96 is the same to both.
    if in_s.type == in_ns.type:
        return
    if types.is_timestamp(in_s.type):
        yield _values(in_s), _values(in_ns)
    elif types.is_struct(in_s.type):
        for index in range(in_s.type.num_fields):
            yield from _leaves(in_s.field(index), in_ns.field(index))
    elif types.is_map(in_s.type):
        # Maps cannot be flattened.
        yield from _leaves(in_s.keys, in_ns.keys)
        yield from _leaves(in_s.items, in_ns.items)
    elif isinstance(in_s, _LISTS):
        yield from _leaves(in_s.flatten(), in_ns.flatten())


_LISTS = (
    pa.ListArray,
    pa.LargeListArray,
    pa.FixedSizeListArray,
    pa.ListViewArray,
    pa.LargeListViewArray,
)


def _storage(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _values(array: pa.Array) -> Int64Array:
    values: Int64Array = array.cast(pa.int64()).drop_null().to_numpy()
    return values
