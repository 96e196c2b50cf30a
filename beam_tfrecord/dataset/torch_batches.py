"""What PyTorch tensors are made of: dicts of NumPy values, a batch or a row at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord.dataset.batches import rebatch
from beam_tfrecord.dataset.values import arrays_of, check_defaults
from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.schema import Schema

if TYPE_CHECKING:
    from beam_tfrecord.dataset.load import Dataset

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
