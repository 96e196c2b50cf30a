"""`load`: opens a written dataset, or Parquet files, and converts their rows.

Readers follow the manifest, never the names of files. Importing this module loads neither Beam nor
TensorFlow nor PyTorch: what needs them is imported on use.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from beam_tfrecord.dataset.rows import OpenedManifest, RecordFiles, Rows
from beam_tfrecord.dataset.values import arrays_of, check_defaults, memory_mapped
from beam_tfrecord.errors import UsageError
from beam_tfrecord.extras import require
from beam_tfrecord.manifest import Manifest, directory_of, manifest_path
from beam_tfrecord.stage import is_stage
from beam_tfrecord.storage import absolute_path, exists

if TYPE_CHECKING:
    import tensorflow as tf

    from beam_tfrecord.dataset.torch import TorchDataset

# Rows that are decoded at a time while columns are written to memory-mapped files.
_MEMMAP_BATCH_ROWS = 65_536


class Dataset(Rows):
    """Rows of a dataset, converted to NumPy, TensorFlow or PyTorch."""

    def numpy(self, *, defaults: Mapping[str, Any] | None = None) -> dict[str, npt.NDArray[Any]]:
        """Return all rows as one array per column, shape `[rows, …]`.

        Numbers and booleans keep their type; times become datetime64 or timedelta64, missing ones
        NaT; fixed-size lists and tensors of numbers get their shape; everything else (text,
        bytes, decimals, lists of varying length, nested values) is an object array, with None
        for a missing value.

        Args:
            defaults: Replacements of missing values, by column; columns that are not in it use
                their schema's default.

        Raises:
            UsageError: Numbers or booleans are missing and have no default: NumPy has no value for
                a missing one, and NaN would also stand for a NaN in the data.
        """
        return arrays_of(self.arrow(), self.schema, defaults or {})

    def memmap(
        self, directory: str | os.PathLike[str], *, defaults: Mapping[str, Any] | None = None
    ) -> dict[str, npt.NDArray[Any]]:
        """Return all rows as read-only memory-mapped arrays, with the types of `numpy`.

        The first call writes their files to `directory`. A later call writes them again if the
        dataset, the columns or the defaults differ, or a file has another size or time. The
        values are not hashed again: damage below the file system is not seen here. Remove the
        directory to have it written again.

        Raises:
            UsageError: Values of a column have no fixed width, or are missing without a default.
            DataError: The dataset was replaced, or another process writes other rows there.
        """
        defaults = defaults or {}
        check_defaults(self.schema, defaults)
        return memory_mapped(
            directory,
            self.batches(_MEMMAP_BATCH_ROWS),
            empty=self.files.arrow_schema(self.schema.names).empty_table(),
            schema=self.schema,
            defaults=defaults,
            identity={
                "rows": len(self),
                "content": self.content,
                "columns": list(self.schema.names),
                "defaults": {name: repr(value) for name, value in sorted(defaults.items())},
            },
        )

    def tf(self, batch_size: int | None = None, **options: Any) -> tf.data.Dataset:
        """Return a ``tf.data.Dataset`` of parsed examples.

        See `beam_tfrecord.dataset.tf.tf_dataset` for the options.
        """
        from beam_tfrecord.dataset.tf import tf_dataset

        return tf_dataset(self, batch_size, **options)

    def torch(
        self,
        batch_size: int | None = None,
        *,
        defaults: Mapping[str, Any] | None = None,
        shuffle: bool | int = False,
    ) -> TorchDataset:
        """Return a PyTorch ``IterableDataset``.

        Every shard is read by one worker of the ``DataLoader``, so use at most as many workers
        as there are shards. Numbers are tensors that may be written to; text, lists of varying
        length and columns without a tensor for a missing value are Python lists in every batch.

        Args:
            batch_size: Rows per batch (``batch_size=None`` for the ``DataLoader``); None for
                single rows.
            defaults: Replacements of missing values, by column.
            shuffle: True mixes the shards, and the rows within about 64 MB; a number mixes the
                rows within that many. Every epoch has another order, by PyTorch's generator, so
                ``torch.manual_seed`` repeats it. False: every epoch has the order of the dataset.

        Raises:
            UsageError: A column without a default may lack numbers by its schema, even if no batch
                does. Or PyTorch is not installed.
        """
        require("torch", "load(...).torch()")
        from beam_tfrecord.dataset.torch import TorchDataset

        return TorchDataset(self, batch_size, dict(defaults or {}), shuffle)


def load(
    path: str | os.PathLike[str],
    *,
    split: str | None = None,
    columns: Iterable[str] | None = None,
) -> Dataset:
    """Open a dataset; only its manifest is read, or the footers of staged Parquet files.

    Sizes and times of local shards are recorded, so that a change while they are read is detected.

    Args:
        path: Its directory, its file prefix, or its manifest; or Parquet files, which have the one
            split ``data``.
        split: The split to read; None for all of them, in the manifest's order.
        columns: The columns to read, in this order; None for all.

    Raises:
        UsageError: There is no dataset, or no such split or column.
        DataError: The manifest is damaged.
    """
    opened = _open(path)
    splits = opened.manifest.splits
    if split is not None and split not in splits:
        known = ", ".join(splits) or "none"
        raise UsageError(f"split {split!r} does not exist: the splits are {known}")
    if isinstance(columns, str):
        raise UsageError(f"columns is the text {columns!r}: give a list of names")
    schema = opened.schema if columns is None else opened.schema.select(list(columns))
    names = tuple(splits) if split is None else (split,)
    return dataclasses.replace(opened, split_names=names, schema=schema)


def _open(path: str | os.PathLike[str]) -> Dataset:
    """Return all splits and columns of a dataset, or of Parquet files."""
    file = absolute_path(manifest_path(path))
    # Recorded first, so that a manifest that is replaced meanwhile is noticed.
    opened = OpenedManifest.of(file)
    staged = is_stage(path)
    if staged or not exists(file):
        # Loading the modules that read Parquet takes a tenth of the start-up of records.
        from beam_tfrecord.dataset.parquet import is_parquet, open_parquet

        if staged or is_parquet(path):
            manifest, rows = open_parquet(path, opened)
            directory = os.path.abspath(os.fspath(path))
            return Dataset(directory, manifest, tuple(manifest.splits), manifest.schema, rows)
    manifest = Manifest.load(path)
    directory = directory_of(file)
    files = RecordFiles(directory, manifest, opened)
    return Dataset(directory, manifest, tuple(manifest.splits), manifest.schema, files)
