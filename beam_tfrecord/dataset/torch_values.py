"""Converts Arrow rows to PyTorch tensors; importing this module imports PyTorch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch

from beam_tfrecord.dataset.values import MissingError, array_of_column, check_defaults, is_number
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.arrow_to_tf import typed_scalar
from beam_tfrecord.features.arrow_types import is_text
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.tensors import TensorType, is_small_float

Array = npt.NDArray[Any]

MASK = "mask"
_MASK_SUFFIX = "_mask"
# Kinds of NumPy's dtypes that have a tensor, and of times, which become int64.
_NUMBERS, _TIMES = "biufc", "Mm"
# Single rows are views of tensors of so many rows.
_ROWS_AT_ONCE = 1024


@dataclasses.dataclass(frozen=True)
class _Column:
    """A column whose values are tensors of one shape."""

    feature: Feature
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fill: Any = None

    def write(self, column: pa.Array, out: Array) -> None:
        """Write the values of a column to an array of shape ``[rows, *shape]``."""
        if not column.null_count:
            out[...] = _plain(_array(column, self.feature, {}))
            return
        present = column.is_valid().to_numpy(zero_copy_only=False)
        out[present] = _plain(_array(column.drop_null(), self.feature, {}))
        out[~present] = self.fill


class Columns:
    """Converts rows to tensors and lists; the schema decides which, so all batches are alike."""

    def __init__(
        self,
        schema: Schema,
        arrow: pa.Schema,
        *,
        dtype: torch.dtype | None,
        class_ids: Sequence[str] = (),
        categories: Mapping[str, Sequence[str]],
        defaults: Mapping[str, Any],
        nulls: float | str | None = None,
    ) -> None:
        check_defaults(schema, defaults)
        self._encoder = _TextEncoder(categories)
        schema, arrow, defaults = self._encoder.encoded_types(schema, arrow, defaults)
        if isinstance(nulls, str) and nulls != MASK:
            raise UsageError(f"nulls {nulls!r} is neither a number nor {MASK!r}")
        self._schema, self._dtype, self._defaults = schema, dtype, dict(defaults)
        self._lists: list[Feature] = []
        self._masked: list[str] = []
        columns: list[_Column] = []
        unfilled = []
        for feature in schema.features:
            typed = arrow.field(feature.name).type
            empty = _array(pa.array([], typed), feature, {})
            column = _column_of(feature, empty, dtype, class_ids)
            if column is None:
                self._lists.append(feature)
                continue
            # A number of a category would make missing text one of them.
            is_category = nulls in range(self._encoder.count(feature.name))
            columns.append(self._filled(column, typed, None if is_category else nulls))
            if feature.nullable and columns[-1].fill is None:
                unfilled.append(feature)
        if unfilled:
            raise UsageError(_unfilled_text(unfilled))
        self._check_masks()
        # Columns of one dtype and shape are rows of one tensor: it is cut once for all of them.
        self._blocks: dict[tuple[np.dtype[Any], tuple[int, ...]], list[_Column]] = {}
        for column in columns:
            self._blocks.setdefault((column.dtype, column.shape), []).append(column)

    def _filled(self, column: _Column, arrow: pa.DataType, nulls: float | str | None) -> _Column:
        """Return a column with the replacement of its missing values, if it has one."""
        feature = column.feature
        default = self._defaults.get(feature.name, feature.default)
        if feature.nullable and default is None:
            if nulls == MASK:
                self._masked.append(feature.name)
            default = 0 if nulls == MASK else nulls
        if default is not None:
            return dataclasses.replace(column, fill=_fill(column, default, arrow))
        is_time = _array(pa.array([], arrow), feature, {}).dtype.kind in _TIMES
        # The integer that NumPy's NaT is.
        return dataclasses.replace(column, fill=np.iinfo(np.int64).min) if is_time else column

    def _check_masks(self) -> None:
        for name in self._masked:
            if name + _MASK_SUFFIX in self._schema:
                raise UsageError(
                    f"the mask of {name!r} has the name of column {name + _MASK_SUFFIX!r}: choose "
                    "other columns, or pass defaults="
                )

    def batches(
        self, rows: pa.RecordBatch, places: Iterable[tuple[int, int]]
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows from a first to a last one as tensors and lists by column."""
        rows = self._encoder.encode(rows)
        blocks = self._tensors(rows)
        for first, last in places:
            found: dict[str, Any] = {}
            for names, block in blocks:
                part = block[:, first:last]
                # A batch in memory of its own does not keep the others in memory.
                own = part if last - first == rows.num_rows else part.clone()
                found.update(zip(names, own.unbind(), strict=True))
            yield self._ordered(found, rows.slice(first, last - first))

    def rows(
        self, rows: pa.RecordBatch, places: Iterable[tuple[int, int]]
    ) -> Iterator[dict[str, Any]]:
        """Yield single rows as tensors without axes and Python values by column."""
        for start in range(0, rows.num_rows, _ROWS_AT_ONCE):
            some = rows.slice(start, _ROWS_AT_ONCE)
            for columns in self.batches(some, [(0, some.num_rows)]):
                split = [
                    value.unbind() if isinstance(value, torch.Tensor) else value
                    for value in columns.values()
                ]
                for row in zip(*split, strict=True):
                    yield dict(zip(columns, row, strict=True))

    def _tensors(self, rows: pa.RecordBatch) -> list[tuple[list[str], torch.Tensor]]:
        """Return names and values of all columns of one dtype and shape, ``[columns, rows, …]``."""
        found = []
        for (dtype, shape), columns in self._blocks.items():
            block = np.empty((len(columns), rows.num_rows, *shape), dtype)
            for column, out in zip(columns, block, strict=True):
                column.write(rows.column(column.feature.name), out)
            names = [column.feature.name for column in columns]
            found.append((names, self._float(torch.from_numpy(block))))
        if self._masked:
            masks = np.stack(
                [
                    rows.column(name).is_valid().to_numpy(zero_copy_only=False)
                    for name in self._masked
                ]
            )
            names = [name + _MASK_SUFFIX for name in self._masked]
            found.append((names, torch.from_numpy(masks)))
        return found

    def _ordered(self, found: dict[str, Any], rows: pa.RecordBatch) -> dict[str, Any]:
        """Add the columns that are lists, in the order of the schema; masks come last."""
        for feature in self._lists:
            found[feature.name] = self._list(rows.column(feature.name), feature)
        names = [*self._schema.names, *(name + _MASK_SUFFIX for name in self._masked)]
        return {name: found[name] for name in names}

    def _list(self, column: pa.Array, feature: Feature) -> list[Any]:
        if isinstance(column.type, TensorType):
            return [self._tensor(value) for value in _array(column, feature, self._defaults)]
        if _is_list_of_numbers(column.type) and feature.dtype is None:
            return self._tensors_of_lists(column, feature)
        return list(_array(column, feature, self._defaults).tolist())

    def _tensors_of_lists(self, column: pa.Array, feature: Feature) -> list[Any]:
        """Return a tensor for each list; None for one that is missing."""
        default = self._defaults.get(feature.name, feature.default)
        if column.null_count and default is not None:
            column = column.fill_null(typed_scalar(default, column.type, feature, "default"))
        lengths = column.value_lengths().fill_null(0).to_pylist()
        values = self._tensor(_array(column.flatten(), Feature(feature.name), {}))
        tensors = values.split(lengths)
        if not column.null_count:
            return list(tensors)
        present = column.is_valid().to_pylist()
        return [one if valid else None for one, valid in zip(tensors, present, strict=True)]

    def _tensor(self, value: Any) -> Any:
        """Return an array as a tensor if it has numbers, and otherwise a copy; None stays None."""
        if value is None:
            return None
        plain = _plain(value).copy()
        is_number = plain.dtype.kind in _NUMBERS
        return self._float(torch.from_numpy(plain)) if is_number else plain

    def _float(self, tensor: torch.Tensor) -> torch.Tensor:
        is_other = self._dtype is not None and tensor.is_floating_point()
        return tensor.to(self._dtype) if is_other else tensor


