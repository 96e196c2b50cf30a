"""`Summary`: statistics of rows that merge to the same result in any order."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord import native
from beam_tfrecord.features.arrow_arrays import bare_array, missing_of
from beam_tfrecord.features.arrow_types import is_binary, is_list, is_temporal, is_text
from beam_tfrecord.features.tensors import TensorType, column_arrays
from beam_tfrecord.format.tally import DuplicateCount
from beam_tfrecord.images import ImageError
from beam_tfrecord.images.headers import STARTS, describe
from beam_tfrecord.native.kernel_types import UInt64Array
from beam_tfrecord.stats.distinct import Distinct, mix
from beam_tfrecord.stats.numeric_summary import Numbers

_KEPT_BYTES = 200
_UNREADABLE = "unreadable"
_FACTOR = np.uint64(0x9E3779B97F4A7C15)

_T = TypeVar("_T", "Texts", "Images", Numbers)


@dataclasses.dataclass(frozen=True, eq=False)
class Texts:
    """A summary of texts or bytes: their different values, cut to 200 bytes, and their lengths.

    The length of a text is in characters, of bytes in bytes.
    """

    distinct: Distinct
    length: Numbers

    @classmethod
    def of(cls, values: pa.Array, known: Texts | None = None) -> Texts:
        """Summarize an array without nulls."""
        sizes = pc.utf8_length(values) if is_text(values.type) else pc.binary_length(values)
        length = Numbers.of(sizes.to_numpy(), None if known is None else known.length)
        values, seen = values.cast(pa.large_binary()), None if known is None else known.distinct
        if seen is not None and not seen.is_complete:  # few are left, and need not be counted all
            values = values.filter(pa.array(_hashes(values) <= np.uint64(seen.limit)))
        counted = values.value_counts()
        different, counts = counted.field(0), counted.field(1).to_numpy()
        distinct = Distinct.of(_hashes(different), counts, seen, different)
        short = pc.binary_slice(distinct.values, 0, _KEPT_BYTES)
        return cls(dataclasses.replace(distinct, values=short), length)

    def merge(self, other: Texts) -> Texts:
        """Return the summary of the values of both."""
        return Texts(self.distinct.merge(other.distinct), self.length.merge(other.length))

    def top(self) -> list[tuple[bytes, int]]:
        """Return the kept values with their counts, the most frequent first."""
        assert self.distinct.values is not None
        pairs = zip(self.distinct.values.to_pylist(), self.distinct.counts.tolist(), strict=True)
        return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))


@dataclasses.dataclass(frozen=True, eq=False)
class Images:
    """A summary of the values that are image files, by their headers."""

    formats: Mapping[str, int]
    width: Numbers
    height: Numbers

    @classmethod
    def of(cls, values: pa.Array, known: Images | None = None) -> Images:
        """Summarize the images among the values of an array."""
        formats: Counter[str] = Counter()
        sizes = []
        starts = pc.binary_slice(values.cast(pa.large_binary()), 0, 4).to_pylist()
        for at, start in enumerate(starts):
            if not start.startswith(STARTS):
                continue
            try:
                header = describe(values[at].as_py(), check_end=False)
            except ImageError:
                formats[_UNREADABLE] += 1
                continue
            formats[header.format] += 1
            sizes.append((header.width, header.height))
        width, height = np.array(sizes, np.int64).reshape(-1, 2).T
        return cls(
            dict(formats),
            Numbers.of(width, None if known is None else known.width),
            Numbers.of(height, None if known is None else known.height),
        )

    def merge(self, other: Images) -> Images:
        """Return the summary of the images of both."""
        formats = Counter(self.formats) + Counter(other.formats)
        return Images(dict(formats), self.width.merge(other.width), self.height.merge(other.height))


@dataclasses.dataclass(frozen=True, eq=False)
class ColumnSummary:
    """A summary of one column. Values of lists and tensors count one by one; nulls do not."""

    arrow: pa.DataType
    nulls: int = 0
    numbers: Numbers | None = None
    texts: Texts | None = None
    images: Images | None = None
    list_length: Numbers | None = None

    @classmethod
    def of(cls, column: pa.Array, known: ColumnSummary | None = None) -> ColumnSummary:
        """Summarize a part of a column."""
        known = known or cls(column.type)
        present = bare_array(column)
        made = cls(column.type, column.null_count)
        if isinstance(column.type, (TensorType, pa.FixedShapeTensorType)):
            return dataclasses.replace(
                made, numbers=Numbers.of(_tensor_values(present.drop_null()), known.numbers)
            )
        if is_list(present.type):
            sizes = pc.list_value_length(present).drop_null().to_numpy().astype(np.int64)
            made = dataclasses.replace(made, list_length=Numbers.of(sizes, known.list_length))
            while is_list(present.type):
                present = bare_array(present.flatten())
        if is_text(present.type) or is_binary(present.type):
            # Arrow cannot filter views.
            plain = pa.large_string() if is_text(present.type) else pa.large_binary()
            present = present.cast(plain).drop_null()
            made = dataclasses.replace(made, texts=Texts.of(present, known.texts))
            if is_binary(present.type):
                made = dataclasses.replace(made, images=Images.of(present, known.images))
        elif (values := _numbers(present)) is not None:
            made = dataclasses.replace(made, numbers=Numbers.of(values, known.numbers))
        return made

    def merge(self, other: ColumnSummary) -> ColumnSummary:
        """Return the summary of both parts of a column."""
        return ColumnSummary(
            self.arrow,
            self.nulls + other.nulls,
            _merged(self.numbers, other.numbers),
            _merged(self.texts, other.texts),
            _merged(self.images, other.images),
            _merged(self.list_length, other.list_length),
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Summary:
    """Statistics of rows: `of` a batch, `merge` of two parts; the order of merging is free."""

    rows: int
    columns: Mapping[str, ColumnSummary]
    copies: DuplicateCount = DuplicateCount()

    @classmethod
    def of(cls, batch: pa.RecordBatch, known: Summary | None = None) -> Summary:
        """Summarize a batch; `known`, what it will be merged with, saves work."""
        known = known or cls(0, {})
        columns = {
            name: ColumnSummary.of(column, known.columns.get(name))
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        }
        hashes = _row_hashes(batch.columns, batch.num_rows)
        return cls(batch.num_rows, columns, DuplicateCount.of(hashes, bound=known.copies.bound))

    def merge(self, other: Summary) -> Summary:
        """Return the statistics of the rows of both."""
        if not self.columns:
            return other
        columns = {name: one.merge(other.columns[name]) for name, one in self.columns.items()}
        return Summary(self.rows + other.rows, columns, self.copies.merge(other.copies))

    def add(self, batch: pa.RecordBatch) -> Summary:
        """Return the statistics with a further batch."""
        return self.merge(Summary.of(batch, self))


def _merged(one: _T | None, other: _T | None) -> _T | None:
    if one is None or other is None:
        return one or other
    return one.merge(other)


def _row_hashes(columns: Sequence[pa.Array], rows: int) -> UInt64Array:
    """Return a hash of each row; all NaN are equal, and so are both zeros."""
    hashes = np.zeros(rows, np.uint64)
    for column in columns:
        hashes ^= _value_hashes(column)
        hashes *= _FACTOR
        hashes ^= hashes >> np.uint64(32)
    return mix(hashes.view(np.int64))


def _value_hashes(values: pa.Array) -> UInt64Array:
    """Return a number for each value, the same for equal values of one type."""
    values = bare_array(values.storage if isinstance(values, pa.ExtensionArray) else values)
    if isinstance(values, pa.MapArray):
        values = values.cast(pa.list_(pa.struct([values.type.key_field, values.type.item_field])))
    if isinstance(values, pa.StructArray):
        hashes = _row_hashes(values.flatten(), len(values))
    elif hasattr(values, "flatten"):
        sizes = pc.list_value_length(values).fill_null(0).to_numpy().astype(np.int64)
        ends, inside = np.cumsum(sizes), values.flatten()
        positions = np.arange(len(inside)) - np.repeat(ends - sizes, sizes)
        items = mix(_value_hashes(inside).view(np.int64) + mix(positions).view(np.int64))
        sums = np.append(np.zeros(1, np.uint64), np.cumsum(items))
        hashes = sums[ends] - sums[ends - sizes] + sizes.view(np.uint64)
    elif (plain := _plain(values)) is not None:
        numbers = plain.fill_null(0).to_numpy()
        if numbers.dtype.kind == "f":
            numbers = np.where(np.isnan(numbers), np.nan, numbers.astype(np.float64) + 0.0)
        hashes = (numbers.view(np.uint64) if numbers.dtype == "f8" else numbers).astype(np.uint64)
    else:
        values = values if is_binary(values.type) else values.cast(pa.large_string())
        hashes = _hashes(values.cast(pa.large_binary()).fill_null(b""))
    if (missing := missing_of(values)) is not None:
        hashes[missing] = _FACTOR
    return hashes


def _hashes(values: pa.Array) -> UInt64Array:
    """Return a hash of each value of a large_binary array without nulls."""
    out: Any = np.empty(native.frame_bound(values), np.uint8)
    starts = np.empty(len(values), np.int64)
    size = native.frame(values, out, 0, starts)
    return native.hash_records(out[:size], starts, 0)


def _tensor_values(column: pa.Array) -> npt.NDArray[Any]:
    if isinstance(column.type, pa.FixedShapeTensorType):
        return _numbers(column.storage.flatten())  # type: ignore[return-value]
    arrays = column_arrays(column)
    if arrays.dtype == object:
        # Without rows the numbers have the type of the column, too.
        arrays = np.concatenate([np.zeros(0, column.type.dtype), *map(np.ravel, arrays)])
    values = arrays.ravel()
    return values if values.dtype.kind in "fiu" else values.astype(np.float64)


def _numbers(values: pa.Array) -> npt.NDArray[Any] | None:
    """Return numbers, booleans and times as NumPy numbers; None for other types."""
    plain = values.cast(pa.float64()) if pa.types.is_decimal(values.type) else _plain(values)
    return None if plain is None else plain.drop_null().to_numpy(zero_copy_only=False)


def _plain(values: pa.Array) -> pa.Array | None:
    """Return numbers, booleans and times as an array of numbers; None for other types."""
    arrow = values.type
    if pa.types.is_boolean(arrow):
        return values.cast(pa.int8())
    if is_temporal(arrow):
        return values.cast(pa.int32() if arrow.bit_width == 32 else pa.int64())
    return values if pa.types.is_integer(arrow) or pa.types.is_floating(arrow) else None
