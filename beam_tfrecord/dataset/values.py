"""Decoded columns as Python values and as NumPy arrays."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.lowering import typed_scalar
from beam_tfrecord.features.schema import Feature, Schema
from beam_tfrecord.features.tensors import column_arrays, dtype_of
from beam_tfrecord.features.type_kinds import is_numpy_tensor

if TYPE_CHECKING:
    from beam_tfrecord.dataset.load import Dataset

# Arrow makes Python objects of these by itself, several times as fast.
_PLAIN_OBJECTS = (
    *(pa.types.is_string, pa.types.is_large_string),
    *(pa.types.is_binary, pa.types.is_large_binary),
)


def python_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows of a batch as dicts of Python values."""
    columns = [python_values(column) for column in batch.columns]
    names = batch.schema.names
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def python_values(column: pa.Array) -> list[Any]:
    """Return a column's values; a missing one is None.

    Times that Python's own classes cannot hold (of nanoseconds, or beyond year 9999) become
    NumPy's datetime64 and timedelta64, the whole column alike.
    """
    if pa.types.is_temporal(column.type):
        if getattr(column.type, "unit", "") == "ns":
            return _numpy_times(column)
        try:
            return list(column.to_pylist())
        except (ValueError, OverflowError):
            return _numpy_times(column)
    return list(column.to_pylist())


def _numpy_times(column: pa.Array) -> list[Any]:
    return [None if np.isnat(value) else value for value in _times(column)]


def arrays_of(
    table: pa.Table | pa.RecordBatch, schema: Schema, defaults: Mapping[str, Any]
) -> dict[str, npt.NDArray[Any]]:
    """Return a column's values as an array each; see `Dataset.numpy` for the types.

    Raises:
        UsageError: Numbers are missing without a default, or `defaults` names no column.
    """
    check_defaults(schema, defaults)
    return {
        feature.name: _array(_one_array(table.column(feature.name)), feature, defaults)
        for feature in schema.features
    }


def check_defaults(schema: Schema, defaults: Mapping[str, Any]) -> None:
    """Refuse a default for a column that is not there.

    Raises:
        UsageError: There is one.
    """
    if unknown := [name for name in defaults if name not in schema]:
        raise UsageError(
            f"there is a default for {unknown[0]!r}, but the columns are {', '.join(schema.names)}"
        )


def _one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    # Extension types are combined by their storage, which every version of Arrow can do.
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _array(column: pa.Array, feature: Feature, defaults: Mapping[str, Any]) -> npt.NDArray[Any]:
    default = defaults.get(feature.name, feature.default)
    if default is not None and column.null_count:
        column = column.fill_null(typed_scalar(default, column.type, feature, "default"))
    if is_numpy_tensor(column.type):
        return column_arrays(column)
    if feature.dtype is not None:
        return _of_dtype(column, dtype_of(feature.dtype))
    if isinstance(column, pa.FixedShapeTensorArray):
        return _shaped(column.storage, feature.name).reshape(len(column), *column.type.shape)
    if isinstance(column, pa.ExtensionArray):
        return _objects(column)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    arrow = column.type
    if pa.types.is_fixed_size_list(arrow) and _is_number(arrow.value_type):
        return _shaped(column, feature.name)
    if _is_number(arrow):
        return _numbers(column, feature.name)
    if pa.types.is_temporal(arrow):
        return _times(column)
    if _is_list(arrow) and _is_number(arrow.value_type):
        return _ragged(column)
    return _objects(column)


