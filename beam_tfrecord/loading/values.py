"""Converts columns of Arrow data to Python values and to NumPy arrays.

The arrays are in memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.arrow_to_tf import typed_scalar
from beam_tfrecord.features.arrow_types import item_and_shape
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.python_rows import python_values, times_of
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.tensors import TensorType, column_arrays, dtype_of
from beam_tfrecord.images.headers import STARTS, shown

# Arrow converts these types to arrays of Python objects itself, several times as fast.
_PLAIN_OBJECTS = (
    *(pa.types.is_string, pa.types.is_large_string),
    *(pa.types.is_binary, pa.types.is_large_binary),
)


class ImageBytes(bytes):
    """The bytes of an image file; it prints as its format and size."""

    def __repr__(self) -> str:
        return shown(self) or super().__repr__()


def printing_images(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row in which the bytes of images are `ImageBytes`."""
    return {
        name: ImageBytes(value) if isinstance(value, bytes) and value.startswith(STARTS) else value
        for name, value in row.items()
    }


def arrays_of(table: pa.Table | pa.RecordBatch, schema: Schema) -> dict[str, npt.NDArray[Any]]:
    """Return an array for each column; see `Dataset.numpy` for the types and errors."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    missing: dict[str, int | None] = {}
    for feature in schema.features:
        try:
            arrays[feature.name] = array_of_column(table.column(feature.name), feature)
        except MissingError as error:
            missing[feature.name] = error.count
    if missing:
        raise missing_error(
            missing,
            "missing values, which NumPy has no value for",
            "or choose other columns with load(columns=[…])",
        )
    return arrays


class MissingError(Exception):
    """A column has missing numbers, which no array holds."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count


def missing_error(counts: Mapping[str, int | None], why: str, cure: str) -> UsageError:
    """Return the error for missing numbers."""
    numbers = {name: "" if count is None else f"{count:,} " for name, count in counts.items()}
    columns = "missing values, ".join(f"column {name!r} has {n}" for name, n in numbers.items())
    defaults = ", ".join(f"{name!r}: …" for name in counts)
    return UsageError(f"{columns}{why}: pass defaults={{{defaults}}}, {cure}")


def with_defaults(schema: Schema, defaults: Mapping[str, Any]) -> Schema:
    """Return a schema in which `defaults` by column are the defaults."""
    if not isinstance(defaults, Mapping):
        raise UsageError(f"defaults is {defaults!r:.80}: pass a dict by column, as {{'x': 0}}")
    if unknown := [name for name in defaults if name not in schema]:
        raise UsageError(
            f"there is a default for {unknown[0]!r}, but the columns are {', '.join(schema.names)}"
        )
    features = {
        name: dataclasses.replace(schema[name], default=value) for name, value in defaults.items()
    }
    return schema.edit(**features)


def checked_categories(categories: Mapping[str, Any] | None) -> dict[str, tuple[str, ...]]:
    """Return the categories of text columns, by column, after a check."""
    if not isinstance(categories or {}, Mapping):
        raise UsageError(
            f"categories is {categories!r:.80}: pass a dict by column, as {{'city': ['Oslo']}}"
        )
    return {name: _words(name, words) for name, words in (categories or {}).items()}


def _words(name: str, words: Any) -> tuple[str, ...]:
    if isinstance(words, str) or not isinstance(words, Iterable):
        raise UsageError(f"categories of {name!r} is {words!r:.80}: pass a list of texts")
    known = tuple(words)
    if not known:
        raise UsageError(f"categories of {name!r} has no texts: pass at least one")
    if others := [word for word in known if not isinstance(word, str)]:
        raise UsageError(
            f"categories of {name!r} has {others[0]!r:.80}, which is no text: leave it out, and "
            "choose a column of text"
        )
    if len(set(known)) < len(known):
        twice = next(word for word in known if known.count(word) > 1)
        raise UsageError(f"categories of {name!r} has {twice!r:.80} twice: pass each text once")
    return known


