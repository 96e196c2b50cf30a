"""What PyTorch tensors are made of: dicts of NumPy values, a batch or a row at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from beam_tfrecord.loading.values import arrays_of

if TYPE_CHECKING:
    from beam_tfrecord.loading.dataset import Dataset


def dict_batches(
    dataset: Dataset, batch_size: int | None, defaults: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield batches as dicts of arrays and, of objects, lists; or rows where there is no size."""
    for batch in dataset.batches(batch_size):
        arrays = arrays_of(batch, dataset.schema, defaults)
        # Arrow's memory is read-only, which tensors over it would not know.
        columns = {
            name: list(values) if values.dtype == object else values.copy()
            for name, values in arrays.items()
        }
        if batch_size is not None:
            yield columns
            continue
        for values in zip(*columns.values(), strict=True):
            yield dict(zip(columns, values, strict=True))
