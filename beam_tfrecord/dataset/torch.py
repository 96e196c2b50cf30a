"""Wraps a dataset as a PyTorch ``IterableDataset``; importing this module imports PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch.utils.data import IterableDataset, get_worker_info

from beam_tfrecord.dataset.rows import Rows, mixed_rows
from beam_tfrecord.dataset.values import dict_batches, list_columns, rebatch


class TorchDataset(IterableDataset):
    """An iterable of rows or batches as dicts by column.

    Numbers are tensors, times are NumPy arrays, and other values are lists.
    In single rows, values that are not numbers stay Python values.

    See `beam_tfrecord.dataset.load.Dataset.torch` for the arguments.
    """

    def __init__(
        self,
        dataset: Rows,
        batch_size: int | None,
        defaults: Mapping[str, Any],
        shuffle: bool | int,
    ) -> None:
        super().__init__()
        # Raises at once if a column cannot be a tensor, not at the first batch that lacks a value.
        list_columns(dataset.schema, defaults)
        self._dataset = dataset
        self._batch_size = batch_size
        self._defaults = dict(defaults)
        self._shuffle = shuffle

    def __iter__(self) -> Iterator[dict[str, Any]]:
        info = get_worker_info()
        part = self._dataset if info is None else self._dataset.part(info.id, info.num_workers)
        batches = self._mixed(part) if self._shuffle else part.batches()
        schema = self._dataset.schema
        for columns in dict_batches(batches, schema, self._batch_size, self._defaults):
            yield {name: _tensor(value) for name, value in columns.items()}

    def _mixed(self, part: Rows) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `part`: its shards in random order, and rows shuffled in a buffer."""
        # Seeded by PyTorch's generator, whose state differs in every epoch and every worker.
        order = np.random.default_rng(int(torch.randint(2**62, ())))
        count = len(part.shards)
        shards = (part.part(int(index), count) for index in order.permutation(count))
        every = (batch for shard in shards for batch in shard.batches())
        for batch in rebatch(every, mixed_rows(self._dataset, self._shuffle)):
            yield batch.take(pa.array(order.permutation(batch.num_rows)))


def _tensor(value: Any) -> Any:
    is_number = getattr(value, "dtype", None) is not None and value.dtype.kind in "biuf"
    return torch.as_tensor(value) if is_number else value