def array_of_column(column: pa.Array | pa.ChunkedArray, feature: Feature) -> npt.NDArray[Any]:
    """Return a column as an array, in the NumPy dtype of the schema if there is one.

    The default of the feature replaces missing values.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if feature.default is not None and column.null_count:
        scalar = default_scalar(feature, column.type)
        if isinstance(column, pa.ExtensionArray):
            storage = column.storage.fill_null(scalar)
            column = pa.ExtensionArray.from_storage(column.type, storage)
        else:
            column = column.fill_null(scalar)
    if isinstance(column.type, TensorType):
        return column_arrays(column)
    if feature.dtype is not None:
        return _of_dtype(column, dtype_of(feature.dtype))
    return _of_arrow_type(column)


def default_scalar(feature: Feature, arrow: pa.DataType) -> pa.Scalar:
    """Return the default of a feature as a value of a column's storage.

    A single number stands for all numbers of a list of fixed size, or of a tensor.
    """
    value, (_, shape) = feature.default, item_and_shape(arrow)
    sizes = [size for size in shape if size is not None]
    if sizes and len(sizes) == len(shape) and np.ndim(value) == 0:
        value = np.full(sizes, value).tolist()
    if isinstance(arrow, TensorType) and arrow.is_dense:
        given = np.asarray(value)
        full = given.astype(arrow.dtype)
        is_shape = given.shape == shape
        if not is_shape or not np.array_equal(full, given, equal_nan=given.dtype.kind == "f"):
            raise UsageError(
                f"default {value!r:.80} of column {feature.name!r} is not a value of type {arrow}"
            )
        return pa.scalar(full.tobytes(), arrow.storage_type)
    scalar = typed_scalar(value, arrow, feature, "default")
    return scalar.value if isinstance(scalar, pa.ExtensionScalar) else scalar


def _of_arrow_type(column: pa.Array) -> npt.NDArray[Any]:
    """Return a column as an array in the dtype that its Arrow type implies."""
    if isinstance(column, pa.FixedShapeTensorArray):
        return _shaped(column.storage).reshape(len(column), *column.type.shape)
    if isinstance(column, pa.ExtensionArray):
        return _objects(column)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    arrow = column.type
    if is_number(arrow):
        return _numbers(column)
    if pa.types.is_temporal(arrow):
        return times_of(column)
    if pa.types.is_fixed_size_list(arrow) and is_number(arrow.value_type):
        return _shaped(column)
    is_list = pa.types.is_list(arrow) or pa.types.is_large_list(arrow)
    return _ragged(column) if is_list and is_number(arrow.value_type) else _objects(column)


def _of_dtype(column: pa.Array, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return a column as an array in a dtype that its Arrow type does not imply.

    Missing times are NaT. The array has Python objects if the dtype cannot hold all values: numbers
    are missing, text is longer than the dtype, or text ends with a zero character.
    """
    if dtype.kind in "Mm":
        missing = column.is_null().to_numpy(zero_copy_only=False)
        times: npt.NDArray[Any] = column.fill_null(0).to_numpy().astype(np.int64).view(dtype)
        times[missing] = np.array("NaT", dtype)
        return times
    if column.null_count:
        return _objects(column)
    if dtype.kind in "SU":
        values = column.to_pylist()
        # A user's function may have returned text that is too long or ends with zero characters.
        # NumPy would cut it.
        width = max(map(len, values), default=0) * np.dtype(f"{dtype.kind}1").itemsize
        is_cut = width > dtype.itemsize or any(value[-1:] in (b"\0", "\0") for value in values)
        return _objects(column) if is_cut else np.array(values, dtype)
    return np.asarray(column.to_numpy(zero_copy_only=False)).astype(dtype)


def is_number(arrow: pa.DataType) -> bool:
    """Return whether a type is one of integers, floats or booleans."""
    return bool(
        pa.types.is_integer(arrow) or pa.types.is_floating(arrow) or pa.types.is_boolean(arrow)
    )


def _numbers(column: pa.Array) -> npt.NDArray[Any]:
    if column.null_count:
        raise MissingError(column.null_count)
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _shaped(column: pa.FixedSizeListArray) -> npt.NDArray[Any]:
    if column.null_count:
        return _numbers(column)
    return _numbers(column.flatten()).reshape(len(column), column.type.list_size)


def _ragged(column: pa.ListArray) -> npt.NDArray[Any]:
    values = _numbers(column.values)
    offsets = column.offsets.to_numpy()
    out = np.empty(len(column), dtype=object)
    for row, valid in enumerate(column.is_valid().to_pylist()):
        out[row] = values[offsets[row] : offsets[row + 1]] if valid else None
    return out


def _objects(column: pa.Array) -> npt.NDArray[Any]:
    if any(is_type(column.type) for is_type in _PLAIN_OBJECTS):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    out = np.empty(len(column), dtype=object)
    # Assigned one by one: NumPy would turn lists of equal length into another dimension.
    for row, value in enumerate(python_values(column)):
        out[row] = value
    return out


def rebatch(batches: Iterable[pa.RecordBatch], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `batches` in batches of exactly `batch_rows`, except for the last."""
    pending: list[pa.RecordBatch] = []
    pending_rows = 0
    for batch in batches:
        start = 0
        while pending_rows + batch.num_rows - start >= batch_rows:
            stop = start + batch_rows - pending_rows
            yield _joined([*pending, batch.slice(start, stop - start)])
            pending, pending_rows, start = [], 0, stop
        if start < batch.num_rows:
            pending.append(batch.slice(start))
            pending_rows += batch.num_rows - start
    if pending:
        yield _joined(pending)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
