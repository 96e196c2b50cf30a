"""A dataset as a PyTorch ``IterableDataset``; importing this module imports PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from beam_tfrecord.loading.torch_batches import dict_batches

if TYPE_CHECKING:
    from beam_tfrecord.loading.dataset import Dataset


class TorchDataset(IterableDataset):
    """Rows, or batches of them, as dicts of tensors; what is no number stays as it is."""

    def __init__(
        self, dataset: Dataset, batch_size: int | None, defaults: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self._dataset = dataset
        self._batch_size = batch_size
        self._defaults = defaults

    def __iter__(self) -> Iterator[dict[str, Any]]:
        info = get_worker_info()
        part = self._dataset if info is None else self._dataset.of_shards(info.id, info.num_workers)
        for columns in dict_batches(part, self._batch_size, self._defaults):
            yield {name: _tensor(value) for name, value in columns.items()}


def _tensor(value: Any) -> Any:
    is_number = getattr(value, "dtype", None) is not None and value.dtype.kind in "biuf"
    return torch.as_tensor(value) if is_number else value
