"""A dataset as a PyTorch ``IterableDataset``; importing this module imports PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from beam_tfrecord.dataset.values import dict_batches, list_columns, rows_to_mix

if TYPE_CHECKING:
    from beam_tfrecord.dataset.load import Dataset


class TorchDataset(IterableDataset):
    """Rows, or batches of them, as dicts of tensors; what is no number stays as it is."""

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int | None,
        defaults: Mapping[str, Any],
        shuffle: bool | int,
    ) -> None:
        super().__init__()
        # A column that cannot be a tensor is refused here, not in the batch where it shows.
        list_columns(dataset.schema, defaults)
        self._dataset = dataset
        self._batch_size = batch_size
        self._defaults = defaults
        self._shuffle = shuffle

    def __iter__(self) -> Iterator[dict[str, Any]]:
        info = get_worker_info()
        part = self._dataset if info is None else self._dataset.part(info.id, info.num_workers)
        # PyTorch's own generator has another state in every epoch and every worker.
        seed = int(torch.randint(2**62, ())) if self._shuffle else 0
        order = np.random.default_rng(seed) if self._shuffle else None
        mixed_rows = rows_to_mix(self._dataset, self._shuffle)
        for columns in dict_batches(
            part, self._batch_size, self._defaults, mixed_rows=mixed_rows, order=order
        ):
            yield {name: _tensor(value) for name, value in columns.items()}


def _tensor(value: Any) -> Any:
    is_number = getattr(value, "dtype", None) is not None and value.dtype.kind in "biuf"
    return torch.as_tensor(value) if is_number else value