class _TextEncoder:
    """Replaces texts by the numbers of their categories."""

    def __init__(self, categories: Mapping[str, Sequence[str]]) -> None:
        self._words = {
            name: pa.array(list(words), pa.string()) for name, words in categories.items()
        }

    def encoded_types(
        self, schema: Schema, arrow: pa.Schema, defaults: Mapping[str, Any]
    ) -> tuple[Schema, pa.Schema, dict[str, Any]]:
        """Return columns, types and replacements of missing values after `encode`."""
        encoded = dict(defaults)
        for name, words in self._words.items():
            if name not in schema or not is_text(arrow.field(name).type):
                raise UsageError(
                    f"categories has {name!r}, which is no text column that is read: leave it "
                    "out, or add it to columns"
                )
            default = encoded.get(name, schema[name].default)
            if default is not None:
                if default not in (known := words.to_pylist()):
                    raise UsageError(
                        f"default {default!r} of {name!r} is not one of its categories"
                    )
                encoded[name] = known.index(default)
            number = Feature(
                name, pa.int64(), schema[name].nullable, observed=schema[name].observed
            )
            schema = schema.edit(**{name: number})
            arrow = arrow.set(arrow.get_field_index(name), pa.field(name, pa.int64()))
        return schema, arrow, encoded

    def count(self, name: str) -> int:
        """Return the number of categories of a column; 0 if it has none."""
        return len(self._words.get(name, ()))

    def encode(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with numbers in place of texts; missing ones stay missing."""
        for name, words in self._words.items():
            column = rows.column(name)
            numbers = pc.index_in(column, value_set=words.cast(column.type)).cast(pa.int64())
            if numbers.null_count > column.null_count:
                other = column.filter(pc.and_(column.is_valid(), numbers.is_null()))[0].as_py()
                raise DataError(
                    f"column {name!r} has {other!r:.80}, which is not one of its categories"
                )
            rows = rows.set_column(rows.schema.get_field_index(name), name, numbers)
        return rows


def _array(column: pa.Array, feature: Feature, defaults: Mapping[str, Any]) -> Array:
    try:
        return array_of_column(column, feature, defaults)
    except MissingError:
        raise UsageError(
            f"a list of column {feature.name!r} has missing values, which no tensor holds: choose "
            "other columns, or write the dataset with a fill"
        ) from None


def _is_list_of_numbers(arrow: pa.DataType) -> bool:
    is_list = pa.types.is_list(arrow) or pa.types.is_large_list(arrow)
    return is_list and is_number(arrow.value_type)


def _plain(values: Array) -> Array:
    """Return times as int64, and floats that NumPy itself does not have as float32."""
    if values.dtype.kind in _TIMES:
        return values.view(np.int64)
    return values.astype(np.float32) if is_small_float(values.dtype) else values


def _column_of(
    feature: Feature, empty: Array, dtype: torch.dtype | None, class_ids: Sequence[str]
) -> _Column | None:
    """Return how a column becomes a tensor; None if it is a list in every batch."""
    own = _plain(empty).dtype
    if own.kind not in _NUMBERS:
        return None
    if own.kind in "iu" and feature.name in class_ids:
        own = np.dtype(np.int64)
    if own.kind == "f" and dtype in _NUMPY_FLOATS:
        own = np.dtype(_NUMPY_FLOATS[dtype])
    return _Column(feature, own, empty.shape[1:])


# Values are converted to these while they are copied, without a second copy.
_NUMPY_FLOATS = {torch.float16: np.float16, torch.float32: np.float32, torch.float64: np.float64}


def _fill(column: _Column, default: Any, arrow: pa.DataType) -> Any:
    """Return a replacement of missing values as an array or scalar."""
    feature = column.feature
    if not column.shape and not isinstance(arrow, pa.BaseExtensionType):
        filled = pa.nulls(1, arrow).fill_null(typed_scalar(default, arrow, feature, "default"))
        return _plain(_array(filled, feature, {}))[0]
    try:
        value = np.broadcast_to(np.asarray(default), column.shape)
        filled = value.astype(column.dtype)
    except (TypeError, ValueError):
        filled = None
    if filled is None or not np.array_equal(filled, value, equal_nan=column.dtype.kind in "fc"):
        raise UsageError(
            f"default {default!r} of column {feature.name!r} is not a value of type {arrow}"
        )
    return filled


def _unfilled_text(features: Sequence[Feature]) -> str:
    """Return the message for columns whose missing numbers have no replacement."""
    counts = [f"{of.observed.missing:,} " if of.observed else "" for of in features]
    columns = "missing values, ".join(
        f"column {of.name!r} has {count}" for of, count in zip(features, counts, strict=True)
    )
    defaults = ", ".join(f"{of.name!r}: …" for of in features)
    return (
        f"{columns}missing values, which no tensor holds: pass defaults={{{defaults}}}, "
        "nulls=<number> or nulls='mask', or choose other columns"
    )
