"""INT96 timestamps of Parquet, which Spark, Hive and Impala write: the unit to read a file in.

An INT96 is a day (int32) and a nanosecond of it, and so goes beyond what int64 can count. Arrow
takes nanoseconds, which end in the years 1677 and 2262, and wraps silently outside them; it takes
microseconds where it is told to, and cuts what is finer. No statistics tell what a column holds, so
its values are looked at. Nanoseconds stay the unit wherever they hold every value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from beam_tfrecord.errors import DataError

NS, US = "ns", "us"
UNITS = ("s", US, NS)
# Whole seconds that int64 counts in each unit.
_MOST = {unit: (2**63 - 1) // per_s - 1 for unit, per_s in ((US, 10**6), (NS, 10**9))}
_BATCH_ROWS = 2**16

Int64Array = npt.NDArray[np.int64]


def int96_columns(parquet: pq.ParquetFile, leaves: dict[str, list[int]]) -> list[str]:
    """Return the columns that have INT96 leaves.

    Args:
        parquet: The file.
        leaves: Numbers of the leaf columns of each column to look at.
    """
    return [
        name
        for name, numbers in leaves.items()
        if any(parquet.schema.column(number).physical_type == "INT96" for number in numbers)
    ]


def unit_of(readers: Sequence[pq.ParquetFile], columns: Sequence[str], name: str) -> str:
    """Return the unit that holds every INT96 timestamp of a file.

    Args:
        readers: The file, opened in each of `UNITS`.
        columns: Those with such timestamps.
        name: Of the file, for messages.

    Raises:
        DataError: No unit does.
    """
    unit = NS
    for column in columns:
        is_far = is_fine = False
        for batches in zip(
            *(
                reader.iter_batches(batch_size=_BATCH_ROWS, columns=[column], use_threads=False)
                for reader in readers
            ),
            strict=True,
        ):
            for seconds, micros, nanos in _leaves(*(batch.column(column) for batch in batches)):
                far = _outside(seconds, NS)
                if _outside(seconds, US).any():
                    raise DataError(
                        f"column {column!r} of {name} holds a timestamp that microseconds since "
                        "1970 cannot count: leave it out with --columns, or write the file anew"
                    )
                # Where both wrap, they do so alike.
                fine = nanos - micros * 1000 != 0
                is_far, is_fine = is_far or bool(far.any()), is_fine or bool(fine.any())
        if is_far and is_fine:
            raise DataError(
                f"column {column!r} of {name} holds timestamps outside the years 1677 to 2262 and "
                "others finer than a microsecond, which no one unit holds: leave it out with "
                "--columns, or write the file anew in microseconds"
            )
        unit = US if is_far else unit
    return unit


def _outside(seconds: Int64Array, unit: str) -> npt.NDArray[np.bool_]:
    return (seconds > _MOST[unit]) | (seconds < -_MOST[unit])


def _leaves(*arrays: pa.Array) -> Iterator[tuple[Int64Array, ...]]:
    """Yield the values of every INT96 leaf, as the readers give them."""
    first, *_, last = arrays
    if pa.types.is_timestamp(first.type):
        # A timestamp that is no INT96 is the same to all readers.
        if first.type != last.type:
            yield tuple(_values(array) for array in arrays)
    elif pa.types.is_struct(first.type):
        for index in range(first.type.num_fields):
            yield from _leaves(*(array.field(index) for array in arrays))
    elif (
        pa.types.is_list(first.type)
        or pa.types.is_large_list(first.type)
        or pa.types.is_map(first.type)
        or pa.types.is_fixed_size_list(first.type)
    ):
        yield from _leaves(*(array.flatten() for array in arrays))


def _values(array: pa.Array) -> Int64Array:
    values: Int64Array = array.cast(pa.int64()).drop_null().to_numpy()
    return values
