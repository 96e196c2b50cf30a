"""Arrays of one file that belong together, and columns of many files as one."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence

import pyarrow as pa

from beam_tfrecord.batch import Reject
from beam_tfrecord.contract.tensors import TensorType, dtype_name, join_dtypes, join_shapes
from beam_tfrecord.errors import DataError, SchemaConflict
from beam_tfrecord.sources.base import InputFile, Unit
from beam_tfrecord.sources.numpy.columns import Column
from beam_tfrecord.sources.numpy.files import StoredArray

Found = Sequence[tuple[InputFile, Mapping[str, Column]]]

_LOGGER = logging.getLogger(__name__)


def common_rows(arrays: Sequence[StoredArray], file: InputFile) -> int:
    """Return the number of rows of arrays whose first axes count them.

    Raises:
        DataError: One has no axis, or they differ.
    """
    for array in arrays:
        if not array.shape:
            raise DataError(
                f"array {array.name!r} of {file.name} is a single value and has no rows: "
                "pass --example array, or leave it out with --columns"
            )
    for array in arrays[1:]:
        if array.shape[0] != arrays[0].shape[0]:
            raise DataError(
                f"array {array.name!r} of {file.name} has {array.shape[0]:,} rows but "
                f"{arrays[0].name!r} has {arrays[0].shape[0]:,}: make them equal, leave one out "
                "with --columns, or pass --example array"
            )
    return arrays[0].shape[0] if arrays else 0


def joined_column(name: str, found: Found, *, union: bool, widen: bool = True) -> Column:
    """Return a column of many files: its shape is open where they differ.

    Args:
        name: Its name.
        found: The columns of each file, by name.
        union: Let a file lack it.
        widen: Let text have several widths; the widest is the column's.

    Raises:
        SchemaConflict: It has two dtypes, or a file lacks it and `union` is not asked for.
    """
    having = [(file, columns[name]) for file, columns in found if name in columns]
    if len(having) < len(found) and not union:
        lacking = next(file for file, columns in found if name not in columns)
        raise SchemaConflict(
            f"column {name!r} is in {having[0][0].name} but not in {lacking.name}: "
            "pass --union to fill it with nulls"
        )
    first, joined = having[0]
    for file, column in having[1:]:
        dtype = join_dtypes(joined.dtype, column.dtype)
        if dtype is None or not (widen or column.dtype == joined.dtype):
            raise SchemaConflict(
                f"column {name!r} is {dtype_name(column.dtype)} in {file.name} but "
                f"{dtype_name(joined.dtype)} in {first.name}: save both with one dtype"
            )
        shape = join_shapes(joined.shape, column.shape)
        joined = dataclasses.replace(joined, dtype=dtype, shape=shape)
    return joined


def note_big_endian(found: Found) -> None:
    """Tell once that files have another byte order than the dataset."""
    swapped = [
        (file, column)
        for file, columns in found
        for column in columns.values()
        if column.is_swapped
    ]
    if swapped:
        file, column = swapped[0]
        more = f" and {len(swapped) - 1:,} more" if len(swapped) > 1 else ""
        _LOGGER.warning(
            "array %r of %s%s is big-endian: it is stored little-endian, with the same values",
            column.name,
            file.name,
            more,
        )


def holds(wanted: pa.DataType, column: Column, own: pa.DataType) -> bool:
    """Tell whether the values of a column, by itself of type `own`, are of the type `wanted`."""
    if not isinstance(wanted, TensorType):
        return bool(wanted == own)
    return (
        join_dtypes(wanted.dtype, column.dtype) == wanted.dtype
        and join_shapes(wanted.shape, column.shape) == wanted.shape
    )


def too_large(unit: Unit, row: int, row_bytes: int) -> Reject:
    """Return the reject of a row that no example can hold."""
    message = (
        f"row {row} of {unit.name} has {row_bytes:,} bytes, more than an example can hold: "
        "cut the array into smaller rows"
    )
    return Reject(unit.name, row, "", "too-large", message)