def _of_dtype(column: pa.Array, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return values in a dtype that the Arrow type does not tell; missing times are NaT."""
    if dtype.kind in "Mm":
        missing = column.is_null().to_numpy(zero_copy_only=False)
        times: npt.NDArray[Any] = column.fill_null(0).to_numpy().astype(np.int64).view(dtype)
        times[missing] = np.array("NaT", dtype)
        return times
    if column.null_count:
        return _objects(column)
    if dtype.kind in "SU":
        values = column.to_pylist()
        # A function on the rows may have made text that the dtype would cut.
        width = max(map(len, values), default=0) * np.dtype(f"{dtype.kind}1").itemsize
        is_cut = width > dtype.itemsize or any(value[-1:] in (b"\0", "\0") for value in values)
        return _objects(column) if is_cut else np.array(values, dtype)
    return np.asarray(column.to_numpy(zero_copy_only=False)).astype(dtype)


def _is_number(arrow: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(arrow) or pa.types.is_floating(arrow) or pa.types.is_boolean(arrow)
    )


def _is_list(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_list(arrow) or pa.types.is_large_list(arrow))


def _numbers(column: pa.Array, name: str) -> npt.NDArray[Any]:
    if column.null_count:
        raise UsageError(
            f"column {name!r} has {column.null_count:,} missing values, which NumPy has no value "
            f"for: pass defaults={{{name!r}: …}}"
        )
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _shaped(column: pa.FixedSizeListArray, name: str) -> npt.NDArray[Any]:
    if column.null_count:
        return _numbers(column, name)
    return _numbers(column.flatten(), name).reshape(len(column), column.type.list_size)


def _times(column: pa.Array) -> npt.NDArray[Any]:
    """Return times as datetime64 or timedelta64 in the column's own unit, missing ones NaT.

    A time of day is the time since midnight.
    """
    arrow = column.type
    days = pa.types.is_date32(arrow)
    unit = "D" if days else "ms" if pa.types.is_date64(arrow) else arrow.unit
    spans = pa.types.is_duration(arrow) or pa.types.is_time(arrow)
    stored = pa.int32() if arrow.bit_width == 32 else pa.int64()
    values = column.view(stored).fill_null(0).to_numpy().astype(np.int64)
    out: npt.NDArray[Any] = values.view(f"{'m8' if spans else 'M8'}[{unit}]")
    if column.null_count:
        out[column.is_null().to_numpy(zero_copy_only=False)] = "NaT"
    return out


def _ragged(column: pa.ListArray) -> npt.NDArray[Any]:
    values = _numbers(column.values, "")
    offsets = column.offsets.to_numpy()
    out = np.empty(len(column), dtype=object)
    for row, valid in enumerate(column.is_valid().to_pylist()):
        out[row] = values[offsets[row] : offsets[row + 1]] if valid else None
    return out


def _objects(column: pa.Array) -> npt.NDArray[Any]:
    if any(is_type(column.type) for is_type in _PLAIN_OBJECTS):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    out = np.empty(len(column), dtype=object)
    # One by one: NumPy would take lists of equal length for another dimension.
    for row, value in enumerate(python_values(column)):
        out[row] = value
    return out


def rebatch(batches: Iterable[pa.RecordBatch], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `batches` in batches of exactly `batch_rows`, but for the last."""
    held: list[pa.RecordBatch] = []
    held_rows = 0
    for batch in batches:
        start = 0
        while held_rows + batch.num_rows - start >= batch_rows:
            stop = start + batch_rows - held_rows
            yield _joined([*held, batch.slice(start, stop - start)])
            held, held_rows, start = [], 0, stop
        if start < batch.num_rows:
            held.append(batch.slice(start))
            held_rows += batch.num_rows - start
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


# Written last: without it the files are not whole.
_MARK = "memmap.json"
_BATCH_ROWS = 65_536


def memory_mapped(
    dataset: Dataset, directory: str | os.PathLike[str], defaults: Mapping[str, Any]
) -> dict[str, npt.NDArray[Any]]:
    """Return every column as a read-only memory-mapped array, shape `[rows, …]`.

    Args:
        dataset: From `load`.
        directory: Where the files are, or will be: ``<column number>.npy``.
        defaults: What replaces missing values, by column.

    Raises:
        UsageError: Values of a column have no fixed width, or are missing without a default.
        DataError: The dataset was replaced, or another process writes other rows there.
    """
    path = os.fspath(directory)
    check_defaults(dataset.schema, defaults)
    wanted = {
        "rows": len(dataset),
        "content": dataset.content,
        "columns": list(dataset.schema.names),
        "defaults": {name: repr(value) for name, value in sorted(defaults.items())},
    }
    if (arrays := _mapped(path, wanted)) is None:
        os.makedirs(path, exist_ok=True)
        _write_columns(dataset, path, defaults, wanted)
        arrays = _mapped(path, wanted)
    if arrays is None:
        raise DataError(
            f"{path!r} was changed while it was written: give each dataset a directory of its own"
        )
    return arrays


def _mapped(path: str, wanted: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]] | None:
    """Return the columns; None where the files are not there, not whole, or of other rows."""
    try:
        arrays = {
            name: np.load(_file(path, number), mmap_mode="r")
            for number, name in enumerate(wanted["columns"])
        }
        # Looked at last: what is mapped by now stays as it is, whatever another process writes.
        with open(os.path.join(path, _MARK), encoding="utf-8") as file:
            is_same = json.load(file) == {**wanted, "files": _file_states(path, len(arrays))}
    except (OSError, ValueError):
        return None
    return arrays if is_same else None


def _file(path: str, number: int) -> str:
    return os.path.join(path, f"{number}.npy")


def _file_states(path: str, count: int) -> list[list[int]]:
    """Return size and modification time in ns of every column's file."""
    states = (os.stat(_file(path, number)) for number in range(count))
    return [[state.st_size, state.st_mtime_ns] for state in states]


