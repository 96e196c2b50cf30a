"""Arrays of one file that belong together, and columns of many files as one."""

from __future__ import annotations

import dataclasses
import logging
import reprlib
from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from beam_tfrecord.batch import Reject
from beam_tfrecord.errors import DataError, SchemaConflict, UsageError
from beam_tfrecord.features.tensors import TensorType, dtype_name, join_dtypes, join_shapes
from beam_tfrecord.sources.base import InputFile, Unit
from beam_tfrecord.sources.numpy.columns import Column
from beam_tfrecord.sources.numpy.files import StoredArray
from beam_tfrecord.sources.numpy.memory import as_told, is_in_memory

Found = Sequence[tuple[InputFile, Mapping[str, Column]]]

# Rows without bytes, as of shape (n, 0), take no place in a file: its size does not bound them.
MAX_EMPTY_ROWS = 2**24
_NAMES_TOLD = 20
_LOGGER = logging.getLogger(__name__)


def common_rows(arrays: Sequence[StoredArray], file: InputFile) -> int:
    """Return the number of rows of arrays whose first axes count them.

    Raises:
        DataError: One has no axis, they differ, or more than `MAX_EMPTY_ROWS` have no bytes.
    """
    where, is_here = as_told(file).name, is_in_memory(file)
    leave_out = "out" if is_here else "out with --columns"
    whole = "example='array'" if is_here else "--example array"
    for array in arrays:
        if not array.shape:
            raise DataError(
                f"array {array.name!r} of {where} is a single value and has no rows: "
                f"pass {whole}, or leave it {leave_out}"
            )
    for array in arrays[1:]:
        if array.shape[0] != arrays[0].shape[0]:
            raise DataError(
                f"array {array.name!r} of {where} has {array.shape[0]:,} rows but "
                f"{arrays[0].name!r} has {arrays[0].shape[0]:,}: make them equal, leave one "
                f"{leave_out}, or pass {whole}"
            )
    rows = arrays[0].shape[0] if arrays else 0
    if rows > MAX_EMPTY_ROWS and not any(array.nbytes for array in arrays):
        raise DataError(
            f"array {arrays[0].name!r} of {where} has shape {reprlib.repr(arrays[0].shape)}, more "
            f"than {MAX_EMPTY_ROWS:,} rows without bytes: correct it, or pass {whole}"
        )
    return rows


def check_names(
    inside: Collection[str],
    files: Sequence[InputFile],
    *,
    columns: Sequence[str] | None,
    types: Mapping[str, str] | None,
) -> None:
    """Check that what is named is somewhere in the input.

    Args:
        inside: Names of the columns of all arrays, wanted or not.
        files: All files; their paths have columns too.
        columns: Names of the columns that are wanted.
        types: Types of raw bytes, by column, wanted or not.

    Raises:
        UsageError: A name is nowhere.
    """
    for name in types or ():
        if name not in inside:
            raise UsageError(
                f"a type is given for array {name!r} but the input has {_listed(inside)}: "
                "correct --types"
            )
    there = dict.fromkeys([*inside, *(name for file in files for name, _ in file.partitions)])
    for name in columns or ():
        if name not in there:
            raise UsageError(
                f"column {name!r} is not in the input: "
                f"correct --columns to some of {_listed(there)}"
            )


def _listed(names: Collection[str]) -> str:
    told = ", ".join(map(repr, list(names)[:_NAMES_TOLD]))
    return f"{told} and {len(names) - _NAMES_TOLD:,} more" if len(names) > _NAMES_TOLD else told


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
            as_told(file).name,
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
