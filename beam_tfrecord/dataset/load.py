"""Opens a dataset or Parquet files with `load`, and converts the rows for ML frameworks.

The manifest decides which files are read, never their names. Importing this module imports neither
Beam nor TensorFlow nor PyTorch: the methods that need TensorFlow or PyTorch import them.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from beam_tfrecord.dataset.rows import OpenedManifest, RecordFiles, Rows
from beam_tfrecord.dataset.tf import tf_dataset
from beam_tfrecord.dataset.values import arrays_of, check_defaults, memory_mapped
from beam_tfrecord.errors import UsageError
from beam_tfrecord.extras import require
from beam_tfrecord.manifest import Manifest, directory_of, manifest_path, near_datasets
from beam_tfrecord.stage import is_stage
from beam_tfrecord.storage import absolute_path, exists

if TYPE_CHECKING:
    from beam_tfrecord.dataset.torch import TorchDataset

# Number of rows to decode at a time when writing columns to memory-mapped files.
_MEMMAP_BATCH_ROWS = 65_536


class Dataset(Rows):
    """The rows of a dataset, with conversions to NumPy, TensorFlow and PyTorch; made by `load`."""

    tf = tf_dataset

    def numpy(self, *, defaults: Mapping[str, Any] | None = None) -> dict[str, npt.NDArray[Any]]:
        """Return all rows as one array per column, shape `[rows, …]`.

        Numbers and booleans keep their type. Times become datetime64 or timedelta64, and missing
        times NaT. Fixed-size lists and tensors of numbers become arrays of their shape. All other
        values (text, bytes, decimals, lists of varying length, nested values) become object arrays,
        with None for a missing value. If the schema has a NumPy dtype for a column, the array has
        this dtype, provided that it can hold all values.

        Args:
            defaults: Replacements of missing values, by column. Other columns use the default in
                the schema.

        Raises:
            UsageError: Numbers or booleans are missing and have no default. NumPy has no value for
                a missing number, and NaN could not be distinguished from a NaN in the data.
            DataError: A shard is damaged, or the dataset was replaced.
        """
        return arrays_of(self.arrow(), self.schema, {} if defaults is None else defaults)

    def memmap(
        self, directory: str | os.PathLike[str], *, defaults: Mapping[str, Any] | None = None
    ) -> dict[str, npt.NDArray[Any]]:
        """Return all rows as read-only memory-mapped arrays, with the types of `numpy`.

        The first call writes the files of the arrays to `directory`. A later call writes them again
        if the dataset, the columns or the defaults differ, or if a file has another size or time.
        The values in the files are not checked, so damage of the storage device is not found.
        Remove the directory to have the files written again.

        Args:
            directory: Directory for the files, for this dataset alone.
            defaults: Replacements of missing values, by column. Other columns use the default in
                the schema.

        Raises:
            UsageError: Values of a column have no fixed width, or are missing without a default.
            DataError: The dataset was replaced, or another process writes other rows there.
        """
        defaults = {} if defaults is None else defaults
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

    def torch(
        self,
        batch_size: int | None = None,
        *,
        defaults: Mapping[str, Any] | None = None,
        shuffle: bool | int = False,
    ) -> TorchDataset:
        """Return a PyTorch ``IterableDataset`` of dicts by column.

        One worker of the ``DataLoader`` reads a shard, so use at most as many workers as there are
        shards. Numbers are writable tensors. Times are NumPy arrays, which the ``DataLoader``
        refuses unless it has a ``collate_fn``. Text, lists of varying length, and columns for whose
        missing values there is no tensor are Python lists in every batch.

        Args:
            batch_size: Number of rows per batch, in which case the ``DataLoader`` needs
                ``batch_size=None``; None means single rows.
            defaults: Replacements of missing values, by column.
            shuffle: True shuffles the order of shards, and rows in a buffer of about 64 MB. A
                number is the size of the buffer in rows. Every epoch has another order, which
                ``torch.manual_seed`` repeats. False keeps the order of the dataset.

        Raises:
            UsageError: A column of numbers may have missing values by its schema and has no
                default, or PyTorch is not installed.
        """
        require("torch", "load(...).torch()")
        from beam_tfrecord.dataset.torch import TorchDataset

        return TorchDataset(self, batch_size, {} if defaults is None else defaults, shuffle)


def load(
    path: str | os.PathLike[str],
    *,
    split: str | None = None,
    columns: Iterable[str] | None = None,
) -> Dataset:
    """Open a dataset; only its manifest is read, or the footers of Parquet files.

    Sizes and times of local shards are recorded, so that a change while they are read is detected.

    Args:
        path: Path of the dataset's directory, its manifest, or its file prefix; or of Parquet
            files, which have a single split named ``data``.
        split: Name of the split to read; None means all splits, in the order of the manifest.
        columns: Names of the columns to read, in this order; None means all columns.

    Returns:
        The dataset, whose methods read and convert its rows.

    Raises:
        UsageError: There is no dataset, or no such split or column.
        DataError: The manifest or a Parquet file is damaged.
    """
    opened = _open(path)
    splits = opened.manifest.splits
    if split is not None and split not in splits:
        known = ", ".join(splits) or "none"
        raise UsageError(f"split {split!r} does not exist: the splits are {known}")
    if isinstance(columns, str):
        raise UsageError(f"columns is one string, {columns!r}: pass a list of names")
    schema = opened.schema if columns is None else opened.schema.select(list(columns))
    names = tuple(splits) if split is None else (split,)
    return dataclasses.replace(opened, split_names=names, schema=schema)


def _open(path: str | os.PathLike[str]) -> Dataset:
    """Return all splits and columns of a dataset, or of Parquet files."""
    file = absolute_path(manifest_path(path))
    # Recorded before the manifest is read, to detect that it is replaced meanwhile.
    opened = OpenedManifest.of(file)
    staged = is_stage(path)
    if staged or not exists(file):
        # Imported here, since it would add a tenth to the time of opening TFRecord datasets.
        from beam_tfrecord.dataset.parquet import is_parquet, open_parquet

        if staged or (is_parquet(path) and not _holds_datasets(path)):
            manifest, rows = open_parquet(path, opened)
            directory = os.path.abspath(os.fspath(path))
            return Dataset(directory, manifest, tuple(manifest.splits), manifest.schema, rows)
    manifest = Manifest.load(path)
    directory = directory_of(file)
    files = RecordFiles(directory, manifest, opened)
    return Dataset(directory, manifest, tuple(manifest.splits), manifest.schema, files)


def _holds_datasets(path: str | os.PathLike[str]) -> bool:
    """Return whether a directory holds datasets: its Parquet files may then be their rejects."""
    text = os.fspath(path)
    return os.path.isdir(text) and not all(map(is_stage, near_datasets(text)))