def _write_columns(
    dataset: Dataset, path: str, defaults: Mapping[str, Any], wanted: Mapping[str, Any]
) -> None:
    # Renamed when they are whole: others may have the files mapped that these replace.
    with tempfile.TemporaryDirectory(dir=path, prefix=".part-") as temporary:
        _fill(dataset, temporary, defaults)
        mark = os.path.join(path, _MARK)
        with contextlib.suppress(FileNotFoundError):
            os.remove(mark)
        for number in range(len(wanted["columns"])):
            os.replace(_file(temporary, number), _file(path, number))
        text = json.dumps({**wanted, "files": _file_states(path, len(wanted["columns"]))})
        written = os.path.join(temporary, _MARK)
        with open(written, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(written, mark)


def _fill(dataset: Dataset, path: str, defaults: Mapping[str, Any]) -> None:
    rows, at = len(dataset), 0
    files: dict[str, npt.NDArray[Any]] = {}
    for batch in dataset.batches(_BATCH_ROWS):
        arrays = arrays_of(batch, dataset.schema, defaults)
        for number, (name, values) in enumerate(arrays.items()):
            if values.dtype == object:
                raise UsageError(
                    f"values of column {name!r} have no fixed width: leave it out with "
                    "load(columns=[…])"
                )
            if name not in files:
                shape = (rows, *values.shape[1:])
                files[name] = np.lib.format.open_memmap(
                    _file(path, number), "w+", values.dtype, shape
                )
            files[name][at : at + len(values)] = values
        at += batch.num_rows
    for values in files.values():
        values.flush()  # type: ignore[attr-defined]
    if not files:
        # No row tells a type; an empty array cannot be mapped either.
        for number, values in enumerate(dataset.numpy(defaults=defaults).values()):
            np.save(_file(path, number), values)


# Rows that are mixed with each other: about this much of records.
_MIXED_BYTES = 64 * 10**6


def dict_batches(
    dataset: Dataset,
    batch_size: int | None,
    defaults: Mapping[str, Any],
    *,
    mixed_rows: int = 0,
    order: np.random.Generator | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield batches as dicts of writable arrays and, of objects, lists; rows without a size.

    Whether a column comes as an array or as a list follows from the schema, never from a batch.

    Args:
        dataset: From `load`.
        batch_size: Rows a batch; None: single rows.
        defaults: What replaces missing values, by column.
        mixed_rows: Rows that are mixed with each other.
        order: Mixes shards and rows; None: they come in the order of the dataset.

    Raises:
        UsageError: A column may lack numbers and has no default.
    """
    lists = list_columns(dataset.schema, defaults)
    batches = dataset.batches() if order is None else _mixed(dataset, mixed_rows, order)
    for batch in batches if batch_size is None else rebatch(batches, batch_size):
        arrays = arrays_of(batch, dataset.schema, defaults)
        columns = {
            # Arrow's memory is read-only, which tensors over it would not know.
            name: _list(values) if name in lists or values.dtype.kind in "OSU" else values.copy()
            for name, values in arrays.items()
        }
        if batch_size is not None:
            yield columns
            continue
        for values in zip(*columns.values(), strict=True):
            yield dict(zip(columns, values, strict=True))


def list_columns(schema: Schema, defaults: Mapping[str, Any]) -> frozenset[str]:
    """Return the columns that are lists in every batch, since they are where a value is missing.

    Raises:
        UsageError: A column may lack numbers and has no default, or `defaults` names no column.
    """
    check_defaults(schema, defaults)
    lists = set()
    for feature in schema.features:
        if not feature.nullable:
            continue
        alone = schema.select([feature.name])
        given = {name: value for name, value in defaults.items() if name == feature.name}
        missing = pa.table({feature.name: pa.nulls(1, feature.type)})
        try:
            (values,) = arrays_of(missing, alone, given).values()
        except UsageError:
            count = f"{feature.observed.missing:,} " if feature.observed else ""
            raise UsageError(
                f"column {feature.name!r} has {count}missing values, which no tensor holds: pass "
                f"defaults={{{feature.name!r}: …}}, or leave it out with load(columns=[…])"
            ) from None
        if values.dtype == object:
            lists.add(feature.name)
    return frozenset(lists)


def rows_to_mix(dataset: Dataset, shuffle: bool | int) -> int:
    """Return the number of rows that are mixed with each other, at least 1."""
    if shuffle is not True:
        return max(1, int(shuffle))
    nbytes = sum(shard.bytes for shard in dataset.shards)
    return max(1, _MIXED_BYTES * len(dataset) // max(1, nbytes))


def _mixed(dataset: Dataset, rows: int, order: np.random.Generator) -> Iterator[pa.RecordBatch]:
    count = len(dataset.shards)
    shards = (dataset.part(int(index), count) for index in order.permutation(count))
    every = (batch for shard in shards for batch in shard.batches())
    for batch in rebatch(every, rows):
        yield batch.take(pa.array(order.permutation(batch.num_rows)))


def _list(values: npt.NDArray[Any]) -> list[Any]:
    if values.dtype != object and values.ndim == 1:
        return list(values.tolist())
    # Of a matrix the first axis alone: each row stays an array.
    out = list(values)
    if isinstance(next((value for value in out if value is not None), None), np.ndarray):
        out = [None if value is None else value.copy() for value in out]
    return out
