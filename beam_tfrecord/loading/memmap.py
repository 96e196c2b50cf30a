"""Columns as memory-mapped arrays: written once, then opened at no cost."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from beam_tfrecord.errors import UsageError
from beam_tfrecord.loading.values import arrays_of, check_defaults

if TYPE_CHECKING:
    from beam_tfrecord.loading.dataset import Dataset

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
    """
    path = os.fspath(directory)
    check_defaults(dataset.schema, defaults)
    wanted = {
        "rows": len(dataset),
        "content": _content_of(dataset),
        "columns": list(dataset.schema.names),
        "defaults": {name: repr(value) for name, value in sorted(defaults.items())},
    }
    if _read_mark(path) != wanted:
        os.makedirs(path, exist_ok=True)
        _write_columns(dataset, path, defaults)
        with open(os.path.join(path, _MARK), "w", encoding="utf-8") as file:
            json.dump(wanted, file)
    return {
        name: np.load(_file(path, number), mmap_mode="r")
        for number, name in enumerate(dataset.schema.names)
    }


def _content_of(dataset: Dataset) -> str:
    """Return what changes when the rows do."""
    shards = [(shard.path, shard.examples, shard.bytes, shard.xxh64) for shard in dataset.shards]
    return hashlib.sha256(repr((dataset.manifest.content, shards)).encode()).hexdigest()


def _read_mark(path: str) -> Any:
    try:
        with open(os.path.join(path, _MARK), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def _file(path: str, number: int) -> str:
    return os.path.join(path, f"{number}.npy")


def _write_columns(dataset: Dataset, path: str, defaults: Mapping[str, Any]) -> None:
    rows, at = len(dataset), 0
    files: dict[str, npt.NDArray[Any]] = {}
    if os.path.exists(mark := os.path.join(path, _MARK)):
        os.remove(mark)
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
